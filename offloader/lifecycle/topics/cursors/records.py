"""What is recorded of a subscription's removal, from its mark to its end, and what is saved before it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from offloader.bookkeeper.cursor_codec import decode_cursor_entry, decode_cursor_node
from offloader.bookkeeper.cursor_state import CursorState, whole_state
from offloader.model import AcknowledgedRange, PartlyAcknowledged, Place, TopicName
from offloader.ports.subscriptions import SubscriptionLook


class RemovalState(StrEnum):
    """`MARKED`, `REMOVING`, `UNDOING` and `GIVEN_UP` are pending; the others are ends."""

    MARKED = "marked"  # first phase: nothing else has changed
    REMOVING = "removing"  # a deletion may be on its way
    REMOVED = "removed"
    KEPT = "kept"  # ended without a removal; its reason says why
    UNDOING = "undoing"  # it may be there again, not yet as it was
    UNDONE = "undone"
    GIVEN_UP = "given up"  # after the last try


CursorName = tuple[TopicName, str]
"""Topic and subscription."""


@dataclass(frozen=True, slots=True)
class CursorRemoval:
    """One removal. Times are ms. `saved`: the number of its saved state. `held`: bytes that it held back."""

    topic: TopicName
    subscription: str
    state: RemovalState
    marked_at: int
    marked_by: str
    saved: int
    held: int = 0
    tries: int = 0
    next_at: int = 0
    reason: str = ""
    ended_at: int = 0
    unknown_fields: bytes = b""

    @property
    def name(self) -> CursorName:
        """What is removed."""
        return self.topic, self.subscription

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is done about it by itself."""
        return self.state in (RemovalState.REMOVED, RemovalState.KEPT, RemovalState.UNDONE)

    @property
    def is_in_flight(self) -> bool:
        """Whether the second phase is still to come, or is on its way."""
        return self.state in (RemovalState.MARKED, RemovalState.REMOVING)


@dataclass(frozen=True, slots=True)
class SavedCursor:
    """All that there is of a subscription at one look. `node`, `entry`: the stored bytes."""

    look: SubscriptionLook
    node: bytes = field(repr=False)
    entry: bytes | None = field(repr=False)
    taken_at: int
    unknown_fields: bytes = b""

    @property
    def state(self) -> CursorState:
        """The broker's memory for what it tells, what is stored for the rest. Raises DamagedRecordError."""
        entry = None if self.entry is None else decode_cursor_entry(self.entry)
        stored = whole_state(decode_cursor_node(self.node), entry)
        return as_looked_at(stored, self.look)


def as_looked_at(stored: CursorState, look: SubscriptionLook) -> CursorState:
    """A broker's memory is never behind what it stored, and tells all of its ranges; of batches it tells nothing."""
    batches = tuple(one for one in stored.batches if not _covered(one, look.mark_delete, look.ranges))
    return replace(stored, mark_delete=look.mark_delete, ranges=look.ranges, batches=batches)


def _covered(part: PartlyAcknowledged, mark: Place, ranges: tuple[AcknowledgedRange, ...]) -> bool:
    place = part.ledger, part.entry
    return place <= mark or any(after < place <= last for after, last in ranges)
