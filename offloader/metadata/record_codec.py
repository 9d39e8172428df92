"""The codecs of records: to bytes, and back. Most record kinds need no code of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError
from offloader.metadata.envelope import FORMAT_VERSION, UnwrappedRecord, unwrap, wrap
from offloader.metadata.message_codec import message_of, read_value
from offloader.metadata.value_codec import damage_of

Value = TypeVar("Value")
Kinds = Mapping[str, type[Value]]
"""The classes of the records that one place holds, by their field of the body."""


class RecordCodec(NamedTuple, Generic[Value]):
    """`encode(token, record)`: with a token of this very write. `decode(key, data)`: the record that `key` holds;
    raises DamagedRecordError, FormatVersionError."""

    encode: Callable[[str, Value], bytes]
    decode: Callable[[str, bytes], Value]


def codec_of(kinds: Kinds[Value]) -> RecordCodec[Value]:
    """The codec of values whose messages have fields of the same names (see `add_messages`)."""
    return RecordCodec(partial(encode_kind, kinds), lambda key, data: read_kind(kinds, key, unwrap(key, data)))


def encode_kind(kinds: Kinds[Value], token: str, record: Value, format_version: int = FORMAT_VERSION) -> bytes:
    """The bytes of a record of one of the kinds: the same for the same arguments."""
    kind = next(kind for kind, each in kinds.items() if isinstance(record, each))
    return wrap(token, pb.Body(**{kind: message_of(record)}), format_version)


def read_kind(kinds: Kinds[Value], key: str, opened: UnwrappedRecord, where: str = "here") -> Value:
    """The value of a record; no others than those of the kinds belong there. Raises DamagedRecordError,
    FormatVersionError."""
    if opened.kind not in kinds:
        raise DamagedRecordError(f"{key}: a {opened.kind} record does not belong {where}")
    with damage_of(key):
        return read_value(kinds[opened.kind], getattr(opened.body, opened.kind))
