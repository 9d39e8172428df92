"""The first phase in the bucket: what a scan found is marked, with all its evidence. Nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from offloader.lifecycle.bucket.holds import Held, nobody, why_orphan_held
from offloader.lifecycle.bucket.names import ObjectKind
from offloader.lifecycle.bucket.orphans import BucketOrphan, ObjectScan
from offloader.lifecycle.deletion.marking import MarkOutcome, MarkStamp
from offloader.lifecycle.deletion.queue import DeletionQueue, StoredDeletion
from offloader.lifecycle.deletion.records import LedgerType
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.metadata.layout import parse_topic_key


@dataclass(frozen=True, slots=True)
class ObjectMark:
    """`id`: as commands call it. `why`: one sentence, where it was not marked."""

    id: str
    outcome: MarkOutcome
    why: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class ObjectMarks:
    """`refusals`: why nothing was marked at all."""

    marks: tuple[ObjectMark, ...]
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ObjectQuarantine:
    """`now_ms`: by the store's clock. `by`: who asks, as the records have it. Nothing is written where `dry`. `held`:
    what stays whatever it is."""

    queue: DeletionQueue
    bounds: DeletionBounds
    now_ms: Callable[[], int]
    by: str
    dry: bool = False
    held: Held = nobody

    def mark(self, scan: ObjectScan, named: Collection[str] | None = None) -> ObjectMarks:
        """What is deletable in a scan; `named`: only these, also those that somebody has undone, with all other objects
        of their segments. Repeated it marks nothing twice. Raises OffloadError: what was marked until then is marked.
        """
        wanted = None if named is None else with_siblings(scan.orphans, named)
        chosen = [each for each in scan.orphans if each.deletable and (wanted is None or each.id in wanted)]
        held = {each.id: why for each in chosen if (why := why_orphan_held(self.held, each))}
        others = (
            *(ObjectMark(each.id, MarkOutcome.KEPT, held[each.id], each.size) for each in chosen if each.id in held),
            *_not_deletable(scan, named or ()),
        )
        chosen = [each for each in chosen if each.id not in held]
        refusals = scan.refusals or self._too_many(chosen, scan)
        if refusals:
            return ObjectMarks(others, refusals)
        stamp = MarkStamp(self.now_ms, self.queue.switch())
        return ObjectMarks((*(self._mark(each, stamp, by_name=named is not None) for each in chosen), *others))

    def _too_many(self, chosen: Sequence[BucketOrphan], scan: ObjectScan) -> tuple[str, ...]:
        """Ours against ours, the stock offloader's against its own."""
        things = {LedgerType.OBJECT: sum(scan.counts.values()), LedgerType.OFFLOAD_LEDGER: scan.stock_objects}
        asked = {kind: set[str]() for kind in things}
        for each in chosen:
            candidate = each.record(self.by)
            asked[candidate.ledger_type].add(candidate.name)
        if not chosen:
            return ()
        for one in self.queue.records():
            if isinstance(one, StoredDeletion) and one.record.is_in_flight and asked.get(one.record.ledger_type):
                asked[one.record.ledger_type].add(one.record.name)
        whys = (self.bounds.refusal(len(names), things[kind], "objects") for kind, names in asked.items() if names)
        return tuple(why for why in whys if why)

    def _mark(self, orphan: BucketOrphan, stamp: MarkStamp, *, by_name: bool) -> ObjectMark:
        candidate = orphan.record(self.by)
        former = self.queue.read(candidate.name)
        told = ObjectMark(orphan.id, MarkOutcome.MARKED, size=orphan.size)
        if former is not None and not former.record.has_ended:
            return replace(told, outcome=MarkOutcome.PENDING, why=f"it is {former.record.state}")
        if former is not None and not by_name and former.record.was_spared:
            why = f"it was {former.record.answer or former.record.state} before: name it to mark it again"
            return replace(told, outcome=MarkOutcome.SPARED, why=why)
        record = stamp.marked(candidate, former.record if former else None)
        if record is None:
            why = "the record would lack what a deletion needs"
            return replace(told, outcome=MarkOutcome.NOT_DELETABLE, why=why)
        if self.dry:
            return replace(told, outcome=MarkOutcome.WOULD_BE_MARKED)
        if self.queue.write(record, former) is None:
            return replace(told, outcome=MarkOutcome.CHANGED, why="somebody else marks it, too")
        return told


def with_siblings(orphans: Collection[BucketOrphan], named: Collection[str]) -> frozenset[str]:
    """What was named, and what else there is of the same segments: an index would wait for its data for ever."""
    segments = {_segment(each) for each in orphans if each.id in named} - {None}
    return frozenset(named) | {each.id for each in orphans if _segment(each) in segments}


def _segment(orphan: BucketOrphan) -> object:
    """What makes objects belong together; None: it is alone."""
    if orphan.stock is not None:
        return orphan.stock.uuid, orphan.stock.ledger
    parsed = parse_topic_key(orphan.key)
    alone = parsed is None or not parsed.uuid or orphan.kind is ObjectKind.UPLOAD
    return None if alone or parsed is None else (parsed.topic, parsed.uuid)


def _not_deletable(scan: ObjectScan, named: Collection[str]) -> Iterator[ObjectMark]:
    found = {each.id: each for each in scan.orphans}
    for name in sorted(set(named)):
        orphan = found.get(name)
        if orphan is None:
            why = "something names it, it is foreign, or it is not there"
            yield ObjectMark(name, MarkOutcome.NOT_DELETABLE, why)
        elif not orphan.deletable:
            yield ObjectMark(name, MarkOutcome.NOT_DELETABLE, orphan.ruling.evidence[-1], orphan.size)
