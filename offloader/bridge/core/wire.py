"""Protobuf's wire format, as far as a message is taken apart and put together again byte for byte. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from offloader.errors import DamagedRecordError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}
_LONGEST = 10  # bytes of a varint


class WireField(NamedTuple):
    """One field as it stands there: `whole` with its tag, `value` without it (of BYTES: without its length, too)."""

    number: int
    kind: int
    whole: bytes
    value: bytes


def wire_fields(data: bytes) -> Iterator[WireField]:
    """A message's fields in their order; joined, their `whole` is the message. Raises DamagedRecordError."""
    at = 0
    while at < len(data):
        tag, value = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if number < 1:
            raise DamagedRecordError(f"at byte {at} stands a field with the number {number}")
        begin, end = _extent(data, kind, value)
        if end > len(data):
            raise DamagedRecordError(f"field {number} at byte {at} is cut off")
        yield WireField(number, kind, data[at:end], data[begin:end])
        at = end


def bytes_field(number: int, value: bytes) -> bytes:
    """A field that holds bytes, or a message."""
    return _encoded(number << 3 | BYTES) + _encoded(len(value)) + value


def _extent(data: bytes, kind: int, value: int) -> tuple[int, int]:
    """From where to where the value that begins at `value` reaches."""
    if kind == VARINT:
        return value, _varint(data, value)[1]
    if kind == BYTES:
        length, begin = _varint(data, value)
        return begin, begin + length
    if kind in _FIXED:
        return value, value + _FIXED[kind]
    raise DamagedRecordError(f"at byte {value} stands a field of wire type {kind}, which nobody here writes")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a byte, and where it ends."""
    found = 0
    for place, byte in enumerate(data[at : at + _LONGEST]):
        found |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return found, at + place + 1
    raise DamagedRecordError(f"at byte {at} a number has no end")


def _encoded(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
