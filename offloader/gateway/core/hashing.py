"""The hash of brokers (MurmurHash3, x86, 32 bits, seed 0) of keys and consumers' names, and where these fall. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from struct import iter_unpack

import numpy as np
from numpy.typing import NDArray

from offloader.gateway.values import STICKY_HASHES

_MASK = 0xFFFF_FFFF


def murmur3_32(data: bytes) -> int:
    """Of one value. Brokers leave its highest bit out."""
    found, tail = 0, len(data) - len(data) % 4
    for (word,) in iter_unpack("<I", data[:tail]):
        found = _rotated(found ^ _mixed(word), 13) * 5 + 0xE6546B64 & _MASK
    found ^= _mixed(int.from_bytes(data[tail:], "little")) ^ len(data)
    found = (found ^ found >> 16) * 0x85EBCA6B & _MASK
    found = (found ^ found >> 13) * 0xC2B2AE35 & _MASK
    return found ^ found >> 16


def _mixed(word: int) -> int:
    return _rotated(word * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _MASK


_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_LONG = 64  # bytes; a table of longer keys would mostly be padding
_WORDS = np.dtype("<u4")
UInt32s = NDArray[np.uint32]


def sticky_hash(key: bytes) -> int:
    """31 bits, as in brokers. What becomes of it depends on how a subscription's consumers share the keys."""
    return murmur3_32(key) & 0x7FFF_FFFF


def sticky_hashes(keys: Sequence[bytes]) -> NDArray[np.int64]:
    """`sticky_hash` of each key; faster where they are many."""
    return (_hashes_of(keys) & np.uint32(0x7FFF_FFFF)).astype(np.int64)


def _hashes_of(keys: Sequence[bytes]) -> UInt32s:
    """`murmur3_32` of each key."""
    found = np.empty(len(keys), np.uint32)
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    is_long = lengths > _LONG
    short = np.flatnonzero(~is_long)
    if len(short):
        found[short] = _of_table([keys[number] for number in short.tolist()], lengths[short])
    for number in np.flatnonzero(is_long).tolist():
        found[number] = murmur3_32(keys[number])
    return found


def _of_table(keys: list[bytes], lengths: NDArray[np.int64]) -> UInt32s:
    """Of keys of about one length: a table has a row for each, filled up with zeros."""
    words = -(-int(lengths.max()) // 4)
    table = np.frombuffer(b"".join(key.ljust(4 * words, b"\0") for key in keys), _WORDS).reshape(len(keys), words)
    whole, rest = lengths // 4, lengths % 4
    found = np.zeros(len(keys), np.uint32)
    for column in range(words):
        mixed = _mixed_many(table[:, column].astype(np.uint32))
        block = _rotated_many(found ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        tail = np.where((whole == column) & (rest > 0), found ^ mixed, found)
        found = np.where(column < whole, block, tail)
    return _finished_many(found ^ lengths.astype(np.uint32))


def _mixed_many(words: UInt32s) -> UInt32s:
    return _rotated_many(words * _C1, 15) * _C2


def _rotated_many(words: UInt32s, bits: int) -> UInt32s:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


def _finished_many(hashes: UInt32s) -> UInt32s:
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))


RING = 1 << 31
POINTS = 100
"""Of each consumer on a ring, as brokers have them by default."""


def name_hash(name: str) -> int:
    """MurmurHash3 (x86, 32 bits, seed 0) without its highest bit."""
    return murmur3_32(name.encode()) & RING - 1


def ring_slot(hashed: int) -> int:
    """1..65535: of a key or a name, where the keys are split by a ring."""
    return hashed % (STICKY_HASHES - 1) + 1


def range_slot(hashed: int) -> int:
    """1..65535: of a key, where consumers name ranges. Not as above, in brokers too: theirs begin at 0."""
    return hashed % STICKY_HASHES or 1


def distance(topic: str, consumer: str) -> int:
    """How far behind a topic's point on the ring the first one of a consumer is: the nearest becomes active."""
    start = name_hash(topic)
    return min((name_hash(f"{consumer}{point}") - start) % RING for point in range(POINTS))


class HashRanges:
    """Hashes from the first to the last of each range, both included; they may overlap."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in sorted(each for each in ranges if each[0] <= each[1]):
            if self._lasts and first <= self._lasts[-1]:
                self._lasts[-1] = max(last, self._lasts[-1])
            else:
                self._firsts.append(first)
                self._lasts.append(last)

    def __contains__(self, slot: int) -> bool:
        at = bisect_right(self._firsts, slot) - 1
        return at >= 0 and slot <= self._lasts[at]
