"""One look at a ledger, or its closing: the metadata, what its bookies say, the dangers, and what came of it."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field

from offloader.bookkeeper.api import Bookies, LedgerMetadataStore
from offloader.bookkeeper.model import NO_ENTRY
from offloader.bookkeeper.recovery.dangers import acknowledged, dangers, distrusted, young_cookies
from offloader.bookkeeper.recovery.forward import Reading
from offloader.bookkeeper.recovery.machine import RecoveryRules
from offloader.bookkeeper.recovery.outcome import Inspection
from offloader.bookkeeper.recovery.runner import TIMEOUT, recover
from offloader.bookkeeper.recovery.survey import marked_up_to, survey


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
