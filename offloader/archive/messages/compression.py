"""Payloads decompressed, as Pulsar's producers compress them."""

from __future__ import annotations

import zlib
from functools import cache

import pyarrow as pa

from offloader._proto.pulsar_messages_pb2 import CompressionType
from offloader.errors import DamagedObjectError

# Clients hold sizes in 32 bits, as Arrow does. A broker's limit is no limit here: it counts the compressed bytes.
MAX_UNCOMPRESSED = 2**31 - 1

_CODECS: dict[int, str] = {CompressionType.LZ4: "lz4_raw", CompressionType.ZSTD: "zstd", CompressionType.SNAPPY: "snappy"}
_LZ4_LAST_LITERALS = 5


def decompress(compression: int, payload: bytes | memoryview, size: int, limit: int = MAX_UNCOMPRESSED) -> bytes | memoryview:
    """The payload, which its metadata say has `size` bytes uncompressed.

    Raises DamagedObjectError where it has not, where the codec is unknown, and where `size` is above `limit`, which no client can
    read.
    """
    if compression == CompressionType.NONE:
        return payload
    if compression not in CompressionType.values():
        raise DamagedObjectError(f"the payload's compression {compression} is unknown")
    name = CompressionType.Name(compression)
    if size > limit:
        raise DamagedObjectError(f"the {name} payload would have {size} bytes uncompressed, more than the limit of {limit}")
    if size == 0:
        return b""
    if compression == CompressionType.ZLIB:
        found = _inflated(payload, size)
    else:
        found = _decompressed(_codec(_CODECS[compression]), payload, size)
        if not _is_whole(compression, payload, found):
            raise DamagedObjectError(f"the {name} payload does not have the {size} bytes that its metadata say")
    return found


def _inflated(payload: bytes | memoryview, size: int) -> bytes:
    """Pulsar's Java client flushes a stream and never ends it: only the size says whether it is whole."""
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(payload, size + 1)
    except zlib.error as error:
        raise DamagedObjectError(f"the ZLIB payload cannot be decompressed: {error}") from error
    if len(found) != size:
        raise DamagedObjectError(f"the ZLIB payload does not have the {size} bytes that its metadata say")
    return found


def _decompressed(codec: pa.Codec, payload: bytes | memoryview, size: int) -> bytes:
    try:
        found: bytes = codec.decompress(pa.py_buffer(payload), size, asbytes=True)
    except (OSError, pa.ArrowInvalid) as error:
        raise DamagedObjectError(f"the {codec.name} payload of {size} bytes cannot be decompressed: {error}") from error
    return found


def _is_whole(compression: int, payload: bytes | memoryview, found: bytes) -> bool:
    """Arrow returns `size` bytes even where LZ4 and Snappy wrote fewer: what they say of their end must hold."""
    if compression == CompressionType.SNAPPY:
        return _leading_varint(payload) == len(found)
    if compression == CompressionType.LZ4:
        count = min(_LZ4_LAST_LITERALS, len(found))  # a block's last bytes are literals
        return len(payload) > count and payload[-count:] == found[-count:]
    return True


def _leading_varint(data: bytes | memoryview) -> int:
    """Snappy's own record of the uncompressed size."""
    value = 0
    for shift, byte in enumerate(data[:5]):
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            break
    return value


@cache
def _codec(name: str) -> pa.Codec:
    return pa.Codec(name)
