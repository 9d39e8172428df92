"""The first entries of a plan are read by themselves, so that nobody waits for all of their part. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from offloader.archive.object_range import ObjectRange, PlanItem, SplitPoint
from offloader.model import KIB

LEAD = 256 * KIB


def with_lead(items: Iterable[PlanItem], size: int = LEAD) -> Iterator[PlanItem]:
    """The plan, in which about the first `size` bytes are a range of their own: these entries are proven by their own
    checksums. Their part is still read whole, and checked, before what follows them."""
    left = iter(items)
    for item in left:
        if isinstance(item, ObjectRange) and item.split_points:
            yield from _led(item, size)
            break
        yield item
    yield from left


def _led(item: ObjectRange, size: int) -> Iterator[ObjectRange]:
    first, part = next(run for run in item.runs if run.gap is None), item.split_points[0]
    count = min(part.entry + 1, first.after) - first.first if part.ledger == first.ledger else first.span
    few = max(count * size // max(part.size, 1), 1)
    if few >= count:
        yield item
        return
    behind = first.ledger, first.first + few
    before = tuple(run for each in item.runs if (run := each.between(after=behind)))
    after = tuple(run for each in item.runs if (run := each.between(behind)))
    lead = SplitPoint(first.ledger, first.first + few - 1, size)
    yield replace(item, runs=before, split_points=(lead,), ends_object=False)
    yield replace(item, runs=after)
