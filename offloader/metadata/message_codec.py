"""Values and their messages, which have fields of the same names. Parts alone have columns: one for each field."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from functools import partial
from itertools import accumulate, pairwise
from operator import attrgetter
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import FieldDescriptor

from offloader._proto import metadata_pb2 as pb
from offloader.metadata.deletions import (
    Deleted,
    DeletedRange,
    Deleting,
    DeletionBegun,
    DeletionUndone,
    PulsarTrimmed,
    Removal,
    SegmentRange,
    Tombstone,
    TopicGone,
)
from offloader.metadata.state import (
    Abandoned,
    AssignedAhead,
    CatalogHead,
    Claim,
    CloseRequest,
    GenerationBegun,
    GenerationEnded,
    LedgerClosed,
    NewestSegment,
    OpenTopic,
    TopicState,
)
from offloader.metadata.value_codec import (
    deltas,
    gap_message,
    ledger_message,
    position_message,
    read_gap,
    read_ledger,
    read_position,
    read_topic,
    sums,
    topic_message,
    word,
    wrapped,
)
from offloader.model import (
    EntryStats,
    Failure,
    Gap,
    LedgerRange,
    Loss,
    OpenSegment,
    Part,
    Position,
    SealedFacts,
    Segment,
    SegmentLayout,
    TopicName,
)

Value = TypeVar("Value")
Item = TypeVar("Item")
Convert = Callable[[Any], Any]

MESSAGES: dict[type, Any] = {
    Abandoned: pb.Abandoned,
    AssignedAhead: pb.AssignedAhead,
    CatalogHead: pb.Head,
    Claim: pb.Claim,
    CloseRequest: pb.CloseRequest,
    Deleted: pb.Deleted,
    DeletedRange: pb.DeletedRange,
    Deleting: pb.Deleting,
    DeletionBegun: pb.DeletionBegun,
    DeletionUndone: pb.DeletionUndone,
    Failure: pb.Failure,
    GenerationBegun: pb.GenerationBegun,
    GenerationEnded: pb.GenerationEnded,
    LedgerClosed: pb.LedgerClosed,
    Loss: pb.Loss,
    NewestSegment: pb.NewestSegment,
    OpenSegment: pb.OpenSegment,
    OpenTopic: pb.Topic,
    PulsarTrimmed: pb.PulsarTrimmed,
    Removal: pb.Removal,
    SealedFacts: pb.SealedFacts,
    Segment: pb.Segment,
    SegmentLayout: pb.Cuts,
    SegmentRange: pb.SegmentRange,
    Tombstone: pb.Tombstone,
    TopicGone: pb.TopicGone,
    TopicState: pb.Topic,
}
# Each statistic that an entry need not have has the column of its name.
OPTIONAL_STATS = tuple(f.name for f in fields(EntryStats) if f.default is None)


class _Field(NamedTuple):
    """`write` takes the field's value, `read` the whole message; None: both hold the same."""

    name: str
    write: Convert | None = None
    read: Convert | None = None


def message_of(value: object, **others: object) -> Any:
    """A value's message; a None is not set. `others`: the message's fields that the value does not have."""
    kind = type(value)
    own = {
        name: getattr(value, name) if write is None else write(getattr(value, name)) for name, write, _ in _FIELDS[kind]
    }
    return MESSAGES[kind](**own, **others)


def read_value(kind: type[Value], message: Any, **others: object) -> Value:
    """The value of a message. `others`: the value's fields that the message does not have."""
    own = {name: getattr(message, name) if read is None else read(message) for name, _, read in _FIELDS[kind]}
    return kind(**own, **others)


def _fields(kind: type) -> tuple[_Field, ...]:
    there = MESSAGES[kind].DESCRIPTOR.fields_by_name
    return tuple(_field(there[name], hint) for name, hint in get_type_hints(kind).items() if name in there)


def _field(field: FieldDescriptor, hint: Any) -> _Field:
    name, inner = field.name, get_args(hint)
    get = attrgetter(name)
    if hint in (int, str, bool):
        return _Field(name)
    if get_origin(hint) is tuple and hint not in _BY_HAND:
        write, read = _converters(inner[0])
        return _Field(name, lambda values: list(map(write, values)), lambda m: tuple(map(read, get(m))))
    if NoneType in inner:
        write, read = _converters(inner[0])
        is_set: Convert = (lambda m: m.HasField(name)) if field.has_presence else get
        return _Field(name, lambda v: v if v is None else write(v), lambda m: read(get(m)) if is_set(m) else None)
    write, read = _converters(hint)
    return _Field(name, write, lambda m: read(get(m)))


def _converters(kind: Any) -> tuple[Convert, Convert]:
    """To and from what a message's field holds."""
    if kind in _BY_HAND:
        return _BY_HAND[kind]
    if kind in MESSAGES:
        return message_of, partial(read_value, kind)
    return kind, partial(word, kind) if issubclass(kind, StrEnum) else kind


def add_messages(messages: Mapping[type, Any], by_hand: Mapping[Any, tuple[Convert, Convert]]) -> None:
    """The values of a wing above; `by_hand`: those that have other fields than their messages."""
    MESSAGES.update(messages)
    _BY_HAND.update(by_hand)
    _FIELDS.update((kind, _fields(kind)) for kind in messages)


