"""Payloads decompressed, as Pulsar's producers compress them: exactly as long as their metadata say, or damage. And
compressed, for what Pulsar reads.

No decoder is believed that does not say how much it wrote: what it has not written is memory of other messages.
"""

from __future__ import annotations

import zlib
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import lz4.block

from offloader._proto.pulsar_messages_pb2 import CompressionType
from offloader.errors import DamagedObjectError, MessageTooLargeError

if TYPE_CHECKING:
    import pyarrow as pa

MAX_UNCOMPRESSED = 2**31 - 1  # clients hold sizes in 32 bits

_CODECS: dict[int, str] = {CompressionType.ZSTD: "zstd", CompressionType.SNAPPY: "snappy"}


def decompress(compression: int, payload: bytes | memoryview, size: int, limit: int) -> bytes | memoryview:
    """The payload, which its metadata say has `size` bytes uncompressed.

    Raises DamagedObjectError where it has not, and where the codec is unknown; MessageTooLargeError, before anything is
    allocated, where `size` is above `limit`.
    """
    if compression == CompressionType.NONE:
        return payload
    if compression not in CompressionType.values():
        raise DamagedObjectError(f"the payload's compression {compression} is unknown")
    name = CompressionType.Name(compression)
    if not 0 <= size <= min(limit, MAX_UNCOMPRESSED):
        raise MessageTooLargeError(
            f"the {name} payload would have {size} bytes uncompressed, more than the limit of {limit}"
        )
    if size == 0 and not payload:
        return b""
    try:
        found = _decompressed(compression, payload, size)
    except (OSError, _arrow().ArrowInvalid, zlib.error, lz4.block.LZ4BlockError) as error:
        raise DamagedObjectError(f"the {name} payload of {size} bytes cannot be decompressed: {error}") from error
    if found is None or len(found) != size:
        raise DamagedObjectError(f"the {name} payload does not have the {size} bytes that its metadata say")
    return found


def compress(compression: int, data: bytes) -> bytes:
    """As Pulsar's own codecs read it: raw blocks of LZ4 and Snappy, whole streams of the others.

    Raises ValueError where the codec is unknown."""
    if compression == CompressionType.NONE:
        return data
    if compression == CompressionType.ZLIB:
        return zlib.compress(data)
    if compression == CompressionType.LZ4:
        packed: bytes = lz4.block.compress(data, store_size=False)
        return packed
    if compression not in _CODECS:
        raise ValueError(f"the compression {compression} is unknown")
    found: bytes = _codec(_CODECS[compression]).compress(data, asbytes=True)
    return found


def _decompressed(compression: int, payload: bytes | memoryview, size: int) -> bytes | None:
    """At most `size` bytes of the payload and one more; None where it says itself that it has another size."""
    if compression == CompressionType.ZLIB:
        # Pulsar's Java client flushes a stream and never ends it: only the size says whether it is whole.
        return zlib.decompressobj().decompress(payload, size + 1)
    if compression == CompressionType.LZ4:
        written: bytes = lz4.block.decompress(payload, uncompressed_size=size)
        return written
    if compression == CompressionType.SNAPPY and _leading_varint(payload) != size:
        return None  # Arrow's decoder writes as many bytes as this says, and gives `size`
    found: bytes = _codec(_CODECS[compression]).decompress(payload, size, asbytes=True)
    return found


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
    return _arrow().Codec(name)


def _arrow() -> ModuleType:
    return import_module("pyarrow")  # which takes 0.3 s, and few commands decompress
