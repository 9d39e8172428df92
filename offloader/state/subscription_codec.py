"""The records of a subscription's state: the node's value, and the last entry of the cursor's ledger. Pure.

Pulsar 4.0 and 4.2 write a ManagedCursorInfo into the node and a PositionInfo into the ledger. A state that says
anything else is decoded as far as we understand it, and says what we do not. Its bytes are kept by whoever read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from offloader._proto.managed_ledger_pb2 import (
    BatchedEntryDeletionIndexInfo,
    LongListMap,
    LongProperty,
    ManagedCursorInfo,
    NestedPositionInfo,
    PositionInfo,
    StringProperty,
)
from offloader.errors import DamagedRecordError
from offloader.model import AcknowledgedRange, PartlyAcknowledged, Place, joined
from offloader.state.envelope import MAGIC, decode_message, parse_message, unknown_fields
from offloader.state.subscription import CursorState

NO_LEDGER = -1
_WORD = 64
_BITS = (1 << _WORD) - 1
_SIGN = 1 << (_WORD - 1)

_Range = ManagedCursorInfo.MessageRange


def decode_cursor_record(data: bytes) -> ManagedCursorInfo:
    """The message in a cursor's node. Raises DamagedRecordError."""
    return decode_message(data, ManagedCursorInfo, "cursor")


def decode_cursor_node(
    value: bytes, version: int = 0, *, created_ms: int | None = None, born: int | None = None
) -> CursorState:
    """The value of a cursor's node, raw or compressed. An empty one is damaged: brokers write them whole. The version,
    the time and the number are the node's. Raises DamagedRecordError."""
    info = decode_cursor_record(value)
    has_place = info.HasField("markDeleteLedgerId") and info.HasField("markDeleteEntryId")
    return CursorState(
        mark_delete=_place(info.markDeleteLedgerId, info.markDeleteEntryId) if has_place else None,
        ranges=joined(map(_range, info.individualDeletedMessages)),
        batches=_batches(info.batchedEntryDeletionIndexInfo),
        properties=tuple((_text(one.name), one.value) for one in info.properties),
        subscription_properties=tuple((_text(one.name), _text(one.value)) for one in info.cursorProperties),
        cursor_ledger=info.cursorsLedgerId if info.cursorsLedgerId >= 0 else None,
        last_active_ms=info.lastActive if info.HasField("lastActive") else None,
        unknown=unknown_fields(info, "the node"),
        version=version,
        created_ms=created_ms,
        born=born,
    )


def decode_cursor_entry(payload: bytes) -> CursorState:
    """The payload of an entry of a cursor's ledger. One in another program's form is a state that we do not
    understand. Raises DamagedRecordError."""
    if payload.startswith((b"{", MAGIC)):
        return CursorState(None, unknown=("the entry of the cursor's ledger is not in Pulsar's own form",))
    info = parse_message(payload, PositionInfo, "cursor's position")
    dense = (one for each in info.individualDeletedMessageRanges for one in _of_words(each.key, each.values))
    return CursorState(
        mark_delete=_place(info.ledgerId, info.entryId),
        ranges=joined((*map(_range, info.individualDeletedMessages), *dense)),
        batches=_batches(info.batchedEntryDeletionIndexInfo),
        properties=tuple((_text(one.name), one.value) for one in info.properties),
        unknown=unknown_fields(info, "the entry of the cursor's ledger"),
    )


def encode_cursor_node(state: CursorState) -> bytes:
    """The value of a node, not compressed, as a broker writes it."""
    info = ManagedCursorInfo(
        cursorsLedgerId=NO_LEDGER if state.cursor_ledger is None else state.cursor_ledger,
        individualDeletedMessages=map(_range_message, state.ranges),
        properties=(LongProperty(name=name, value=value) for name, value in state.properties),
        lastActive=state.last_active_ms,
        batchedEntryDeletionIndexInfo=map(_batch_message, state.batches),
        cursorProperties=(StringProperty(name=name, value=text) for name, text in state.subscription_properties),
    )
    if state.mark_delete is not None:
        info.markDeleteLedgerId, info.markDeleteEntryId = state.mark_delete
    return info.SerializeToString()


