"""What Pulsar has let go of, of what was handed over to brokers: deleted, as one range. Found in the catalog alone."""

from __future__ import annotations

from dataclasses import replace

from offloader.metadata.deletions import DeletedRange, DeletionReason
from offloader.metadata.history import History
from offloader.model import Position


def told_as_deleted(history: History) -> History:
    """A catalog's records behind a head that says so, for readers: these have one place to be told, and read no record
    of it but the last."""
    removed = history.head.removed
    trimmed = removed.trimmed
    if trimmed is None or not any(each.is_bridged for each in removed.ranges):
        return history
    kept_from = Position(trimmed.incarnation, trimmed.first, 0)
    policy = f"Pulsar: it had no ledger below {trimmed.first} any more"
    ranges: list[DeletedRange] = []
    for each in removed.ranges:
        last = _last_before(history, each, kept_from) if each.is_bridged else None
        if last is not None:
            reasons = (*each.reasons, DeletionReason.FOLLOWS_PULSAR)
            whole, at = each.whole and last == each.end, trimmed.at
            gone = replace(each, end=last, reasons=reasons, policy=policy, first_at=at, at=at, whole=whole)
            ranges.append(gone)
        if last != each.end:
            ranges.append(each if last is None else replace(each, start=last.next_entry))
    return history.with_removal(replace(removed, ranges=tuple(ranges)))


def _last_before(history: History, deleted: DeletedRange, kept_from: Position) -> Position | None:
    """The end of the last record of a range that lies before a position as a whole."""
    if deleted.end < kept_from:
        return deleted.end
    if deleted.start >= kept_from:
        return None
    found = next(history.slots(lambda row: row.end is not None and row.end >= kept_from), None)
    number = 0 if found is None else found.number
    while number > 0:
        number -= 1
        end = history.row(number).end
        if end is not None:
            return end if end >= deleted.start else None
    return None
