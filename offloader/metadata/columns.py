"""Columns of integers in few bytes: what makes a thousand open segments fit into one journal record.

A column is whatever is shortest: nothing at all (every value is 0), one big number per `CHUNK` values in the radix of
their range, or varints, compressed or not.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from itertools import islice

CHUNK = 128
RANGE, VARINTS, DEFLATED = 0, 1, 2
# Below this many bytes no other encoding is worth trying.
SHORT = 16


def pack(values: Sequence[int]) -> bytes:
    """The column's bytes; `unpack` gives the values back (zeros for ever where the bytes are empty)."""
    if not any(values):
        return b""
    ranged = bytes([RANGE]) + _pack_range(values)
    if len(ranged) <= SHORT:
        return ranged
    varints = b"".join(varint(zigzag(v)) for v in values)
    return min(ranged, bytes([VARINTS]) + varints, bytes([DEFLATED]) + zlib.compress(varints), key=len)


def unpack(data: bytes) -> list[int]:
    """The values of a column that is not empty. Raises ValueError, IndexError or zlib.error for damaged bytes."""
    kind, rest = data[0], data[1:]
    if kind == RANGE:
        return _unpack_range(rest)
    if kind not in (VARINTS, DEFLATED):
        raise ValueError(f"unknown kind of column {kind}")
    varints = zlib.decompress(rest) if kind == DEFLATED else rest
    if varints.isascii():  # a byte each
        return [OF_ONE_BYTE[byte] for byte in varints]
    stream = iter(varints)
    values: list[int] = []
    while (first := next(stream, None)) is not None:
        values.append(unzigzag(read_varint(stream, first)))
    return values


def zigzag(value: int) -> int:
    """Small for numbers near zero, whatever their sign."""
    return 2 * value if value >= 0 else -2 * value - 1


def unzigzag(value: int) -> int:
    """The opposite of `zigzag`."""
    return -((value + 1) // 2) if value & 1 else value // 2


OF_ONE_BYTE = tuple(unzigzag(byte) for byte in range(0x80))


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first, as in protobuf but without a limit."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(stream: Iterator[int], first: int | None = None) -> int:
    """Read one varint (whose first byte may have been taken already). Raises ValueError where the stream ends."""
    value, shift = 0, 0
    byte = next(stream, None) if first is None else first
    while byte is not None:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
        byte = next(stream, None)
    raise ValueError("a column ends within a number")


def _pack_range(values: Sequence[int]) -> bytes:
    low, high = min(values), max(values)
    radix = high - low + 1
    out = [varint(len(values)), varint(zigzag(low)), varint(radix - 1)]
    for begin in range(0, len(values), CHUNK):
        chunk = values[begin : begin + CHUNK]
        number = 0
        for value in reversed(chunk):
            number = number * radix + value - low
        out.append(number.to_bytes(_width(radix, len(chunk)), "big"))
    return b"".join(out)


def _unpack_range(data: bytes) -> list[int]:
    stream = iter(data)
    count, low, radix = read_varint(stream), unzigzag(read_varint(stream)), read_varint(stream) + 1
    values: list[int] = []
    while len(values) < count:
        length = min(CHUNK, count - len(values))
        width = _width(radix, length)
        chunk = bytes(islice(stream, width))
        if len(chunk) < width:
            raise ValueError(f"a column of {count} values ends after {len(values)}")
        number = int.from_bytes(chunk, "big")
        for _ in range(length):
            number, value = divmod(number, radix)
            values.append(value + low)
    return values


def _width(radix: int, count: int) -> int:
    largest: int = radix**count - 1
    return (largest.bit_length() + 7) // 8
