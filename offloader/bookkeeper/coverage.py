"""Quorum coverage: when the answers of some bookies speak for all of them.

A property (is fenced, does not hold the entry) covers a set of bookies if no ack quorum can be formed of those without
it. Counted for each write quorum by itself, not for the ensemble as a whole: only write sets can acknowledge. (TLA+
specification QuorumCoverageFencing of the BookKeeper protocol.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from offloader.bookkeeper.model import LedgerMetadata


def covers(write_set: Collection[str], ack_quorum: int, having: Collection[str]) -> bool:
    """Whether fewer than an ack quorum of `write_set` are without the property that those in `having` have."""
    return sum(bookie not in having for bookie in write_set) < ack_quorum


def write_sets(metadata: LedgerMetadata) -> Iterator[tuple[str, ...]]:
    """Every write set of the last fragment, once: they repeat with the ensemble's size."""
    ensemble = metadata.fragments[-1].ensemble
    for first in range(len(ensemble)):
        yield tuple(ensemble[(first + i) % len(ensemble)] for i in range(metadata.write_quorum))


def fence_covers(metadata: LedgerMetadata, fenced: Collection[str]) -> bool:
    """Whether no write quorum of the last fragment can acknowledge anything any more."""
    return all(covers(write_set, metadata.ack_quorum, fenced) for write_set in write_sets(metadata))
