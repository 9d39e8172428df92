"""What bookies say of a ledger before it is touched. Frozen values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from offloader.bookkeeper.model import NO_ENTRY, LedgerMetadata


class BookieReport(NamedTuple):
    """One bookie of one of the ledger's ensembles.

    `writable` None: it is not registered. `cookie_ms`: since when it has a cookie, None: it has none;
    `cookie_changed_ms`: since when it has the one that it has. `holds`: the entries that it says it has, None: it does
    not say, `problem` is why. `confirmed`: the highest LAC that it knows.
    """

    bookie: str
    writable: bool | None = True
    cookie_ms: int | None = None
    holds: Collection[int] | None = ()
    confirmed: int = NO_ENTRY
    problem: str = ""
    cookie_changed_ms: int | None = None


Reports = Mapping[str, BookieReport]


def acknowledged(metadata: LedgerMetadata, reports: Reports, marked: int = NO_ENTRY) -> int:
    """The last entry that is known to be acknowledged: before the last fragment all are, up to the LAC, and up to
    `marked`."""
    if metadata.closed:
        return metadata.last_entry
    heard = (report.confirmed for report in reports.values())
    return max(metadata.fragments[-1].first_entry - 1, marked, *heard)
