"""What the catalog says now of an object that was planned and is not there any more."""

from __future__ import annotations

from offloader.archive.object_range import DataObject
from offloader.errors import FormatVersionError, IntegrityError, PlanOutdatedError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import range_of
from offloader.model import Position, TopicName
from offloader.ports.object_store import ObjectStore


def deleted_meanwhile(store: ObjectStore, topic: TopicName, position: Position) -> str | None:
    """In words why a position of a segment is not there, where that is recorded; None: nothing says so, it is damage.
    Reads the head of the catalog, which says all that was ever deleted. Raises PlanOutdatedError where
    brokers have it since, and what the store raises."""
    try:
        head = Catalogs(store, "").head(topic)
    except (IntegrityError, FormatVersionError):
        return None  # a catalog that cannot be read says nothing
    found = range_of((*head.removed.withheld, *head.removed.handed_over), position)
    if found is not None and found.is_bridged:
        raise PlanOutdatedError(
            f"{topic}: {position}: {found.told}, since this was planned: plan it anew, brokers have it"
        )
    return None if found is None else found.told


def deleted_by_pulsar(stored: DataObject) -> str:
    """In words why an object that brokers own is not there."""
    whose = "was handed over to it" if stored.is_bridged else "is its own"
    return f"deleted by Pulsar: {stored.data_key} {whose}, and is not there any more"