def encode_cursor_entry(state: CursorState, *, dense: bool = False) -> bytes:
    """The payload of an entry of a cursor's ledger. `dense`: as from Pulsar 4.1 on, where no range crosses ledgers."""
    if state.mark_delete is None:
        raise ValueError("an entry of a cursor's ledger has a position")
    ranges = () if dense else state.ranges
    info = PositionInfo(
        ledgerId=state.mark_delete[0],
        entryId=state.mark_delete[1],
        individualDeletedMessages=map(_range_message, ranges),
        properties=(LongProperty(name=name, value=value) for name, value in state.properties),
        batchedEntryDeletionIndexInfo=map(_batch_message, state.batches),
        individualDeletedMessageRanges=_dense(state.ranges) if dense else (),
    )
    return info.SerializeToString()


def _range(message: _Range) -> AcknowledgedRange:
    low, high = message.lowerEndpoint, message.upperEndpoint
    found = AcknowledgedRange(_place(low.ledgerId, low.entryId), _place(high.ledgerId, high.entryId))
    if found.after > found.last:
        raise DamagedRecordError(f"no cursor can have acknowledged from {found.after} back to {found.last}")
    return found


def _range_message(one: AcknowledgedRange) -> _Range:
    return _Range(lowerEndpoint=_place_message(one.after), upperEndpoint=_place_message(one.last))


def _batches(infos: Iterable[BatchedEntryDeletionIndexInfo]) -> tuple[PartlyAcknowledged, ...]:
    """In order. Of one that stands twice, what either acknowledges is acknowledged."""
    found: dict[Place, tuple[int, ...]] = {}
    for info in infos:
        place = _place(info.position.ledgerId, info.position.entryId)
        words = tuple(info.deleteSet)
        before = found.get(place, words)
        found[place] = tuple(a & b for a, b in zip(before, words, strict=False))
    return tuple(PartlyAcknowledged(*place, found[place]) for place in sorted(found))


def _batch_message(one: PartlyAcknowledged) -> BatchedEntryDeletionIndexInfo:
    return BatchedEntryDeletionIndexInfo(position=_place_message((one.ledger, one.entry)), deleteSet=one.words)


def _of_words(ledger: int, words: Iterable[int]) -> Iterator[AcknowledgedRange]:
    """The runs of ones in a dense bit set: bit n is entry n."""
    _place(ledger, 0)
    begin: int | None = None
    at = 0
    for word in words:
        bits = word & _BITS
        if bits == (_BITS if begin is not None else 0):
            at += _WORD  # nothing ends and nothing begins here: most words of a large set are like that
            continue
        for entry in range(at, at + _WORD):
            is_set = bits >> (entry - at) & 1
            if is_set and begin is None:
                begin = entry
            elif not is_set and begin is not None:
                yield AcknowledgedRange((ledger, begin - 1), (ledger, entry - 1))
                begin = None
        at += _WORD
    if begin is not None:
        yield AcknowledgedRange((ledger, begin - 1), (ledger, at - 1))


def _dense(ranges: Iterable[AcknowledgedRange]) -> Iterator[LongListMap]:
    sets: dict[int, int] = {}
    for after, last in ranges:
        if after[0] != last[0]:
            raise ValueError("a dense set is of one ledger")
        run = (1 << (last[1] - after[1])) - 1
        sets[last[0]] = sets.get(last[0], 0) | run << (after[1] + 1)
    for ledger, bits in sets.items():
        yield LongListMap(key=ledger, values=_words(bits))


def _words(bits: int) -> list[int]:
    count = -(-bits.bit_length() // _WORD)
    unsigned = ((bits >> _WORD * number) & _BITS for number in range(count))
    return [word - (1 << _WORD) if word & _SIGN else word for word in unsigned]


def _place(ledger: int, entry: int) -> Place:
    """Raises DamagedRecordError for what is no position: -1:-1 is one, of an empty topic."""
    if ledger < -1 or entry < -1:
        raise DamagedRecordError(f"{ledger}:{entry} is no position of a cursor")
    return ledger, entry


def _place_message(place: Place) -> NestedPositionInfo:
    return NestedPositionInfo(ledgerId=place[0], entryId=place[1])


def _text(value: object) -> str:
    """A proto2 string need not be UTF-8: then it is none that we could write again."""
    if not isinstance(value, str):
        raise DamagedRecordError("this is no record of a cursor: a property is no text")
    return value
