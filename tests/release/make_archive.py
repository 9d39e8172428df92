"""Writes the archive of the present format version: `python -m tests.release.make_archive 3`. Once a version is
released its archive is never written again."""

from __future__ import annotations

import json
import random
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from offloader.cursors.copies import CopiedCursor, CursorCopy
from offloader.cursors.copy_store import write_copy
from offloader.cursors.core.records import FirstState
from offloader.cursors.durable import DurableCursor
from offloader.metadata import requests
from offloader.metadata.layout import subscription_folder
from offloader.metadata.requests import Request, RequestKind
from offloader.metadata.root import open_root
from offloader.model import GapKind, Position, TopicName
from offloader.offload.driver.request_handler import RequestHandler
from offloader.ports.object_store import ObjectStore
from offloader.storage.local import LocalStore
from tests.archive.support import message
from tests.offload.simulation import Simulation
from tests.release.golden import (
    AGAIN,
    ARCHIVES,
    CLUSTER,
    GOING,
    GONE,
    LONG,
    LOST,
    OPEN,
    SETTINGS,
    TOPICS,
    TimelessStore,
    cluster_fields,
    entry_of,
)

Produce = Callable[[TopicName, int], None]
SEGMENTS = 66  # of the long topic: with its claim more than a leaf of its manifests


def made(root: Path) -> dict[str, object]:
    """Write the archive; what was in Pulsar."""
    store = TimelessStore(LocalStore(root))
    store.url = "file:///archive"  # as segments' records say it
    sim = Simulation(1, store=store, **SETTINGS)
    open_root(store, CLUSTER, sim.uuid)
    rng, number = random.Random(3), 0

    def produce(topic: TopicName, count: int) -> None:
        nonlocal number
        for _ in range(count):
            number += 1
            sim.cluster.produce(topic, entry_of(rng, number, is_message=topic != LOST))

    for topic in TOPICS:
        sim.cluster.create(topic)
        produce(topic, 5)
    sim.settle()
    for round_ in range(SEGMENTS):
        produce(LONG, 2)
        if round_ % 20 == 0:
            sim.cluster.add_hidden(LONG, GapKind.MARKER, message("marker"))
            for topic in (GONE, GOING, LOST, AGAIN):
                produce(topic, 9)
        sim.settle()
    _lose(sim, produce)
    sim.cluster.delete(AGAIN)
    sim.until_believed()
    sim.cluster.create(AGAIN)
    produce(AGAIN, 9)
    sim.settle()
    _delete(sim, GONE)
    sim.rounds(20, 10_000)
    _subscriptions(store, sim)
    produce(OPEN, 5)
    _begin(sim, produce)
    _delete(sim, GOING)
    _close_later(sim)
    now = sim.clock.now
    state = sim.driver.state(OPEN)
    assert state.open is not None
    assert state.open.parts, "parts are uploaded"
    sim.close()
    return {
        "now": now,
        "open": {"topic": str(OPEN), "uuid": state.open.uuid, "parts": len(state.open.parts)},
        "cluster": cluster_fields(sim.cluster),
    }


def _lose(sim: Simulation, produce: Produce) -> None:
    """Somebody moves the pin, and Pulsar trims what was not offloaded yet."""
    produce(LOST, 40)
    sim.cluster.skip_all(LOST)
    sim.until_believed()
    produce(LOST, 5)
    sim.settle()


def _delete(sim: Simulation, topic: TopicName) -> None:
    sim.driver._requests = RequestHandler(sim.context, 1, sim.retaining, sim.bridging)
    asked = Request(RequestKind.ARCHIVE_DELETE, topic, sim.clock.now, "operator")
    requests.submit(sim.store, sim.application, asked, sim.uuid)
    sim.rounds(4, 100)


def _subscriptions(store: ObjectStore, sim: Simulation) -> None:
    """A copy of Pulsar's, and one that the archive keeps for gateways."""
    first = sim.cluster.ledgers(LONG).spans[0].ledger
    copied = CopiedCursor("job", (first, 3))
    write_copy(store, CursorCopy(LONG, 0, sim.clock.now, (copied,), "4.0.7"), sim.uuid, None)
    begin = FirstState(Position(0, first, -1))
    kept = DurableCursor.open(store, subscription_folder(LONG, "reader"), lambda: begin, sim.uuid)
    kept.acknowledge_up_to(Position(0, first, 1))
    kept.acknowledge((0, first), 4, 6)
    kept.flush()


def _begin(sim: Simulation, produce: Produce) -> None:
    """Parts of a segment that stays open."""
    for _ in range(200):
        produce(OPEN, 10)
        sim.rounds(1, 200)
        found = sim.driver.state(OPEN).open
        if found is not None and len(found.parts) >= 2:
            return


def _close_later(sim: Simulation) -> None:
    """Asked, and not seen by anybody yet."""
    last = sim.cluster.entries(OPEN)[-1]
    asked = Request(RequestKind.CLOSE, OPEN, sim.clock.now, "operator", Position(0, last.ledger, last.entry))
    requests.submit(sim.store, sim.application, asked, sim.uuid)


def main() -> None:
    """The command line of this module."""
    target = ARCHIVES / f"{sys.argv[1]}.tar.xz"
    with tempfile.TemporaryDirectory() as folder:
        said = made(Path(folder) / "root")
        (Path(folder) / "cluster.json").write_text(json.dumps(said, sort_keys=True))
        target.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(target, "w:xz", preset=9) as archive:
            for path in sorted(Path(folder).rglob("*")):
                info = archive.gettarinfo(path, str(path.relative_to(folder)))
                info.mtime, info.uid, info.gid, info.uname, info.gname = 0, 0, 0, "", ""
                if info.isfile():
                    with path.open("rb") as file:
                        archive.addfile(info, file)
                else:
                    archive.addfile(info)
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
