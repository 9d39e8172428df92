"""`offloader orphans quarantine`: the first phase. With `--managed-ledger` left-over managed ledgers of
pending acks are marked as a whole."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import click

from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.orphans import orphans
from offloader.cli.orphans.bucket import BucketOption, bucket_options, scan_bucket
from offloader.cli.orphans.bucket_phases import MarkedPart, mark_objects, marked_told, parse_orphan
from offloader.cli.orphans.deletion_parts import lists_of, moment, queue_of_cluster, side_of, timing
from offloader.cli.output import say
from offloader.cli.parsing import parsed
from offloader.errors import ConfigError, FatalError
from offloader.lifecycle.candidates import OrphanSide
from offloader.lifecycle.deletion.quarantine import Keeping, LedgerMark, LeftoverMark, LeftoverQuarantine, Quarantine
from offloader.lifecycle.ledgers.told import leftover_told, told
from offloader.metadata.root import read_root
from offloader.runtime.deletion import bounds_of, leftovers_beside

YES = click.option("--yes", is_flag=True, help="Do it; without it, only say what would be done.")


@orphans.command()
@click.argument("things", metavar="[ID]...", nargs=-1, callback=parsed(parse_orphan))
@click.option("--all-certain", is_flag=True, help="All that certainly are orphans and hold no data, on both sides.")
@click.option("--managed-ledger", "names", multiple=True, metavar="NAME", help="A left-over one, as a whole.")
@YES
@bucket_options
@command()
def quarantine(
    session: CommandSession,
    things: tuple[int | str, ...],
    *,
    all_certain: bool,
    names: tuple[str, ...],
    yes: bool,
    bucket: BucketOption,
) -> int:
    """Mark ledgers in BookKeeper, and objects of the bucket, for deletion: the first phase. Nothing else changes, and
    `orphans undo` costs nothing until the quarantine (lifecycle.quarantine) is over.

    Scans first. Only what is certain is marked, and nothing of a side where anything stands against deletion there.
    What somebody has undone or dropped before is marked again only by its ID: a ledger's number, an object's key, an
    upload. So it is with ledgers that hold data: --all-certain writes down which do, and that stays known; they go only
    once `orphans rescue` has copied them. Objects of Pulsar's own offloader are marked only with --stock. Exit code 2
    where something named was not marked.

    A left-over managed ledger goes whole, with its cursors; its ledgers are orphans after that, and marked by another
    `orphans quarantine`.

    \b
    JSON: {message, marks, refusals, goesAt}; marks are [{side, id, outcome, why, kind, bytes, evidence}]; outcome is
    marked, would be marked, pending already, spared, kept, not deletable or changed meanwhile.
    """
    bucket.check()
    if sum(map(bool, (things, all_certain, names))) != 1:
        raise FatalError("say which: IDs, --all-certain, or names of left-over managed ledgers")
    if names:
        return quarantine_leftovers(session, names, yes=yes)
    parts = list(_marked(session, things, bucket, yes=yes))
    refusals = [why for one in parts for why in one.refusals]
    session.output.message(
        "; ".join(one.message for one in parts),
        [*refusals, *(line for one in parts for line in one.lines)],
        marks=[mark for one in parts for mark in one.marks],
        refusals=refusals,
        goesAt=moment(session.dependencies.clock_ms() + timing(session).effective_delay),
    )
    return OK if not refusals and all(one.fine for one in parts) else FINDINGS


def _marked(
    session: CommandSession, things: Collection[int | str], option: BucketOption, *, yes: bool
) -> Iterator[MarkedPart]:
    """Of each side that is asked for. A bucket that has no archive has no orphans."""
    ledgers = {one for one in things if isinstance(one, int)}
    objects = {one for one in things if isinstance(one, str)}
    every = not things
    if every and not session.has_bookkeeper and not option.left_out:
        if not option.only:
            say("pulsar.metadataServiceUri is not set: only the bucket is scanned", err=True)
        option = replace(option, only=True)
    if ledgers or (every and not option.only):
        yield _mark_ledgers(session, ledgers or None, yes=yes)
    if objects or (every and (option.only or (not option.left_out and _has_archive(session)))):
        scan = scan_bucket(session, replace(option, only=True), lists_of(session))
        yield mark_objects(session, scan, objects or None, yes=yes)


def _has_archive(session: CommandSession) -> bool:
    try:
        read_root(session.store)
    except ConfigError:
        return False
    return True


def _mark_ledgers(session: CommandSession, named: Collection[int] | None, *, yes: bool) -> MarkedPart:
    section = session.config.lifecycle
    side = side_of(session)
    scan = side.scanner.scan(named)
    if named is not None and side.rescues is not None:
        scan = side.rescues.told(scan)
    queue = queue_of_cluster(session, create=yes)
    phase = Quarantine(queue, side, bounds_of(section), session.dependencies.clock_ms, "command", dry=not yes)
    held: tuple[LedgerMark, ...] = ()
    if named is None:
        clock = session.dependencies.clock_ms
        held = Keeping(queue, side.is_there, side.scanner.scan, clock, "command", dry=not yes).remember(scan)
    found = phase.mark(scan, named)
    marks = (*found.marks, *held)
    return MarkedPart(
        "nothing is marked" if found.refusals else marked_told(session, found.number, "ledger", yes=yes),
        tuple(f"ledger {one}" for one in marks),
        tuple(map(_fields, marks)),
        found.refusals,
        fine=all(one.outcome.is_fine for one in marks),
    )


def _fields(one: LedgerMark) -> dict[str, object]:
    verdict = one.found
    sized = verdict is not None and verdict.ledger.last_entry is not None
    return {
        "side": str(OrphanSide.BOOKKEEPER),
        "id": one.id,
        "outcome": str(one.outcome),
        "why": one.why,
        "kind": None if verdict is None else str(verdict.kind),
        "bytes": verdict.ledger.length if verdict is not None and sized else None,
        "evidence": [] if verdict is None else list(told(verdict)),
    }


def quarantine_leftovers(session: CommandSession, names: tuple[str, ...], *, yes: bool) -> int:
    """Scan, and mark those with these names."""
    now_ms, side = session.dependencies.clock_ms, leftovers_beside(side_of(session))
    scan = side.scanner.scan(frozenset())
    queue = queue_of_cluster(session, create=yes)
    phase = LeftoverQuarantine(queue, side, bounds_of(session.config.lifecycle), now_ms, "command", dry=not yes)
    found = phase.mark(scan, names)
    said = marked_told(session, found.number, "left-over managed ledger", yes=yes)
    session.output.message(
        "nothing is marked" if found.refusals else said,
        [*found.refusals, *(f"managed ledger {one}" for one in found.marks)],
        marks=[_leftover_fields(one) for one in found.marks],
        refusals=list(found.refusals),
        goesAt=moment(now_ms() + timing(session).effective_delay),
    )
    return FINDINGS if found.refusals or not all(one.outcome.is_pending for one in found.marks) else OK


def _leftover_fields(one: LeftoverMark) -> dict[str, object]:
    return {
        "id": one.id,
        "outcome": str(one.outcome),
        "why": one.why,
        "kind": "managed ledger of pending acks",
        "bytes": None if one.found is None else one.found.size,
        "evidence": [] if one.found is None else list(leftover_told(one.found)),
    }
