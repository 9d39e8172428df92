"""The hash that brokers use, and where consumers' names fall by it. Pure."""

from __future__ import annotations

from struct import iter_unpack

RING = 1 << 31
POINTS = 100
"""Of each consumer on a ring, as brokers have them by default."""
_MASK = 0xFFFF_FFFF


def name_hash(name: str) -> int:
    """MurmurHash3 (x86, 32 bits, seed 0) without its highest bit."""
    data = name.encode()
    tail = len(data) - len(data) % 4
    found = 0
    for (word,) in iter_unpack("<I", data[:tail]):
        found = _rotated(found ^ _mixed(word), 13) * 5 + 0xE6546B64 & _MASK
    found ^= _mixed(int.from_bytes(data[tail:], "little")) ^ len(data)
    found = (found ^ found >> 16) * 0x85EBCA6B & _MASK
    found = (found ^ found >> 13) * 0xC2B2AE35 & _MASK
    return (found ^ found >> 16) & RING - 1


def distance(topic: str, consumer: str) -> int:
    """How far behind a topic's point on the ring the first one of a consumer is: the nearest becomes active."""
    start = name_hash(topic)
    return min((name_hash(f"{consumer}{point}") - start) % RING for point in range(POINTS))


def _mixed(word: int) -> int:
    return _rotated(word * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _MASK
