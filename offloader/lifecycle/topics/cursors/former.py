"""Removals of subscriptions as earlier versions recorded them, beside all other deletions.

They are only read: one that is pending is named until somebody ends it with the version that began it, one that has
ended is forgotten in its time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from offloader.errors import DamagedRecordError, ObjectNotFoundError
from offloader.metadata.envelope import unwrap_kind
from offloader.metadata.layout import cursor_folder, cursors_folder, parse_cursor_record_key, slot_name
from offloader.metadata.log import read_record
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

REMOVED = "removed"
ENDS = (REMOVED, "kept", "undone")


@dataclass(frozen=True, slots=True)
class FormerRemoval:
    """`state`: the word of the version that wrote it; empty: its record cannot be read. `ended_at`: ms; 0: it is
    pending, or nobody can say."""

    topic: TopicName
    subscription: str
    state: str
    ended_at: int

    @property
    def says(self) -> str:
        """What it is and what to do, for people."""
        undo = f"(`offloader topics cursors undo {self.topic} {self.subscription} --yes`)"
        what = (
            f"bring the subscription back with that version {undo}"
            if self.state == REMOVED
            else f"take it back with that version {undo}, then mark it anew with this one"
        )
        return (
            f"{self.topic}: the removal of subscription {self.subscription} is {self.state or 'damaged'}, as an "
            f"earlier version of the offloader recorded it: {what}"
        )


def former_removals(store: ObjectStore, cluster: str) -> Iterator[FormerRemoval]:
    """All of a cluster, by name. Raises FormatVersionError."""
    keys = (parse_cursor_record_key(cluster, key) for key, _ in store.list(cursors_folder(cluster)))
    for (topic, subscription), found in groupby((key for key in keys if key is not None), lambda key: key[0]):
        slot = max(slot for _, slot in found)
        yield _read(store, cluster, topic, subscription, slot)


def removed_former(store: ObjectStore, cluster: str) -> list[FormerRemoval]:
    """Those whose subscription only an earlier version can bring back."""
    return [one for one in former_removals(store, cluster) if one.state == REMOVED]


def pending_former(store: ObjectStore, cluster: str) -> list[FormerRemoval]:
    """Those that somebody has to end."""
    return [one for one in former_removals(store, cluster) if not one.ended_at]


def forget_former(store: ObjectStore, cluster: str, before_ms: int) -> None:
    """Those that ended before."""
    for one in former_removals(store, cluster):
        if 0 < one.ended_at < before_ms:
            keys = [key for key, _ in store.list(cursor_folder(cluster, one.topic, one.subscription))]
            store.delete(sorted(keys, key=lambda key: "/records/" in key))  # what was saved goes first


def _read(store: ObjectStore, cluster: str, topic: TopicName, subscription: str, slot: int) -> FormerRemoval:
    key = f"{cursor_folder(cluster, topic, subscription)}records/{slot_name(slot)}"
    try:
        message = unwrap_kind(key, read_record(store, key), "cursor_removal").body.cursor_removal
    except (DamagedRecordError, ObjectNotFoundError):
        return FormerRemoval(topic, subscription, "", 0)
    return FormerRemoval(topic, subscription, message.state, message.ended_at if message.state in ENDS else 0)
