"""Which entries one bookie can be asked for at once, and which bookies can be asked. Pure.

With an ensemble as large as the write quorum each bookie holds everything. A larger one is striped: entry e is on the
bookies e, e + 1, ... (modulo the ensemble's size), as many as the write quorum has; a bookie then holds runs of that
many entries.
"""

from __future__ import annotations

from typing import NamedTuple

from offloader.bookkeeper.model import LedgerMetadata


class ReplicaRun(NamedTuple):
    """Entries from `first` up to, and without, `after`. Each of `replicas` holds all of them; ask in this order."""

    first: int
    after: int
    replicas: tuple[str, ...]

    @property
    def span(self) -> int:
        """How many entries."""
        return self.after - self.first


def striped(metadata: LedgerMetadata, entry: int) -> bool:
    """Whether the bookies that hold this entry hold only some of its neighbours."""
    return len(metadata.fragment_of(entry).ensemble) > metadata.write_quorum


def run_at(metadata: LedgerMetadata, entry: int, after: int, most: int) -> ReplicaRun:
    """The longest run that begins at `entry`, ends before `after` and has at most `most` entries."""
    after = min(after, entry + most)
    after = after if after == entry + 1 else min(after, _next_fragment(metadata, entry, after))
    if after == entry + 1 or not striped(metadata, entry):
        return ReplicaRun(entry, after, tuple(dict.fromkeys(metadata.write_set(entry))))
    after = min(after, entry + metadata.write_quorum)
    ensemble = metadata.fragment_of(entry).ensemble
    holders = range(after - 1, entry + metadata.write_quorum)  # from those of the last entry on
    return ReplicaRun(entry, after, tuple(ensemble[i % len(ensemble)] for i in holders))


def _next_fragment(metadata: LedgerMetadata, entry: int, otherwise: int) -> int:
    return min((f.first_entry for f in metadata.fragments if f.first_entry > entry), default=otherwise)
