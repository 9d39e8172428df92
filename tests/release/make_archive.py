"""Writes the archive of the present format version: `python -m tests.release.make_archive 3`, the same bytes each time.
Once a version is released its archive is never written again."""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

from offloader.metadata import requests
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import PulsarTrimmed, TopicGone
from offloader.metadata.layout import data_key, slot_key
from offloader.metadata.requests import Request, RequestKind
from offloader.metadata.root import open_root
from offloader.model import GapKind, Position, TopicName
from offloader.offload.core.segments import uploading
from offloader.offload.driver.committing import append_record
from offloader.offload.driver.work import WorkKind
from offloader.operations.rebuild.remains import Given
from offloader.operations.rebuild.write import rebuild
from offloader.ports.object_store import ObjectStore
from tests.archive.support import message
from tests.bridge.driver.simulation import BUCKET
from tests.in_turn import InTurn
from tests.offload.simulation import Simulation
from tests.offload.stock_offloader import closed_ledgers, offload
from tests.release.beside import Beside
from tests.release.golden import (
    AGAIN,
    ARCHIVES,
    BRIDGED,
    CLUSTER,
    COPIED,
    FIRST,
    GOING,
    GONE,
    HISTORY,
    LEFT,
    LONG,
    LOST,
    MOVED,
    MOVING,
    OPEN,
    PASSED,
    REBUILT,
    SETTINGS,
    STOCK,
    TOPICS,
    Archived,
    cluster_fields,
    entry_of,
    in_folder,
)

Produce = Callable[[TopicName, int], None]
SEGMENTS = 66  # of the long topic: with its claim more than a leaf of its manifests


def made(folder: Path) -> dict[str, object]:
    """Write the archive; what was in Pulsar."""
    store = in_folder(folder / "root", "file:///archive")  # as segments' records say it
    sim = Archived(1, store=store, bucket=in_folder(folder / "brokers", BUCKET), **SETTINGS)
    open_root(store, CLUSTER, sim.uuid)
    rng, number = random.Random(3), 0

    def produce(topic: TopicName, count: int) -> None:
        nonlocal number
        for _ in range(count):
            number += 1
            sim.cluster.produce(topic, entry_of(rng, number, is_message=topic != LOST))

    for topic in (*TOPICS, *PASSED):
        sim.cluster.create(topic)
        produce(topic, 5)
    sim.settle()
    for round_ in range(SEGMENTS):
        produce(LONG, 2)
        if round_ % 20 == 0:
            sim.cluster.add_hidden(LONG, GapKind.MARKER, message("marker"))
            for topic in (GONE, GOING, LOST, AGAIN, LEFT, BRIDGED):
                produce(topic, 9)
        if round_ == 50:
            sim.cluster.add_hidden(BRIDGED, GapKind.MARKER)
            produce(BRIDGED, 30)
        sim.settle()
    _lose(sim, produce)
    sim.cluster.delete(AGAIN)
    sim.until_believed()
    sim.cluster.create(AGAIN)
    produce(AGAIN, 9)
    sim.settle()
    _ask(sim, RequestKind.ARCHIVE_DELETE, GONE)
    sim.rounds(20, 10_000)
    produce(GONE, 5)  # what was deleted is in the heads of what follows
    sim.settle()
    _leave(sim)
    _rebuild(sim)
    _bridge(sim, produce)
    _take_over(sim, produce, in_folder(folder / "stock", STOCK))
    Beside(sim, LONG).write()
    second = _pass_on(sim, produce)
    produce(OPEN, 5)
    _begin(sim, produce)
    _ask(sim, RequestKind.ARCHIVE_DELETE, GOING)
    _seal_half_way(sim, produce)
    _fall_behind(sim)
    _cut_off(sim, produce)
    _close_later(sim)
    _begin_in_vain(sim)
    now = sim.clock.now
    said = {"now": now, "cluster": cluster_fields(sim.cluster)}
    said["open"] = [_parts(sim, OPEN), _parts(second, MOVED)]
    contexts = sim.records.contexts.items()
    said["contexts"] = {str(topic): dict(found) for topic, found in contexts}
    sim.close()
    second.close()
    return said


