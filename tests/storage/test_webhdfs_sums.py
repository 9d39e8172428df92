"""The checksum that HDFS tells of a file, as Hadoop 3.4.2 told it of files in blocks of 1 MiB and of one block."""

from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from offloader.storage.webhdfs_calls import file_sum, is_sum_of

MIB = 1024 * 1024
ONE_BLOCK, SEVERAL = "MD5-of-0MD5-of-512CRC32C", "MD5-of-2048MD5-of-512CRC32C"
TOLD = {
    1: (ONE_BLOCK, "000002000000000000000000dc236201841049096ad31b6213203a9000000000"),
    512: (ONE_BLOCK, "000002000000000000000000e6e61fbd4c76a34aad61c16d8e9352dd00000000"),
    513: (ONE_BLOCK, "000002000000000000000000ab994f19a9734efcd16576cfd7a9cfec00000000"),
    100_000: (ONE_BLOCK, "00000200000000000000000029617a31410a8b60b5a093a3bbdeefca00000000"),
    MIB + 1: (SEVERAL, "000002000000000000000800745e83782217476516c5d6f59dae93f000000000"),
    2 * MIB: (SEVERAL, "000002000000000000000800a391fea09c9b538b4d0e11582913a91a00000000"),
    3 * MIB + 7: (SEVERAL, "000002000000000000000800db002cbcdb620a1cf80cbc00ea0ed30500000000"),
    5 * MIB: (SEVERAL, "000002000000000000000800febd94da6f3ce9aba82b5cb4b7279c2200000000"),
}


def content(size: int) -> bytes:
    """What was written."""
    return bytes(range(251)) * (size // 251) + bytes(range(size % 251))


def told(algorithm: Any, text: Any) -> dict[str, Any]:
    return {"FileChecksum": {"algorithm": algorithm, "bytes": text, "length": 28}}


@pytest.mark.parametrize("size", TOLD)
def test_what_hadoop_tells_is_the_sum_of_the_bytes_and_of_no_others(size: int) -> None:
    data = content(size)
    assert is_sum_of(told(*TOLD[size]), data)
    for at in {0, size // 2, size - 1}:
        assert not is_sum_of(told(*TOLD[size]), data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert not is_sum_of(told(*TOLD[size]), data[:-1])
    assert not is_sum_of(told(*TOLD[size]), data + b"\0")


@pytest.mark.parametrize(
    "answer",
    [
        *(None, [], {}, {"FileChecksum": None}, {"FileChecksum": "MD5"}, told(None, None), told(1, 1)),
        told(ONE_BLOCK, ""),
        told(ONE_BLOCK, 7),
        told(ONE_BLOCK.replace("512", "0"), TOLD[1][1]),
        told(ONE_BLOCK.replace("CRC32C", "CRC32"), TOLD[1][1]),
        told("MD5-of-0MD5-of-512MIXED", TOLD[1][1]),
        told("COMPOSITE-CRC32C", "00000000"),
        told(f"MD5-of-{'9' * 9}MD5-of-{'9' * 9}CRC32C", TOLD[512][1]),
    ],
)
def test_an_answer_that_tells_another_thing_is_no_sum(answer: Any) -> None:
    for size in (0, 1):
        assert not is_sum_of(answer, content(size))


@given(st.binary(max_size=3000), st.integers(1, 600), st.integers(0, 8), st.data())
def test_any_other_byte_is_another_sum(data: bytes, crc_of: int, crcs_of_block: int, drawn: st.DataObject) -> None:
    found = file_sum(data, crc32c, crc_of, crcs_of_block)
    assert found == file_sum(bytes(data), crc32c, crc_of, crcs_of_block)
    if data:
        at = drawn.draw(st.integers(0, len(data) - 1))
        other = data[:at] + bytes([data[at] ^ drawn.draw(st.integers(1, 255))]) + data[at + 1 :]
        assert file_sum(other, crc32c, crc_of, crcs_of_block) != found
