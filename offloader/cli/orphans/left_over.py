"""`offloader orphans quarantine --managed-ledger`: left-over managed ledgers of pending acks, as a whole."""

from __future__ import annotations

from offloader.cli.command import FINDINGS, OK, CommandSession
from offloader.cli.orphans.deletion_parts import moment, queue_of_cluster, side_of, timing
from offloader.lifecycle.deletion.configured import bounds_of, leftovers_beside
from offloader.lifecycle.deletion.leftover_quarantine import LeftoverMark, LeftoverQuarantine
from offloader.lifecycle.deletion.marking import MarkOutcome
from offloader.lifecycle.ledgers.told import leftover_told

_FINE = (MarkOutcome.MARKED, MarkOutcome.WOULD_BE_MARKED, MarkOutcome.PENDING)


def quarantine_leftovers(session: CommandSession, names: tuple[str, ...], *, yes: bool) -> int:
    """Scan, and mark those with these names."""
    now_ms = session.dependencies.clock_ms
    with side_of(session) as ledgers:
        side = leftovers_beside(ledgers)
        scan = side.scanner.scan(frozenset())
        queue = queue_of_cluster(session, create=yes)
        phase = LeftoverQuarantine(queue, side, bounds_of(session.config.lifecycle), now_ms, "command", dry=not yes)
        marks, refusals = phase.mark(scan, names)
    number = sum(one.outcome in (MarkOutcome.MARKED, MarkOutcome.WOULD_BE_MARKED) for one in marks)
    done = "are marked" if yes else "would be marked; nothing is without --yes"
    session.output.message(
        "nothing is marked" if refusals else f"{number} left-over managed ledgers {done}",
        [*refusals, *map(_line, marks)],
        marks=[_fields(one) for one in marks],
        refusals=list(refusals),
        goesAt=moment(now_ms() + timing(session).effective_delay),
    )
    return FINDINGS if refusals or any(one.outcome not in _FINE for one in marks) else OK


def _line(one: LeftoverMark) -> str:
    return f"managed ledger {one.name}: {one.outcome}" + (f": {one.why}" if one.why else "")


def _fields(one: LeftoverMark) -> dict[str, object]:
    return {
        "id": one.name,
        "outcome": str(one.outcome),
        "why": one.why,
        "kind": "managed ledger of pending acks",
        "bytes": None if one.leftover is None else one.leftover.size,
        "evidence": [] if one.leftover is None else list(leftover_told(one.leftover)),
    }