def _parts(sim: Simulation, topic: TopicName) -> dict[str, object]:
    """Of its open segment."""
    found = sim.driver.state(topic).open
    assert found is not None
    assert found.parts, "parts are uploaded"
    return {"topic": str(topic), "uuid": found.uuid, "parts": len(found.parts)}


def _lose(sim: Simulation, produce: Produce) -> None:
    """Somebody moves the pin, and Pulsar trims what was not offloaded yet."""
    produce(LOST, 40)
    sim.cluster.skip_all(LOST)
    sim.until_believed()
    produce(LOST, 5)
    sim.settle()


def _ask(sim: Simulation, kind: RequestKind, topic: TopicName, position: Position | None = None) -> None:
    sim.serve_requests()
    asked = Request(kind, topic, sim.clock.now, "operator", position)
    requests.submit(sim.store, sim.application, asked, sim.uuid)
    sim.rounds(4, 100)


def _leave(sim: Simulation) -> None:
    """Its deletion is taken back, Pulsar trims it, and then it is gone there."""
    _ask(sim, RequestKind.ARCHIVE_DELETE, LEFT)
    _ask(sim, RequestKind.ARCHIVE_UNDELETE, LEFT)
    catalogs, first = Catalogs(sim.store, sim.application), sim.cluster.ledgers(LEFT).spans[0].ledger
    sim.cluster.delete(LEFT)
    sim.until_believed()
    for record in (PulsarTrimmed(0, first, sim.clock.now), TopicGone(0, sim.clock.now)):
        append_record(catalogs, catalogs.head(LEFT), record)


def _rebuild(sim: Simulation) -> None:
    """A record is lost, and a second generation is made of what lies beside the segments."""
    sim.store.delete([slot_key(REBUILT, 0, 1)])
    rebuild(sim.store, REBUILT, Given(sim.application, sim.clock.now), sim.uuid)
    sim.kill()  # its journal has gone on without it


def _bridge(sim: Archived, produce: Produce) -> None:
    """A ledger that cannot be bridged was let go. A round is proven; of another one the objects are built: nobody could
    be made to read them yet."""
    sim.rounds(4, 30_000)
    blocked = sim.state(BRIDGED)
    assert blocked is not None
    assert blocked.blocked is not None
    _ask(sim, RequestKind.BRIDGE_LET_GO, BRIDGED, Position(0, blocked.blocked.ledger, blocked.blocked.last))
    sim.until_bridged()
    sim.records.stuck_behind = sim.bridged(BRIDGED)[-1]
    produce(BRIDGED, 30)
    sim.settle()
    sim.rounds(4, 30_000)


def _take_over(sim: Archived, produce: Produce, stock: ObjectStore) -> None:
    """A topic is taken in whose ledgers brokers have offloaded; each becomes a copy of the brokers' object."""
    sim.stock = stock
    sim.kill()
    sim.cluster.create(COPIED)
    sim.cluster.add_subscription(COPIED, "mine")
    produce(COPIED, 40)
    for ledger in closed_ledgers(sim.cluster, COPIED)[:2]:
        offload(sim.cluster, stock, COPIED, ledger)
    sim.rounds(3)
    _ask(sim, RequestKind.MIGRATE_COPY, COPIED)
    sim.rounds(6)
    sim.settle()


class Never(InTurn):
    """The process ends before it does anything."""

    def submit(self, call: object, /, *args: object, **named: object) -> object:  # type: ignore[override]
        return self

    def add_done_callback(self, _: object) -> None:
        """Nothing is ever done."""


