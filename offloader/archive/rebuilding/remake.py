"""A segment's record, made again from its objects. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from offloader.archive.rebuilding.choose import Draft
from offloader.archive.rebuilding.found import BlockFacts
from offloader.format.blocks import ENTRY_HEADER_SIZE
from offloader.format.crc import combine
from offloader.format.ranges import merge_ranges
from offloader.model import Cuts, EntryStats, Gap, GapKind, LedgerRange, Part, RollReason, Segment, Source
from offloader.part_index import PartIndex

DRIVER = "streaming"


def remade(draft: Draft, cuts: Cuts, source: Source, before: Segment | None, root: str) -> Segment:
    """The record. Not known: when it was assigned (the time of its seal stands in), why it was closed, its parts' etags."""
    found = draft.object
    ledgers = _ledgers(draft)
    gaps = tuple(_gaps(ledgers, found.blocks))
    parts = tuple(_with_gaps(_parts(found.blocks, cuts.part_size), gaps))
    return Segment(
        uuid=found.uuid,
        start=draft.start,
        end=draft.end,
        assigned_at=found.offloaded_at,
        offloaded_at=found.offloaded_at,
        size=found.size,
        crc32c=combine((part.crc32c, part.size) for part in parts),
        cuts=cuts,
        source=source,
        roll_reason=RollReason.UNKNOWN,
        ledgers=ledgers,
        parts=parts,
        gaps=gaps,
        predecessor_uuid=before.uuid if before else "",
        predecessor_end=before.end if before else None,
        driver=DRIVER,
        driver_properties=(("root", root),) if root else (),
    )


def fits(cuts: Cuts, blocks: Sequence[BlockFacts]) -> bool:
    """Whether these cuts end blocks where these end. Part sizes leave no trace in an object."""
    for block in blocks:
        if block.length > cuts.block_size and block.held.count > 1:
            return False
    for block, after in pairwise(blocks):
        joined = block.length + ENTRY_HEADER_SIZE + after.first_size <= cuts.block_size
        if joined and (block.held.ledger, block.held.last + 1) == (after.held.ledger, after.held.first):
            return False
    return True


def _ledgers(draft: Draft) -> tuple[LedgerRange, ...]:
    """Per ledger, gaps included: all but the last one ended within the segment, all but the first one began in it."""
    held = [replace(r, closed_with=None) for r in merge_ranges(block.held for block in draft.object.blocks)]
    ends = draft.object.ends
    if draft.end.ledger > held[-1].ledger:
        held.append(LedgerRange(draft.end.ledger, 0, draft.end.entry, 0, 0))
    whole = [replace(r, first=0, last=ends[r.ledger], closed_with=ends[r.ledger]) for r in held[:-1]]
    said = ends.get(draft.end.ledger, -1)
    closed = draft.ended or (draft.end_known and said > draft.end.entry)
    last = replace(held[-1], first=0, last=draft.end.entry, closed_with=said if closed else None)
    first, *others = (*whole, last)
    if draft.leading is not None:
        return (draft.leading, first, *others)
    return (replace(first, first=draft.start.entry), *others)


def _gaps(ledgers: Iterable[LedgerRange], blocks: Sequence[BlockFacts]) -> Iterator[Gap]:
    for of_ledger in ledgers:
        at = of_ledger.first
        for held in (block.held for block in blocks if block.held.ledger == of_ledger.ledger):
            if held.first > at:
                yield Gap(GapKind.UNKNOWN, held.ledger, at, held.first - 1)
            at = held.last + 1
        if at <= of_ledger.last:
            yield Gap(GapKind.UNKNOWN, of_ledger.ledger, at, of_ledger.last)


def _parts(blocks: Sequence[BlockFacts], part_size: int) -> Iterator[Part]:
    pending: list[BlockFacts] = []
    number = 1
    for block in blocks:
        pending.append(block)
        if sum(b.length for b in pending) >= part_size:
            yield _part(number, pending)
            pending, number = [], number + 1
    if pending:
        yield _part(number, pending)


def _part(number: int, blocks: list[BlockFacts]) -> Part:
    size = sum(b.length for b in blocks)
    crc = combine((b.crc32c, b.length) for b in blocks)
    ledgers = merge_ranges(b.held for b in blocks)
    return Part(number, blocks[0].offset, size, "", crc, len(blocks), ledgers, PartIndex(), _stats(b.stats for b in blocks))


def _with_gaps(parts: Iterable[Part], gaps: Sequence[Gap]) -> Iterator[Part]:
    """Each gap in the first part that ends after it; one behind the last part is in none."""
    rest = list(gaps)
    for part in parts:
        mine = [gap for gap in rest if (gap.ledger, gap.first) < part.last]
        rest = rest[len(mine) :]
        yield replace(part, gaps=tuple(mine))


def _stats(blocks: Iterable[EntryStats]) -> EntryStats:
    every = list(blocks)

    def least(values: Iterable[int | None]) -> int | None:
        return min((v for v in values if v is not None), default=None)

    def greatest(values: Iterable[int | None]) -> int | None:
        return max((v for v in values if v is not None), default=None)

    return EntryStats(
        sum(s.messages for s in every),
        least(s.min_publish_time for s in every),
        greatest(s.max_publish_time for s in every),
        least(s.min_broker_time for s in every),
        greatest(s.max_broker_time for s in every),
        least(s.min_index for s in every),
        greatest(s.max_index for s in every),
        aborted=tuple(transaction for s in every for transaction in s.aborted),
    )
