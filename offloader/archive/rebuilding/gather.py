"""Everything that is left of a topic, read and checked. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from offloader.archive.checking.bucket import Journals, applications, read_journals
from offloader.archive.rebuilding.consistent import absent_for, consistent
from offloader.archive.rebuilding.foreign import of_others
from offloader.archive.rebuilding.found import Evidence, FoundObject, Note, NoteKind, is_made
from offloader.archive.rebuilding.scan import scan
from offloader.errors import DamagedObjectError, DamagedRecordError, FatalError, ObjectNotFoundError
from offloader.metadata.catalog_codec import decode_catalog
from offloader.metadata.layout import KeyKind, catalog_folder, data_key, index_key, parse_topic_key, slot_name, topic_folder
from offloader.metadata.log import NumberedLog
from offloader.metadata.state import Record
from offloader.model import Segment, TopicName
from offloader.storage.base import ObjectStore

THREADS = 2  # each holds a stretch of an object in memory
MOST_LOST = 100_000  # records in a row


def gather(store: ObjectStore, topic: TopicName) -> Evidence:
    """Raises FormatVersionError where a newer version has written, and what the store raises."""
    parsed = [parse_topic_key(key) for key, _ in store.list(topic_folder(topic))]
    data = {k.uuid for k in parsed if k is not None and k.kind is KeyKind.DATA}
    indexes = {k.uuid for k in parsed if k is not None and k.kind is KeyKind.INDEX}
    journals = read_journals(store, applications(store))
    readable, damaged = _read_records(store, topic)
    _check_numbers(topic, sorted(readable.keys() | damaged.keys()))
    absent = {r.uuid for r in readable.values() if isinstance(r, Segment) and r.parts and r.uuid not in data}
    look = _Look(store, topic, data, indexes, journals)
    look.at_objects(r for r in readable.values() if not is_made(r))
    made = {slot: r for slot, r in readable.items() if is_made(r) and (not isinstance(r, Segment) or r.uuid in look.sound)}
    readable = {slot: r for slot, r in readable.items() if slot not in made}
    kept, _ = consistent(readable, absent)
    look.at_objects(kept.values())
    wrong = absent_for(kept, absent, tuple(look.sound.values()))
    kept, contradicting = consistent({slot: r for slot, r in readable.items() if slot not in wrong}, absent)
    look.at_objects(kept.values())
    ours = {r.predecessor_uuid for r in kept.values() if isinstance(r, Segment)}
    taken = {r.uuid for r in made.values() if isinstance(r, Segment)}
    look.leave_out(of_others(store, topic, journals, [o for o in look.sound.values() if o.uuid not in ours], taken))
    return Evidence(
        topic,
        kept,
        damaged | wrong | contradicting,
        tuple(look.sound.values()),
        tuple(journals.open_segments(topic)),
        (*(Note(NoteKind.UNKNOWN, f.key, f"what the journal names: {f.message}") for f in journals.findings), *look.notes),
        made,
    )


def _check_numbers(topic: TopicName, slots: Sequence[int]) -> None:
    """Raises FatalError for a number that no record can have come to: all slots before it would have to be filled."""
    for before, slot in pairwise((-1, *slots)):
        if slot - before > MOST_LOST:
            raise FatalError(
                f"{catalog_folder(topic)}{slot_name(slot)}: {slot - before - 1} records would be missing before it, which cannot be: move it away"
            )


def _read_records(store: ObjectStore, topic: TopicName) -> tuple[dict[int, Record], dict[int, str]]:
    log = NumberedLog(store, catalog_folder(topic))
    readable: dict[int, Record] = {}
    damaged: dict[int, str] = {}
    for slot, data in log.load():
        try:
            readable[slot] = decode_catalog(log.key(slot), data)
        except DamagedRecordError as error:
            damaged[slot] = str(error).removeprefix(log.key(slot)).lstrip(": ")
    return readable, damaged


class _Look:
    """The objects that no record names."""

    def __init__(self, store: ObjectStore, topic: TopicName, data: set[str], indexes: set[str], journals: Journals) -> None:
        self.sound: dict[str, FoundObject] = {}
        self.notes: list[Note] = []
        self._store = store
        self._topic = topic
        self._data = data
        self._indexes = indexes
        self._looked_at = _named_by_journals(journals, topic)

    def at_objects(self, records: Iterable[Record]) -> None:
        """Those that these records do not name, unless they were looked at before."""
        named = {r.uuid for r in records if isinstance(r, Segment)}
        for uuid in named & self.sound.keys():
            del self.sound[uuid]
        for uuid, reason in self._looked_at.items():
            if reason and uuid in self._data and uuid not in named:
                self.notes.append(Note(NoteKind.LEFT_OUT, data_key(self._topic, uuid), reason))
                self._looked_at[uuid] = ""
        unnamed = sorted((self._data | self._indexes) - named - self._looked_at.keys())
        with ThreadPoolExecutor(THREADS, "rebuild") as pool:
            for found in pool.map(self._scanned, unnamed):
                if isinstance(found, Note):
                    self.notes.append(found)
                else:
                    self.sound[found.uuid] = found
        self._looked_at.update(dict.fromkeys(unnamed, ""))

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Objects that are not this topic's, and why not."""
        for uuid, reason in sorted(reasons.items()):
            del self.sound[uuid]
            self.notes.append(Note(NoteKind.LEFT_OUT, data_key(self._topic, uuid), reason))

    def _scanned(self, uuid: str) -> FoundObject | Note:
        key = data_key(self._topic, uuid)
        if uuid not in self._indexes:
            return Note(NoteKind.LEFT_OUT, key, "it has no index object: restore that, if it was ever written")
        if uuid not in self._data:
            return Note(NoteKind.LEFT_OUT, index_key(self._topic, uuid), "its data object is not there: restore it")
        try:
            return scan(self._store, self._topic, uuid)
        except (DamagedObjectError, ObjectNotFoundError) as error:
            return Note(NoteKind.LEFT_OUT, key, f"it is damaged, restore it: {str(error).removeprefix(key).lstrip(': ')}")


def _named_by_journals(journals: Journals, topic: TopicName) -> dict[str, str]:
    """Uuids that must not get a record here, and why; of open ones nothing is to be said, their application goes on with them."""
    held: Mapping[str, str] = {}
    for application, state in journals.of(topic):
        held = {**held, **{a.uuid: f"abandoned: {a.reason}" for a in state.abandoned}}
        if state.open is not None:
            why = f"the journal of {application} has it open, but that was taken over" if application in journals.ended else ""
            held = {**held, state.open.uuid: why}
    return dict(held)
