"""What can be seen of a ledger's bookies without touching the ledger: no fence, no write."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait
from typing import Any, NamedTuple, TypeVar

from offloader.bookkeeper.api import Bookies, LastConfirmed, LedgerMetadataStore
from offloader.bookkeeper.model import NO_ENTRY, LedgerMetadata
from offloader.bookkeeper.recovery.answers import answered
from offloader.bookkeeper.recovery.messages import ReadLast
from offloader.bookkeeper.status import Answer, answer
from offloader.errors import BookieUnavailableError, OffloadError

T = TypeVar("T")


class BookieReport(NamedTuple):
    """One bookie of one of the ledger's ensembles.

    `writable` None: it is not registered. `cookie_ms`: since when it has its cookie, None: it has none. `holds`: the entries that it
    says it has, None: it does not say, `problem` is why. `confirmed`: the highest LAC that it knows.
    """

    bookie: str
    writable: bool | None = True
    cookie_ms: int | None = None
    holds: Collection[int] | None = ()
    confirmed: int = NO_ENTRY
    problem: str = ""


Reports = Mapping[str, BookieReport]


def survey(ledger: int, metadata: LedgerMetadata, store: LedgerMetadataStore, bookies: Bookies, timeout: float) -> Reports:
    """All bookies of all ensembles. `timeout`: seconds for their answers. Raises MetadataUnavailableError."""
    names = sorted({bookie for fragment in metadata.fragments for bookie in fragment.ensemble})
    lists = {bookie: bookies.entries_of(bookie, ledger) for bookie in names}
    ends = {bookie: bookies.read_lac(bookie, ledger) for bookie in names}
    asked: list[Future[Any]] = [*lists.values(), *ends.values()]
    wait(asked, timeout)
    available = store.available()
    return {
        bookie: _report(
            BookieReport(bookie, available.get(bookie), _cookie(store, bookie), confirmed=_confirmed(ledger, bookie, ends[bookie], metadata)),
            lists[bookie],
            timeout,
        )
        for bookie in names
    }  # fmt: skip


def acknowledged(metadata: LedgerMetadata, reports: Reports) -> int:
    """The last entry that is known to be acknowledged: before the last fragment all are, and up to the LAC."""
    if metadata.closed:
        return metadata.last_entry
    heard = (report.confirmed for report in reports.values())
    return max(metadata.fragments[-1].first_entry - 1, *heard)


def _report(report: BookieReport, listed: Future[Collection[int]], timeout: float) -> BookieReport:
    error = _error(listed, timeout)
    if error is None:
        return report._replace(holds=listed.result())
    if answer(error) is Answer.NEGATIVE:
        return report._replace(holds=())
    return report._replace(holds=None, problem=str(error))


def _error(future: Future[Any], timeout: float) -> BaseException | None:
    """What it failed with. Raises what is not an answer at all."""
    if not future.done():
        future.cancel()
        return BookieUnavailableError(f"no answer within {timeout:g} s")
    error = future.exception()
    if error is not None and not isinstance(error, OffloadError):
        raise error
    return error


def _confirmed(ledger: int, bookie: str, future: Future[LastConfirmed], metadata: LedgerMetadata) -> int:
    if not future.done():
        future.cancel()
        return NO_ENTRY
    said = answered(ledger, ReadLast(bookie, fence=False), future, metadata)
    return max(said.confirmed, NO_ENTRY if said.held is None else said.held.last_confirmed)


def _cookie(store: LedgerMetadataStore, bookie: str) -> int | None:
    cookie = store.cookie(bookie)
    return None if cookie is None else cookie.created_ms
