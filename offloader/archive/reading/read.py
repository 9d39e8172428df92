"""Reading what a catalog has, from a store that is open."""

from __future__ import annotations

from collections.abc import Iterator

from offloader.archive.items import ArchivedEntry, Item, Missing
from offloader.archive.read_model import Selection
from offloader.archive.reading.plan import plan
from offloader.archive.reading.reader import DEFAULTS, PlannedReader, ReadOptions
from offloader.archive.reading.stores import Stores
from offloader.archive.view import TopicSnapshot
from offloader.metadata.state import TopicCatalog
from offloader.model import Position
from offloader.ports.object_store import ObjectStore


def entries(store: ObjectStore, catalog: TopicCatalog) -> Iterator[ArchivedEntry]:
    """The archived entries in order. Raises as `items`."""
    return (item for item in items(store, catalog) if not isinstance(item, Missing))


def items(
    store: ObjectStore,
    catalog: TopicCatalog,
    start: Position | None = None,
    end: Position | None = None,
    *,
    options: ReadOptions = DEFAULTS,
) -> Iterator[Item]:
    """Every position from `start` to `end`: an entry, or told of as missing.

    Raises DamagedObjectError naming object, offset and position; DamagedRecordError where the catalog has a hole or says
    something twice; ObjectNotFoundError.
    """
    reader = PlannedReader(Stores.of(store), options)
    for item in reader.read(plan(TopicSnapshot.of(catalog), Selection(start, end))):
        if isinstance(item, Missing):
            yield item
        else:
            yield from item.entries()
