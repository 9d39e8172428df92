"""`offloader orphans rescue`: entries that no list has, copied into the archive."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import click
from rich.console import Console

from offloader.cli.asking import user
from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.ledgers import check_members
from offloader.cli.orphans import orphans
from offloader.cli.orphans.deletion_parts import (
    BOOKIE_SECONDS,
    rescues_of_cluster,
    side_of,
)
from offloader.cli.orphans.quarantine import YES
from offloader.cli.orphans.rescued import RESCUED_LEDGERS, rescue_fields
from offloader.cli.progress_bar import download_progress
from offloader.errors import (
    BookieUnavailableError,
    DamagedRecordError,
    FatalError,
    FormatVersionError,
    IntegrityError,
    OffloadError,
    OutcomeUnknownError,
)
from offloader.lifecycle.explaining.words import counted
from offloader.lifecycle.ledgers.evidence import LedgerVerdict
from offloader.lifecycle.rescue.entries import check_gone
from offloader.lifecycle.rescue.objects import damage_of_rescue
from offloader.lifecycle.rescue.rescue import DoneRescue, LedgerRescue, RescueOutcome, rescue_refusal
from offloader.metadata.rescues import RescuedLedger
from offloader.metadata.root import open_root

_WOULD = "would be rescued"


class _Losses(NamedTuple):
    """What of a ledger need not be copied: what no bookie has, and what only bookies may have that are gone."""

    left_out: bool
    gone: frozenset[str]


_FINE = (RescueOutcome.RESCUED, RescueOutcome.ALREADY, RescueOutcome.OVERTAKEN)


@orphans.command()
@RESCUED_LEDGERS
@click.option(
    "--with-losses", is_flag=True, help="Leave out entries that no bookie has any more, and record which these are."
)
@click.option(
    "--gone",
    metavar="BOOKIE",
    multiple=True,
    help="This bookie is gone for good: with --with-losses, what only it may have counts as lost. Can be repeated.",
)
@YES
@command()
def rescue(
    session: CommandSession, ledgers: tuple[int, ...], *, with_losses: bool, gone: tuple[str, ...], yes: bool
) -> int:
    """Copy closed ledgers that no list names into the archive, entry by entry as BookKeeper has them: what is *kept*
    because it is data, or anything else that may go. Nothing else changes; a ledger that is listed meanwhile loses
    nothing.

    What was written is read back before it counts. Cut short, it is begun anew; repeated, it reads back what is there.
    `orphans read` reads it. A kept ledger may then be marked by its ID, and by nothing else (`ledgers delete`,
    `orphans quarantine`). Exit code 2 where something was not copied whole.

    \b
    JSON: one object a line: {id, outcome, why, rescue}; outcome is rescued, rescued already, rescued by somebody else,
    not better than what was rescued before, would be rescued, refused or failed; rescue as of `orphans rescued`, null
    where there is none.
    """
    if gone and not with_losses:
        raise FatalError("--gone says what may be left out: that needs --with-losses")
    verdicts = _judged(session, ledgers)
    _check_gone(session, gone, verdicts)
    if yes:
        open_root(session.store, session.admin.cluster(), session.dependencies.new_token)
    return max(
        _rescue_one(session, ledger, verdicts.get(ledger), _Losses(with_losses, frozenset(gone)), yes=yes)
        for ledger in dict.fromkeys(ledgers)
    )


def _judged(session: CommandSession, ledgers: Sequence[int]) -> dict[int, LedgerVerdict]:
    return {one.ledger.ledger: one for one in side_of(session).scanner.scan(set(ledgers)).verdicts}


def _check_gone(session: CommandSession, gone: Collection[str], ledgers: Collection[int]) -> None:
    """Raises FatalError for a bookie that none of these ledgers is on, and for one that may come back."""
    if gone:
        tree, _ = session.bookkeeper(BOOKIE_SECONDS)
        check_members("--gone", gone, [tree.read(ledger).metadata for ledger in ledgers])
        check_gone(gone, tree)


def _rescue_one(
    session: CommandSession, ledger: int, verdict: LedgerVerdict | None, losses: _Losses, *, yes: bool
) -> int:
    if verdict is None:
        try:
            return _without_ledger(session, ledger)
        except (IntegrityError, FormatVersionError) as error:  # the others are rescued all the same
            return _said(
                session, ledger, "failed", f"BookKeeper has it no more, and its record cannot be read: {error}"
            )
    refused = rescue_refusal(verdict)
    if refused:
        return _said(session, ledger, "refused", refused)
    size = f"{counted((verdict.ledger.last_entry or 0) + 1, 'entry')}, {verdict.ledger.length} bytes"
    if not yes:
        return _said(session, ledger, _WOULD, f"{size}; nothing is copied without --yes")
    try:
        done = _copied(session, verdict, losses)
    except OffloadError as error:
        return _said(session, ledger, "failed", f"{error}. {_what_next(ledger, error)}")
    whole = done.record is not None and done.record.whole
    return _said(session, ledger, str(done.outcome), _why(done), done.record, fine=whole and done.outcome in _FINE)


def _without_ledger(session: CommandSession, ledger: int) -> int:
    """Of a ledger that BookKeeper does not have any more the copy is read back."""
    found = rescues_of_cluster(session)
    newest = found.newest(ledger)
    if newest.rescued is None:
        return _said(session, ledger, "refused", "BookKeeper has no such ledger")
    damage = damage_of_rescue(found.store, found.folder(ledger, newest.slot), newest.rescued)
    if damage:
        return _said(session, ledger, "failed", f"BookKeeper has it no more, and its copy is damaged: {damage}")
    done = DoneRescue(RescueOutcome.ALREADY, newest.rescued)
    return _said(session, ledger, str(done.outcome), _why(done), newest.rescued, fine=newest.rescued.whole)


def _copied(session: CommandSession, verdict: LedgerVerdict, losses: _Losses) -> DoneRescue:
    tree, bookies = session.bookkeeper(BOOKIE_SECONDS)
    here = session.dependencies
    phase = LedgerRescue(
        rescues_of_cluster(session), tree, bookies, here.new_token, here.clock_ms, user(), losses.left_out, losses.gone
    )
    twice = max(2 * verdict.ledger.length, 1)  # written, and read back
    with download_progress(f"rescuing ledger {verdict.ledger.ledger}", twice, Console(stderr=True)) as advance:
        return phase.run(verdict, advance)


def _what_next(ledger: int, error: OffloadError) -> str:
    if isinstance(error, DamagedRecordError | FormatVersionError):
        return f"As long as that is its newest record nothing is rescued: `offloader orphans forget {ledger}` ends it"
    if isinstance(error, OutcomeUnknownError):
        return "Whether it counts is not known: repeat it"
    if isinstance(error, BookieUnavailableError):
        return (
            "What was written of it counts for nothing: repeat it once that bookie answers; where it is gone for good, "
            "`--with-losses --gone BOOKIE` leaves out what only it may have"
        )
    return "What was written of it counts for nothing" + ("" if isinstance(error, FatalError) else ": repeat it")


def _why(done: DoneRescue) -> str:
    record = done.record
    whys = [f"the copy before was damaged ({done.damage})"] if done.damage else []
    if record is None:
        whys.append("and forgotten since")
    elif not record.whole:
        whys.append(f"{record.last_entry + 1 - record.entries} of {record.last_entry + 1} entries are on no bookie")
    return "; ".join(whys)


def _said(
    session: CommandSession,
    ledger: int,
    outcome: str,
    why: str,
    record: RescuedLedger | None = None,
    *,
    fine: bool = False,
) -> int:
    size = f", {counted(record.entries, 'entry')}, {record.payload} bytes" if record else ""
    session.output.line(
        f"ledger {ledger}: {outcome}{size}" + (f": {why}" if why else ""),
        {"id": ledger, "outcome": outcome, "why": why, "rescue": None if record is None else rescue_fields(record)},
    )
    return OK if fine or outcome == _WOULD else FINDINGS
