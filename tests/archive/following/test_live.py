"""`follow=True`: an archived topic that goes on in Pulsar, as Python reads it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from offloader.archive.archive import Archive
from offloader.archive.following.follower import Following
from offloader.archive.following.live import FollowLimits, Live
from offloader.archive.ledgers.bucket import LedgerBucket
from offloader.archive.opened import CatalogCache, OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.archive.records import LazyTopicRecords
from offloader.archive.selection import Selection
from offloader.archive.topic import ArchivedTopic
from offloader.errors import ConfigError
from offloader.model import GapKind, Position
from offloader.storage.local import LocalStore
from offloader.storage.settings import StoreSettings
from tests.archive.bridges import fresh_bucket, opened
from tests.archive.following.test_follow import TOPIC, Seconds, delivered, started
from tests.archive.ledgers.support import put_ledger
from tests.archive.messages.encoder import Producer, Sent, batch, chunked
from tests.archive.support import Archive as Built
from tests.offload.simulation import Simulation

START = 1_700_000_000_000


@pytest.fixture
def sim() -> Iterator[Simulation]:
    sim = started(7, roll="1s", entries_per_ledger=3)
    yield sim
    sim.close()


def topic(sim: Simulation, idle: float = 0.2) -> ArchivedTopic:
    seconds = Seconds()
    live = Live(
        lambda: nullcontext((sim.cluster.source, sim.cluster.admin)), FollowLimits(idle=idle), seconds, seconds.pause
    )
    catalogs = sim.context.catalogs
    return ArchivedTopic(
        Stores.of(sim.store),
        LazyTopicRecords(catalogs.history(TOPIC)),
        following=Following(live, *[CatalogCache(sim.store).records] * 2),
    )


def produce(sim: Simulation, *seconds: int) -> None:
    for second in seconds:
        sim.cluster.produce(TOPIC, batch(Producer(publish_time=START + 1000 * second), [Sent(b"m%d" % second)]).data)


def test_archive_and_live_topic_are_one(sim: Simulation) -> None:
    produce(sim, *range(7))
    sim.settle()
    sim.cluster.add_hidden(TOPIC, GapKind.ABORTED)
    produce(sim, 7, 8)
    found = topic(sim)
    assert [(e.position.ledger, e.position.entry, e.data) for e in found.entries(follow=True)] == delivered(sim)
    assert [m.value for m in found.messages(Selection(published_from=START + 6000), follow=True)] == [
        b"m6",
        b"m7",
        b"m8",
    ]
    last = Position(0, *delivered(sim)[-2][:2])
    assert [m.value for m in found.messages(Selection(last), follow=True)] == [b"m7", b"m8"]
    assert len(list(found.entries())) == 7


def test_batches_follow_too(sim: Simulation) -> None:
    produce(sim, *range(7))
    sim.settle()
    produce(sim, 7, 8)
    found = topic(sim)
    values = [batch.column(0).to_pylist() for batch in found.record_batches(["value"], follow=True)]
    assert [value for batch in values for value in batch] == [b"m%d" % n for n in range(9)]
    late = Selection(published_from=START + 6000)
    rows = [row for batch in found.record_batches(["value"], late, follow=True) for row in batch.column(0).to_pylist()]
    assert rows == [b"m6", b"m7", b"m8"]
    data = [entry for batch in found.entry_batches(["data"], follow=True) for entry in batch.column(0).to_pylist()]
    assert data == [entry for _, _, entry in delivered(sim)]


def test_a_batch_does_not_wait_for_more(sim: Simulation) -> None:
    produce(sim, 0, 1)
    sim.settle()
    reading = topic(sim, idle=1e9).record_batches(["value"], follow=True)
    assert next(reading).column(0).to_pylist() == [b"m0", b"m1"]
    produce(sim, 2)
    assert next(reading).column(0).to_pylist() == [b"m2"]


def test_history_comes_many_entries_at_a_time(sim: Simulation) -> None:
    for ledger in range(2):
        produce(sim, *range(3 * ledger, 3 * ledger + 3))
    sim.settle()
    produce(sim, 6, 7)
    runs = list(topic(sim).runs(follow=True))
    assert [run.count for run in runs] == [3, 3, 2], "a ledger of an object, then what the broker had"
    end = Position(0, *delivered(sim)[4][:2])
    assert [run.count for run in topic(sim).runs(Selection(end=end), follow=True)] == [3, 2]
    start = Position(0, *delivered(sim)[1][:2])
    assert [run.count for run in topic(sim).runs(Selection(start), follow=True)] == [2, 3, 2]


def test_it_comes_back_to_the_archive_while_it_goes_on(sim: Simulation) -> None:
    produce(sim, 0)
    sim.settle()
    reading = topic(sim, idle=1e9).messages(follow=True)
    assert next(reading).value == b"m0"
    produce(sim, *range(1, 8))
    sim.settle()
    assert [next(reading).value for _ in range(7)] == [b"m%d" % n for n in range(1, 8)]


def test_a_message_whose_chunks_are_on_both_sides(sim: Simulation) -> None:
    first, last = chunked(Producer(), Sent(b"<chunked>"), 2, "u")
    sim.cluster.produce(TOPIC, first.data)
    sim.settle()
    ledger, entry = sim.cluster.produce(TOPIC, last.data)
    assert [m.value for m in topic(sim).messages(follow=True)] == [b"<chunked>"]
    assert [m.value for m in topic(sim).messages(Selection(Position(0, ledger, entry)), follow=True)] == [b"<chunked>"]


def test_an_archive_that_knows_no_pulsar_cannot_follow(tmp_path: Path) -> None:
    Built(LocalStore(tmp_path)).claim()
    with pytest.raises(ConfigError, match=r"^follow: nothing says how Pulsar is reached"):
        next(Archive(tmp_path.as_uri()).topic("orders").entries(follow=True))


def test_what_stock_brokers_have_offloaded_comes_first(sim: Simulation) -> None:
    produce(sim, *range(7))
    sim.settle()
    produce(sim, 7, 8)
    first = min(ledger for ledger, _, _ in delivered(sim)) - 1
    url = fresh_bucket()
    put_ledger(opened(url), first, [b"a", b"b"], topic=TOPIC)
    bucket = LedgerBucket(StoreSettings(url))
    seconds = Seconds()
    live = Live(
        lambda: nullcontext((sim.cluster.source, sim.cluster.admin)), FollowLimits(idle=0.2), seconds, seconds.pause
    )
    stores = Stores(StoreSettings("memory://unused"), (bucket.store,), borrowed=sim.store)
    found = Archive(OpenArchive(stores, bucket), pulsar=live).topic(TOPIC)
    together = [(first, 0, b"a"), (first, 1, b"b"), *delivered(sim)]
    assert [(e.position.ledger, e.position.entry, e.data) for e in found.entries(follow=True)] == together
    later = [
        (e.position.ledger, e.position.entry) for e in found.entries(Selection(Position(0, first, 1)), follow=True)
    ]
    assert later == [(ledger, entry) for ledger, entry, _ in together[1:]]
