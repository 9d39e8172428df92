"""`offloader ledgers inspect|close`: one BookKeeper ledger, and the end of one whose writer is gone."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import wraps
from typing import Any, cast

import click

from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.recovery.inspection import InspectionOptions, examine
from offloader.bookkeeper.recovery.machine import Aborted
from offloader.bookkeeper.recovery.outcome import Inspection
from offloader.bookkeeper.recovery.ownership import objection
from offloader.bookkeeper.recovery.report import fields, lines
from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.groups import SpreadGroup
from offloader.cli.parsing import TIME, C, with_options
from offloader.errors import FatalError

TIMEOUT = click.option(
    "--timeout",
    metavar="TIME",
    callback=TIME,
    default="10s",
    show_default=True,
    help="How long a bookie may take to answer.",
)
TRUST = click.option(
    "--trust", "trusted", metavar="BOOKIE", multiple=True, help=(
        "Believe this bookie although it seems to have lost its disk. Can be repeated.")
)  # fmt: skip
FORCE = click.option(
    "--force", is_flag=True, help="Also where a broker may still write the ledger, or cannot be asked."
)
DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Say what would come of it: nothing is fenced and nothing written."
)


def closing_options(command: C) -> C:
    """What all that closes ledgers can be told: the command gets `options` and `force`."""

    @wraps(command)
    def run(*, dry_run: bool, timeout: int, trusted: tuple[str, ...], **others: Any) -> Any:
        return command(options=InspectionOptions(dry=dry_run, trusted=trusted, timeout=timeout / 1000), **others)

    return with_options(cast("C", run), DRY_RUN, FORCE, TRUST, TIMEOUT)


@click.group(cls=SpreadGroup, modules=("offloader.cli.ledger_deletion",))
def ledgers() -> None:
    """BookKeeper ledgers, one by one."""


@ledgers.command()
@click.argument("ledger", type=click.IntRange(min=0))
@TIMEOUT
@TRUST
@command()
def inspect(session: CommandSession, ledger: int, *, timeout: int, trusted: tuple[str, ...]) -> int:
    """Show a ledger's ensembles, what its bookies answer, what closing it would come to, and the dangers. Changes
    nothing.

    Exit code 2 where it could not be closed, or where there are dangers.

    \b
    JSON: {message, ledger, outcome, lastEntry, length, reason, mustComeBack, replaced, metadata, bookies,
    lastConfirmed, reads, writes, steps, dangers}; outcome is closed, adopted (it was closed already), would_close
    or aborted; replaced is [{firstEntry, bookie, by}].
    """
    options = InspectionOptions(dry=True, trusted=trusted, timeout=timeout / 1000)
    store, bookies = session.bookkeeper(options.timeout)
    check_members("--trust", options.trusted, [store.read(ledger).metadata] if options.trusted else [])
    found = examine(ledger, store, bookies, options)
    session.output.message(found.outcome.message, list(lines(found)), **fields(found))
    return FINDINGS if isinstance(found.outcome.phase, Aborted) or found.dangers else OK


@ledgers.command()
@click.argument("ledger", type=click.IntRange(min=0))
@closing_options
@command()
def close(session: CommandSession, ledger: int, *, options: InspectionOptions, force: bool) -> int:
    """Close the ledger of a writer that is gone, as BookKeeper's own recovery does, and show why it was closed where it
    was.

    Refuses where the topic's broker may still write it. Exit code 2 where too little is known to close it: it stays
    IN_RECOVERY, and the message says which bookies must come back. Can be repeated.

    \b
    JSON: as of `ledgers inspect`, and objection: why it would be refused without --dry-run.
    """
    store, _ = session.bookkeeper(options.timeout)
    check_members("--trust", options.trusted, [store.read(ledger).metadata] if options.trusted else [])
    found, refused = close_one(session, ledger, options, force=force)
    session.output.message(found.outcome.message, closed_lines(found, refused), **fields(found), objection=refused)
    return FINDINGS if isinstance(found.outcome.phase, Aborted) or refused else OK


def check_members(option: str, named: Collection[str], ledgers: Iterable[LedgerMetadata]) -> None:
    """Raises FatalError for one that is not among these ledgers' bookies: it would be named in vain."""
    members = {bookie for metadata in ledgers for fragment in metadata.fragments for bookie in fragment.ensemble}
    unknown = sorted(set(named) - members)
    if unknown:
        known = f": they are on {', '.join(sorted(members))}" if members else ""
        raise FatalError(f"{option} {unknown[0]}: none of the ledgers is on such a bookie{known}")


def closed_lines(found: Inspection, refused: str | None) -> list[str]:
    """What came of one ledger, for people."""
    return [*lines(found), *([f"would be refused: {refused}"] if refused else [])]


def close_one(
    session: CommandSession, ledger: int, options: InspectionOptions, *, force: bool
) -> tuple[Inspection, str | None]:
    """What came of it and, of a dry run, why it would have been refused. Raises FatalError where it is."""
    store, bookies = session.bookkeeper(options.timeout)
    metadata = store.read(ledger).metadata
    refused = None
    if not force and not metadata.closed:
        refused = objection(ledger, metadata, store, session.admin.loaded_by, session.dependencies.clock_ms())
    if refused and not options.dry:
        raise FatalError(f"{refused}. --force closes it all the same")
    return examine(ledger, store, bookies, options), refused
