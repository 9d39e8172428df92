"""The bytes of a piece: what is acknowledged of one ledger, in the shorter of two forms. Pure.

    form (1 byte) | set of entries | partly acknowledged batches

Form 1, runs: their number, then for each how many entries lie between it and the run before (of the first one: before
it), and how many it has less one. Form 2, bits: the entry of the first bit, the number of bytes that follow, and the
bit set, zlib. Batches: their number, then for each how far its entry is from the one before, its size, the number of
bytes and the bits that are left, lowest first. All numbers are varints.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

from offloader.cursors.core.ledger_acks import MOST_BYTES, MOST_ENTRIES, MOST_MESSAGES, LedgerAcks
from offloader.errors import DamagedRecordError

RUNS, BITS = 1, 2
_LONGEST = 10  # bytes of a varint
_SHORTEST_RUN = 2  # bytes


def encode_piece(acks: LedgerAcks) -> bytes:
    """A piece's bytes; the same for equal sets of entries and batches."""
    return _entries(acks) + b"".join(_batches(acks))


def decode_piece(data: bytes) -> LedgerAcks:
    """What `encode_piece` wrote. Raises DamagedRecordError."""
    form, at = data[:1], 1
    if form == bytes([RUNS]):
        acks, at = _read_runs(data, at)
    elif form == bytes([BITS]):
        acks, at = _read_bits(data, at)
    else:
        raise DamagedRecordError(f"{form!r} is no form of a piece that this version knows")
    at = _read_batches(data, at, acks)
    if at != len(data):
        raise DamagedRecordError(f"a piece has {len(data) - at} bytes too many")
    return acks


def _entries(acks: LedgerAcks) -> bytes:
    bits = acks.bits
    first = len(bits) - len(bits.lstrip(b"\0"))
    packed = zlib.compress(bits[first:].rstrip(b"\0"))
    if _SHORTEST_RUN * acks.count_runs() <= len(packed):  # else millions of holes would be spread out in memory
        begins, ends = acks.edges()
        gaps = begins - np.concatenate(([-acks.base], ends))[: len(begins)]
        numbers = np.column_stack((gaps, ends - begins - 1)).ravel()
        size = int(sum(np.count_nonzero(numbers >= 1 << 7 * more) for more in range(1, _LONGEST - 1))) + len(numbers)
        if size <= len(packed):
            return bytes([RUNS]) + _varint(len(begins)) + b"".join(map(_varint, numbers.tolist()))
    return bytes([BITS]) + _varint(acks.base + 8 * first) + _varint(len(packed)) + packed


def _batches(acks: LedgerAcks) -> Iterator[bytes]:
    yield _varint(len(acks.batches))
    before = 0
    for entry, (size, left) in sorted(acks.batches.items()):
        words = left.to_bytes((left.bit_length() + 7) // 8, "little")
        yield _varint(entry - before) + _varint(size) + _varint(len(words)) + words
        before = entry


def _read_runs(data: bytes, at: int) -> tuple[LedgerAcks, int]:
    count, at = _read(data, at, len(data))
    acks, end = LedgerAcks(), 0
    for number in range(count):
        gap, at = _read(data, at, MOST_ENTRIES)
        more, at = _read(data, at, MOST_ENTRIES)
        if end + gap + more >= MOST_ENTRIES or (number and not gap):
            raise DamagedRecordError(f"run {number} of a piece does not follow the one before")
        acks.acknowledge(end + gap, end + gap + more)
        end += gap + more + 1
    return acks, at


def _read_bits(data: bytes, at: int) -> tuple[LedgerAcks, int]:
    base, at = _read(data, at, MOST_ENTRIES)
    length, at = _read(data, at, len(data))
    stream = zlib.decompressobj()
    try:
        bits = stream.decompress(data[at : at + length], MOST_BYTES + 1)
    except zlib.error as error:
        raise DamagedRecordError(f"the bits of a piece: {error}") from error
    if not stream.eof or stream.unused_data or base % 8 or base + 8 * len(bits) > MOST_ENTRIES:
        raise DamagedRecordError("the bits of a piece are cut off, or more than a ledger can have")
    return LedgerAcks(base, bits), at + length


def _read_batches(data: bytes, at: int, acks: LedgerAcks) -> int:
    count, at = _read(data, at, len(data))
    entry = 0
    for number in range(count):
        step, at = _read(data, at, MOST_ENTRIES)
        size, at = _read(data, at, MOST_MESSAGES)
        length, at = _read(data, at, len(data) - at)
        left = int.from_bytes(data[at : at + length], "little")
        at += length
        entry += step
        known = entry < MOST_ENTRIES and (step or not number) and size and 0 < left < (1 << size) - 1
        if not known or acks.is_acknowledged(entry):
            raise DamagedRecordError(f"entry {entry} of a piece is no batch of which a part is acknowledged")
        acks.acknowledge_part(entry, size, left)
    return at


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _read(data: bytes, at: int, most: int) -> tuple[int, int]:
    """A number of at most `most`, and where it ends."""
    number = 0
    for place, byte in enumerate(data[at : at + _LONGEST]):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if number > most:
                break
            return number, at + place + 1
    raise DamagedRecordError(f"at byte {at} of a piece stands no number up to {most}")
