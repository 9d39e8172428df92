"""MurmurHash3 (x86, 32 bits, seed 0): the hash of keys and of consumers' names in brokers. Pure."""

from __future__ import annotations

from struct import iter_unpack

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
