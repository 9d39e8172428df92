"""What the answers of some bookies prove. Pure.

One bookie that has an entry is enough to keep it. To leave it out, so many must say *no such entry* that the others
are too few to have acknowledged it: (write quorum - ack quorum) + 1. A bookie that did not answer, or could not say,
counts for neither.

In general, a property (is fenced, does not hold the entry) *covers* a set of bookies if those without it are fewer than
an ack quorum. That is counted for each write quorum by itself, not for the ensemble as a whole: only write sets can
acknowledge. (TLA+ specification QuorumCoverageFencing of the BookKeeper protocol.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from enum import StrEnum
from itertools import combinations
from math import comb
from typing import NamedTuple

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


class EntryVerdict(StrEnum):
    """What is to become of an entry."""

    RECOVERABLE = "recoverable"
    UNRECOVERABLE = "unrecoverable"
    UNDECIDED = "undecided"  # answers are still to come
    ABORT = "abort"  # none are, and they do not suffice


def judge(
    write_set: Sequence[str],
    ack_quorum: int,
    *,
    positive: Collection[str],
    negative: Collection[str],
    unknown: Collection[str],
) -> EntryVerdict:
    """The verdict on one entry of which these bookies of its write set said so."""
    if positive:
        return EntryVerdict.RECOVERABLE
    if covers(write_set, ack_quorum, negative):
        return EntryVerdict.UNRECOVERABLE
    answered = {*negative, *unknown}
    return EntryVerdict.ABORT if answered.issuperset(write_set) else EntryVerdict.UNDECIDED


def judge_write_back(
    write_set: Sequence[str], ack_quorum: int, *, accepted: Collection[str], refused: Collection[str]
) -> EntryVerdict:
    """Whether a recovered entry is safe: as many different bookies of its write set as the ack quorum took it."""
    if len(set(write_set).intersection(accepted)) >= ack_quorum:
        return EntryVerdict.RECOVERABLE
    return EntryVerdict.ABORT if {*accepted, *refused}.issuperset(write_set) else EntryVerdict.UNDECIDED


MOST_TRIED = 2000


class MissingBookies(NamedTuple):
    """How many of which bookies must come back (at the least) before another try can get further."""

    need: int
    bookies: tuple[str, ...]

    def __str__(self) -> str:
        if self.need >= len(self.bookies):
            return f"{_listed(self.bookies)} must come back"
        return f"at least {self.need} of {_listed(self.bookies)} must come back"


def missing(absent: Collection[str], suffice: Callable[[frozenset[str]], bool]) -> MissingBookies:
    """The least number of the absent that would suffice; all of them where not even those would.

    Of many bookies it may be too low: not every choice of them can be tried.
    """
    names = tuple(sorted(absent))
    if not suffice(frozenset(names)):
        return MissingBookies(len(names), names)
    for need in range(1, len(names)):
        if comb(len(names), need) > MOST_TRIED or any(suffice(frozenset(some)) for some in combinations(names, need)):
            return MissingBookies(need, names)
    return MissingBookies(len(names), names)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else "nobody"
