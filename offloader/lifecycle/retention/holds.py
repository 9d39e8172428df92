"""Holds on topics' archives beside those of the configuration: those that were placed by command, in the bucket, and
objects that the store itself keeps. Not every store shows these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from offloader.errors import DamagedRecordError, ObjectNotFoundError
from offloader.metadata.deletions import day
from offloader.metadata.layout import (
    archive_hold_key,
    archive_holds_folder,
    data_key,
    index_key,
    parse_archive_hold_key,
)
from offloader.model import Segment, TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import read_whole

LONGEST_NAME = 200  # of a hold that was placed


@dataclass(frozen=True, slots=True)
class PlacedHolds:
    """Those of a cluster that were placed by command. Only the application that decides of a topic writes."""

    store: ObjectStore
    cluster: str

    def read(self) -> dict[TopicName, str]:
        """The names of the holds. One listing, and one read of each."""
        found = {}
        for key, _ in self.store.list(archive_holds_folder(self.cluster)):
            topic = parse_archive_hold_key(self.cluster, key)
            if topic is not None and (name := self._name(key)) is not None:
                found[topic] = name
        return found

    def place(self, topic: TopicName, name: str) -> None:
        """Place a hold, or give it another name."""
        self.store.put(archive_hold_key(self.cluster, topic), name.encode())

    def lift(self, topic: TopicName) -> str | None:
        """Lift it. Returns its name; None: there was none."""
        key = archive_hold_key(self.cluster, topic)
        name = self._name(key)
        self.store.delete([key])
        return name

    def _name(self, key: str) -> str | None:
        """A hold binds, whatever its name is."""
        try:
            data, _ = read_whole(self.store, key, 4 * LONGEST_NAME, DamagedRecordError)
        except ObjectNotFoundError:
            return None
        except DamagedRecordError:
            return "a hold whose name cannot be read"
        return data.decode(errors="replace") or "a hold without a name"


def objects_of(topic: TopicName, segment: Segment) -> tuple[str, ...]:
    """The keys of a segment's data and index; empty where it has none."""
    if not segment.size:
        return ()
    return data_key(topic, segment.uuid), index_key(topic, segment.uuid)


def first_held(store: ObjectStore, topic: TopicName, segments: Iterable[Segment], now: int) -> tuple[int, str] | None:
    """The place of the first segment of which the store keeps an object, and why; None: the store shows no such."""
    for place, segment in enumerate(segments):
        for key in objects_of(topic, segment):
            found = store.stat(key)
            if found is not None and (found.held or found.held_until > now):
                until = "until its hold is lifted" if found.held else f"until {day(found.held_until)}"
                return place, f"the store keeps {key} {until}"
    return None
