"""The metadata of many entries at once: `entry.inspect` of each, several times as fast where they are small; and their
sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import crc32c
import numpy as np

from offloader._proto.pulsar_messages_pb2 import BrokerEntryMetadata, MessageHead
from offloader.format.entry import ABORT_MARKER, EntryFacts
from offloader.format.scan import Bytes, Fields, Int64s, Mask, Ranges, scan, u32s
from offloader.model import EntryStats, Transaction

FEW = 32  # for fewer entries a parser is faster
_HEADS = (128, 512)  # metadata are at an entry's begin: so long as a rule, and rarely longer
_SMALL = 4096  # up to here a copy of an entry costs less than a view of it
_BROKER_FIELDS = frozenset({"broker_timestamp", "index"})
_MESSAGE_FIELDS = frozenset({"publish_time", "num_messages_in_batch", "marker_type"})
_HIGHEST = 1 << 64  # above every uint64
_LOWEST = -1


@dataclass(frozen=True)
class Frames:
    """Ranges in the buffer. `covered`: from where on, counted from the entry's begin, its checksum (where `checked`)
    covers it. Irregular entries end inside a frame: nothing is said of them."""

    broker: Ranges
    checked: Mask
    checksum: Int64s
    covered: Int64s
    message: Ranges
    irregular: Mask


def frames(data: Bytes, entries: Ranges) -> Frames:
    """The frames of the entries that lie in these ranges of `data`, which may be only their begin."""
    at = entries.begin
    has_broker = _starts_with(data, at, 0x0E, 0x02)
    broker = Ranges(np.where(has_broker, at + 6, at), np.where(has_broker, at + 6 + u32s(data, at + 2), at))
    irregular = broker.end > entries.end
    at = np.where(irregular, entries.begin, broker.end)
    checked = _starts_with(data, at, 0x0E, 0x01)
    checksum = u32s(data, at + 2)
    at = np.where(checked, at + 6, at)
    message = Ranges(at + 4, at + 4 + u32s(data, at))
    irregular |= message.end > entries.end
    for ranges in (broker, message):
        ranges.begin[irregular] = ranges.end[irregular] = 0
    return Frames(broker, checked & ~irregular, checksum, at - entries.begin, message, irregular)


def _starts_with(data: Bytes, at: Int64s, first: int, second: int) -> Mask:
    return np.equal(data.take(at, mode="clip"), first) & np.equal(data.take(at + 1, mode="clip"), second)


@dataclass(frozen=True)
class NumberColumn:
    """A number of each entry, where `known` says so; None: of all."""

    values: Int64s
    known: Mask | None = None

    def bounds(self, first: int, behind: int) -> tuple[int, int] | None:
        """Least and greatest of the entries number `first` to `behind` - 1; None where none has it."""
        values = self.values[first:behind]
        if self.known is not None:
            values = values[self.known[first:behind]]
        return (int(values.min()), int(values.max())) if len(values) else None

    def of(self, number: int) -> int | None:
        """One entry's."""
        return None if self.known is not None and not self.known[number] else int(self.values[number])


@dataclass(frozen=True)
class ManyFacts:
    """`EntryFacts` of many entries, but of those that are `irregular`: no messages, or not of the usual form."""

    messages: Int64s
    publish_time: NumberColumn
    broker_time: NumberColumn
    broker_index: NumberColumn
    irregular: Int64s

    def of(self, number: int) -> EntryFacts:
        """One entry's, which is not irregular."""
        times = self.publish_time.of(number), self.broker_time.of(number)
        return EntryFacts(int(self.messages[number]), *times, self.broker_index.of(number))


