"""The first phase in the bucket: what a scan found is marked, with all its evidence. Nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from offloader.lifecycle.bucket.holds import Held, nobody, why_orphan_held
from offloader.lifecycle.bucket.names import ObjectKind
from offloader.lifecycle.bucket.orphans import BucketOrphan, ObjectScan
from offloader.lifecycle.deletion.marking import Mark, Marker, MarkOutcome, Marks, too_many
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import LedgerType
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.metadata.layout import parse_topic_key

ObjectMark = Mark[str, BucketOrphan]
ObjectMarks = Marks[str, BucketOrphan]


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
            *(Mark(each.id, MarkOutcome.KEPT, held[each.id], each) for each in chosen if each.id in held),
            *_not_deletable(scan, named or ()),
        )
        chosen = [each for each in chosen if each.id not in held]
        refusals = scan.refusals or self._too_many(chosen, scan)
        if refusals:
            return Marks(others, refusals)
        marker = Marker(self.queue, self.now_ms, self.queue.switch(), named is not None, self.dry)
        return Marks((*(self._mark(each, marker) for each in chosen), *others))

    def _too_many(self, chosen: Sequence[BucketOrphan], scan: ObjectScan) -> tuple[str, ...]:
        """Ours against ours, the stock offloader's against its own."""
        things = {LedgerType.OBJECT: sum(scan.counts.values()), LedgerType.OFFLOAD_LEDGER: scan.stock_objects}
        asked = {kind: set[str]() for kind in things}
        for each in chosen:
            candidate = each.record(self.by)
            asked[candidate.ledger_type].add(candidate.name)
        return too_many(self.queue, self.bounds, asked, things, "objects")

    def _mark(self, orphan: BucketOrphan, marker: Marker) -> ObjectMark:
        candidate = orphan.record(self.by)
        return marker.mark(orphan.id, orphan, candidate.name, lambda: candidate)


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
            yield Mark(name, MarkOutcome.NOT_DELETABLE, why)
        elif not orphan.deletable:
            yield Mark(name, MarkOutcome.NOT_DELETABLE, orphan.ruling.evidence[-1], orphan)
