"""A topic's entries as a server of consumers needs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from offloader.gateway.values import ServedEnd, ServedEntries, ServedEntry
from offloader.metadata.deletions import DeletedRange, SegmentRange
from offloader.model import Place, Position, Segment, TopicName


class DeletedSegment(NamedTuple):
    """A segment that is deleted for good, and when that was decided, in ms."""

    at: int
    segment: Segment


class TopicEntries(Protocol):
    """One topic, of one partition. Calls block: they are made from worker threads, from several at a time. All raise
    what the store raises, DamagedObjectError and DamagedRecordError; after what can be tried again, the same call
    works. `sticky`: hash the keys, which takes as long as the rest."""

    @property
    def name(self) -> TopicName: ...

    def read(self, after: Place, most_entries: int, most_bytes: int, *, sticky: bool = False) -> ServedEntries:
        """The next entries behind a place, which need not exist; at least one where there is one, else up to both
        bounds, or fewer. Nothing and `covered` None: that was all, for now. Whoever goes on behind what was covered
        reads on without a new request. Raises DataLostError where what comes next is missing, and not to be passed
        over."""
        ...

    def again(self, places: Sequence[Place], *, sticky: bool = False) -> list[ServedEntry]:
        """These entries, in the topic's order; those that cannot be delivered (any more) are left out."""
        ...

    def end(self) -> ServedEnd:
        """As of the last `refresh`."""
        ...

    def refresh(self) -> bool:
        """Look for what was sealed since. Returns whether the end has moved since the last call."""
        ...

    def before_time(self, published_ms: int) -> Place:
        """The last entry that is older (the broker's time, where an entry has it, else the producer's): what a seek to
        that time acknowledges. BEFORE_ALL: none is. Where times do not grow: one that is older, before one that is
        not."""
        ...

    def previous(self, place: Place) -> Place:
        """The mark-delete position from which this entry is the next to be delivered; for one that is not there, the
        nearest. Earliest (-1:-1) gives BEFORE_ALL, the largest place the end."""
        ...

    def ledgers(self) -> Sequence[tuple[int, int, int]]:
        """(incarnation, ledger, last entry) of each ledger that is served, in order: acknowledgements are kept by
        these."""
        ...

    def missing_behind(self, after: Place) -> str | None:
        """In words what ends the reading behind this place, as far as it is known before anything is read; None:
        nothing, or it is passed over. What retention has deleted at the topic's begin is no loss for who starts
        there."""
        ...

    def deletions(self) -> Sequence[DeletedRange]:
        """What is deleted for good, as of the last `refresh`."""
        ...

    def deleted_behind(self, position: Position) -> Sequence[DeletedSegment]:
        """Of that what lies behind a position, in order."""
        ...

    def absent_for_now(self) -> Sequence[SegmentRange]:
        """What is missing as of the last `refresh`, may be there again, and is acknowledged by nobody: what is going to
        be deleted, and may still be taken back; ledgers that cannot be read, where they are not passed over."""
        ...

    @property
    def passed_over(self) -> int:
        """How often reading has passed over something that is missing, where it is told to."""
        ...

    def close(self) -> None:
        """Give up what was read ahead. Calls that are under way end as ever."""
        ...