def parts_message(parts: Sequence[Part]) -> pb.Parts:
    """Parts as columns of plain differences; the envelope's compressor does the rest. See `read_parts`."""
    ledgers = [x for p in parts for x in p.ledgers]
    stats = [p.stats for p in parts]
    ends = [0, *(p.offset + p.size for p in parts)]
    message = pb.Parts(
        etags=[p.etag for p in parts],
        crcs=[p.crc32c for p in parts],
        number=deltas(p.number for p in parts),
        offset=[wrapped(p.offset - end) for p, end in zip(parts, ends, strict=False)],
        size=deltas(p.size for p in parts),
        blocks=deltas(p.blocks for p in parts),
        indexed=deltas(p.indexed for p in parts),
        ledger_count=[len(p.ledgers) for p in parts],
        ledger=deltas(x.ledger for x in ledgers),
        first=deltas(x.first for x in ledgers),
        last=deltas(x.last for x in ledgers),
        entries=deltas(x.count for x in ledgers),
        bytes=deltas(x.size for x in ledgers),
        closed_with=_optional_column([x.closed_with for x in ledgers]),
        messages=deltas(s.messages for s in stats),
        unreadable=deltas(s.unreadable for s in stats),
        aborted_count=[len(s.aborted) for s in stats],
        aborted=[half for s in stats for transaction in s.aborted for half in transaction],
        gap_count=[len(p.gaps) for p in parts],
        gaps=[gap_message(g) for p in parts for g in p.gaps],
    )
    for name in OPTIONAL_STATS:
        getattr(message, name).CopyFrom(_optional_column([getattr(s, name) for s in stats]))
    return message


def read_parts(m: pb.Parts) -> tuple[Part, ...]:
    """See `parts_message`. Raises ValueError where the columns do not fit together."""
    count = len(m.etags)
    sizes = _values(m.size, count)
    columns = (
        _values(m.number, count),
        _offsets(_whole(m.offset, count), sizes),
        sizes,
        m.etags,
        _whole(m.crcs, count),
        _values(m.blocks, count),
        _runs(_read_ledgers(m), m.ledger_count, count),
        _values(m.indexed, count),
        _read_stats(m, count),
        _runs(list(map(read_gap, m.gaps)), m.gap_count, count),
    )
    return tuple(map(Part, *columns))


def _read_ledgers(m: pb.Parts) -> list[LedgerRange]:
    count = len(m.ledger)
    numbers = (_values(column, count) for column in (m.ledger, m.first, m.last, m.entries, m.bytes))
    return [
        LedgerRange(ledger, first, last + 1, count=entries, size=size, closed_with=closed_with)
        for ledger, first, last, entries, size, closed_with in zip(
            *numbers, _optional_values(m.closed_with, count), strict=True
        )
    ]


def _read_stats(m: pb.Parts, count: int) -> list[EntryStats]:
    aborted = _runs(list(zip(m.aborted[::2], m.aborted[1::2], strict=True)), m.aborted_count, count)
    optional = zip(*(_optional_values(getattr(m, name), count) for name in OPTIONAL_STATS), strict=True)
    columns = zip(_values(m.messages, count), optional, aborted, _values(m.unreadable, count), strict=True)
    return [
        EntryStats(
            messages,
            **dict(zip(OPTIONAL_STATS, map(_unsigned, known), strict=True)),
            aborted=transactions,
            unreadable=unreadable,
        )
        for messages, known, transactions, unreadable in columns
    ]


def _values(column: Sequence[int], count: int) -> list[int]:
    return sums(_whole(column, count))


def _offsets(gaps: Iterable[int], sizes: Iterable[int]) -> list[int]:
    offsets, end = [], 0
    for gap, size in zip(gaps, sizes, strict=True):
        offsets.append(wrapped(end + gap))
        end = offsets[-1] + size
    return offsets


def _optional_column(values: Sequence[int | None]) -> pb.Column:
    known = [value for value in values if value is not None]
    return pb.Column(deltas=deltas(known), absent=[i for i, value in enumerate(values) if value is None])


def _optional_values(column: pb.Column, count: int) -> list[int | None]:
    absent = set(column.absent)
    if any(place >= count for place in absent):
        raise ValueError(f"a place {max(absent)} in a column of {count}")
    known = iter(_values(column.deltas, count - len(absent)))
    return [None if place in absent else next(known) for place in range(count)]


def _unsigned(number: int | None) -> int | None:
    """As times and indexes are written and compared."""
    return None if number is None else number % 2**64


def _runs(items: Sequence[Item], counts: Sequence[int], parts: int) -> list[tuple[Item, ...]]:
    """The items that belong to each part."""
    ends = list(accumulate(_whole(counts, parts), initial=0))
    if min(counts, default=0) < 0 or ends[-1] != len(items):
        raise ValueError(f"{len(items)} values where {parts} parts have {ends[-1]}")
    return [tuple(items[begin:end]) for begin, end in pairwise(ends)]


def _whole(column: Sequence[int], count: int) -> Sequence[int]:
    if len(column) != count:
        raise ValueError(f"a column of {len(column)} values where {count} belong")
    return column


# These have other fields than their messages; positions are here because there are many.
_BY_HAND: dict[Any, tuple[Convert, Convert]] = {
    Gap: (gap_message, read_gap),
    LedgerRange: (ledger_message, read_ledger),
    Position: (position_message, read_position),
    TopicName: (topic_message, read_topic),
    tuple[Part, ...]: (parts_message, read_parts),
    tuple[str, str]: (lambda pair: pb.Property(key=pair[0], value=pair[1]), lambda m: (m.key, m.value)),
}
_FIELDS: dict[type, tuple[_Field, ...]] = {kind: _fields(kind) for kind in MESSAGES}
