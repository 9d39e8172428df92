"""Every record that is left of a topic, from beside the segments and from the catalog in force. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from offloader.ahead import map_ahead
from offloader.errors import DamagedRecordError, IntegrityError, ObjectNotFoundError
from offloader.metadata.catalog_codec import decode_of
from offloader.metadata.generations import Slots, found_after, last_slot, newest_open
from offloader.metadata.layout import (
    KeyKind,
    catalog_folder,
    data_key,
    parse_topic_key,
    record_key,
    slot_name,
    topic_folder,
)
from offloader.metadata.log import READERS, read_record
from offloader.metadata.state import CatalogHead, GenerationEnded, Record, Said, TopicCatalog, record_uuid
from offloader.model import Segment, TopicName
from offloader.operations.rebuild.remains import Note, NoteKind, Remains
from offloader.operations.verify.strays import applications, read_journals
from offloader.ports.object_store import ObjectStore


def gather(store: ObjectStore, topic: TopicName) -> Remains:
    """Raises FormatVersionError where another version has written, and what the store raises."""
    listed = (parse_topic_key(name) for name, _ in store.list(topic_folder(topic)))
    parsed = [key for key in listed if key is not None]
    journals = read_journals(store, applications(store))
    found = found_after(store, topic)
    look = _Look(store, topic)
    in_force = look.at_catalog(found)
    look.at_records({key.uuid for key in parsed if key.kind is KeyKind.RECORD})
    opened = tuple(journals.open_segments(topic))
    states = [state for _, state in journals.of(topic)]
    abandoned = {each.uuid for state in states for each in state.abandoned if each.uuid}
    objects = {key.uuid for key in parsed if key.kind in (KeyKind.DATA, KeyKind.INDEX)}
    known = look.records.keys() | abandoned | {segment.uuid for _, segment in opened}
    strays = (Note(NoteKind.LEFT_OUT, data_key(topic, uuid), "its record is lost") for uuid in sorted(objects - known))
    unread = (Note(NoteKind.UNKNOWN, f.key, f"what the journal names: {f.message}") for f in journals.findings)
    return Remains(
        topic,
        look.records,
        look.sources,
        look.committed,
        look.committed - look.beside,
        look.catalog,
        in_force,
        found,
        {key.generation for key in parsed if key.kind is KeyKind.MANIFEST},
        opened,
        abandoned,
        objects,
        (*look.notes, *strays, *unread),
    )


def last_ended(store: ObjectStore, topic: TopicName, generation: int, found: Slots) -> int | None:
    """The generation by which another one was ended, as its last record says."""
    if generation not in found:
        return None
    key = catalog_folder(topic, generation) + slot_name(found[generation][-1])
    try:
        record = decode_of(topic, key, read_record(store, key))[1]
    except IntegrityError:
        return None
    return record.next if isinstance(record, GenerationEnded) else None


class _Look:
    def __init__(self, store: ObjectStore, topic: TopicName) -> None:
        self.records: dict[str, Said] = {}
        self.sources: dict[str, str] = {}
        self.committed: set[str] = set()
        self.beside: set[str] = set()
        self.catalog: TopicCatalog | None = None
        self.notes: list[Note] = []
        self._store = store
        self._topic = topic

    def at_catalog(self, found: Slots) -> int | None:
        """The generation in force, if any is, and what can be read of it."""
        if not found:
            return None
        first_seen = newest_open(found)
        generation = min(found) if first_seen is None else first_seen
        while (following := last_ended(self._store, self._topic, generation, found)) is not None:
            generation = following
        folder, slots = catalog_folder(self._topic, generation), found.get(generation, [])
        records = dict(self._read(folder + slot_name(slot) for slot in slots))
        for key, record in records.items():
            if isinstance(record, Said):
                self._take(record, key)
        self.committed = set(self.records)
        if len(records) == len(slots) == last_slot(found, generation) + 1:
            self._add_up(list(records.values()), generation)
        return generation

    def _add_up(self, records: list[Record], generation: int) -> None:
        try:
            self.catalog = TopicCatalog(CatalogHead(self._topic, generation=generation)).apply(*records)
        except IntegrityError as error:
            self.notes.append(Note(NoteKind.DAMAGED, catalog_folder(self._topic, generation), str(error)))

    def at_records(self, uuids: set[str]) -> None:
        """Those that have an object of their own."""
        for key, record in self._read(record_key(self._topic, uuid) for uuid in sorted(uuids)):
            if isinstance(record, Said) and record_key(self._topic, record_uuid(self._topic, record)) == key:
                self._take(record, key)
                self.beside.add(record_uuid(self._topic, record))
            else:
                self.notes.append(Note(NoteKind.DAMAGED, key, "it holds another record"))

    def _take(self, record: Said, key: str) -> None:
        slim = replace(record, parts=(), gaps=()) if isinstance(record, Segment) else record
        uuid = record_uuid(self._topic, record)
        self.records.setdefault(uuid, slim)
        self.sources[uuid] = key

    def _read(self, keys: Iterable[str]) -> Iterator[tuple[str, Record]]:
        def read(key: str) -> tuple[str, Record | None, str]:
            try:
                return key, decode_of(self._topic, key, read_record(self._store, key))[1], ""
            except ObjectNotFoundError:
                return key, None, "it was removed just now"
            except DamagedRecordError as error:
                return key, None, str(error).removeprefix(key).lstrip(": ")

        with ThreadPoolExecutor(READERS, "record-reader") as pool:
            for key, record, problem in map_ahead(pool, read, keys, 2 * READERS):
                if record is None:
                    self.notes.append(Note(NoteKind.DAMAGED, key, problem))
                else:
                    yield key, record
