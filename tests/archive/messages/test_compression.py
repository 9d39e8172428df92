"""Payloads decompressed: only what is exactly as long as its metadata say."""

from __future__ import annotations

import contextlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import CompressionType
from offloader.errors import DamagedObjectError, MessageTooLargeError
from offloader.format import compression
from tests.archive.messages.encoder import compressed

MAX_UNCOMPRESSED = 2**31 - 1

CODECS = [codec for codec in CompressionType.values() if codec != CompressionType.NONE]
DATA = b"some text " * 100


def decompress(codec: int, payload: bytes, size: int, limit: int = MAX_UNCOMPRESSED) -> bytes:
    return bytes(compression.decompress(codec, payload, size, limit))


@given(st.sampled_from(CompressionType.values()), st.binary(max_size=100), st.integers(1, 50))
def test_what_was_compressed_comes_back(codec: int, piece: bytes, times: int) -> None:
    data = piece * times
    assert decompress(codec, compressed(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, len(DATA) - 1, len(DATA) + 1, 2 * len(DATA)])
def test_another_size_than_said_is_damage(codec: int, size: int) -> None:
    with pytest.raises(DamagedObjectError, match=str(size)):
        decompress(codec, compressed(codec, DATA), size)


@pytest.mark.parametrize("codec", CompressionType.values())
def test_nothing_is_nothing(codec: int) -> None:
    assert decompress(codec, compressed(codec, b""), 0) == b""
    assert decompress(codec, b"", 0) == b""


@given(st.sampled_from(CODECS), st.binary(max_size=300), st.integers(1, 300), st.booleans())
def test_no_byte_of_another_message_is_ever_given(codec: int, data: bytes, more: int, like_the_end: bool) -> None:
    """The payload may even end as the overstated text would have to end, with a block's last literals."""
    filled = compressed(codec, data + bytes(5)) if like_the_end else compressed(codec, data)
    with pytest.raises(DamagedObjectError):
        decompress(codec, filled, len(data) + 5 * like_the_end + more)


def test_a_size_that_is_overstated_gives_no_memory_of_others() -> None:
    packed = compressed(CompressionType.LZ4, b"end\0\0\0\0\0")
    for size in (16, 4096, 1_000_000):
        with pytest.raises(DamagedObjectError, match=f"the {size} bytes"):
            decompress(CompressionType.LZ4, packed, size)


@given(st.sampled_from(CODECS), st.binary(max_size=200), st.integers(0, 1000))
def test_bytes_that_were_not_compressed_are_damage_or_something_of_that_size(
    codec: int, data: bytes, size: int
) -> None:
    with contextlib.suppress(DamagedObjectError):
        assert len(decompress(codec, data, size)) == size


@pytest.mark.parametrize("codec", CODECS)
def test_sizes_above_the_limit_are_refused_before_anything_is_allocated(codec: int) -> None:
    with pytest.raises(MessageTooLargeError, match="more than the limit of 999"):
        decompress(codec, compressed(codec, DATA), 1000, limit=999)


def test_a_zlib_stream_that_was_only_flushed_is_whole() -> None:
    stream = zlib.compressobj()
    flushed = stream.compress(DATA) + stream.flush(zlib.Z_SYNC_FLUSH)
    assert decompress(CompressionType.ZLIB, flushed, len(DATA)) == DATA
