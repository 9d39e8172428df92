"""Which entries one bookie can be asked for at once, and which bookies can be asked. Pure.

With an ensemble as large as the write quorum each bookie holds everything. A larger one is striped: entry e is on the bookies
e, e + 1, ... (modulo the ensemble's size), as many as the write quorum has; a bookie then holds runs of that many entries.
"""

from __future__ import annotations

from typing import NamedTuple

from offloader.bookkeeper.model import LedgerMetadata


class ReplicaRun(NamedTuple):
    """Entries `first`..`last`; each of `replicas` holds all of them. They are to be asked in this order."""

    first: int
    last: int
    replicas: tuple[str, ...]

    @property
    def span(self) -> int:
        """How many entries."""
        return self.last - self.first + 1


def striped(metadata: LedgerMetadata, entry: int) -> bool:
    """Whether the bookies that hold this entry hold only some of its neighbours."""
    return len(metadata.fragment_of(entry).ensemble) > metadata.write_quorum


def run_at(metadata: LedgerMetadata, entry: int, last: int, most: int) -> ReplicaRun:
    """The longest run that begins at `entry`, ends at `last` at the latest and has at most `most` entries."""
    last = min(last, entry + most - 1)
    last = entry if last == entry else min(last, _fragment_end(metadata, entry, last))
    if last == entry or not striped(metadata, entry):
        return ReplicaRun(entry, last, tuple(dict.fromkeys(metadata.write_set(entry))))
    last = min(last, entry + metadata.write_quorum - 1)
    ensemble = metadata.fragment_of(entry).ensemble
    return ReplicaRun(entry, last, tuple(ensemble[i % len(ensemble)] for i in range(last, entry + metadata.write_quorum)))


def _fragment_end(metadata: LedgerMetadata, entry: int, last: int) -> int:
    return min((f.first_entry - 1 for f in metadata.fragments if f.first_entry > entry), default=last)
