"""A protocol message as plain values: fields by their names, unknown ones by their numbers. Pure."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

Facts = dict[str, Any]

UNKNOWN = "unknownFields"


def fields_of(message: Message) -> Facts:
    """Every field that is set, in the order of the numbers. Bytes become hex; strings that are not UTF-8 too."""
    facts: Facts = {}
    for field, value in message.ListFields():
        facts[field.name] = [_plain(one) for one in value] if field.is_repeated else _plain(value)
    unknown = _unknown(UnknownFieldSet(message))
    return facts | {UNKNOWN: unknown} if unknown else facts


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return fields_of(value)
    return value.hex() if isinstance(value, bytes) else value


def _unknown(found: UnknownFieldSet) -> list[Facts]:
    return [{"number": one.field_number, "wireType": one.wire_type, "value": _unknown_value(one.data)} for one in found]  # type: ignore[attr-defined]


def _unknown_value(data: Any) -> Any:
    if isinstance(data, int):
        return data
    return data.hex() if isinstance(data, bytes) else _unknown(data)
