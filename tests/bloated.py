"""A bucket one of whose objects is far larger than any that is sound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count

from offloader.archive.peek.place import peek
from offloader.archive.reading.plan import plan
from offloader.archive.reading.reader import PlannedReader
from offloader.archive.reading.stores import Stores
from offloader.archive.records import LazyTopicRecords, TopicRecords
from offloader.archive.snapshot import TopicSnapshot
from offloader.errors import OffloadError
from offloader.metadata import layout, requests
from offloader.metadata.compaction import compact
from offloader.metadata.journal_start import JournalStart
from offloader.metadata.manifest import FAN
from offloader.metadata.root import read_root
from offloader.model import GIB, MIB, Position
from offloader.operations.rebuild.remains import Given
from offloader.operations.rebuild.write import check_agreement, proposed
from offloader.operations.verify.strays import check_root
from offloader.operations.verify.verify import verify
from offloader.ports.object_store import Stat
from offloader.storage.memory import MemoryStore
from tests.archive.mutations import bucket, kind_of
from tests.archive.support import APPLICATION, META, TOPIC, Archive, stream

SIZE = 10 * GIB
MOST = 5 * MIB  # of it in one piece; data objects are read in pieces of 4 MiB


class BloatedStore(MemoryStore):
    """What is sound of the object stands at its beginning. Fails whoever reads too much of it at once."""

    def __init__(self, objects: dict[str, bytes], bloated: str) -> None:
        super().__init__()
        self._bloated = bloated
        for key, data in objects.items():
            self.put(key, data, meta=META)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
        data, stat = super().read(key, offset, length)
        if key != self._bloated:
            return data, stat
        assert length is not None, f"all of {key} is read at once"
        assert length <= MOST, f"{length} bytes of {key} are read at once"
        return data.ljust(max(0, min(length, SIZE - offset)), b"\0"), replace(stat, size=SIZE)

    def stat(self, key: str) -> Stat | None:
        stat = super().stat(key)
        return stat if stat is None or key != self._bloated else replace(stat, size=SIZE)

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
        return ((key, SIZE if key == self._bloated else size) for key, size in super().list(prefix, start_after))


def long_bucket() -> dict[str, bytes]:
    """A topic with manifests, and a request with its outcome."""
    archive = Archive()
    archive.claim()
    for number in range(FAN + 3):
        archive.add(stream(0, number, number))
    compact(archive.store, archive.catalogs.head(TOPIC))
    folder = layout.requests_folder(APPLICATION)
    asked = requests.Request(requests.RequestKind.CLOSE, TOPIC, 1, position=Position(0, 0, 1))
    requests.submit(archive.store, APPLICATION, asked, lambda: "one")
    requests.submit(archive.store, APPLICATION, replace(asked, at=2), lambda: "two")
    for key in [key for key, _ in archive.store.list(folder) if key.endswith("two")]:
        requests.mark_done(
            archive.store, APPLICATION, key.removeprefix(folder), requests.RequestOutcome(True, "done", 1)
        )
    return {key: archive.store.read(key)[0] for key, _ in archive.store.list()}


def _places() -> dict[str, tuple[dict[str, bytes], str]]:
    """By name: a bucket, and the object that is too large."""
    plain, long = bucket().objects, long_bucket()
    found = {kind_of(key): (plain, key) for key in plain}
    manifests = layout.manifests_folder(TOPIC)
    found["first record"] = long, layout.slot_key(TOPIC, 0, 0)
    found["newest record"] = long, layout.slot_key(TOPIC, 0, FAN + 3)
    found["record of a leaf"] = long, layout.slot_key(TOPIC, 0, 7)
    found |= {f"manifest {key.removeprefix(manifests)}": (long, key) for key in long if key.startswith(manifests)}
    found |= {key.removeprefix(layout.REQUESTS): (long, key) for key in long if key.startswith(layout.REQUESTS)}
    return found


PLACES = _places()

HARMLESS = ("claim", "manifest newest", "/app/00000000000002-two")
"""Nobody reads what is in it (any more), or it is a hint."""


def told(store: BloatedStore) -> Iterator[object]:
    """What everything that reads a bucket says of it, error or finding."""
    archive = Archive(store)

    def mark_all_done() -> None:
        for name, _ in requests.pending(store, APPLICATION, 5):
            requests.mark_done(store, APPLICATION, name, requests.RequestOutcome(True, "", 5))

    readers: list[Callable[[], object]] = [
        partial(read_root, store),
        lambda: archive.catalogs.head(TOPIC),
        lambda: LazyTopicRecords(archive.catalogs.history(TOPIC)).plan(),
        lambda: archive.catalogs.claimed(),
        lambda: archive.catalogs.mark(TOPIC),
        lambda: list(PlannedReader(Stores.of(store)).read(plan(TopicSnapshot.of(archive.catalog)))),
        lambda: peek(Stores.of(store), TopicRecords(TopicSnapshot.of(archive.catalog)), Position(0, 3, 5)),
        lambda: JournalStart(store, APPLICATION).new_epoch(partial(next, map(str, count()))),
        lambda: check_agreement(proposed(store, TOPIC, Given(APPLICATION, 9))),
        mark_all_done,
    ]
    yield from check_root(store)
    yield from verify(store).findings
    yield from proposed(store, TOPIC, Given(APPLICATION, 9)).remains.notes
    for read in readers:
        try:
            read()
        except OffloadError as error:
            yield error
    for name in _asked(store):
        try:
            yield requests.outcome_of(store, APPLICATION, name)
        except OffloadError as error:
            yield error
    requests.remove_old(store, APPLICATION, 10**15)


def _asked(store: BloatedStore) -> list[str]:
    folder = layout.requests_folder(APPLICATION)
    return [key.removeprefix(folder) for key, _ in store.list(folder) if "." not in key]
