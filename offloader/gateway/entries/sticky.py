"""The hash by which Key_Shared subscriptions choose a consumer, as brokers compute it. Pure."""

from __future__ import annotations

import binascii
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.archive.messages.envelope import raw, signed
from offloader.format.scan import Int64s
from offloader.gateway.murmur import murmur3_32

NO_KEY = b"NONE_KEY"
"""What brokers hash where an entry's key cannot be found out."""

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_LONG = 64  # bytes; a table of longer keys would mostly be padding
_WORDS = np.dtype("<u4")
UInt32s = NDArray[np.uint32]


def sticky_key(metadata: MessageMetadata) -> bytes:
    """The key of an entry; of a batch the outer metadata's."""
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if metadata.HasField("partition_key"):
        key = raw(metadata.partition_key)
        return decoded_key(key) if metadata.partition_key_b64_encoded else key
    return fallback_key(raw(metadata.producer_name), signed(metadata.sequence_id))


def decoded_key(key: bytes) -> bytes:
    """A key that a client put into base64. Java's decoder does without the padding, but takes no other characters."""
    try:
        return binascii.a2b_base64(key.rstrip(b"=") + b"=" * (-len(key.rstrip(b"=")) % 4), strict_mode=True)
    except binascii.Error:
        return NO_KEY


def fallback_key(producer: bytes, sequence_id: int) -> bytes:
    """What stands for the key of an entry that has none."""
    return b"%b-%d" % (producer, sequence_id)


def sticky_hash(key: bytes) -> int:
    """31 bits, as in brokers. What becomes of it depends on how a subscription's consumers share the keys."""
    return murmur3_32(key) & 0x7FFF_FFFF


def sticky_hashes(keys: Sequence[bytes]) -> Int64s:
    """`sticky_hash` of each key; faster where they are many."""
    return (_hashes(keys) & np.uint32(0x7FFF_FFFF)).astype(np.int64)


def _hashes(keys: Sequence[bytes]) -> UInt32s:
    """`murmur3_32` of each key."""
    found = np.empty(len(keys), np.uint32)
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    is_long = lengths > _LONG
    short = np.flatnonzero(~is_long)
    if len(short):
        found[short] = _of_table([keys[number] for number in short.tolist()], lengths[short])
    for number in np.flatnonzero(is_long).tolist():
        found[number] = murmur3_32(keys[number])
    return found


def _of_table(keys: list[bytes], lengths: Int64s) -> UInt32s:
    """Of keys of about one length: a table has a row for each, filled up with zeros."""
    words = -(-int(lengths.max()) // 4)
    table = np.frombuffer(b"".join(key.ljust(4 * words, b"\0") for key in keys), _WORDS).reshape(len(keys), words)
    whole, rest = lengths // 4, lengths % 4
    found = np.zeros(len(keys), np.uint32)
    for column in range(words):
        mixed = _mixed(table[:, column].astype(np.uint32))
        block = _rotated(found ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        tail = np.where((whole == column) & (rest > 0), found ^ mixed, found)
        found = np.where(column < whole, block, tail)
    return _finished(found ^ lengths.astype(np.uint32))


def _mixed(words: UInt32s) -> UInt32s:
    return _rotated(words * _C1, 15) * _C2


def _rotated(words: UInt32s, bits: int) -> UInt32s:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


def _finished(hashes: UInt32s) -> UInt32s:
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))
