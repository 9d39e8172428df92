"""Values and their messages, which have fields of the same names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from operator import attrgetter
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import FieldDescriptor

from offloader._proto import metadata_pb2 as pb
from offloader.metadata import value_codec
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
from offloader.metadata.part_codec import parts_message, read_parts
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
from offloader.model import (
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
# These have other fields than their messages; positions are here because there are many.
_BY_HAND: dict[Any, tuple[Convert, Convert]] = {
    Gap: (value_codec.gap_message, value_codec.read_gap),
    LedgerRange: (value_codec.ledger_message, value_codec.read_ledger),
    Position: (value_codec.position_message, value_codec.read_position),
    TopicName: (value_codec.topic_message, value_codec.read_topic),
    tuple[Part, ...]: (parts_message, read_parts),
    tuple[str, str]: (lambda pair: pb.Property(key=pair[0], value=pair[1]), lambda m: (m.key, m.value)),
}


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
    return kind, partial(value_codec.word, kind) if issubclass(kind, StrEnum) else kind


_FIELDS: dict[type, tuple[_Field, ...]] = {kind: _fields(kind) for kind in MESSAGES}


def add_messages(messages: Mapping[type, Any], by_hand: Mapping[Any, tuple[Convert, Convert]]) -> None:
    """The values of a wing above; `by_hand`: those that have other fields than their messages."""
    MESSAGES.update(messages)
    _BY_HAND.update(by_hand)
    _FIELDS.update((kind, _fields(kind)) for kind in messages)
