"""CRC-32C of a whole from those of its parts: polynomial arithmetic over GF(2), as in zlib's `crc32_combine`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

POLYNOMIAL = 0x82F63B78  # CRC-32C (Castagnoli), bits reversed: the highest bit is x^0
_ONE = 1 << 31
_X8 = 1 << 23


def combine(parts: Iterable[tuple[int, int]]) -> int:
    """The CRC-32C of the concatenation of parts given as (crc32c, size)."""
    total = 0
    for crc, size in parts:
        total = (_times(_zeros(size), total) if total else 0) ^ crc
    return total


@lru_cache(maxsize=4096)
def _zeros(size: int) -> int:
    """x^(8 * size): what a sum is multiplied by for `size` zero bytes behind it."""
    power, square = _ONE, _X8
    while size:
        if size & 1:
            power = _times(power, square)
        size >>= 1
        square = _square(square)
    return power


@lru_cache(maxsize=64)
def _square(a: int) -> int:
    return _times(a, a)


def _times(a: int, b: int) -> int:
    """The product of two polynomials, modulo POLYNOMIAL."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (POLYNOMIAL if b & 1 else 0)
    return product
