"""`offloader orphans quarantine`: the first phase."""

from __future__ import annotations

import click

from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.orphans import orphans
from offloader.cli.orphans.deletion_parts import moment, queue_of_cluster, side_of, timing
from offloader.cli.orphans.left_over import quarantine_leftovers
from offloader.errors import FatalError
from offloader.lifecycle.deletion.configured import bounds_of
from offloader.lifecycle.deletion.quarantine import Mark, MarkOutcome, Marks, Quarantine
from offloader.lifecycle.ledgers.told import told

YES = click.option("--yes", is_flag=True, help="Do it; without it, only say what would be done.")
_FINE = (MarkOutcome.MARKED, MarkOutcome.WOULD_BE_MARKED, MarkOutcome.PENDING, MarkOutcome.SPARED)


@orphans.command()
@click.argument("ledgers", metavar="[ID]...", nargs=-1, type=click.IntRange(min=0))
@click.option("--all-certain", is_flag=True, help="All ledgers that certainly are orphans and hold no data.")
@click.option("--managed-ledger", "names", multiple=True, metavar="NAME", help="A left-over one, as a whole.")
@YES
@command()
def quarantine(
    session: CommandSession, ledgers: tuple[int, ...], *, all_certain: bool, names: tuple[str, ...], yes: bool
) -> int:
    """Mark ledgers in BookKeeper for deletion: the first phase. Nothing else changes, and `orphans undo` costs nothing
    until the quarantine (lifecycle.quarantine) is over.

    Scans first. Only what is certain is marked, and nothing where anything stands against deletion. What somebody has
    undone or dropped before is marked again only by its ID. Exit code 2 where something named was not marked.

    A left-over managed ledger goes whole, with its cursors; its ledgers are orphans after that, and marked by another
    `orphans quarantine`.

    \b
    JSON: {message, marks, refusals, goesAt}; marks are [{id, outcome, why, kind, bytes, evidence}]; outcome is marked,
    would be marked, pending already, spared, not deletable or changed meanwhile.
    """
    if sum(map(bool, (ledgers, all_certain, names))) != 1:
        raise FatalError("say which: IDs of ledgers, --all-certain, or names of left-over managed ledgers")
    if names:
        return quarantine_leftovers(session, names, yes=yes)
    section = session.config.lifecycle
    named = set(ledgers) if ledgers else None
    with side_of(session) as side:
        scan = side.scanner.scan(named)
        queue = queue_of_cluster(session, create=yes)
        phase = Quarantine(queue, side, bounds_of(section), session.dependencies.clock_ms, "command", dry=not yes)
        found = phase.mark(scan, named)
    goes_at = moment(session.dependencies.clock_ms() + timing(session).effective_delay)
    session.output.message(
        _summary(found, yes=yes, on=section.topic_two_phase_deletion_enabled),
        [*found.refusals, *map(_line, found.marks)],
        marks=[_fields(one) for one in found.marks],
        refusals=list(found.refusals),
        goesAt=goes_at,
    )
    return FINDINGS if found.refusals or any(one.outcome not in _FINE for one in found.marks) else OK


def _line(one: Mark) -> str:
    return f"ledger {one.ledger}: {one.outcome}" + (f": {one.why}" if one.why else "")


def _fields(one: Mark) -> dict[str, object]:
    verdict = one.verdict
    sized = verdict is not None and verdict.ledger.last_entry is not None
    return {
        "id": one.ledger,
        "outcome": str(one.outcome),
        "why": one.why,
        "kind": None if verdict is None else str(verdict.kind),
        "bytes": verdict.ledger.length if verdict is not None and sized else None,
        "evidence": [] if verdict is None else list(told(verdict)),
    }


def _summary(found: Marks, *, yes: bool, on: bool) -> str:
    if found.refusals:
        return "nothing is marked"
    outcome = MarkOutcome.MARKED if yes else MarkOutcome.WOULD_BE_MARKED
    number = sum(one.outcome is outcome for one in found.marks)
    said = f"{number} ledgers are marked" if yes else f"{number} ledgers would be marked; nothing is without --yes"
    if on or not number:
        return said
    return f"{said}; the application deletes nothing (lifecycle.topicTwoPhaseDeletionEnabled), `orphans purge` does"
