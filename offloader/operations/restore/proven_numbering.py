"""The numbering of what was restored, from the archive, and proven by the target."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from offloader.errors import IntegrityError
from offloader.model import Position
from offloader.operations.restore.archived import ArchiveSource
from offloader.operations.restore.numbering import Numbering, RestoredRun, TargetPlaces
from offloader.operations.restore.ports import RestoreTarget
from offloader.operations.restore.tail import Tail


def proven_numbering(
    source: ArchiveSource,
    target: RestoreTarget,
    places: TargetPlaces,
    tail: Tail,
    lowest: Position,
    *,
    allow_missing: bool,
) -> Numbering:
    """Of what was restored behind `lowest`. By the archive's records where nothing was left out there and nothing is
    missing, else it is read once more. Raises IntegrityError where the archive has changed too much since, and as
    reading it does."""
    if tail.position is None:
        return Numbering((), 0)
    ways: tuple[Callable[[Position], Iterable[RestoredRun] | None], ...] = (
        lambda end: source.recorded(lowest, end),
        lambda end: source.restored(lowest, end, allow_missing=allow_missing),
    )
    for way in ways:
        runs = way(tail.position)
        if runs is None:
            continue
        found = Numbering(runs, tail.number)
        if found.is_proven(lowest, tail.position, lambda number: target.provenance(*places.place(number)).position):
            return found
    raise IntegrityError(
        f"the archive does not have any more what was restored behind {lowest}: its subscriptions cannot be mapped"
    )
