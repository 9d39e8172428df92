"""About what a migration asks of the store, and for how long producers would wait. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from offloader.migrate.plan import LedgerAction, ListedState, PlannedLedger
from offloader.model import MIB

READ_AT_ONCE = 4 * MIB
READ_BY_BROKERS = MIB  # at once, from their bucket
COPIED_AT_ONCE = 128 * MIB
STREAMED_AT_ONCE = 16 * MIB
RECORD_PUTS = 6  # of a segment: upload begun and completed, index, record beside it, catalog, journal
PAUSE = 0.2  # seconds that an unload costs producers, measured with one broker


@dataclass(frozen=True, slots=True)
class Cost:
    """`stored`: bytes that the archive has more of; `out`: bytes that leave the store."""

    writes: int = 0
    reads: int = 0
    stored: int = 0
    out: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.writes + other.writes, self.reads + other.reads, self.stored + other.stored, self.out + other.out
        )


@dataclass(frozen=True, slots=True)
class CostShape:
    """Sizes that say how often something is asked of a store. `inside`: it copies by itself, so that only the check of
    a copy leaves it."""

    part_size: int
    segment_size: int
    inside: bool


def cost_of(ledgers: Sequence[PlannedLedger], shape: CostShape, *, back: bool) -> Cost:
    """About what it takes to do this to the ledgers of one topic; on the way back with the proof, which reads all."""
    total = sum((_copied(each, shape) for each in ledgers), _streamed(ledgers, shape))
    return total + sum((_proven(each) for each in ledgers), Cost()) if back else total


def pause_of(ledgers: Iterable[PlannedLedger], at_once: int) -> float:
    """Seconds, in all: an unload for each `at_once` ledgers that brokers get copies of, and one more, since each unload
    closes the open ledger, whose turn then comes."""
    bridged = sum(one.action is LedgerAction.BRIDGE for one in ledgers)
    return PAUSE * (_times(bridged, at_once) + 1) if bridged else 0


def _copied(ledger: PlannedLedger, shape: CostShape) -> Cost:
    """Objects that are made of whole ledgers, or only read."""
    stored = ledger.stored
    reads = _times(stored, READ_AT_ONCE)
    if ledger.action is LedgerAction.REFERENCE:
        return Cost(2, reads + 4, 0, stored)  # a check of it all; catalog and journal
    if ledger.action not in (LedgerAction.COPY, LedgerAction.BRIDGE):
        return Cost()
    copied = _times(stored, COPIED_AT_ONCE if shape.inside else STREAMED_AT_ONCE)
    times = 1 if shape.inside else 2
    return Cost(copied + RECORD_PUTS, times * reads + 4, stored, times * stored)


def _streamed(ledgers: Iterable[PlannedLedger], shape: CostShape) -> Cost:
    """Segments, which small ledgers share."""
    unread = moved = 0
    for each in ledgers:
        unread += each.unread
        if each.state is ListedState.MOVED:  # brokers read their own object for us
            moved += each.unread
    parts, segments = _times(unread, shape.part_size), _times(unread, shape.segment_size)
    return Cost(parts + RECORD_PUTS * segments, parts + _times(moved, READ_BY_BROKERS), unread, moved)


def _proven(ledger: PlannedLedger) -> Cost:
    """The command reads what is archived, and brokers read their own objects for it."""
    if ledger.action is LedgerAction.READABLE or ledger.action is LedgerAction.BRIDGE:
        stored = ledger.stored
        return Cost(0, _times(stored, READ_AT_ONCE) + _times(stored, READ_BY_BROKERS), 0, 2 * stored)
    return Cost(0, _times(ledger.unread, READ_AT_ONCE), 0, ledger.unread)


def _times(size: int, at_once: int) -> int:
    return -(-size // at_once)
