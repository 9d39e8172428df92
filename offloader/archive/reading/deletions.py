"""What readers are told in the place of what was deleted: from records alone. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from offloader.archive.continuity import LedgerPart, Span
from offloader.archive.items import Missing
from offloader.archive.selection import Selection
from offloader.metadata.deletions import DeletedRange, range_of
from offloader.model import Position


class Deletions:
    """Tells of each deleted range once: where the first of its records is met, of all of it that is selected."""

    def __init__(self, ranges: tuple[DeletedRange, ...]) -> None:
        self._ranges = ranges
        self._told: set[Position] = set()

    def has(self, span: Span) -> bool:
        """Whether a record is of what was deleted. What stock brokers have offloaded is never ours to delete."""
        return bool(self._ranges) and not isinstance(span, LedgerPart) and range_of(self._ranges, span.end) is not None

    def tell(self, span: Span, selection: Selection, planned_to: Position | None) -> Iterator[Missing]:
        """What is missing at a record that it has, behind what was planned before."""
        found = range_of(self._ranges, span.end)
        if found is None or found.start in self._told or not matters(found, selection):
            return
        self._told.add(found.start)
        first = found.start if selection.start is None else max(found.start, selection.start)
        last = found.end if selection.end is None else min(found.end, selection.end)
        if planned_to is not None and found.holds(planned_to):
            first = max(first, planned_to.next_entry)
        if first <= last:
            yield Missing(first, last, found.told, deleted=True)


def matters(deleted: DeletedRange, selection: Selection) -> bool:
    """Whether anything of a deleted range may be selected."""
    if selection.start is not None and deleted.end < selection.start:
        return False
    if selection.end is not None and deleted.start > selection.end:
        return False
    since = selection.published_from
    return since is None or deleted.late is None or deleted.late >= since
