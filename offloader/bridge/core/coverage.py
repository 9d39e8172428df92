"""Whether the archive has what a whole ledger is made of: every entry of a closed ledger in committed segments, or in
gaps that bookies can fill. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from offloader.bridge.core.rounds import BridgeVerdict, UnbridgedLedger
from offloader.errors import IntegrityError
from offloader.metadata.deletions import Tombstone
from offloader.model import EntryRange, LedgerRange, Loss, Position, Segment


@dataclass(frozen=True, slots=True)
class LedgerCoverage:
    """A closed ledger, entries 0 to `last`. `segments` hold entries of it, in their order; `missing` is in none of
    them, in order and not side by side: bookies have to fill it. `held`: what each segment holds, gap by gap."""

    ledger: int
    last: int
    segments: tuple[Segment, ...]
    missing: tuple[EntryRange, ...]
    held: tuple[tuple[EntryRange, ...], ...]

    @property
    def length(self) -> int:
        """The sum of the lengths of those entries that segments hold."""
        return sum(_held_of(segment, self.ledger).size for segment in self.segments)


@dataclass(frozen=True, slots=True)
class UncommittedLedger:
    """Not all of it is committed yet: the next entry that is to come."""

    ledger: int
    last: int
    expected: int


@dataclass(frozen=True, slots=True)
class _Account:
    """What one segment says of the ledger: `whole` is accounted for, `held` is in its object."""

    segment: Segment
    whole: EntryRange
    held: tuple[EntryRange, ...]


def cover(
    catalog_segments: Iterable[Segment],
    losses: Iterable[Loss],
    deleted_up_to: Position | None,
    ledger: int,
    last: int,
) -> LedgerCoverage | UnbridgedLedger | UncommittedLedger:
    """Of the records of a topic's incarnation (those that do not touch the ledger do no harm) and a ledger that was
    closed with entry `last`, 0 or more.

    `deleted_up_to`: the last position that readers are told to be deleted, `Removal.told`. Entries before the first
    record were there before the archive began; they are missing like gaps. Raises IntegrityError where records
    contradict each other or Pulsar's list.
    """
    wanted = EntryRange.closed(ledger, 0, last)
    segments, lost = tuple(catalog_segments), tuple(losses)
    gone = _deleted(segments, deleted_up_to, wanted) or _lost(lost, wanted)
    if gone is not None:
        return gone
    accounts = sorted(_accounts(segments, wanted), key=lambda each: each.whole.first)
    behind = any(start.ledger > ledger for start in (*(s.start for s in segments), *(each.start for each in lost)))
    if not accounts and behind:
        return _unbridged(wanted, BridgeVerdict.GAPS, "the archive begins behind it")
    reached, hole = _reached(accounts, wanted, closed=behind)
    if hole is not None:
        told = _told(wanted, hole.first, hole.last)
        return _unbridged(wanted, BridgeVerdict.LOSS, f"no record of the catalog accounts for {told}")
    if reached < wanted.after:
        return UncommittedLedger(ledger, last, reached)
    holding = [each for each in accounts if each.held]
    return LedgerCoverage(
        ledger,
        last,
        tuple(each.segment for each in holding),
        tuple(wanted.without(held for each in holding for held in each.held)),
        tuple(each.held for each in holding),
    )


def _deleted(segments: Iterable[Segment], up_to: Position | None, wanted: EntryRange) -> UnbridgedLedger | None:
    after = 0 if up_to is None else _after(up_to, wanted)
    buried = (s for s in segments if isinstance(s, Tombstone))
    after = max((each.after for s in buried if (each := _touched(s.start, s.end, wanted))), default=after)
    if after <= 0:
        return None
    return _unbridged(wanted, BridgeVerdict.DELETED, f"{_told(wanted, 0, after - 1)} is deleted from the archive")


def _lost(losses: Iterable[Loss], wanted: EntryRange) -> UnbridgedLedger | None:
    for loss in losses:
        touched = _touched(loss.start, loss.end, wanted)
        if touched is not None:
            told = _told(wanted, touched.first, touched.last)
            return _unbridged(wanted, BridgeVerdict.LOSS, f"{told} was gone before it was offloaded: {loss.reason}")
    return None


def _accounts(segments: Iterable[Segment], wanted: EntryRange) -> Iterator[_Account]:
    for segment in segments:
        whole = _touched(segment.start, segment.end, wanted)
        if whole is None:
            continue
        gaps = [gap for gap in segment.gaps if gap.ledger == wanted.ledger]
        held = tuple(EntryRange(r.ledger, r.first, r.after) for r in whole.without(gaps))
        said = _held_of(segment, wanted.ledger)
        if sum(each.span for each in held) != said.count:
            raise IntegrityError(
                f"segment {segment.uuid} says that it holds {said.count} entries of ledger {wanted.ledger} up to "
                f"{wanted.last}, and its gaps leave {sum(each.span for each in held)}"
            )
        yield _Account(segment, whole, held)


def _held_of(segment: Segment, ledger: int) -> LedgerRange:
    nothing = LedgerRange(ledger, 0, 0, count=0, size=0)
    return next((held for held in segment.ledgers if held.ledger == ledger), nothing)


def _reached(accounts: list[_Account], wanted: EntryRange, *, closed: bool) -> tuple[int, EntryRange | None]:
    """The entry after those that are accounted for, and what is left out before others are. `closed`: records follow
    behind the ledger, so that none of it can come any more."""
    reached = accounts[0].whole.first if accounts else 0
    for each in accounts:
        if each.whole.first < reached:
            place = f"{wanted.ledger}:{each.whole.first}"
            raise IntegrityError(f"segment {each.segment.uuid} begins with entry {place}, which another one has, too")
        if each.whole.first > reached:
            return reached, EntryRange(wanted.ledger, reached, each.whole.first)
        reached = each.whole.after
    rest = EntryRange(wanted.ledger, reached, wanted.after)
    return reached, rest if closed and rest.span else None


def _touched(start: Position, end: Position, wanted: EntryRange) -> EntryRange | None:
    """What a record says of the ledger."""
    first = start.entry if start.ledger == wanted.ledger else 0
    if start.ledger > wanted.ledger:
        return None
    found = EntryRange(wanted.ledger, max(first, 0), min(_after(end, wanted), wanted.after))
    return found if found.span else None


def _after(end: Position, wanted: EntryRange) -> int:
    """The entry after those up to this position."""
    if end.ledger == wanted.ledger:
        return min(end.entry + 1, wanted.after)
    return wanted.after if end.ledger > wanted.ledger else 0


def _unbridged(wanted: EntryRange, verdict: BridgeVerdict, why: str) -> UnbridgedLedger:
    return UnbridgedLedger(wanted.ledger, wanted.last, verdict, why)


def _told(wanted: EntryRange, first: int, last: int) -> str:
    if (first, last) == (0, wanted.last):
        return "all of it"
    return f"entry {first}" if first == last else f"what is from entry {first} to {last}"
