"""The cluster that the other tests stand on: what it keeps, what may be done to its bookies, that nothing of it
stays."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from integration.bookkeeper.bookie import Bookie
from integration.bookkeeper.cluster import BookKeeperCluster
from integration.bookkeeper.contents import Contents
from integration.bookkeeper.official import OfficialError, Shape
from integration.processes import HANGS, LOOPBACK, group_is_alive, listeners, wait_until_gone

pytestmark = pytest.mark.pulsar

_NEARLY_EXPIRED = 5.9  # seconds: sessions last 6, and end at the next full one
_LONGER_THAN_TO_EXPIRE = 2.0

WIDE = Shape(ensemble=4, write_quorum=3, ack_quorum=2)


def check(cluster: BookKeeperCluster, ledger: int, shape: Shape, contents: Contents, count: int) -> None:
    """The official client reads what was written."""
    read = cluster.official.read(ledger, 0, count - 1, shape)
    assert [e.payload for e in read] == [contents.of(entry) for entry in range(count)]
    assert [e.entry for e in read] == list(range(count))
    assert read[-1].length == sum(len(e.payload) for e in read)


@pytest.mark.parametrize("wire", [2, 3])
@pytest.mark.parametrize("digest", ["MAC", "CRC32", "CRC32C", "DUMMY"])
def test_every_digest_is_written_and_read(cluster: BookKeeperCluster, digest: str, wire: int) -> None:
    shape = Shape(3, 2, 2, digest=digest, password="secret", format=2 if wire == 2 else 3, wire=wire)
    contents = Contents(seed=wire)
    ledger = cluster.official.write(shape, 50, contents, custom={"application": "tests"})
    check(cluster, ledger, shape, contents, 50)
    metadata = cluster.official.metadata(ledger)
    assert (metadata["state"], metadata["last"], metadata["format"]) == ("CLOSED", 49, shape.format)
    assert metadata["length"] == sum(len(contents.of(entry)) for entry in range(50))


def test_entries_are_striped_over_the_ensemble(cluster: BookKeeperCluster) -> None:
    contents = Contents(seed=5)
    ledger = cluster.official.write(WIDE, 8, contents)
    (first, ensemble), *more = cluster.official.metadata(ledger)["fragments"]
    assert (first, more) == (0, [])
    for entry in range(8):
        answers = [cluster.official.ask(ensemble[(entry + i) % 4], ledger, entry, entry)[0] for i in range(4)]
        assert answers[3] == "BKNoSuchEntryException"
        assert all(isinstance(stored, bytes) and stored.endswith(contents.of(entry)) for stored in answers[:3])


def test_an_id_of_its_own_choice(cluster: BookKeeperCluster) -> None:
    ledger = (1 << 31) + 12345
    assert cluster.official.write(Shape(), 3, Contents(1), ledger=ledger) == ledger
    check(cluster, ledger, Shape(), Contents(1), 3)


def test_a_killed_bookie_is_replaced_in_the_ensemble(cluster: BookKeeperCluster) -> None:
    writer = cluster.client()
    contents = Contents(seed=6)
    ledger = writer.create(Shape())
    writer.add(ledger, 20, contents).result(HANGS)
    (_, ensemble), *_ = cluster.official.metadata(ledger)["fragments"]
    cluster.bookie(ensemble[1]).kill()
    writer.add(ledger, 20, contents).result(HANGS)
    closed = writer.close_ledger(ledger)
    assert (closed["last"], len(closed["fragments"])) == (39, 2)
    check(cluster, ledger, Shape(), contents, 40)


def test_a_killed_writer_leaves_its_ledger_open_with_all_that_was_acknowledged(cluster: BookKeeperCluster) -> None:
    writer = cluster.client()
    contents = Contents(seed=7)
    ledger = writer.create(WIDE)
    adding = writer.add(ledger, 1_000_000, contents)
    writer.await_acknowledged([ledger], 200)
    writer.kill()
    with pytest.raises(OfficialError, match="Gone"):
        adding.result(HANGS)
    assert cluster.official.metadata(ledger)["state"] == "OPEN"
    closed = cluster.official.recover(ledger, WIDE).result(HANGS)
    assert closed["state"] == "CLOSED"
    assert closed["last"] >= writer.acknowledged[ledger] >= 200
    check(cluster, ledger, WIDE, contents, closed["last"] + 1)


def test_a_paused_bookie_answers_again_when_it_goes_on(cluster: BookKeeperCluster) -> None:
    contents = Contents(seed=8)
    ledger = cluster.official.write(Shape(), 10, contents)
    bookie = cluster.bookies[0]
    bookie.pause()
    check(cluster, ledger, Shape(), contents, 10)
    bookie.resume()
    assert isinstance(cluster.official.ask(bookie.id, ledger, 0, 0)[0], bytes | str)


def test_a_bookie_that_stood_still_is_back_only_once_its_registration_stays(cluster: BookKeeperCluster) -> None:
    """Its session is about to expire when it goes on: then it registers again, after its node has vanished."""
    bookie = cluster.bookies[0]
    path = f"/ledgers/available/{bookie.id}"
    session = cluster.zookeeper.exists(path).ephemeralOwner
    bookie.pause()
    while cluster.zookeeper.exists(path) and cluster.silence_of(session) < _NEARLY_EXPIRED:
        time.sleep(0.01)
    vanished = threading.Event()
    cluster.all_back()
    session = cluster.zookeeper.exists(path, watch=lambda _: vanished.set()).ephemeralOwner
    assert not vanished.wait(_LONGER_THAN_TO_EXPIRE), "it was not back for good"
    assert cluster.zookeeper.exists(path).ephemeralOwner == session


def test_bookies_keep_what_they_have_through_stop_and_kill(cluster: BookKeeperCluster) -> None:
    ledger = cluster.official.write(Shape(5, 5, 5), 5, Contents(seed=9))
    before = cluster.official.ask(cluster.bookies[0].id, ledger, 0, 4)
    assert all(isinstance(stored, bytes) for stored in before)
    for end in (Bookie.kill, Bookie.stop):
        for bookie in cluster.bookies:
            end(bookie)
        cluster.all_back()
        assert all(cluster.official.ask(bookie.id, ledger, 0, 4) == before for bookie in cluster.bookies)


def test_a_bookie_that_lost_its_disk_denies_what_it_acknowledged(cluster: BookKeeperCluster) -> None:
    ledger = cluster.official.write(Shape(5, 5, 5), 5, Contents(seed=10))
    bookie = cluster.bookies[3]
    cookie = cluster.zookeeper.get(f"/ledgers/cookies/{bookie.id}")[0]
    bookie.kill()
    bookie.lose_disk()
    bookie.start()
    assert cluster.official.ask(bookie.id, ledger, 0, 4) == ["BKNoSuchLedgerExistsException"] * 5
    assert cluster.zookeeper.get(f"/ledgers/cookies/{bookie.id}")[0] == cookie


def test_everything_is_on_loopback(cluster: BookKeeperCluster) -> None:
    for bookie in cluster.bookies:
        addresses = listeners(bookie.pid)
        assert set(addresses) == {bookie.port}
        assert set(addresses.values()) <= LOOPBACK


def test_nothing_outlives_the_process_that_started_it(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from integration.bookkeeper.cluster import BookKeeperCluster\n"
        "with BookKeeperCluster(pathlib.Path(sys.argv[1]), bookies=1) as cluster:\n"
        "    print(*cluster.pids, flush=True); cluster.bookies[0].pause(); cluster.official.pause(); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        groups = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(groups) == 3
        assert all(group_is_alive(group) for group in groups)
        parent.send_signal(signal.SIGKILL)
    assert all(wait_until_gone(group, HANGS) for group in groups)
