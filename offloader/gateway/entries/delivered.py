"""What a consumer gets of a run of entries: their envelopes read many at a time, payloads never. Pure.

A broker delivers neither server-only markers, nor entries of aborted transactions, nor what is no message, which is an
entry whose metadata cannot be read or lack what every message has: it acknowledges them at once and goes on
(`AbstractBaseDispatcher.filterEntriesForConsumer`). It does not look at checksums; readers of the archive do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from struct import Struct

import numpy as np
from google.protobuf.message import DecodeError

from offloader._proto.pulsar_messages_pb2 import BrokerEntryMetadata, MessageMetadata
from offloader.archive.items import EntryRun
from offloader.archive.messages.entries import Entries, entries_of
from offloader.archive.messages.envelope import signed
from offloader.format.entry import MAGIC_BROKER_METADATA, MAGIC_CHECKSUM, transaction_of
from offloader.format.many import frames
from offloader.format.scan import Fields, Int64s, Mask, scan
from offloader.gateway.entries.read_run import Columns, ReadRun
from offloader.gateway.entries.sticky import decoded_key, fallback_key, sticky_hash, sticky_hashes, sticky_key
from offloader.gateway.values import ServedEntry
from offloader.model import Transaction

FEW = 96  # for fewer entries a parser is faster
_LENGTH = Struct(">I")
_UINT64 = (1 << 64) - 1
_EVERY_MESSAGE_HAS = ("producer_name", "sequence_id", "publish_time")
_DELIVERY = frozenset(
    {*_EVERY_MESSAGE_HAS, "num_messages_in_batch", "marker_type", "txnid_most_bits", "txnid_least_bits"}
    | {"deliver_at_time"}
)
_KEYS = frozenset({"ordering_key", "partition_key", "partition_key_b64_encoded"})
_Row = tuple[int, int, int, int, int, int, int]
"""Of one entry, in the order of `Columns`."""


def deliverable(run: EntryRun, aborted: Collection[Transaction], *, sticky: bool) -> ReadRun:
    """The entries that consumers get. Without `sticky` no key is hashed: that hash is 0."""
    few = run.count < FEW
    return ReadRun(run, _few(run, aborted, sticky=sticky) if few else _many(run, aborted, sticky=sticky))


def _few(run: EntryRun, aborted: Collection[Transaction], *, sticky: bool) -> Columns:
    return _columns(_one(run, number, aborted, sticky=sticky) for number in range(run.count))


def _columns(rows: Iterable[_Row | None]) -> Columns:
    found = [row for row in rows if row is not None]
    return Columns(*zip(*found, strict=True)) if found else Columns()


def _many(run: EntryRun, aborted: Collection[Transaction], *, sticky: bool) -> Columns:
    entries = entries_of(run)
    split = frames(entries.data, entries.ranges)
    fields = scan(entries.data, split.message, MessageMetadata, _DELIVERY | _KEYS if sticky else _DELIVERY)
    irregular = split.irregular | fields.irregular
    kept = ~irregular & ~fields.has("marker_type")
    for name in _EVERY_MESSAGE_HAS:
        kept &= fields.has(name)
    if aborted:
        _leave_out(kept, fields, aborted)
    rows = np.flatnonzero(kept)
    said = np.where(fields.has("num_messages_in_batch"), fields.number("num_messages_in_batch"), 1)
    found = (
        rows + run.first,
        entries.ranges.begin[rows],
        entries.ranges.end[rows],
        (split.broker.end - entries.ranges.begin)[rows],
        np.maximum(said, 1)[rows],
        _hashes(entries, fields, rows) if sticky else np.zeros(len(rows), np.int64),
        fields.number("deliver_at_time")[rows],
    )
    columns = Columns(*(column.tolist() for column in found))
    odd = (_one(run, number, aborted, sticky=sticky) for number in np.flatnonzero(irregular).tolist())
    alone = [row for row in odd if row is not None]
    return _columns(sorted([*zip(*columns, strict=True), *alone])) if alone else columns


def with_sticky(entry: ServedEntry) -> ServedEntry:
    """The entry with its key's hash."""
    split = _split(memoryview(entry.data))
    return entry if split is None else entry._replace(sticky=sticky_hash(sticky_key(split[1])))


