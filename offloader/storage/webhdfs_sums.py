"""The checksum that HDFS tells of a file. Pure.

HDFS keeps a CRC of every few bytes, by default CRC32C of each 512. What it tells is MD5 over the MD5s of each block's
CRCs, and how many bytes a CRC is of and how many CRCs a block has (0: the file is one block). Hadoop digests the whole
buffer that the MD5s are in: 32 bytes, doubled until they fit, the rest zeros.
"""

from __future__ import annotations

import hashlib
import re
import sys
import zlib
from array import array
from collections.abc import Callable, Mapping
from typing import Any

from crc32c import crc32c

_ALGORITHM = re.compile(r"MD5-of-([0-9]{1,9})MD5-of-([1-9][0-9]{0,8})(CRC32C?)")
_CRCS: Mapping[str, Callable[[memoryview], int]] = {"CRC32": zlib.crc32, "CRC32C": crc32c}
_DIGEST = slice(2 * 12, 2 * 28)  # in hexadecimal, behind the two numbers that the algorithm's name has as well
_FIRST_BUFFER = 32


def is_sum_of(told: Any, data: bytes) -> bool:
    """Whether an answer tells the checksum of these bytes. False also where it tells another kind of checksum, or one
    of what is stored in the place of the bytes (encrypted, or spread over machines with erasure coding)."""
    try:
        algorithm, digest = told["FileChecksum"]["algorithm"], told["FileChecksum"]["bytes"][_DIGEST]
        found = _ALGORITHM.fullmatch(algorithm)
    except (KeyError, TypeError):
        return False
    return found is not None and digest == file_sum(data, _CRCS[found[3]], int(found[2]), int(found[1])).hex()


def file_sum(data: bytes, crc: Callable[[memoryview], int], crc_of: int, crcs_of_block: int) -> bytes:
    """The MD5 of MD5s of CRCs. `crc_of`: bytes that each is of."""
    view = memoryview(data)
    block = crc_of * crcs_of_block or max(len(view), 1)
    sums = b"".join(_block_sum(view[at : at + block], crc, crc_of) for at in range(0, len(view), block))
    buffer = _FIRST_BUFFER
    while buffer < len(sums):
        buffer *= 2
    return _md5(sums.ljust(buffer, b"\0"))


def _block_sum(block: memoryview, crc: Callable[[memoryview], int], crc_of: int) -> bytes:
    crcs = array("I", (crc(block[at : at + crc_of]) for at in range(0, len(block), crc_of)))
    if sys.byteorder == "little":
        crcs.byteswap()
    return _md5(crcs)


def _md5(data: bytes | array[int]) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
