"""Entries of one or more runs in one buffer, and their envelopes. Numpy arrays say where each lies and which one it is.

Entries of aborted transactions are left out: ledgers that were copied complete hold them, and consumers never get
them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from offloader._proto.pulsar_messages_pb2 import BrokerEntryMetadata, KeyValue, MessageMetadata
from offloader.archive.items import EntryRun
from offloader.archive.messages.envelope import parse_envelope
from offloader.errors import DamagedObjectError
from offloader.format.entry import transaction_of
from offloader.format.many import frames
from offloader.format.scan import Bytes, Fields, Int64s, Mask, Ranges, scan
from offloader.model import MIB, EntryRange, Position, Transaction

_WORTH_ITS_OWN = 1 * MIB
_BROKER_FIELDS = frozenset(BrokerEntryMetadata.DESCRIPTOR.fields_by_name)
_MOST, _LEAST = "txnid_most_bits", "txnid_least_bits"
_UINT64 = (1 << 64) - 1


@dataclass(frozen=True)
class Entries:
    """Entries in the topic's order. `offset` is where each lies in its object."""

    data: Bytes
    ranges: Ranges
    incarnation: Int64s
    ledger: Int64s
    entry: Int64s
    offset: Int64s

    def __len__(self) -> int:
        return len(self.ranges)

    def position(self, number: int) -> Position:
        return Position(int(self.incarnation[number]), int(self.ledger[number]), int(self.entry[number]))

    def bytes(self, number: int) -> memoryview:
        return self.data.data[self.ranges.begin[number] : self.ranges.end[number]]

    def part(self, first: int, last: int) -> Entries:
        """The entries number `first`..`last` - 1."""
        these = slice(first, last)
        return Entries(
            self.data,
            self.ranges[these],
            self.incarnation[these],
            self.ledger[these],
            self.entry[these],
            self.offset[these],
        )


def gathered(runs: Iterable[EntryRun], *, wait: bool = True) -> Iterator[Entries]:
    """The runs' entries, small runs in one copy: few entries cost what follows as much as many. Without `wait` each run
    comes as it is, before the next one is asked for."""
    worth = _WORTH_ITS_OWN if wait else 0
    small: list[EntryRun] = []
    size = 0
    for run in runs:
        if not run.count:
            continue
        length = run.bounds[-1] - run.bounds[0]
        if small and (length >= worth or size >= worth):
            yield _together(small)
            small, size = [], 0
        if length >= worth:
            yield entries_of(run)
        else:
            small.append(run)
            size += length
    if small:
        yield _together(small)


def entries_of(run: EntryRun) -> Entries:
    """A run's entries, where they lie."""
    bounds = np.asarray(run.bounds, np.int64)
    begin = bounds[::2]
    return Entries(
        np.frombuffer(run.data or b"\0", np.uint8),
        Ranges(begin, bounds[1::2]),
        np.full(run.count, run.incarnation, np.int64),
        np.full(run.count, run.ledger, np.int64),
        np.arange(run.first, run.after, dtype=np.int64),
        begin + run.offset,
    )


def _together(runs: list[EntryRun]) -> Entries:
    if len(runs) == 1:
        return entries_of(runs[0])
    used = [run.data[run.bounds[0] : run.bounds[-1]] for run in runs]
    counts = np.array([run.count for run in runs], np.int64)
    starts = np.cumsum([0, *map(len, used[:-1])])  # of the runs in the copy
    shifts = np.repeat(np.array([run.bounds[0] for run in runs], np.int64) - starts, counts)
    bounds = np.concatenate([np.asarray(run.bounds, np.int64) for run in runs])
    firsts = np.array([run.first for run in runs]) - (np.cumsum(counts) - counts)
    return Entries(
        np.frombuffer(b"".join(used) or b"\0", np.uint8),
        Ranges(bounds[::2] - shifts, bounds[1::2] - shifts),
        np.repeat(np.array([run.incarnation for run in runs], np.int64), counts),
        np.repeat(np.array([run.ledger for run in runs], np.int64), counts),
        np.repeat(firsts, counts) + np.arange(len(shifts)),
        np.repeat(np.array([run.offset for run in runs], np.int64), counts) + bounds[::2],
    )


