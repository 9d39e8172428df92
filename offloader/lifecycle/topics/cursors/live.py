"""The subscriptions of users of a topic, as complete as they are to be had: mark-delete and ranges from the broker's
memory, batches from what is stored. Nothing is fenced, and nothing is loaded that is not loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from offloader.cursors.copies import CopiedCursor, CursorSource, pieces_of
from offloader.errors import BrokerUnavailableError, DamagedRecordError, ProtocolError
from offloader.lifecycle.topics.cursors.kinds import REPLICATED, SubscriptionKind, SubscriptionNames
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.lifecycle.topics.cursors.stored import StoredCursor, StoredTopic, problem_of
from offloader.model import AcknowledgedRange, PartlyAcknowledged, Place, TopicName
from offloader.ports.admin import Admin, SubscriptionTraits
from offloader.ports.subscriptions import EARLIEST
from offloader.state.subscription import CursorState

LOOKS = 3  # until a mark-delete position has stayed where it was
NO_METADATA = "no metadata service is configured: messages of batches that are acknowledged are not known"
UNSTABLE = "it moved during each look: what was acknowledged meanwhile may be left out"
OUTDATED = "what is stored is older than its last reset: messages of batches that are acknowledged are not known"
NOT_STORED = "it is not stored yet: messages of batches that are acknowledged are not known"

Lengths = Sequence[tuple[int, int | None]]


class ReadCursors(NamedTuple):
    """`ledgers`: those of the topic, which tell it from another one of its name."""

    ledgers: frozenset[int]
    cursors: tuple[CopiedCursor, ...]


@dataclass(frozen=True)
class LiveCursors:
    """`stored`: opened at the first use; None where no metadata service is configured."""

    states: Admin
    stored: Callable[[], StoredTopics] | None
    names: Callable[[], SubscriptionNames]

    def read(self, topic: TopicName, *, loaded: bool) -> ReadCursors:
        """By name, in order. `loaded`: a broker has the topic loaded; else only what is stored is read. Raises
        DamagedRecordError, ProtocolError, and what the broker and the metadata service raise."""
        names = self.names()
        if loaded:
            return self._of_broker(topic, names)
        if self.stored is None:
            raise BrokerUnavailableError(f"{topic}: no broker has it loaded, and no metadata service is configured")
        return _of_stored(self.stored().read(topic), names)

    def _of_broker(self, topic: TopicName, names: SubscriptionNames) -> ReadCursors:
        looks = [self.states.cursors(topic)]
        traits = self.states.subscription_traits(topic)
        durable = [name for name in sorted(traits) if names.kind(name) is SubscriptionKind.USER]
        settled: dict[str, CursorState] = {}
        while len(looks) < LOOKS and not (len(looks) > 1 and settled.keys() >= looks[-1].cursors.keys() & set(durable)):
            looks.append(self.states.cursors(topic))
            before, after = looks[-2].cursors, looks[-1].cursors
            settled |= {name: look for name, look in after.items() if _stayed(before.get(name), look)}
        # Only now: what is stored must not be older than a reset that the looks have seen.
        stored = None if self.stored is None else self.stored().read(topic).cursors
        lengths, last = looks[-1].lengths, looks[-1].cursors
        found = []
        for name in durable:
            if name not in last:  # deleted meanwhile
                continue
            look = settled.get(name) or _lowest(looks[-2].cursors.get(name), last[name])
            missing = () if name in settled else (UNSTABLE,)
            found.append(_merged(name, look, traits[name], stored, lengths, missing))
        return ReadCursors(frozenset(ledger for ledger, _ in lengths), tuple(found))


def _stayed(before: CursorState | None, after: CursorState) -> bool:
    return before is not None and before.mark_delete == after.mark_delete


def _lowest(before: CursorState | None, after: CursorState) -> CursorState:
    """Of one that moved: forwards or, by a reset, backwards."""
    return after if before is None else replace(after, mark_delete=min(_mark(before), _mark(after)))


def _mark(look: CursorState) -> Place:
    """A broker always reports one."""
    return look.mark_delete or EARLIEST


def _merged(
    name: str,
    look: CursorState,
    traits: SubscriptionTraits,
    stored: Mapping[str, StoredCursor] | None,
    lengths: Lengths,
    missing: tuple[str, ...],
) -> CopiedCursor:
    mark_delete = _mark(look)
    batches, source, why = _batches(mark_delete, stored, name)
    return CopiedCursor(
        name,
        mark_delete,
        _pieces(name, mark_delete, look.ranges, batches, lengths),
        look.properties,
        traits.properties,
        traits.replicated,
        (CursorSource.BROKER, *source),
        (*missing, *why),
    )


def _batches(
    mark_delete: Place, stored: Mapping[str, StoredCursor] | None, name: str
) -> tuple[tuple[PartlyAcknowledged, ...], tuple[CursorSource, ...], tuple[str, ...]]:
    """Those that are stored, where they were read, and why they may not be all."""
    if stored is None:
        return (), (), (NO_METADATA,)
    cursor = stored.get(name)
    if cursor is None:
        return (), (), (NOT_STORED,)
    state = cursor.state
    if state is None or not cursor.complete:
        return (), (), (problem_of(cursor),)
    if state.mark_delete is not None and state.mark_delete > mark_delete:
        return (), (), (OUTDATED,)
    return state.batches, (_source(state),), ()


def _of_stored(topic: StoredTopic, names: SubscriptionNames) -> ReadCursors:
    lengths = [(one.ledger, one.entries) for one in topic.ledgers]
    found = []
    for name, cursor in sorted(topic.cursors.items()):
        if names.kind(name) is not SubscriptionKind.USER:
            continue
        state = cursor.state
        if state is None or state.mark_delete is None:
            raise DamagedRecordError(f"{topic.topic}: where its subscription {name} stands: {problem_of(cursor)}")
        pieces = _pieces(name, state.mark_delete, state.ranges, state.batches, lengths)
        missing = () if cursor.complete else (problem_of(cursor),)
        replicated = (REPLICATED, 1) in state.properties
        found.append(
            CopiedCursor(
                name,
                state.mark_delete,
                pieces,
                tuple(sorted(state.properties)),
                tuple(sorted(state.subscription_properties)),
                replicated,
                (_source(state),),
                missing,
            )
        )
    return ReadCursors(frozenset(ledger for ledger, _ in lengths), tuple(found))


def _pieces(
    name: str,
    mark_delete: Place,
    ranges: Sequence[AcknowledgedRange],
    batches: Sequence[PartlyAcknowledged],
    lengths: Lengths,
) -> dict[int, bytes]:
    try:
        return pieces_of(mark_delete, ranges, batches, lengths)
    except ValueError as error:
        raise ProtocolError(f"the subscription {name} has acknowledged what no topic has: {error}") from error


def _source(state: CursorState) -> CursorSource:
    return CursorSource.NODE if state.cursor_ledger is None else CursorSource.CURSOR_LEDGER
