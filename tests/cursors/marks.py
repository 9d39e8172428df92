"""Where a stored subscription stands, for tests that ask for nothing else."""

from __future__ import annotations

from offloader.cursors.log import CursorLog
from offloader.metadata.layout import subscription_folder
from offloader.model import Position, TopicName
from offloader.ports.object_store import ObjectStore

FORGOTTEN = (("offloader.forgotten", 1),)


def mark_delete_of(store: ObjectStore, topic: TopicName, name: str) -> Position | None:
    """None: there is none, or it was deleted."""
    found = CursorLog(store, subscription_folder(topic, name), lambda: "").newest()
    return None if found is None or found.record.marker.properties == FORGOTTEN else found.record.marker.mark_delete
