"""The messages of many entries as rows: which entry each is of, and where its parts lie. No value is copied."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct, error

import numpy as np

from offloader._proto.pulsar_messages_pb2 import KeyValue, SingleMessageMetadata
from offloader.archive.messages.contents import Contents
from offloader.archive.messages.entries import Entries, Envelopes, Needs
from offloader.format.scan import Bytes, Fields, Int64s, Mask, Ranges, Repeated, scan, u32s

_U32 = Struct(">I")
_PROPERTIES, _PARTITION_KEY, _PAYLOAD_SIZE = 0x0A, 0x12, 0x18  # tags in a message's metadata
_OWN_FIELDS = frozenset(SingleMessageMetadata.DESCRIPTOR.fields_by_name)


@dataclass
class Pairs:
    """Properties of rows: which row has each, and where name and value lie in `data`."""

    data: Bytes
    row: Int64s
    key: Ranges
    value: Ranges


@dataclass
class Rows:
    """`entry` and `batch_index` (-1: not in a batch) say which message a row is.

    `single` has the metadata of messages in batches (`inside`), `value` lies in the contents' data.
    """

    entry: Int64s
    batch_index: Int64s
    inside: Mask
    single: Fields
    value: Ranges
    irregular: Mask  # of entries: to be unpacked one by one
    live: Mask  # of rows: not taken out by compaction
    properties: list[Pairs]


def make_rows(entries: Entries, envelopes: Envelopes, contents: Contents, needs: Needs) -> Rows:
    """The rows of all entries that are not dropped."""
    closed = np.zeros(len(contents.dropped), np.bool_)
    closed[list(contents.problem)] = True
    batch = envelopes.batch & ~closed & ~contents.dropped
    count = np.where(contents.dropped, 0, np.where(batch, envelopes.messages, 1))
    starts, irregular = _walked(contents, batch, count)
    count[irregular] = 0
    entry = np.repeat(np.arange(len(count)), count)
    batch_index = np.where(batch[entry], np.arange(len(entry)) - (np.cumsum(count) - count)[entry], -1)
    inside = batch[entry]
    single, value, bad = _singles(contents, entry, inside, starts, needs)
    irregular[entry[bad]] = True
    own = single.repeated("properties")
    outer = _of_rows(envelopes.metadata.repeated("properties"), entry, inside)
    properties = [
        pairs
        for data, found in ((contents.data, own), (entries.data, outer))
        if (pairs := _pairs(data, found, entry, irregular))
    ]
    return Rows(entry, batch_index, inside, single, value, irregular, ~single.flag("compacted_out"), properties)


def _walked(contents: Contents, batches: Mask, count: Int64s) -> tuple[Int64s, Mask]:
    """Where the messages of these batches begin, and which batches are irregular."""
    begin, end = contents.payload.begin, contents.payload.end
    view = contents.data.data
    starts: list[int] = []
    irregular = np.zeros(len(batches), np.bool_)
    for number in np.flatnonzero(batches).tolist():
        found = _walk(view, int(begin[number]), int(end[number]), int(count[number]))
        if found is None:
            irregular[number] = True
        else:
            starts += found
    return np.array(starts, np.int64), irregular


def _walk(data: memoryview, at: int, end: int, count: int) -> list[int] | None:
    """Where `count` messages of a batch in clear begin; None where they do not end by `end`, or are not as clients
    write them: fields in the order of their numbers, so that the payload's size follows properties and key."""
    found = []
    try:
        for _ in range(count):
            found.append(at)
            begin = at + 4
            stop = begin + _U32.unpack_from(data, at)[0]
            size = _payload_size(data, begin)
            at = stop + size
            if size < 0 or at > end:
                return None
    except (IndexError, ValueError, error):  # beyond the buffer, or not a size
        return None
    return found


def _payload_size(data: memoryview, at: int) -> int:
    """The payload's size; -1 where it does not stand where it should."""
    while (tag := data[at]) in (_PROPERTIES, _PARTITION_KEY):
        length = data[at + 1]
        if length < 0x80:
            at += 2 + length
        else:
            length, at = _varint(data, at + 1)
            at += length
    if tag != _PAYLOAD_SIZE:
        return -1
    size, second = data[at + 1], data[at + 2]
    if size < 0x80:
        return size
    return size & 0x7F | second << 7 if second < 0x80 else _varint(data, at + 1)[0]


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number and where it ends. Raises ValueError where it is longer than a size can be."""
    value = 0
    for shift in range(0, 35, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("not a size")


def _singles(
    contents: Contents, entry: Int64s, inside: Mask, starts: Int64s, needs: Needs
) -> tuple[Fields, Ranges, Mask]:
    """The metadata of messages in batches, every row's value, and which rows do not have what their walk saw."""
    data, value = contents.data, contents.payload[entry]
    metadata = Ranges.empty(len(entry))
    metadata.begin[inside] = starts + 4
    metadata.end[inside] = starts + 4 + u32s(data, starts)
    wanted = {"payload_size", "compacted_out"} | (needs.fields & _OWN_FIELDS)
    single = scan(data, metadata, SingleMessageMetadata, wanted)
    after = metadata.end + single.number("payload_size")
    value = Ranges(np.where(inside, metadata.end, value.begin), np.where(inside, after, value.end))
    follows = inside[1:] & inside[:-1] & (entry[1:] == entry[:-1]) & (metadata.begin[1:] - 4 != after[:-1])
    bad = inside & (single.irregular | ~single.has("payload_size") | (after > contents.payload.end[entry]))
    bad[:-1] |= follows
    return single, value, bad


def _of_rows(found: Repeated, entry: Int64s, inside: Mask) -> Repeated:
    """A field of entries as a field of rows; messages in batches have their own."""
    first = np.searchsorted(entry, found.row)
    rows = np.minimum(first, max(len(entry) - 1, 0))
    mine = np.zeros(len(rows), np.bool_) if not len(entry) else (entry[rows] == found.row) & ~inside[rows]
    return Repeated(rows[mine], found.ranges[mine])


def _pairs(data: Bytes, found: Repeated, entry: Int64s, irregular: Mask) -> Pairs | None:
    if not len(found.row):
        return None
    pairs = scan(data, found.ranges, KeyValue, {"key", "value"})
    irregular[entry[found.row[pairs.irregular]]] = True
    return Pairs(data, found.row, pairs.bytes("key"), pairs.bytes("value"))
