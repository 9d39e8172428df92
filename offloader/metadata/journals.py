"""What all applications' journals of a root hold: what they name belongs to somebody. Frozen values, no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from offloader.metadata.state import TopicState
from offloader.model import OpenSegment, TopicName


class DamagedJournal(NamedTuple):
    """The key of the record that cannot be read, or the journal's folder, and why."""

    key: str
    why: str


@dataclass(frozen=True, slots=True)
class Journals:
    """What the applications' journals hold. `ended`: taken over by another application; what these name is still named,
    but they open nothing any more. `epochs`: the newest of each."""

    states: Mapping[str, Mapping[TopicName, TopicState]]
    ended: frozenset[str] = frozenset()
    damaged: tuple[DamagedJournal, ...] = ()
    tokens: tuple[tuple[str, str], ...] = ()  # each record's key and token
    epochs: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def readable(self) -> bool:
        """Whether none of them is damaged."""
        return not self.damaged

    def open_segments(self, topic: TopicName) -> list[tuple[str, OpenSegment]]:
        """The topic's open segments, with the application that works on each."""
        held = [(name, state.open) for name, state in self.of(topic) if name not in self.ended]
        return [(name, segment) for name, segment in held if segment is not None]

    def unfinished(self, topic: TopicName) -> list[tuple[str, OpenSegment]]:
        """All of the topic's segments that are not Offloaded yet, also those that are assigned ahead."""
        return [(name, each) for name, state in self.of(topic) if name not in self.ended for each in state.unfinished]

    def of(self, topic: TopicName) -> Iterator[tuple[str, TopicState]]:
        """What each application's journal holds of a topic."""
        return ((name, topics[topic]) for name, topics in self.states.items() if topic in topics)

    def opener(self, topic: TopicName, uuid: str) -> str | None:
        """The application whose journal has the segment, which is not Offloaded yet."""
        return next((n for n, s in self.of(topic) if any(each.uuid == uuid for each in s.unfinished)), None)

    def abandoned(self, topic: TopicName, uuid: str) -> str | None:
        """Why a journal says that the uuid must never be completed; None: no journal says so."""
        return next((a.reason for _, s in self.of(topic) for a in s.abandoned if a.uuid == uuid), None)

    def names_upload(self, topic: TopicName, uuid: str, upload: str) -> bool:
        """Whether any of them knows the upload, or that one of this uuid has just begun."""
        for _, state in self.of(topic):
            if any(each.uuid == uuid and each.upload in (None, upload) for each in state.unfinished):
                return True
            if any(a.upload == upload or (a.uuid == uuid and a.upload is None) for a in state.abandoned):
                return True
        return False