def _pass_on(sim: Archived, produce: Produce) -> Simulation:
    """The second shard starts. One topic's claim is written, the other one's is not yet."""
    sim.deal = FIRST
    sim.kill()
    sim.executors[WorkKind.CLAIM] = Never()
    sim.rounds(20, 2_000)
    catalogs = Catalogs(sim.store, sim.application)
    catalogs.pass_on(catalogs.head(MOVED), sim.driver.state(MOVED).passed_to, sim.clock.now)
    catalogs.unmark(MOVED)
    sim.context.pins.drop(MOVED)
    second = sim.second(7)
    _begin(second, produce, MOVED)
    assert sim.driver.state(MOVING).passed_to == second.application
    return second


def _begin(sim: Simulation, produce: Produce, topic: TopicName = OPEN) -> None:
    """Parts of a segment that stays open."""
    for _ in range(200):
        produce(topic, 10)
        sim.rounds(1, 200)
        found = sim.driver.state(topic).open
        if found is not None and len(found.parts) >= 2:
            return


def _close_later(sim: Simulation) -> None:
    """Asked, and not seen by anybody yet."""
    last = sim.cluster.entries(OPEN)[-1]
    asked = Request(RequestKind.CLOSE, OPEN, sim.clock.now, "operator", Position(0, last.ledger, last.entry))
    requests.submit(sim.store, sim.application, asked, sim.uuid)


def _seal_half_way(sim: Simulation, produce: Produce) -> None:
    """A segment's upload is complete, as the journal says, and nothing of it is in the catalog."""
    sim.executors[WorkKind.SEAL] = Never()
    produce(REBUILT, 5)
    last = sim.cluster.entries(REBUILT)[-1]
    asked = Request(RequestKind.CLOSE, REBUILT, sim.clock.now, "operator", Position(0, last.ledger, last.entry))
    requests.submit(sim.store, sim.application, asked, sim.uuid)
    sim.rounds(4, 200)


def _begin_in_vain(sim: Simulation) -> None:
    """An upload was begun twice, as the journal says: nobody waits for the second one, and it is to be aborted."""
    state = sim.driver.state(OPEN)
    assert state.open is not None
    upload = sim.store.begin(data_key(OPEN, state.open.uuid))
    sim.journal.record([uploading(state, state.open.uuid, upload)])


def _fall_behind(sim: Simulation) -> None:
    """So much is written at once that it takes several segments, which are read at the same time."""
    for number in range(60):
        sim.cluster.produce(HISTORY, message(f"order {number} " * 400))
    while not sim.driver.state(HISTORY).ahead:
        sim.rounds(1, 200)


def _cut_off(sim: Simulation, produce: Produce) -> None:
    """A segment that is to be closed, as was asked and seen, and whose last slice has failed."""
    produce(AGAIN, 5)
    sim.clock.now += 1_000
    sim.round()
    last = sim.cluster.entries(AGAIN)[-1]
    asked = Request(RequestKind.CLOSE, AGAIN, sim.clock.now, "operator", Position(1, last.ledger, last.entry))
    requests.submit(sim.store, sim.application, asked, sim.uuid)
    sim.round()
    sim.batch(deaths=1.0)


def main() -> None:
    """The command line of this module."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is the same each time
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": "0"})
    target = ARCHIVES / f"{sys.argv[1]}.tar.xz"
    with tempfile.TemporaryDirectory() as folder:
        numbers = itertools.count(1)
        with (
            patch("offloader.storage.local.uuid4", lambda: UUID(int=next(numbers))),
            patch("offloader.storage.local.time.time_ns", lambda: 1_700_000_000_000_000_000),
        ):
            said = made(Path(folder))
        (Path(folder) / "cluster.json").write_text(json.dumps(said, sort_keys=True))
        target.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(target, "w:xz", preset=9) as archive:
            for path in sorted(Path(folder).rglob("*")):
                info = archive.gettarinfo(path, str(path.relative_to(folder)))
                info.mtime, info.uid, info.gid, info.uname, info.gname = 0, 0, 0, "", ""
                info.mode = 0o755 if info.isdir() else 0o644
                if info.isfile():
                    with path.open("rb") as file:
                        archive.addfile(info, file)
                else:
                    archive.addfile(info)
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
