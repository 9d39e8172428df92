"""A topic that brokers report, as the metadata service would have it. Pure.

What they do not report is not known: when the last ledger of a topic that no broker has loaded was closed, whether
BookKeeper still has what they have offloaded.
"""

from __future__ import annotations

from dataclasses import replace

from offloader.lifecycle.topics.cursors.held import HeldLedger
from offloader.lifecycle.topics.cursors.stored import StoredCursor, StoredTopic
from offloader.state.managed_ledger import ListedLedger
from offloader.state.subscription import CursorState
from offloader.state.topic import PulsarTopic

INEXACT = "its position is in a ledger: it may have come further"


def stored_topic(report: PulsarTopic) -> StoredTopic:
    """What a reader of the metadata service makes of it."""
    return StoredTopic(
        report.topic,
        tuple(_held(report, one) for one in report.list.ledgers),
        tuple(map(_listed, report.list.ledgers)),
        {name: _stored_cursor(cursor, report) for name, cursor in report.cursors.items()},
        report.list.created_ms or 0,
    )


def _listed(one: ListedLedger) -> ListedLedger:
    """As the list has it: without counts until it is closed there. Nobody knows where BookKeeper's copies are."""
    return one._replace(context=None) if one.timestamp_ms else ListedLedger(one.ledger)


def _held(report: PulsarTopic, one: ListedLedger) -> HeldLedger:
    """A record without a count is none; a broker counts all of its ledgers."""
    if report.newest is None:
        return HeldLedger(one.ledger, one.entries or None, one.size if one.entries else None)
    if one.ledger == report.list.greatest:
        return HeldLedger(one.ledger, report.newest.entries, report.newest.size, not report.newest.closed)
    return HeldLedger(one.ledger, one.entries, one.size)


def _stored_cursor(cursor: CursorState, report: PulsarTopic) -> StoredCursor:
    problem = "" if cursor.cursor_ledger is None else INEXACT
    state = replace(cursor, cursor_ledger=None)
    return StoredCursor(b"", report.list.version, report.list.modified_ms, state, problem=problem)
