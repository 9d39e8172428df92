"""Where the messages of an uncompressed batch begin: each one's place is known only from the one before."""

from __future__ import annotations

from struct import Struct, error

_U32 = Struct(">I")
_PROPERTIES, _PARTITION_KEY, _PAYLOAD_SIZE = 0x0A, 0x12, 0x18


def walk(data: memoryview, at: int, end: int, count: int) -> list[int] | None:
    """The places of `count` messages from `at` on; None where they do not end by `end`, or are not written as clients write them.

    Clients write fields in the order of their numbers: the payload's size comes after properties and key.
    """
    found = []
    try:
        for _ in range(count):
            found.append(at)
            begin = at + 4
            stop = begin + _U32.unpack_from(data, at)[0]
            size = _payload_size(data, begin)
            at = stop + size
            if size < 0 or at > end:
                return None
    except (IndexError, ValueError, error):  # beyond the buffer, or not a size
        return None
    return found


def _payload_size(data: memoryview, at: int) -> int:
    """The payload's size; -1 where it does not stand where it should."""
    while (tag := data[at]) in (_PROPERTIES, _PARTITION_KEY):
        length = data[at + 1]
        if length < 0x80:
            at += 2 + length
        else:
            length, at = _varint(data, at + 1)
            at += length
    if tag != _PAYLOAD_SIZE:
        return -1
    size, second = data[at + 1], data[at + 2]
    if size < 0x80:
        return size
    return size & 0x7F | second << 7 if second < 0x80 else _varint(data, at + 1)[0]


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number and where it ends. Raises ValueError where it is longer than a size can be."""
    value = 0
    for shift in range(0, 35, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("not a size")
