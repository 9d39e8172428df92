"""What is saved of a subscription before it is deleted, and its bytes in the record of the deletion. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from offloader._proto import metadata_pb2 as pb
from offloader.metadata.value_codec import deltas, sums, unknown_fields
from offloader.model import AcknowledgedRange, PartlyAcknowledged, Place
from offloader.ports.subscriptions import SubscriptionLook
from offloader.state.subscription import CursorState, whole_state
from offloader.state.subscription_codec import decode_cursor_entry, decode_cursor_node

_NUMBERS = 4  # of a range


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


def saved_message(saved: SavedCursor) -> pb.SavedCursor:
    """A saved state as its message."""
    look = saved.look
    message = pb.SavedCursor(
        created=look.created,
        mark_ledger=look.mark_delete[0],
        mark_entry=look.mark_delete[1],
        ranges=deltas(number for one in look.ranges for place in one for number in place),
        last_active=look.last_active_ms,
        replicated=look.replicated,
        properties=(pb.Property(key=key, value=value) for key, value in look.properties),
        node=saved.node,
        entry=saved.entry,
        taken_at=saved.taken_at,
        backlog=look.backlog,
    )
    message.MergeFromString(saved.unknown_fields)
    return message


def read_saved(m: pb.SavedCursor) -> SavedCursor:
    """The saved state of a message. Raises ValueError."""
    look = SubscriptionLook(
        created=m.created,
        mark_delete=(m.mark_ledger, m.mark_entry),
        ranges=tuple(_ranges(sums(m.ranges))),
        consumers=0,
        backlog=m.backlog,
        last_active_ms=m.last_active,
        replicated=m.replicated,
        properties=tuple((one.key, one.value) for one in m.properties),
    )
    entry = m.entry if m.HasField("entry") else None
    return SavedCursor(look, m.node, entry, m.taken_at, unknown_fields(m))


def _ranges(numbers: Sequence[int]) -> Iterator[AcknowledgedRange]:
    if len(numbers) % _NUMBERS:
        raise ValueError("a range is cut off")
    for at in range(0, len(numbers), _NUMBERS):
        a, b, c, d = numbers[at : at + _NUMBERS]
        if (a, b) > (c, d):
            raise ValueError(f"no range goes from {a}:{b} back to {c}:{d}")
        yield AcknowledgedRange((a, b), (c, d))
