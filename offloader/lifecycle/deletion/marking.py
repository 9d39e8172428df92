"""How the first phase marks, and what came of it, on whichever side it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeVar

from offloader.lifecycle.deletion.machine import FailedLook, GoneLedger, UnprovenLedger, marked
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import DeletionSwitch, LedgerType, PendingDeleteLedgerInfo
from offloader.lifecycle.deletion.timing import DeletionBounds

Id = TypeVar("Id")
Found = TypeVar("Found")

NO_WAY_BACK = (
    "once it is deleted, `orphans undo` will not be possible: ZooKeeper hides from us who may do what with its nodes, "
    "so they could only be created again by hand"
)


HELD_DATA = "it held data that no list had"


class MarkOutcome(StrEnum):
    """What the first phase did."""

    MARKED = "marked"
    WOULD_BE_MARKED = "would be marked"
    PENDING = "pending already"
    SPARED = "spared"  # an operator has undone or dropped it, or others have asked for it: only by its name
    KEPT = "kept"  # it holds data, and that stays known as long as it is there; or a policy holds it
    NOT_DELETABLE = "not deletable"
    CHANGED = "changed meanwhile"

    @property
    def is_pending(self) -> bool:
        """Whether it is marked, or is but for a `--yes`."""
        return self in (MarkOutcome.MARKED, MarkOutcome.WOULD_BE_MARKED, MarkOutcome.PENDING)

    @property
    def is_fine(self) -> bool:
        """Whether it is marked, or need not be."""
        return self.is_pending or self in (MarkOutcome.SPARED, MarkOutcome.KEPT)


def warning_of(record: PendingDeleteLedgerInfo) -> str:
    """What an operator must know of what is marked; mostly nothing."""
    return NO_WAY_BACK if record.node.acl_is_hidden else ""


@dataclass(frozen=True, slots=True)
class Mark(Generic[Id, Found]):
    """`id`: as commands call it. `why`: one sentence, where it was not marked, or where there is more to know.
    `found`: as the scan had it. `record`: what is pending, or is or would be written; of what was spared, the former
    one."""

    id: Id
    outcome: MarkOutcome
    why: str = ""
    found: Found | None = None
    record: PendingDeleteLedgerInfo | None = None

    def __str__(self) -> str:
        return f"{self.id}: {self.outcome}" + (f": {self.why}" if self.why else "")


@dataclass(frozen=True, slots=True)
class Marks(Generic[Id, Found]):
    """`refusals`: why nothing was marked at all."""

    marks: tuple[Mark[Id, Found], ...]
    refusals: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """Of those that are newly marked, or would be."""
        return sum(one.outcome in (MarkOutcome.MARKED, MarkOutcome.WOULD_BE_MARKED) for one in self.marks)


@dataclass(frozen=True, slots=True)
class Marker:
    """`now_ms`: by the clock of what the things are in, so that it does not matter whose clock is wrong; `ours_ms`: our
    own, for where that one is. `switch`: as it was set before. `by_name`: they were named, also those that somebody has
    spared. Nothing is written where `dry`."""

    queue: DeletionQueue
    now_ms: Callable[[], int]
    switch: DeletionSwitch | None
    by_name: bool
    dry: bool
    ours_ms: Callable[[], int] = lambda: 0  # not known

    def mark(
        self,
        thing: Id,
        found: Found,
        name: str,
        candidate: Callable[[], PendingDeleteLedgerInfo | UnprovenLedger | FailedLook | GoneLedger],
        held_data: Callable[[PendingDeleteLedgerInfo], bool] = lambda _former: False,
    ) -> Mark[Id, Found]:
        """Write the record of this name. `candidate`: looks once more, where nothing is pending. `held_data`: whether a
        former record says so: then it goes only by its name."""
        former = self.queue.read(name)
        if former is not None and not former.record.has_ended:
            return Mark(thing, MarkOutcome.PENDING, f"it is {former.record.state}", found, former.record)
        held = former is not None and held_data(former.record)
        if former is not None and not self.by_name and (held or former.record.was_spared):
            why = HELD_DATA if held else f"it was {former.record.answer or former.record.state} before"
            return Mark(thing, MarkOutcome.SPARED, f"{why}: name it to mark it", found, former.record)
        seen = candidate()
        if isinstance(seen, UnprovenLedger):
            return Mark(thing, MarkOutcome.NOT_DELETABLE, seen.why, found)
        if isinstance(seen, FailedLook | GoneLedger):
            return Mark(thing, MarkOutcome.CHANGED, seen.why if isinstance(seen, FailedLook) else "it is gone", found)
        before = former.record if former else None
        record = marked(seen, before, self.now_ms(), self.switch, self.ours_ms())
        if record is None:
            return Mark(thing, MarkOutcome.NOT_DELETABLE, "the record would lack what a deletion needs", found)
        outcome = MarkOutcome.WOULD_BE_MARKED if self.dry else MarkOutcome.MARKED
        why = "; ".join(filter(None, (HELD_DATA if held else "", warning_of(record))))
        done = Mark(thing, outcome, why, found, record)
        if not self.dry and self.queue.write(record, former) is None:
            return replace(done, outcome=MarkOutcome.CHANGED, why="somebody else marks it, too", record=None)
        return done


def too_many(
    queue: DeletionQueue,
    bounds: DeletionBounds,
    asked: Mapping[LedgerType, Collection[str]],
    there: Mapping[LedgerType, int],
    what: str = "ledgers",
) -> tuple[str, ...]:
    """Why these must not be pending, by their records' names, with what is pending already of their kinds. `there`:
    how many things of each kind there are."""
    together = {kind: set(names) for kind, names in asked.items() if names}
    for one in queue.readable() if together else ():
        if one.record.is_in_flight and one.record.ledger_type in together:
            together[one.record.ledger_type].add(one.record.name)
    whys = (bounds.refusal(len(names), there[kind], what) for kind, names in together.items())
    return tuple(why for why in whys if why)


def moved_clock(ours: Callable[[], int], theirs: int) -> Callable[[], int]:
    """Our clock, put to what another one says now: for as long as it takes to mark everything."""
    ahead = theirs - ours()
    return lambda: ours() + ahead
