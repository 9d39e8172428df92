"""Which generation of a topic's catalog is in force. A generation is a numbering of its own; a rebuild begins a new
one, and its slot 0, which is written last, opens it. Older ones stay as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from offloader.errors import DamagedRecordError
from offloader.metadata import layout
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

Slots = Mapping[int, list[int]]
"""By generation, the numbers of the records that are there, in order."""


def found_after(store: ObjectStore, topic: TopicName, generation: int = 0, slot: int = -1) -> Slots:
    """The records after a slot of a generation, with those of later generations; slot -1: all. One listing."""
    found: dict[int, list[int]] = {}
    start_after = layout.slot_key(topic, generation, slot) if slot >= 0 else ""
    for of, number in _listed(store, topic, start_after):
        found.setdefault(of, []).append(number)
    return found


def behind(store: ObjectStore, topic: TopicName, generation: int, slot: int) -> tuple[list[int], int | None]:
    """The numbers that follow a slot of a generation, in order; and a later generation, if one is open. One listing,
    mostly. Raises DamagedRecordError if there are only records of a later generation, and its slot 0 is missing."""
    after = layout.slot_key(topic, generation, slot) if slot >= 0 else layout.catalog_folder(topic, generation)
    slots: list[int] = []
    unopened = ""
    while True:
        other = None
        for of, number in _listed(store, topic, after):
            if of != generation:
                other = of, number
                break
            slots.append(number)
        if other is None:
            if unopened and slot < 0 and not slots and generation == 0:
                raise DamagedRecordError(f"{unopened} is missing")
            return slots, None
        if other[1] == 0:
            return slots, other[0]
        unopened = layout.slot_key(topic, other[0], 0)
        after = layout.catalog_folder(topic, other[0]).removesuffix("/") + layout.AFTER_SLASH


def _listed(store: ObjectStore, topic: TopicName, start_after: str) -> Iterator[tuple[int, int]]:
    """Generation and slot of each record behind a key."""
    keys = store.list(layout.generations_folder(topic), start_after=start_after)
    numbers = (layout.parse_catalog_key(topic, key) for key, _ in keys)
    return (each for each in numbers if each is not None)


def newest_open(found: Slots) -> int | None:
    """The newest generation whose slot 0 is there."""
    return max((generation for generation, slots in found.items() if slots[0] == 0), default=None)


def last_slot(found: Slots, generation: int) -> int:
    """The number of a generation's last record. Slot 0 counts as written: a rebuild writes it last."""
    return max(found.get(generation, []), default=0)