def time_of(entry: ServedEntry) -> int | None:
    """When the broker took an entry, where it says so, else when it was published; in ms, signed as Java reads it.
    None: it cannot be read."""
    data = memoryview(entry.data)
    if entry.skip:
        try:
            broker = BrokerEntryMetadata.FromString(bytes(data[6 : entry.skip]))
        except DecodeError:
            return None
        if broker.HasField("broker_timestamp"):
            return signed(broker.broker_timestamp)
    split = _split(data)
    return None if split is None else signed(split[1].publish_time)


def _leave_out(kept: Mask, fields: Fields, aborted: Collection[Transaction]) -> None:
    """Entries of aborted transactions are not kept."""
    most, least = fields.number("txnid_most_bits"), fields.number("txnid_least_bits")
    theirs = kept & fields.has("txnid_most_bits") & fields.has("txnid_least_bits")
    for number in np.flatnonzero(theirs).tolist():
        kept[number] = (int(most[number]) & _UINT64, int(least[number]) & _UINT64) not in aborted


def _hashes(entries: Entries, fields: Fields, rows: Int64s) -> Int64s:
    """As `sticky_key`, of many entries."""
    ordered, keyed = fields.has("ordering_key"), fields.has("partition_key")
    encoded = keyed & ~ordered & fields.flag("partition_key_b64_encoded")
    ordering, partition, producer = (fields.bytes(name) for name in ("ordering_key", "partition_key", "producer_name"))
    begin = np.where(ordered, ordering.begin, np.where(keyed, partition.begin, producer.begin))[rows]
    end = np.where(ordered, ordering.end, np.where(keyed, partition.end, producer.end))[rows]
    data = entries.data.data
    keys = [bytes(data[first:after]) for first, after in zip(begin.tolist(), end.tolist(), strict=True)]
    sequence_ids = fields.number("sequence_id")[rows]
    for number in np.flatnonzero(encoded[rows]).tolist():
        keys[number] = decoded_key(keys[number])
    for number in np.flatnonzero(~(ordered | keyed)[rows]).tolist():
        keys[number] = fallback_key(keys[number], int(sequence_ids[number]))
    return sticky_hashes(keys)


def _one(run: EntryRun, number: int, aborted: Collection[Transaction], *, sticky: bool) -> _Row | None:
    """One entry's columns, read by protobuf itself; None: no consumer gets it."""
    begin, end = run.bounds[2 * number], run.bounds[2 * number + 1]
    split = _split(run.data[begin:end])
    if split is None:
        return None
    skip, metadata = split
    if metadata.HasField("marker_type") or transaction_of(metadata) in aborted:
        return None
    hashed = sticky_hash(sticky_key(metadata)) if sticky else 0
    messages = max(metadata.num_messages_in_batch, 1)
    return run.first + number, begin, end, skip, messages, hashed, metadata.deliver_at_time


def _split(data: memoryview) -> tuple[int, MessageMetadata] | None:
    """The length of the broker entry metadata, and the message's own metadata; None: it is no message."""
    skip = 6 + _u32(data, 2) if data[:2] == MAGIC_BROKER_METADATA else 0
    at = skip + 6 if data[skip : skip + 2] == MAGIC_CHECKSUM else skip
    begin = at + _LENGTH.size
    end = begin + _u32(data, at)
    if end > len(data):
        return None
    try:
        metadata = MessageMetadata.FromString(bytes(data[begin:end]))
    except DecodeError:
        return None
    return (skip, metadata) if all(map(metadata.HasField, _EVERY_MESSAGE_HAS)) else None


def _u32(data: memoryview, at: int) -> int:
    """The length that stands there; one that no entry has where the data end before."""
    return int(_LENGTH.unpack_from(data, at)[0]) if at + _LENGTH.size <= len(data) else len(data)
