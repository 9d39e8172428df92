"""What can be read of a topic, in whatever form it is stored: frozen values that plans are made of. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from offloader.archive.items import DAMAGED, ArchivedEntry, Missing
from offloader.archive.ledgers.names import data_key, index_key
from offloader.archive.runs import Run
from offloader.model import EntryRange, Position, TopicName

LAST_ENTRY = 2**63 - 1  # no entry has a higher id


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why nothing of a ledger can be read, though the bucket has an object `key` of it.

    `damaged`: the ledger had been copied; else nobody knows whether it had, or whose the object is.
    """

    key: str
    why: str
    damaged: bool = True

    def missing(self, first: Position, last: Position) -> Missing:
        """The ledger's positions, as missing."""
        what = f"{self.key}: {self.why} ({first})"
        if self.damaged:
            return Missing(first, last, DAMAGED + what, damaged=self.key)
        return Missing(first, last, f"unproven: {what}")


@dataclass(frozen=True, slots=True)
class OffloadedLedger:
    """A whole closed ledger in Pulsar's ledger-based format (V1), as a stock broker wrote it.

    `store` is the URL of the bucket, whose flat root has the two objects; "" where it is the archive's own root. `size`
    is the sum of the entries' lengths, as BookKeeper counts it. Where it is `unreadable`, nothing says how many entries
    it has: it ends with `LAST_ENTRY`.
    """

    start: Position  # entry 0
    end: Position  # the ledger's last entry
    uuid: str
    size: int
    store: str = ""
    unreadable: Unreadable | None = None

    @property
    def object(self) -> DataObject:
        """Where it is stored, under the keys that stock brokers give."""
        ledger = self.start.ledger
        return DataObject(data_key(self.uuid, ledger), index_key(self.uuid, ledger), ledger=ledger, store=self.store)


class SplitPoint(NamedTuple):
    """The last entry of a portion of a range: reading may be split after it.

    With `crc32c`, the portion is a whole part of the object: `begin` is its offset, `size` its exact size in bytes,
    `crc32c` its checksum. Without, `size` estimates the portion's bytes and `begin` means nothing.
    """

    ledger: int
    entry: int
    size: int
    begin: int = 0
    crc32c: int | None = None

    @property
    def behind(self) -> tuple[int, int]:
        """The place (ledger, entry) right after it."""
        return self.ledger, self.entry + 1


@dataclass(frozen=True, slots=True)
class DataObject:
    """A data object and its index object: those of a segment, or of a ledger in Pulsar's own format (V1).

    `ledger`: the V1 ledger's id, which its index does not say; None: a segment. `size`: the data object's bytes as its
    record says; None: only the index says it. `store`: the bucket's URL; "" is the archive's own root.
    """

    data_key: str
    index_key: str
    size: int | None = None
    ledger: int | None = None
    store: str = ""


@dataclass(frozen=True, slots=True)
class ObjectRange:
    """What one object is to give: runs of entries, and gaps, in topic order. The unit of a plan.

    It names entries, not bytes: the index object says where these are, and the reader asks it. Positions between its
    runs cannot match the selection. The last of its `split_points` is at its last entry; a range of gaps has none, and
    nothing is read for it. `ends_object`: after the last entry the object must end.
    """

    topic: TopicName
    incarnation: int
    object: DataObject
    runs: tuple[Run, ...]
    split_points: tuple[SplitPoint, ...] = ()
    ends_object: bool = False

    @property
    def size(self) -> int:
        """An estimate of the bytes to be read."""
        return sum(point.size for point in self.split_points)

    @property
    def start(self) -> Position:
        return self.start_of(self.runs[0])

    @property
    def end(self) -> Position:
        return self.end_of(self.runs[-1])

    def start_of(self, run: EntryRange) -> Position:
        """The first position of some of its entries."""
        return Position(self.incarnation, run.ledger, run.first)

    def end_of(self, run: EntryRange) -> Position:
        """The last position of some of its entries."""
        return Position(self.incarnation, run.ledger, run.last)


PlanItem = ObjectRange | Missing


def object_of(items: Iterable[PlanItem], position: Position) -> str:
    """The key of the data object that a position is read from; "" where it is in none of these."""
    holding = (item for item in items if isinstance(item, ObjectRange) and item.start <= position <= item.end)
    return next((item.object.data_key for item in holding), "")


@dataclass(frozen=True, slots=True)
class Selection:
    """What to read of a topic. All bounds are included; None: no bound.

    `start` and `end` are positions, `published_from` and `published_to` publish times in ms since 1970, by producers'
    clocks: they select messages wherever these lie. A plan of a selection leaves out only what certainly holds no such
    message.

    >>> Selection(Position(0, 12, 345), published_to=1_795_269_900_000).is_timed
    True
    """

    start: Position | None = None
    end: Position | None = None
    published_from: int | None = None
    published_to: int | None = None

    @property
    def is_timed(self) -> bool:
        """Whether it asks for publish times."""
        return self.published_from is not None or self.published_to is not None

    def covers(self, time: int | None) -> bool:
        """Whether what was published at a time (ms; None: it does not say) is within its times."""
        return time is not None and self.meets(time, time)

    def meets(self, early: int, late: int) -> bool:
        """Whether something published between two times (ms, both included) may be within its times."""
        return (self.published_from is None or late >= self.published_from) and (
            self.published_to is None or early <= self.published_to
        )


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Entries `first`..`last` of one ledger, as they lie in one buffer.

    `bounds` has 2 x `count` numbers: entry `first + n` is `data[bounds[2 * n] : bounds[2 * n + 1]]`. `offset` is where
    `data` begins in the object, in bytes.
    """

    ledger: int
    first: int
    incarnation: int
    data: memoryview
    bounds: Sequence[int]
    offset: int

    @property
    def count(self) -> int:
        return len(self.bounds) // 2

    @property
    def after(self) -> int:
        return self.first + self.count

    @property
    def last(self) -> int:
        return self.after - 1

    @property
    def start(self) -> Position:
        return Position(self.incarnation, self.ledger, self.first)

    @property
    def end(self) -> Position:
        return Position(self.incarnation, self.ledger, self.last)

    def entries(self) -> Iterator[ArchivedEntry]:
        """The entries one by one, each with a copy of its bytes."""
        ledger, incarnation, bounds = self.ledger, self.incarnation, iter(self.bounds)
        whole = self.data.obj  # a slice of it is one copy; one of a view is a view first
        data = whole if isinstance(whole, bytes) and len(whole) == len(self.data) else self.data
        for entry, begin, end in zip(range(self.first, self.after), bounds, bounds, strict=True):
            yield ArchivedEntry(Position(incarnation, ledger, entry), bytes(data[begin:end]))

    def part(self, first: int, after: int) -> EntryRun:
        """Its entries from `first` up to, and without, `after`, which must be in it."""
        if first == self.first and after == self.after:
            return self
        bounds = self.bounds[2 * (first - self.first) : 2 * (after - self.first)]
        return EntryRun(self.ledger, first, self.incarnation, self.data, bounds, self.offset)

    def since(self, position: Position) -> EntryRun | None:
        """What comes from a position on; None where nothing does."""
        if position <= self.start:
            return self
        return self.part(position.entry, self.after) if position <= self.end else None

    def until(self, position: Position) -> EntryRun | None:
        """What comes up to a position, which is included; None where nothing does."""
        if position >= self.end:
            return self
        return self.part(self.first, position.next_entry.entry) if position >= self.start else None


ReadItem = EntryRun | Missing
