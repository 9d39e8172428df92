"""Every record that is left of a topic, from beside the segments and from the catalog in force. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from offloader.ahead import map_ahead
from offloader.errors import DamagedRecordError, IntegrityError, ObjectNotFoundError
from offloader.metadata.catalog_codec import decode_of
from offloader.metadata.deletions import Tombstone
from offloader.metadata.generations import Slots, found_after, last_slot, newest_open
from offloader.metadata.journal_reading import applications, read_journals
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
from offloader.ports.object_store import ObjectStore


def gather(store: ObjectStore, topic: TopicName) -> Remains:
    """Raises FormatVersionError where another version has written, and what the store raises."""
    listed = (parse_topic_key(name) for name, _ in store.list(topic_folder(topic)))
    keys = [key for key in listed if key is not None]
    journals = read_journals(store, applications(store))
    slots = found_after(store, topic)
    reader = _Reader(store, topic)
    generation = reader.read_catalog(slots)
    reader.read_beside({key.uuid for key in keys if key.kind is KeyKind.RECORD})
    opened = tuple(journals.open_segments(topic))
    abandoned = {each.uuid for _, state in journals.of(topic) for each in state.abandoned if each.uuid}
    objects = {key.uuid for key in keys if key.kind in (KeyKind.DATA, KeyKind.INDEX)}
    named = reader.records.keys() | abandoned | {segment.uuid for _, segment in opened}
    strays = (Note(NoteKind.LEFT_OUT, data_key(topic, uuid), "its record is lost") for uuid in sorted(objects - named))
    unread = (Note(NoteKind.UNKNOWN, each.key, f"what the journal names: {each.why}") for each in journals.damaged)
    return Remains(
        topic=topic,
        records=reader.records,
        read_from=reader.read_from,
        committed=reader.committed,
        incomplete=reader.committed - reader.beside,
        catalog=reader.catalog,
        generation=generation,
        slots=slots,
        with_manifests={key.generation for key in keys if key.kind is KeyKind.MANIFEST},
        open=opened,
        abandoned=abandoned,
        notes=(*reader.notes, *strays, *unread),
    )


class _Reader:
    def __init__(self, store: ObjectStore, topic: TopicName) -> None:
        self.records: dict[str, Said] = {}
        self.read_from: dict[str, str] = {}
        self.committed: set[str] = set()
        self.beside: set[str] = set()
        self.catalog: TopicCatalog | None = None
        self.notes: list[Note] = []
        self._store = store
        self._topic = topic

    def read_catalog(self, found: Slots) -> int | None:
        """Read what can be read of the generation in force; its number, if any is."""
        if not found:
            return None
        opened = newest_open(found)
        generation = min(found) if opened is None else opened
        while (following := self._continued_in(generation, found)) is not None:
            generation = following
        folder, slots = catalog_folder(self._topic, generation), found.get(generation, [])
        records = dict(self._read(folder + slot_name(slot) for slot in slots))
        for key, record in records.items():
            if isinstance(record, Said):
                self._take(record, key)
        self.committed = set(self.records)
        if len(records) == len(slots) == last_slot(found, generation) + 1:
            try:
                self.catalog = TopicCatalog(CatalogHead(self._topic, generation=generation)).apply(*records.values())
            except IntegrityError as error:
                self.notes.append(Note(NoteKind.DAMAGED, folder, str(error)))
        return generation

    def _continued_in(self, generation: int, found: Slots) -> int | None:
        """The generation by which another one was ended, as its last record says."""
        if generation not in found:
            return None
        key = catalog_folder(self._topic, generation) + slot_name(found[generation][-1])
        try:
            record = self._decoded(key)
        except IntegrityError:
            return None
        return record.next if isinstance(record, GenerationEnded) else None

    def read_beside(self, uuids: set[str]) -> None:
        """The records that have an object of their own."""
        for key, record in self._read(record_key(self._topic, uuid) for uuid in sorted(uuids)):
            if isinstance(record, Said) and record_key(self._topic, record_uuid(self._topic, record)) == key:
                self.beside.add(self._take(record, key))
            else:
                self.notes.append(Note(NoteKind.DAMAGED, key, "it holds another record"))

    def _take(self, record: Said, key: str) -> str:
        slim = replace(record, parts=(), gaps=()) if isinstance(record, Segment) else record
        uuid = record_uuid(self._topic, record)
        if isinstance(slim, Tombstone):
            self.records[uuid] = slim  # it is newer than its segment's record
        self.records.setdefault(uuid, slim)
        self.read_from[uuid] = key
        return uuid

    def _read(self, keys: Iterable[str]) -> Iterator[tuple[str, Record]]:
        def read(key: str) -> tuple[str, Record | str]:
            try:
                return key, self._decoded(key)
            except ObjectNotFoundError:
                return key, "it was removed just now"
            except DamagedRecordError as error:
                return key, str(error).removeprefix(key).lstrip(": ")

        with ThreadPoolExecutor(READERS, "record-reader") as pool:
            for key, found in map_ahead(pool, read, keys, 2 * READERS):
                if isinstance(found, str):
                    self.notes.append(Note(NoteKind.DAMAGED, key, found))
                else:
                    yield key, found

    def _decoded(self, key: str) -> Record:
        return decode_of(self._topic, key, read_record(self._store, key))[1]
