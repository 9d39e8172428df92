"""Records and objects that are taken away and brought back, and what readers then have and are told."""

from __future__ import annotations

from random import Random

from offloader.archive.items import Missing
from offloader.archive.reading.plan import plan
from offloader.archive.view import TopicView
from offloader.metadata import layout
from offloader.metadata.catalog_codec import decode_catalog
from offloader.model import Segment
from tests.archive.rebuilding.support import Built, damage, read, record_key
from tests.archive.support import META, TOPIC, Archive, uuid_of

Place = tuple[int, int]


def keys(*numbers: int) -> list[str]:
    return [key(TOPIC, uuid_of(n)) for n in numbers for key in (layout.data_key, layout.index_key)]


def gone(archive: Archive, slots: list[int], objects: list[str]) -> dict[str, bytes]:
    """Records and objects are deleted; what the objects held."""
    held = {key: archive.store.read(key)[0] for key in objects}
    archive.store.delete([*map(record_key, slots), *objects])
    return held


def back(archive: Archive, held: dict[str, bytes]) -> None:
    for key, data in held.items():
        archive.store.put(key, data, meta=META)


def missing(archive: Archive) -> list[tuple[Place, Place]]:
    """What every reader reports: each reads a plan."""
    items = plan(TopicView.of(archive.catalog))
    return [((m.start.ledger, m.start.entry), (m.end.ledger, m.end.entry)) for m in items if isinstance(m, Missing)]


def places(archive: Archive) -> set[Place]:
    return {(p.ledger, p.entry) for p, _ in read(archive, archive.catalog)}


def going_on(archive: Archive) -> Archive:
    """Of an application that starts again."""
    again = Archive(archive.store)
    again._uuids = iter([50])
    return again


def records(archive: Archive) -> list[object]:
    folder = layout.catalog_folder(TOPIC)
    return [decode_catalog(key, archive.store.read(key)[0]) for key, _ in archive.store.list(folder)]


def silent(there: Built, have: set[Place]) -> set[Place]:
    """What is neither read nor reported, between the beginning and the last entry that is read."""
    catalog, reported = there.archive.catalog, missing(there.archive)
    first, last = min((b.ledger, b.entry) for b in catalog.begins.values()), max(have, default=(0, 0))
    lost = {(p.ledger, p.entry) for p, _ in there.entries} - have
    return {place for place in lost if first <= place <= last and not any(a <= place <= b for a, b in reported)}


def sure(notes: tuple[object, ...]) -> bool:
    """Whether no doubt is left about incarnations: where ledgers may be of two, nothing else is certain."""
    return not any("incarnation" in str(note) for note in notes)


def lose_objects(there: Built, random: Random) -> dict[str, bytes]:
    """Some data and index objects are deleted, with their records, and some other records with them; what the objects held."""
    share = random.choice([0.1, 0.4])
    objects = [key(TOPIC, s.uuid) for s in there.original.segments if s.parts for key in (layout.data_key, layout.index_key)]
    taken = [key for key in objects if random.random() < share]
    share = random.choice([0, 0.3, 1])
    for slot in range(there.original.next_slot):
        record = decode_catalog("", there.archive.store.read(record_key(slot))[0])
        named = isinstance(record, Segment) and any(record.uuid in key for key in taken)
        if named or random.random() < share:
            gone(there.archive, [slot], []) if random.random() < 0.5 else damage(there.archive, slot)
    return gone(there.archive, [], taken)
