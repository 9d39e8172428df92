"""Which generation of a topic's catalog is in force. A generation is a numbering of its own; a rebuild begins a new
one, and its slot 0, which is written last, opens it. Older ones stay as they are."""

from __future__ import annotations

from collections.abc import Mapping

from offloader.errors import DamagedRecordError
from offloader.metadata.layout import (
    AFTER_SLASH,
    catalog_folder,
    generations_folder,
    parse_catalog_key,
    slot_key,
    slot_name,
)
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

Slots = Mapping[int, list[int]]
"""By generation, the numbers of the records that are there, in order."""


def found_after(store: ObjectStore, topic: TopicName, generation: int = 0, slot: int = -1) -> Slots:
    """What there is behind a record of a generation, and of later generations; of all where the slot is -1. One
    listing."""
    start_after = catalog_folder(topic, generation) + slot_name(slot) if slot >= 0 else ""
    found: dict[int, list[int]] = {}
    for key, _ in store.list(generations_folder(topic), start_after=start_after):
        numbers = parse_catalog_key(topic, key)
        if numbers is not None:
            found.setdefault(numbers[0], []).append(numbers[1])
    return found


def behind(store: ObjectStore, topic: TopicName, generation: int, slot: int) -> tuple[list[int], int | None]:
    """The numbers that follow a slot of a generation, in order; and a later generation, where one is open. Raises
    DamagedRecordError where there is nothing but a later one that is not. One listing, mostly."""
    after = slot_key(topic, generation, slot) if slot >= 0 else catalog_folder(topic, generation)
    slots: list[int] = []
    unopened = ""
    while True:
        keys = (parse_catalog_key(topic, key) for key, _ in store.list(generations_folder(topic), start_after=after))
        other = None
        for numbers in keys:
            if numbers is not None and numbers[0] == generation:
                slots.append(numbers[1])
            elif numbers is not None:
                other = numbers
                break
        if other is None:
            if unopened and slot < 0 and not slots and generation == 0:
                raise DamagedRecordError(f"{unopened} is missing")
            return slots, None
        if other[1] == 0:
            return slots, other[0]
        unopened = slot_key(topic, other[0], 0)
        after = catalog_folder(topic, other[0]).removesuffix("/") + AFTER_SLASH


def newest_open(found: Slots) -> int | None:
    """The newest generation whose slot 0 is there."""
    return max((generation for generation, slots in found.items() if slots[0] == 0), default=None)


def last_slot(found: Slots, generation: int) -> int:
    """The number of a generation's last record. Slot 0 counts as there: it is written last."""
    return max(found.get(generation, []), default=0)
