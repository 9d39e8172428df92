"""Entries of topics of which nothing is missing or deleted: that part of `TopicEntries`, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from offloader.gateway.topic_entries import DeletedSegment
from offloader.metadata.deletions import DeletedRange, SegmentRange
from offloader.model import Place, Position


class WholeTopic:
    """Nothing was read ahead, either."""

    def missing_behind(self, after: Place) -> str | None:
        return None

    @property
    def passed_over(self) -> int:
        return 0

    def deletions(self) -> Sequence[DeletedRange]:
        return ()

    def absent_for_now(self) -> Sequence[SegmentRange]:
        return ()

    def deleted_behind(self, position: Position) -> Sequence[DeletedSegment]:
        return ()

    def close(self) -> None:
        """There is nothing to end."""
