"""A stretch of a catalog as pages show it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.metadata.manifest import ManifestRow
from offloader.metadata.state import Record


@dataclass(frozen=True, slots=True)
class Piece:
    """What some consecutive slots say: the records from `first` up to, and without, `after`; `record`: where it is one
    and was read."""

    first: int
    after: int
    row: ManifestRow
    record: Record | None = None

    @property
    def count(self) -> int:
        """How many records it stands for."""
        return self.after - self.first
