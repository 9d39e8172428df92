"""What a scan of a cluster's ledgers found, and who scans. Pure.

Ledgers that are referenced and are not in BookKeeper are found in two looks. The ids are listed before the references
are read, so a ledger that was created in between is not among them: the nodes of those that were not listed are read,
and `still_missing` compares with references read later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from offloader.lifecycle.ledgers.evidence import LedgerVerdict, Standing
from offloader.lifecycle.ledgers.kinds import LedgerKind
from offloader.lifecycle.ledgers.leftovers import LeftoverManagedLedger
from offloader.lifecycle.ledgers.named import NamedLedgers
from offloader.lifecycle.ledgers.references import Referee
from offloader.lifecycle.ledgers.refusals import Refusal

_DAY_MS = 86_400_000
_AGES = (  # younger than so many ms
    ("less than a day", _DAY_MS),
    ("1 to 7 days", 7 * _DAY_MS),
    ("7 to 30 days", 30 * _DAY_MS),
    ("30 to 365 days", 365 * _DAY_MS),
)
_OLDEST, _NOT_KNOWN = "more than a year", "not known"
AGES = (*(name for name, _ in _AGES), _OLDEST, _NOT_KNOWN)

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class MissingLedger:
    """A ledger that a node names, and that has no metadata: readers of what names it stop there, or lose it."""

    ledger: int
    referee: Referee


def named_again(missing: Iterable[MissingLedger], named: NamedLedgers) -> Iterator[MissingLedger]:
    """The same ledgers, by who names them at the second look."""
    for ledger in dict.fromkeys(one.ledger for one in missing):
        yield from (MissingLedger(ledger, referee) for referee in named.referees(ledger))


def still_missing(first: Iterable[MissingLedger], second: Iterable[MissingLedger]) -> tuple[MissingLedger, ...]:
    """Those that the second look misses, too, and that the same node still names."""
    before = {_without_version(one) for one in first}
    return tuple(one for one in second if _without_version(one) in before)


def _without_version(one: MissingLedger) -> tuple[int, tuple[str, str, str]]:
    return one.ledger, (one.referee.store, one.referee.kind, one.referee.node)


class Heap(NamedTuple):
    """Some ledgers. `size`: bytes, one copy, of those that say it; `stored`: with all copies; `unsized`: how many do
    not say it (they are open)."""

    number: int = 0
    size: int = 0
    stored: int = 0
    unsized: int = 0

    def plus(self, other: Heap) -> Heap:
        """Both together."""
        return Heap(*(one + another for one, another in zip(self, other, strict=True)))


class HeapKey(NamedTuple):
    """What the ledgers of a heap have in common."""

    kind: LedgerKind
    standing: Standing
    age: str


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """Few heaps, however many ledgers there are. What is in use was not looked into: its size and age are not known."""

    heaps: Mapping[HeapKey, Heap] = field(default_factory=dict, hash=False)

    def grouped(self, by: Callable[[HeapKey], Key | None]) -> dict[Key, Heap]:
        """Larger heaps; those are left out of which `by` says None."""
        found: defaultdict[Key, Heap] = defaultdict(Heap)
        for key, heap in self.heaps.items():
            group = by(key)
            if group is not None:
                found[group] = found[group].plus(heap)
        return dict(found)

    def number(self, standing: Standing) -> int:
        """How many ledgers have it."""
        return sum(heap.number for key, heap in self.heaps.items() if key.standing is standing)


class LedgerTally:
    """Adds up ledgers one by one. `now_ms`: by the clock that their times are of."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._heaps: defaultdict[HeapKey, Heap] = defaultdict(Heap)

    def add(self, verdict: LedgerVerdict) -> None:
        """One ledger that was looked into."""
        ledger = verdict.ledger
        key = HeapKey(verdict.kind, verdict.standing, age_of(ledger.created_ms, self._now_ms))
        heap = Heap(1, ledger.length, ledger.length * ledger.copies, int(ledger.last_entry is None))
        self._heaps[key] = self._heaps[key].plus(heap)

    def add_named(self, kinds: Mapping[LedgerKind, int]) -> None:
        """Those that are in use, and were not looked into."""
        for kind, number in kinds.items():
            key = HeapKey(kind, Standing.REFERENCED, _NOT_KNOWN)
            self._heaps[key] = self._heaps[key].plus(Heap(number, 0, 0, number))

    def summary(self, more: Iterable[LedgerVerdict] = ()) -> LedgerSummary:
        """Of all that was added, and of these."""
        for verdict in more:
            self.add(verdict)
        return LedgerSummary({key: heap for key, heap in self._heaps.items() if heap.number})


def age_of(created_ms: int | None, now_ms: int) -> str:
    """One of AGES."""
    if created_ms is None:
        return _NOT_KNOWN
    return next((name for name, limit in _AGES if now_ms - created_ms < limit), _OLDEST)


@dataclass(frozen=True, slots=True)
class LedgerScan:
    """`begun_ms`: by ZooKeeper's clock. `ledgers`: how many the cluster has, by the last count of all of them.

    `verdicts`: of every orphan; where the scan was for some ledgers only, of each of these that is there, whatever it
    is. `gone`: those of them that are not. `refusals`: why nothing may be deleted by this scan; none: something may.
    `store`: which of the verdicts' stores is ours, and the only one whose nodes can guard a deletion; `root`: the path
    that its referees' nodes are below. `summary`: of all ledgers that were judged.
    """

    begun_ms: int
    ledgers: int
    counts: Mapping[Standing, int]
    verdicts: tuple[LedgerVerdict, ...]
    gone: frozenset[int] = frozenset()
    missing: tuple[MissingLedger, ...] = ()
    leftovers: tuple[LeftoverManagedLedger, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    store: str = ""
    root: str = ""
    summary: LedgerSummary = field(default_factory=LedgerSummary)


class LedgerScanner(Protocol):
    """Ids first, then references, then each candidate's node again."""

    def scan(self, only: Collection[int] | None = None) -> LedgerScan:
        """All ledgers, or only these, by all that refers to any. Raises MetadataUnavailableError."""
        ...

    def look_again(self, only: Collection[int], leftovers: Collection[str] = ()) -> LedgerScan | None:
        """The same for a few ledgers, and a few left-over managed ledgers, without a scan: their own nodes and those
        that would name them, or named them at the last scan, are read now. Of all others, which name none of these by
        what that scan saw, nothing is read: a ledger is named by nobody but whom it says that it is made for.

        None: there was no such scan of some ledgers, it found something against deletion, it is too old, or other
        stores are to be read by now. Raises MetadataUnavailableError."""
        ...

    def close(self) -> None:
        """End the sessions that were opened for other stores."""
        ...
