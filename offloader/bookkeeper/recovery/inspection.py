"""One look at a ledger, or its closing: the metadata, what its bookies say, the dangers, and what came of it."""

from __future__ import annotations

import random
import time
from collections.abc import Collection
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

from offloader.bookkeeper.api import Bookies, LastConfirmed, LedgerMetadataStore
from offloader.bookkeeper.model import NO_ENTRY, LedgerMetadata
from offloader.bookkeeper.recovery.dangers import (
    BookieReport,
    Reports,
    acknowledged,
    dangers,
    distrusted,
    young_cookies,
)
from offloader.bookkeeper.recovery.forward import Reading
from offloader.bookkeeper.recovery.machine import RecoveryRules
from offloader.bookkeeper.recovery.messages import Answered, ReadLast, answered, unanswered
from offloader.bookkeeper.recovery.outcome import Inspection
from offloader.bookkeeper.recovery.runner import TIMEOUT, recover
from offloader.bookkeeper.status import Answer, answer
from offloader.errors import BookieUnavailableError, DamagedRecordError, OffloadError, TopicNotFoundError
from offloader.state.names import managed_ledger_of, topic_of

LISTING = 2.0
"""Seconds for lists of entries, after all that bookies of any kind answer has come."""


def survey(
    ledger: int, metadata: LedgerMetadata, store: LedgerMetadataStore, bookies: Bookies, timeout: float
) -> Reports:
    """What all bookies of all ensembles say; the ledger is neither fenced nor written. `timeout`: seconds for their
    answers; less for lists of entries, which Pulsar's bookies never send, once all else is there. Raises
    MetadataUnavailableError."""
    names = sorted({bookie for fragment in metadata.fragments for bookie in fragment.ensemble})
    lists = {bookie: bookies.entries_of(bookie, ledger) for bookie in names}
    ends = {bookie: bookies.read_lac(bookie, ledger) for bookie in names}
    waited = _wait_for(ends.values(), lists.values(), timeout)
    available = store.available()
    reports = {}
    for bookie in names:
        end, cookie = _end(ledger, bookie, ends[bookie], metadata, timeout), store.cookie(bookie)
        report = BookieReport(bookie, available.get(bookie), confirmed=end.heard)
        if cookie is not None:
            report = report._replace(cookie_ms=cookie.created_ms, cookie_changed_ms=cookie.modified_ms)
        reports[bookie] = _listed(report, lists[bookie], end, waited)
    return reports


def _wait_for(ends: Collection[Future[Any]], lists: Collection[Future[Any]], timeout: float) -> float:
    """How many seconds the lists had."""
    begun = time.monotonic()
    wait(ends, timeout)
    left = max(timeout - (time.monotonic() - begun), 0)
    wait(lists, min(left, LISTING))
    return LISTING if left > LISTING else timeout


def marked_up_to(ledger: int, metadata: LedgerMetadata, store: LedgerMetadataStore) -> int:
    """The last entry of the ledger that a subscription has behind it: brokers move none beyond what was acknowledged.

    They write it down late, so it proves nothing of what follows. Raises MetadataUnavailableError.
    """
    try:
        cursors = store.cursors(topic_of(managed_ledger_of(metadata.custom)))
    except (ValueError, TopicNotFoundError, DamagedRecordError):
        return NO_ENTRY
    marks = [cursor.mark_delete for cursor in cursors.values() if cursor.mark_delete is not None]
    return max((entry for marked, entry in marks if marked == ledger), default=NO_ENTRY)


def _listed(report: BookieReport, listed: Future[Collection[int]], end: Answered, timeout: float) -> BookieReport:
    """With what it holds. Pulsar's bookies say only whether they have a last entry: without one they have none."""
    error = _error(listed, timeout)
    if error is None:
        return report._replace(holds=listed.result())
    if Answer.NEGATIVE in (answer(error), end.answer):
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


def _end(ledger: int, bookie: str, future: Future[LastConfirmed], metadata: LedgerMetadata, timeout: float) -> Answered:
    request = ReadLast(bookie, fence=False)
    if future.done():
        return answered(ledger, request, future, metadata)
    future.cancel()
    return unanswered(request, timeout)


@dataclass(frozen=True)
class InspectionOptions:
    """`dry`: fence nothing and write nothing. `trusted`: bookies to believe, whatever speaks against it. `timeout`:
    seconds for each request to a bookie. `window`: entries asked for at once. `choice`: chooses replacing bookies."""

    dry: bool = True
    trusted: Collection[str] = ()
    timeout: float = TIMEOUT
    window: int = 8
    choice: random.Random = field(default_factory=random.SystemRandom)


def examine(
    ledger: int, store: LedgerMetadataStore, bookies: Bookies, options: InspectionOptions | None = None
) -> Inspection:
    """Look at a ledger and, unless it is a dry run, close it. Asks no bookies of one that is closed already.

    Raises LedgerNotFoundError, MetadataUnavailableError, OutcomeUnknownError.
    """
    options = options or InspectionOptions()
    versioned = store.read(ledger)
    metadata = versioned.metadata
    adopting = metadata.closed and not options.dry  # then there is nothing to decide
    reports = {} if adopting else survey(ledger, metadata, store, bookies, options.timeout)
    marked = NO_ENTRY if metadata.closed else marked_up_to(ledger, metadata, store)
    found = dangers(metadata, reports, marked=marked)
    doubted = distrusted(found) - frozenset(options.trusted)
    rules = RecoveryRules(Reading(options.window, options.dry), doubted, acknowledged(metadata, reports, marked))
    outcome = recover(
        ledger, store, bookies, rules, timeout=options.timeout,
        suspects=lambda now: young_cookies(now, store) - frozenset(options.trusted), choice=options.choice,
    )  # fmt: skip
    found = dangers(metadata, reports, outcome.evidence, marked)
    return Inspection(ledger, versioned, reports, tuple(found), doubted, outcome, options.dry)