def inspect_all(entries: Sequence[bytes]) -> ManyFacts:
    """Few entries are all irregular: `inspect` is as fast."""
    if len(entries) < FEW:
        nothing = NumberColumn(np.zeros(len(entries), np.int64))
        return ManyFacts(nothing.values, nothing, nothing, nothing, np.arange(len(entries)))
    data, split = _split(entries)
    message = scan(data, split.message, MessageHead, _MESSAGE_FIELDS)
    broker = scan(data, split.broker, BrokerEntryMetadata, _BROKER_FIELDS)
    irregular = split.irregular | message.irregular | broker.irregular
    irregular |= ~message.has("publish_time") | _beyond_63_bits(message, broker)
    marker = message.has("marker_type")
    irregular |= marker & (message.number("marker_type") == ABORT_MARKER)  # `inspect` says which transaction
    irregular |= split.checked & (_checksums(entries, split) != split.checksum)
    said = np.where(message.has("num_messages_in_batch"), message.number("num_messages_in_batch"), 1)
    return ManyFacts(
        np.where(marker, 0, np.maximum(said, 0)),
        NumberColumn(message.number("publish_time")),
        NumberColumn(broker.number("broker_timestamp"), broker.has("broker_timestamp")),
        NumberColumn(broker.number("index"), broker.has("index")),
        np.flatnonzero(irregular),
    )


def _split(entries: Sequence[bytes]) -> tuple[Bytes, Frames]:
    """The begin of each entry in one buffer, and its frames; longer begins where a frame goes beyond the short ones."""
    for most in _HEADS:
        heads = [entry[:most] for entry in entries]
        data = np.frombuffer(b"".join(heads) or b"\0", np.uint8)
        lengths = np.fromiter(map(len, heads), np.int64, len(heads))
        end = np.cumsum(lengths)
        split = frames(data, Ranges(end - lengths, end))
        if not split.irregular.any():
            break
    return data, split


def _checksums(entries: Sequence[bytes], split: Frames) -> Int64s:
    """The CRC32C of what each entry's checksum covers; 0 where it has none."""
    crc = crc32c.crc32c
    covered = zip(entries, split.covered.tolist(), split.checked.tolist(), strict=True)
    found = [
        (crc(entry[begin:]) if len(entry) <= _SMALL else crc(memoryview(entry)[begin:])) if checked else 0
        for entry, begin, checked in covered
    ]
    return np.array(found, np.int64)


def _beyond_63_bits(message: Fields, broker: Fields) -> Mask:
    """Times and indexes are unsigned; such large ones are left to a parser that knows."""
    return np.asarray(
        (message.number("publish_time") < 0) | (broker.number("broker_timestamp") < 0) | (broker.number("index") < 0)
    )


class StatsBuilder:
    """The sums and bounds of the entries added so far."""

    __slots__ = ("_aborted", "_bounds", "_messages", "_unreadable")

    def __init__(self) -> None:
        self._messages = 0
        self._bounds = [(_HIGHEST, _LOWEST)] * 3  # of publish time, broker time, broker index
        self._aborted: list[Transaction] = []
        self._unreadable = 0

    def add(self, facts: EntryFacts) -> None:
        """Count one entry in."""
        messages, *values, aborted, unreadable = facts
        self._messages += messages
        self._unreadable += unreadable
        for number, value in enumerate(values):
            if value is not None:
                self._bounds[number] = _joined(self._bounds[number], (value, value))
        if aborted is not None:
            self._aborted.append(aborted)

    def add_all(self, facts: ManyFacts, first: int, behind: int) -> None:
        """Count the entries number `first` to `behind` - 1 in, of which none is irregular."""
        self._messages += int(facts.messages[first:behind].sum())
        columns = (facts.publish_time, facts.broker_time, facts.broker_index)
        for number, column in enumerate(columns):
            self._bounds[number] = _joined(self._bounds[number], column.bounds(first, behind))

    def build(self) -> EntryStats:
        """What has been added so far."""
        bounds = (bound for pair in self._bounds for bound in (pair if pair[0] <= pair[1] else (None, None)))
        return EntryStats(self._messages, *bounds, aborted=tuple(self._aborted), unreadable=self._unreadable)


def _joined(bounds: tuple[int, int], others: tuple[int, int] | None) -> tuple[int, int]:
    return bounds if others is None else (min(bounds[0], others[0]), max(bounds[1], others[1]))
