"""Payloads decompressed: only what is exactly as long as its metadata say."""

from __future__ import annotations

import contextlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import CompressionType
from offloader.archive.messages.compression import decompress
from offloader.errors import DamagedObjectError
from tests.archive.messages.encoder import compressed

CODECS = [codec for codec in CompressionType.values() if codec != CompressionType.NONE]
DATA = b"some text " * 100


@given(st.sampled_from(CompressionType.values()), st.binary(max_size=100), st.integers(1, 50))
def test_what_was_compressed_comes_back(codec: int, piece: bytes, times: int):
    data = piece * times
    assert decompress(codec, compressed(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, len(DATA) - 1, len(DATA) + 1, 2 * len(DATA)])
def test_another_size_than_said_is_damage(codec: int, size: int):
    if size == 0:
        assert decompress(codec, compressed(codec, b""), 0) == b""
    else:
        with pytest.raises(DamagedObjectError, match=str(size)):
            decompress(codec, compressed(codec, DATA), size)


@given(st.sampled_from(CODECS), st.binary(max_size=200), st.integers(0, 1000))
def test_bytes_that_were_not_compressed_are_damage_or_something_of_that_size(codec: int, data: bytes, size: int):
    with contextlib.suppress(DamagedObjectError):
        assert len(decompress(codec, data, size)) == size


@pytest.mark.parametrize("codec", CODECS)
def test_sizes_above_the_limit_are_refused_before_anything_is_allocated(codec: int):
    with pytest.raises(DamagedObjectError, match="more than the limit of 999"):
        decompress(codec, compressed(codec, DATA), 1000, limit=999)


def test_a_zlib_stream_that_was_only_flushed_is_whole():
    stream = zlib.compressobj()
    flushed = stream.compress(DATA) + stream.flush(zlib.Z_SYNC_FLUSH)
    assert decompress(CompressionType.ZLIB, flushed, len(DATA)) == DATA
