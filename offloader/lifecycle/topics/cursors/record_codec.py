"""Records of removals and saved states, to and from bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from offloader._proto import metadata_pb2 as pb
from offloader.lifecycle.topics.cursors.records import CursorRemoval, SavedCursor
from offloader.metadata.envelope import unwrap_kind, wrap
from offloader.metadata.message_codec import add_messages, message_of, read_value
from offloader.metadata.value_codec import damage_of, deltas, sums, unknown_fields
from offloader.model import AcknowledgedRange
from offloader.ports.subscriptions import SubscriptionLook

_NUMBERS = 4  # of a range


def encode_removal(token: str, record: CursorRemoval) -> bytes:
    """A record's bytes."""
    message = message_of(record)
    message.MergeFromString(record.unknown_fields)
    return wrap(token, pb.Body(cursor_removal=message))


def decode_removal(key: str, data: bytes) -> CursorRemoval:
    """The record that `key` holds. Raises DamagedRecordError, FormatVersionError."""
    message = unwrap_kind(key, data, "cursor_removal").body.cursor_removal
    with damage_of(key):
        return read_value(CursorRemoval, message, unknown_fields=unknown_fields(message))


def encode_saved(token: str, saved: SavedCursor) -> bytes:
    """A saved state's bytes."""
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
    return wrap(token, pb.Body(saved_cursor=message))


def decode_saved(key: str, data: bytes) -> SavedCursor:
    """The saved state that `key` holds. Raises DamagedRecordError, FormatVersionError."""
    m = unwrap_kind(key, data, "saved_cursor").body.saved_cursor
    with damage_of(key):
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


add_messages({CursorRemoval: pb.CursorRemoval}, {})
