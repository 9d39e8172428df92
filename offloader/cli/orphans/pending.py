"""`offloader orphans list|in-flight`: what is marked, what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.orphans import orphans
from offloader.cli.orphans.deletion_parts import STATES, queue_if_any, say_former, shown, timing
from offloader.lifecycle.deletion.queue import DamagedRecord
from offloader.lifecycle.deletion.records import DeletionState, LedgerType, PendingDeleteLedgerInfo
from offloader.lifecycle.deletion.watcher import PendingDeletions
from offloader.lifecycle.explaining.words import counted

COLUMNS = ("id", "type", "component", "topic", "state", "markedAt", "goesAt", "tries", "answer", "reason")


@orphans.command("list")
@click.option("--state", "states", type=click.Choice(STATES), multiple=True, help="Only these. Can be repeated.")
@command()
def list_command(session: CommandSession, *, states: tuple[str, ...]) -> int:
    """List what is marked and what became of it: states, when each is looked at next, answers and reasons.

    Ends are kept for lifecycle.recordRetention. Exit code 2 where a record cannot be read, or an earlier version of the
    offloader has left the removal of a subscription pending.

    \b
    JSON: one object a line: {id, record, type, component, topic, state, markedAt, goesAt, tries, answer, reason,
    endedAt, markedBy, proof, referee, evidence, cursor, uuid}; state is marked, deleting, deleted, kept,
    undoing, undone, given up, or damaged, with {id: null, record, reason} alone. goesAt: not before. record: its name,
    which `undo`, `retry` and `drop` take, too.
    """
    return list_deletions(session, COLUMNS, lambda record: not states or record.state in states)


def list_deletions(
    session: CommandSession, columns: Sequence[str], wanted: Callable[[PendingDeleteLedgerInfo], bool]
) -> int:
    """Show the records that are wanted, and those that cannot be read. The exit code."""
    by_config, damaged = timing(session), 0
    rows = []
    fields: dict[str, object]
    queue = queue_if_any(session)
    for one in () if queue is None else queue.records():
        if isinstance(one, DamagedRecord):
            damaged += 1
            fields = {"id": None, "record": one.name, "state": "damaged", "reason": one.why}
        elif not wanted(one.record):
            continue
        else:
            fields = shown(one.record, by_config)
        if session.output.name == "json":
            session.output.line("", fields)
        else:
            rows.append(tuple(fields.get(column) for column in columns))
    if session.output.name != "json":
        session.output.table(columns, rows, "nothing is marked")
    return FINDINGS if damaged or say_former(session) else OK


@orphans.command("in-flight")
@command()
def in_flight(session: CommandSession) -> int:
    """Estimate what is still to be deleted, by type: PIP-186's in-flight deletions. What came to an end counts as
    acknowledged, an undone one too, until its record is removed.

    \b
    JSON: {message, types, damaged, on}; types are [{type, marked, deleting, inFlight, begun, acknowledged, deleted,
    gaveUp}]: begun are those whose second phase began, acknowledged those that came to an end, as long as their records
    are kept; on: whether deletion is switched on, null where it never was.
    """
    queue, pending = queue_if_any(session), PendingDeletions()
    begun = dict.fromkeys(LedgerType, 0)
    for one in () if queue is None else queue.records():
        if isinstance(one, DamagedRecord):
            pending.damaged += 1
        else:
            pending.count(one.record)
            begun[one.record.ledger_type] += one.record.tries > 0
    types = [{"type": str(kind), **_numbers(pending, kind), "begun": begun[kind]} for kind in LedgerType]
    total = sum(pending.in_flight(kind) for kind in LedgerType)
    switch = None if queue is None else queue.switch()
    session.output.message(
        f"{counted(total, 'deletion')} in flight" if pending.counts or pending.damaged else "nothing is marked",
        [" ".join(f"{key}={value}" for key, value in one.items()) for one in types],
        types=types,
        damaged=pending.damaged,
        on=None if switch is None else switch.on,
    )
    return FINDINGS if pending.damaged else OK


def _numbers(pending: PendingDeletions, kind: LedgerType) -> dict[str, int]:
    states = {state: pending.counts[kind, state] for state in DeletionState}
    return {
        "marked": states[DeletionState.MARKED],
        "deleting": states[DeletionState.DELETING],
        "inFlight": pending.in_flight(kind),
        "acknowledged": sum(states[one] for one in (DeletionState.DELETED, DeletionState.KEPT, DeletionState.UNDONE)),
        "deleted": states[DeletionState.DELETED],
        "gaveUp": states[DeletionState.GIVEN_UP],
    }
