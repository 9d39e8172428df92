"""What `offloader archive` shows of what goes: for people, and as JSON has it."""

from __future__ import annotations

from collections.abc import Iterator

from offloader.config.units import format_size
from offloader.lifecycle.retention.outlook import RetentionOutlook
from offloader.lifecycle.retention.plan import DueRange, NextDue
from offloader.metadata.deletions import Deleting, DeletionReason, day


def plan_texts(found: RetentionOutlook) -> list[str]:
    """The lines about one topic."""
    plan = found.plan
    lines = [f"{plan.topic}: {'; '.join(filter(None, ('goes' if plan.due else '', found.note)))}"]
    lines += [f"  {line}" for each in plan.due for line in _of_range(each, found.not_before)]
    lines += [f"  {_of_waiting(each)}" for each in found.waiting]
    pending = plan.pending
    if pending is not None:
        segments, size = sum(r.segments for r in pending.ranges), sum(r.size for r in pending.ranges)
        lines.append(
            f"  deletion {pending.number}: {segments} segments of {format_size(size)} bytes go not before "
            f"{day(pending.not_before)} ({pending.policy}, recorded {day(pending.at)})"
        )
    if found.deleted:
        segments, size = _sums(found)
        lines.append(f"  {segments} segments of {format_size(size)} bytes were deleted before")
    return lines


def _sums(found: RetentionOutlook) -> tuple[int, int]:
    return sum(each.segments for each in found.deleted), sum(each.size for each in found.deleted)


def _of_range(found: DueRange, not_before: int) -> Iterator[str]:
    span, since = found.range, _since(found)
    words = ", ".join(dict.fromkeys(each.words for each in found.due))
    due = "" if since is None else f", due since {day(since)}"
    yield (
        f"{span.start}..{span.end}: {span.segments} segments of {format_size(span.size)} bytes, not before "
        f"{day(not_before)} ({words}{due})"
    )
    if _only_copy(found):
        yield "Pulsar has deleted these ledgers: then they exist nowhere"


def _of_waiting(found: NextDue) -> str:
    segment = found.segment
    when = found.words if found.at is None else f"due on {day(found.at)} ({found.words})"
    return f"next {segment.start}..{segment.end}: {when}; {format_size(found.size)} bytes from there on"


def _since(found: DueRange) -> int | None:
    """When the first of it was due; None: no time says it."""
    return min((each.since for each in found.due if each.since), default=None)


def _only_copy(found: DueRange) -> bool:
    return any(each.reason is DeletionReason.FOLLOWS_PULSAR for each in found.due)


def plan_fields(found: RetentionOutlook) -> dict[str, object]:
    """The object about one topic."""
    plan = found.plan
    return {
        "topic": str(plan.topic),
        "due": [range_fields(each, found.not_before) for each in plan.due],
        "waiting": [_waiting_fields(each) for each in found.waiting],
        "pending": None if plan.pending is None else _pending_fields(plan.pending),
        "deleted": dict(zip(("segments", "bytes"), _sums(found), strict=True)),
        "note": found.note,
    }


def _waiting_fields(found: NextDue) -> dict[str, object]:
    segment = found.segment
    return {
        "incarnation": segment.start.incarnation,
        "start": str(segment.start),
        "end": str(segment.end),
        "due": found.at,
        "why": found.words,
        "bytes": found.size,
    }


def range_fields(found: DueRange, not_before: int) -> dict[str, object]:
    """What goes of one incarnation."""
    span = found.range
    return {
        "incarnation": span.start.incarnation,
        "start": str(span.start),
        "end": str(span.end),
        "segments": span.segments,
        "entries": span.entries,
        "bytes": span.size,
        "reasons": sorted({str(each.reason) for each in found.due}),
        "policies": sorted({each.words for each in found.due}),
        "since": _since(found),
        "notBefore": not_before,
        "onlyCopy": _only_copy(found),
    }


def _pending_fields(pending: Deleting) -> dict[str, object]:
    ranges = [
        {"start": str(r.start), "end": str(r.end), "segments": r.segments, "bytes": r.size} for r in pending.ranges
    ]
    return {
        "number": pending.number,
        "reason": str(pending.reason),
        "policy": pending.policy,
        "by": pending.by,
        "at": pending.at,
        "notBefore": pending.not_before,
        "ranges": ranges,
    }
