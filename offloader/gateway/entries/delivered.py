"""What a consumer gets of a run of entries: their envelopes read many at a time, payloads never. Pure.

A broker delivers neither server-only markers, nor entries of aborted transactions, nor what is no message, which is an
entry whose metadata cannot be read or lack what every message has: it acknowledges them at once and goes on
(`AbstractBaseDispatcher.filterEntriesForConsumer`). It does not look at checksums; readers of the archive do.
"""

from __future__ import annotations

import binascii
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, repeat
from operator import sub
from struct import Struct
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from offloader._proto.pulsar_messages_pb2 import BrokerEntryMetadata, MessageMetadata
from offloader.archive.items import EntryRun
from offloader.archive.messages.entries import Entries, entries_of
from offloader.archive.messages.envelope import raw, signed
from offloader.format.entry import MAGIC_BROKER_METADATA, MAGIC_CHECKSUM, transaction_of
from offloader.format.many import frames
from offloader.format.scan import Fields, Int64s, Mask, scan
from offloader.gateway.core.hashing import sticky_hash, sticky_hashes
from offloader.gateway.values import ServedEntry
from offloader.model import Place, Transaction

NO_KEY = b"NONE_KEY"
"""What brokers hash where an entry's key cannot be found out."""
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
_COPIED = 4096  # up to here a copy of an entry costs less than a view of it
_as_entry = partial(tuple.__new__, ServedEntry)


class Columns(NamedTuple):
    """Of each entry its number in the ledger, where it lies in the run's data, and what ServedEntry says of it."""

    entry: Sequence[int] = ()
    begin: Sequence[int] = ()
    end: Sequence[int] = ()
    skip: Sequence[int] = ()
    messages: Sequence[int] = ()
    sticky: Sequence[int] = ()
    deliver_at: Sequence[int] = ()


class ReadRun:
    """The entries of one run that consumers get, as columns: an entry is made when it is handed out. What is kept for
    those who read it again is then a few lists, and nothing that Python's garbage collector goes through again and
    again. Threads may share it. `covered`: where the run ends. `size`: bytes that it holds in memory."""

    def __init__(self, run: EntryRun, columns: Columns) -> None:
        self.first: Place = run.start.place
        self.covered: Place = run.end.place
        self.size = run.bounds[-1] - run.bounds[0] if run.count else 0  # its neighbours hold the rest of the buffer
        self._ledger = run.ledger
        self._data = run.data
        self._columns = columns
        self._ends: list[int] = list(accumulate(map(sub, columns.end, columns.begin), initial=0))

    def __len__(self) -> int:
        return len(self._columns.entry)

    def entries(self, first: int = 0, after: int | None = None) -> list[ServedEntry]:
        """The entries number `first` to `after` - 1."""
        these = slice(first, after)
        entry, begin, end, *others = (column[these] for column in self._columns)
        columns = zip(zip(repeat(self._ledger), entry), self._slices(begin, end), *others, repeat(None), strict=False)
        return list(map(_as_entry, columns))  # a constructor for each would take as long as all the rest

    def bytes_between(self, first: int, after: int) -> int:
        """How long the entries number `first` to `after` - 1 are."""
        return self._ends[after] - self._ends[first]

    def up_to(self, first: int, most_entries: int, most_bytes: int) -> int:
        """Behind which number both bounds are reached, from entry number `first` on."""
        by_bytes = bisect_left(self._ends, self._ends[first] + most_bytes + 1) - 1
        return min(first + most_entries, by_bytes, len(self))

    def holds(self, place: Place) -> bool:
        """Whether a place is in it, whatever is there."""
        return self.first <= place <= self.covered

    def find(self, place: Place) -> ServedEntry | None:
        """The entry of this place; None: no consumer gets it."""
        number = bisect_left(self._columns.entry, place[1])
        found = self.entries(number, number + 1)
        return found[0] if found and found[0].place == place else None

    def _slices(self, begins: Sequence[int], ends: Sequence[int]) -> Iterator[bytes | memoryview]:
        """Copies of small entries; large ones stay where they were read into."""
        view, whole = self._data, self._data.obj
        data = whole if isinstance(whole, bytes) and len(whole) == len(view) else view
        for begin, end in zip(begins, ends, strict=True):
            yield data[begin:end] if end - begin <= _COPIED else view[begin:end]


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
