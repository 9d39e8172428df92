"""`offloader orphans quarantine --managed-ledger`: left-over managed ledgers of pending acks, as a whole."""

from __future__ import annotations

from offloader.cli.command import FINDINGS, OK, CommandSession
from offloader.cli.orphans.deletion_parts import moment, queue_of_cluster, side_of, timing
from offloader.cli.orphans.marked_told import marked_told
from offloader.lifecycle.deletion.configured import bounds_of, leftovers_beside
from offloader.lifecycle.deletion.leftover_quarantine import LeftoverMark, LeftoverQuarantine
from offloader.lifecycle.ledgers.told import leftover_told


def quarantine_leftovers(session: CommandSession, names: tuple[str, ...], *, yes: bool) -> int:
    """Scan, and mark those with these names."""
    now_ms = session.dependencies.clock_ms
    with side_of(session) as ledgers:
        side = leftovers_beside(ledgers)
        scan = side.scanner.scan(frozenset())
        queue = queue_of_cluster(session, create=yes)
        phase = LeftoverQuarantine(queue, side, bounds_of(session.config.lifecycle), now_ms, "command", dry=not yes)
        found = phase.mark(scan, names)
    said = marked_told(session, found.number, "left-over managed ledger", yes=yes)
    session.output.message(
        "nothing is marked" if found.refusals else said,
        [*found.refusals, *(f"managed ledger {one}" for one in found.marks)],
        marks=[_fields(one) for one in found.marks],
        refusals=list(found.refusals),
        goesAt=moment(now_ms() + timing(session).effective_delay),
    )
    return FINDINGS if found.refusals or not all(one.outcome.is_pending for one in found.marks) else OK


def _fields(one: LeftoverMark) -> dict[str, object]:
    return {
        "id": one.id,
        "outcome": str(one.outcome),
        "why": one.why,
        "kind": "managed ledger of pending acks",
        "bytes": None if one.found is None else one.found.size,
        "evidence": [] if one.found is None else list(leftover_told(one.found)),
    }
