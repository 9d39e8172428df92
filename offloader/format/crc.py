"""CRC-32C of a whole from the CRC-32Cs of its parts (linear algebra over GF(2), as zlib's `crc32_combine`)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

POLYNOMIAL = 0x82F63B78  # CRC-32C (Castagnoli), bits reversed


def combine(parts: Iterable[tuple[int, int]]) -> int:
    """The CRC-32C of the concatenation of parts given as (crc32c, size)."""
    total = 0
    for crc, size in parts:
        total = _times(_zeros(size), total) ^ crc
    return total


@lru_cache(maxsize=4096)
def _zeros(size: int) -> tuple[int, ...]:
    """The operator that appends `size` zero bytes, as 32 columns."""
    if size == 0:
        return tuple(1 << bit for bit in range(32))
    if size == 1:
        one_bit = (POLYNOMIAL, *(1 << bit for bit in range(31)))
        two_bits = _square(one_bit)
        return _square(_square(two_bits))
    half = _square(_zeros(size // 2))
    return half if size % 2 == 0 else tuple(_times(_zeros(1), column) for column in half)


def _square(operator: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(_times(operator, column) for column in operator)


def _times(operator: tuple[int, ...], vector: int) -> int:
    product = 0
    for column in operator:
        if not vector:
            break
        if vector & 1:
            product ^= column
        vector >>= 1
    return product
