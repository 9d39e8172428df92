"""A catalog's manifests against its records: each must say exactly what they say, in the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from offloader.archive.findings import Finding, FindingKind
from offloader.metadata.compaction import objects_of
from offloader.metadata.layout import manifest_key, manifests_folder, newest_key, records_key
from offloader.metadata.manifest import FAN, ManifestRow, before_next, leaf
from offloader.metadata.state import Record
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import read_to_compare


class ManifestCheck:
    """Takes all of a catalog's records in their order. `listed`: the topic's manifests, listed before the records, so
    that the records that they sum up must be there."""

    def __init__(self, store: ObjectStore, topic: TopicName, generation: int, listed: Iterable[str]) -> None:
        self._store = store
        self._topic = topic
        self._generation = generation
        folder = manifests_folder(topic, generation)
        self._unchecked = {key for key in listed if key.startswith(folder)} - {newest_key(topic, generation)}
        self._newest = max((key for key in self._unchecked if key.startswith(folder + "0-")), default="")
        self._records: list[Record] = []
        self._data: list[bytes] = []
        self._before: tuple[ManifestRow, ...] = ()
        self._leaves = 0

    def add(self, record: Record, data: bytes) -> Iterator[Finding]:
        """What is wrong with the manifests that are complete with this record."""
        self._records.append(record)
        self._data.append(data)
        if len(self._records) < FAN:
            return
        made = leaf(self._leaves, self._records, [len(each) for each in self._data], self._before)
        wanted = objects_of(self._topic, self._generation, made, self._data)
        expected = manifest_key(self._topic, self._generation, 0, self._leaves) <= self._newest
        for key, data in wanted.items():
            if key in self._unchecked or expected:
                yield from self._compare(key, data)
        self._unchecked -= wanted.keys()
        self._before, self._leaves = before_next(made), self._leaves + 1
        self._records, self._data = [], []

    def end(self) -> Iterator[Finding]:
        """Manifests of records that are not there. A leaf is written after its records' object and what is above it."""
        begun = {
            records_key(self._topic, self._generation, self._leaves),
            manifest_key(self._topic, self._generation, 1, self._leaves // FAN),
        }
        for key in sorted(self._unchecked - begun):
            message = (
                "it sums up records that are not there, the catalog has lost its end: `offloader catalog rebuild "
                f"{self._topic}` brings it back; where that has nothing to do, delete this"
            )
            yield Finding(FindingKind.DAMAGED_MANIFEST, key, message, self._topic)

    def _compare(self, key: str, wanted: bytes) -> Iterator[Finding]:
        found = read_to_compare(self._store, key, len(wanted))
        if found is None:
            yield Finding(FindingKind.DAMAGED_MANIFEST, key, "it is missing, though there are later ones", self._topic)
        elif found != wanted:
            message = "it does not say what the catalog's records say"
            yield Finding(FindingKind.DAMAGED_MANIFEST, key, message, self._topic)
