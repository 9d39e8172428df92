"""A look at a topic's subscriptions: what its broker has in memory, and then which record is stored last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offloader.cursors.core.acknowledged import Lengths, acknowledged
from offloader.cursors.core.protection import CursorSeen, Incarnation, LastRecord, RecordId
from offloader.lifecycle.topics.cursors.kinds import SubscriptionKind, SubscriptionNames
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.lifecycle.topics.cursors.stored import StoredCursor, problem_of
from offloader.model import TopicName
from offloader.ports.topic_states import CursorLook, TopicStates


@dataclass(frozen=True)
class ProtectionLooks:
    """Safe to use from several threads."""

    states: TopicStates
    stored: StoredTopics
    names: SubscriptionNames

    def look(self, topic: TopicName) -> Mapping[str, CursorSeen | str]:
        """By subscription, those of users: what is seen, or why it is not. The topic is loaded for it. Raises what the
        broker and the metadata service raise."""
        looks = self.states.cursors(topic)  # first: what is stored must not be older
        stored = self.stored.read(topic)
        found: dict[str, CursorSeen | str] = {}
        for name, cursor in sorted(stored.cursors.items()):
            memory = looks.cursors.get(name)
            if memory is not None and self.names.kind(name) is SubscriptionKind.USER:
                found[name] = _seen(stored.created_ms, memory, cursor, looks.lengths)
        return found

    def has_parts(self, topic: TopicName) -> bool:
        """Whether messages of batches are acknowledged, as it is stored. The topic is not loaded for it. Raises what
        the metadata service raises."""
        cursors = self.stored.read(topic).cursors
        return any(
            one.state is not None and one.state.batches and self.names.kind(name) is SubscriptionKind.USER
            for name, one in cursors.items()
        )


def _seen(created_ms: int, memory: CursorLook, cursor: StoredCursor, lengths: Lengths) -> CursorSeen | str:
    state = cursor.state
    if state is None or state.mark_delete is None or not cursor.complete:
        return problem_of(cursor)
    try:
        has = acknowledged(memory.mark_delete, memory.ranges, lengths)
        stored = acknowledged(state.mark_delete, state.ranges, lengths)
    except ValueError as error:
        return f"it has acknowledged what no topic has: {error}"
    last = cursor.last
    number = RecordId(cursor.version) if last is None else RecordId(cursor.version, *last[:3])
    record = LastRecord(number, stored, state.batches, last is not None and last.closed)
    return CursorSeen(Incarnation(created_ms, cursor.born), has, memory.is_loaded_only, record, lengths, memory.load)
