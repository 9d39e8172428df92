"""The entries' own CRC32C, checked without copying them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from crc32c import crc32c

from offloader.format.entry import MAGIC_BROKER_METADATA, MAGIC_CHECKSUM, crc_ok

_HEAD = Struct(">HI")
_CHECKSUM = int.from_bytes(MAGIC_CHECKSUM)
_BROKER_METADATA = int.from_bytes(MAGIC_BROKER_METADATA)


def damaged_entries(data: memoryview, bounds: Sequence[int]) -> list[int]:
    """The numbers, from 0, of the entries that do not have the checksum that they say."""
    head, size = _HEAD.unpack_from, _HEAD.size
    found = []
    places = iter(bounds)
    for number, (begin, end) in enumerate(zip(places, places, strict=True)):
        at = begin + size
        if at <= end:
            magic, value = head(data, begin)
            if magic == _BROKER_METADATA and at + value + size <= end:
                at += value + size
                magic, value = head(data, at - size)
                if magic != _CHECKSUM:
                    continue
            if magic == _CHECKSUM and crc32c(data[at:end]) == value:
                continue
            if magic not in (_CHECKSUM, _BROKER_METADATA):
                continue
        if not crc_ok(bytes(data[begin:end])):  # which knows all cases
            found.append(number)
    return found


def uncovered_entries(data: memoryview, bounds: Sequence[int]) -> list[int]:
    """The numbers, from 0, of the entries whose own checksum does not cover all of them: those with broker metadata,
    and opaque ones, among which all are that are too short for a checksum."""
    places = iter(bounds)
    pairs = enumerate(zip(places, places, strict=True))
    return [
        number
        for number, (begin, end) in pairs
        if end - begin < _HEAD.size or data[begin : begin + 2] != MAGIC_CHECKSUM
    ]