@dataclass(frozen=True, slots=True)
class Needs:
    """`fields`: of the metadata of entries and of messages in batches. `payloads`: open also what is no batch."""

    fields: frozenset[str]
    payloads: bool


@dataclass(frozen=True)
class Envelopes:
    """What stands in front of the payloads. `irregular` entries are no messages, or need protobuf itself to be read."""

    metadata: Fields
    broker: Fields
    payload: Ranges
    irregular: Mask

    @cached_property
    def compression(self) -> Int64s:
        return self.metadata.number("compression")

    @cached_property
    def encrypted(self) -> Mask:
        return self.metadata.has("encryption_keys")

    @cached_property
    def chunk(self) -> Mask:
        return self.metadata.number("num_chunks_from_msg") > 1

    @cached_property
    def batch(self) -> Mask:
        return self.metadata.has("num_messages_in_batch") & ~self.chunk

    @cached_property
    def messages(self) -> Int64s:
        """As many messages as the metadata claim that a batch has; 1 for what is none."""
        return np.where(self.batch, np.maximum(self.metadata.number("num_messages_in_batch"), 0), 1)

    @cached_property
    def size(self) -> Int64s:
        """Bytes of the payload in clear, as the metadata say."""
        said = self.metadata.number("uncompressed_size")
        return np.where(self.compression != 0, said, self.payload.end - self.payload.begin)


def parse_envelopes(entries: Entries, wanted: Collection[str]) -> Envelopes:
    """The wanted fields of the entries' metadata."""
    data = entries.data
    split = frames(data, entries.ranges)
    metadata = scan(data, split.message, MessageMetadata, {*wanted, "publish_time"})
    broker_fields = scan(data, split.broker, BrokerEntryMetadata, _BROKER_FIELDS & set(wanted))
    odd = split.irregular | metadata.irregular | broker_fields.irregular | ~metadata.has("publish_time")
    if "properties" in wanted:  # the only field that has others inside
        properties = metadata.repeated("properties")
        odd[properties.row[scan(data, properties.ranges, KeyValue, {"key", "value"}).irregular]] = True
    payload = Ranges(np.where(odd, 0, split.message.end), np.where(odd, 0, entries.ranges.end))
    return Envelopes(metadata, broker_fields, payload, odd)


def committed(run: EntryRun, aborted: Collection[Transaction]) -> Iterator[EntryRun]:
    """The run without entries of these transactions."""
    numbers = _entries_of(entries_of(run), aborted) if aborted and run.count else ()
    theirs = (EntryRange.closed(run.ledger, run.first + number, run.first + number) for number in numbers)
    for left in EntryRange(run.ledger, run.first, run.after).without(theirs):
        yield run.part(left.first, left.after)


def _entries_of(entries: Entries, transactions: Collection[Transaction]) -> Iterator[int]:
    """The numbers of the entries that belong to these transactions."""
    envelopes = parse_envelopes(entries, {_MOST, _LEAST})
    most, least = envelopes.metadata.number(_MOST), envelopes.metadata.number(_LEAST)
    for number in np.flatnonzero(envelopes.irregular | envelopes.metadata.has(_MOST)).tolist():
        irregular = envelopes.irregular[number]
        found = (
            _parsed(entries.bytes(number)) if irregular else (int(most[number]) & _UINT64, int(least[number]) & _UINT64)
        )
        if found in transactions:
            yield number


def _parsed(entry: memoryview) -> Transaction | None:
    try:
        return transaction_of(parse_envelope(entry).metadata)
    except DamagedObjectError:  # whoever unpacks it will tell
        return None
