"""How many ledgers there are of each kind and standing, and how many bytes, by age. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from offloader.lifecycle.ledgers.evidence import LedgerVerdict, Standing
from offloader.lifecycle.ledgers.kinds import LedgerKind

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
