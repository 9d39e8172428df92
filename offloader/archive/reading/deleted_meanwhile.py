"""What the catalog says now of an object that was planned and is not there any more."""

from __future__ import annotations

from offloader.errors import FormatVersionError, IntegrityError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import range_of
from offloader.model import Position, TopicName
from offloader.ports.object_store import ObjectStore


def deleted_meanwhile(store: ObjectStore, topic: TopicName, position: Position) -> str | None:
    """In words why a position of a segment is not there, where that is recorded; None: nothing says so, it is damage.
    Reads the head of the catalog, which says all that was ever deleted. Raises what the store raises."""
    try:
        head = Catalogs(store, "").head(topic)
    except (IntegrityError, FormatVersionError):
        return None  # a catalog that cannot be read says nothing
    found = range_of(head.removed.told, position)
    return None if found is None else found.told
