"""The types of columns, and Arrow arrays from places in buffers, without an object for each value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from offloader.archive.messages.message import Encryption
from offloader.format.scan import Bytes, Int64s, Mask, Ranges

TIME = pa.timestamp("us", tz="UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())
ENCRYPTION_KEYS = pa.list_(
    pa.struct([pa.field("name", pa.string()), pa.field("algorithm", pa.string()), pa.field("metadata", PROPERTIES)])
)

LAST_MS = (2**63 - 1) // 1000


def microseconds(time: int | None) -> int | None:
    """A time in ms as TIME holds it; None where it cannot."""
    return time * 1000 if time is not None and 0 <= time <= LAST_MS else None


def encryption_value(encryption: Encryption | None) -> list[dict[str, Any]] | None:
    """A value of ENCRYPTION_KEYS."""
    if encryption is None:
        return None
    algorithm = encryption.algorithm or None
    return [{"name": key.name, "algorithm": algorithm, "metadata": list(key.metadata)} for key in encryption.keys]


def binary_array(data: Bytes, ranges: Ranges, valid: Mask | None = None) -> pa.Array:
    """The bytes in these ranges, which follow each other in `data`; null where not `valid`.

    One array over the whole buffer, in which every second value is wanted, is copied from at the speed of memory.
    """
    count = len(ranges)
    begin, end = ranges.begin, ranges.end
    if valid is not None and not valid.all():
        end = np.maximum.accumulate(np.where(valid, end, 0))
        begin = np.where(valid, begin, end)
    offsets = np.zeros(2 * count + 1, np.int32)
    offsets[1::2], offsets[2::2] = begin, end
    whole = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    found = whole.take(pa.array(np.arange(1, 2 * count, 2)))
    if valid is None or valid.all():
        return found
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(found.type, len(found), [bitmap, *found.buffers()[1:]], offset=found.offset)


def text_array(values: pa.Array) -> pa.Array:
    """Binary as strings; bytes that are no UTF-8 are replaced by U+FFFD."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if v is None else v.decode("utf-8", "replace") for v in values.to_pylist()], pa.string())


def number_array(values: Int64s, kind: pa.DataType, valid: Mask | None = None) -> pa.Array:
    """Numbers; null where not `valid`."""
    return pa.array(values, kind, mask=None if valid is None else ~valid)


def time_array(times: Int64s, valid: Mask | None = None) -> pa.Array:
    """Times in ms; null where not `valid`, and where the type cannot hold them."""
    held = (times >= 0) & (times <= LAST_MS)
    valid = held if valid is None else held & valid
    return number_array(np.where(valid, times, 0) * 1000, TIME, valid)


def map_array(count: int, row: Int64s, keys: pa.Array, values: pa.Array) -> pa.Array:
    """Maps of strings for `count` rows; `row` grows. A name that a row has twice keeps its last value."""
    kept = _last_of_each(row, keys)
    if not kept.all():
        mask = pa.array(kept)
        row, keys, values = row[kept], keys.filter(mask), values.filter(mask)
    offsets = np.searchsorted(row, np.arange(count + 1)).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), keys, values, type=PROPERTIES)


def _last_of_each(row: Int64s, keys: pa.Array) -> Mask:
    encoded = keys.dictionary_encode()
    names = encoded.indices.to_numpy()
    place = row * (len(encoded.dictionary) + 1) + names
    kept = np.zeros(len(row), np.bool_)
    _, last = np.unique(place[::-1], return_index=True)
    kept[len(row) - 1 - last] = True
    return kept


def id_array(columns: list[tuple[int, Int64s, Mask | None]]) -> pa.Array:
    """Protobuf messages of numbers: (field number, values, which rows have it), in the order of field numbers."""
    ranges, used = [], []
    for number, values, present in columns:
        encoded, length = _varint_bytes(values)
        kept = np.arange(encoded.shape[1]) < length[:, None]
        tag = np.full((len(values), 1), number << 3, np.uint8)
        mine = np.ones(len(values), np.bool_) if present is None else present
        ranges += [tag, encoded]
        used += [mine[:, None], kept & mine[:, None]]
    bytes_, mask = np.hstack(ranges), np.hstack(used)
    offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(bytes_), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(bytes_[mask]))]
    )


def _varint_bytes(values: Int64s) -> tuple[Bytes, Int64s]:
    """Each value's varint in a row of its own, and its length."""
    unsigned = values.astype(np.uint64)
    width = max(1, -(-int(unsigned.max(initial=0)).bit_length() // 7))
    shifted = unsigned[:, None] >> (np.arange(width, dtype=np.uint64) * np.uint64(7))[None, :]
    length = np.maximum(1, np.count_nonzero(shifted, axis=1))
    more = np.arange(width)[None, :] < (length - 1)[:, None]
    return ((shifted & np.uint64(0x7F)) | (more * np.uint64(0x80))).astype(np.uint8), length
