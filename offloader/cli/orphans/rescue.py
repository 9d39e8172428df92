"""`offloader orphans rescue|rescued|forget`: entries that no list has, copied into the archive."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Console

from offloader.archive.rescued import owner_of_rescued
from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.orphans import orphans
from offloader.cli.orphans.deletion_parts import (
    BOOKIE_SECONDS,
    moment,
    queue_of_root,
    rescues_of_cluster,
    side_of,
)
from offloader.cli.orphans.quarantine import YES
from offloader.cli.orphans.scanning import has_ledgers
from offloader.cli.output import say
from offloader.cli.progress_bar import download_progress
from offloader.cli.topic_requests import user
from offloader.errors import (
    DamagedRecordError,
    FatalError,
    FormatVersionError,
    IntegrityError,
    LedgerNotFoundError,
    OffloadError,
    OutcomeUnknownError,
)
from offloader.lifecycle.bucket.holds import holds
from offloader.lifecycle.deletion.ledger_records import marked_as_rescued
from offloader.lifecycle.deletion.records import ledger_record_name
from offloader.lifecycle.ledgers.evidence import LedgerVerdict
from offloader.lifecycle.rescue.read_back import damage_of_rescue
from offloader.lifecycle.rescue.rescue import DoneRescue, LedgerRescue, RescueOutcome, rescue_refusal
from offloader.metadata.rescue_log import Rescues, read_rescue
from offloader.metadata.rescues import NewestRescue, RescuedLedger, RescueForgotten
from offloader.metadata.root import open_root, read_root

_LEDGERS = click.argument("ledgers", metavar="LEDGER...", nargs=-1, required=True, type=click.IntRange(0, 2**63 - 1))
_COLUMNS = ("ledger", "topic", "kind", "entries", "bytes", "missing", "objects", "rescuedAt", "by")
_WOULD = "would be rescued"
_FINE = (RescueOutcome.RESCUED, RescueOutcome.ALREADY, RescueOutcome.OVERTAKEN)


@orphans.command()
@_LEDGERS
@click.option(
    "--with-losses", is_flag=True, help="Leave out entries that no bookie has any more, and record which these are."
)
@YES
@command()
def rescue(session: CommandSession, ledgers: tuple[int, ...], *, with_losses: bool, yes: bool) -> int:
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
    verdicts = _judged(session, ledgers)
    if yes:
        open_root(session.store, session.admin.cluster(), session.dependencies.new_token)
    return max(
        _rescue_one(session, ledger, verdicts.get(ledger), with_losses=with_losses, yes=yes)
        for ledger in dict.fromkeys(ledgers)
    )


@orphans.command()
@command()
def rescued(session: CommandSession) -> int:
    """List the ledgers that were copied into the archive, from their records; `orphans rescue` of one reads it back.

    Exit code 2 where a record cannot be read.

    \b
    JSON: one object a line: {ledger, topic, kind, entries, bytes, missing, objects, stored, sha256, digestType,
    createdAt, rescuedAt, by}; missing are the ranges [{first, last, why}] that no bookie gave; stored are bytes in the
    bucket; sha256 is of each entry's length (4 bytes, big-endian) and bytes. Where a record cannot be read: {ledger,
    problem}.
    """
    found = Rescues(session.store, read_root(session.store).cluster)
    rows, damaged = [], False
    for ledger in found.ledgers():
        newest = read_rescue(found, ledger)
        if isinstance(newest, str):
            damaged = True
            fields: dict[str, object] = {"ledger": ledger, "problem": newest}
        elif newest.rescued is None:
            continue
        else:
            fields = rescue_fields(newest.rescued)
        if session.output.name == "json":
            session.output.line("", fields)
        else:
            rows.append(_row(fields))
    if session.output.name != "json":
        session.output.table(_COLUMNS, rows, "nothing was rescued")
    return FINDINGS if damaged else OK


@orphans.command()
@_LEDGERS
@YES
@command()
def forget(session: CommandSession, ledgers: tuple[int, ...], *, yes: bool) -> int:
    """Let what was rescued of ledgers go: it counts no more, and its objects are orphans of the bucket, which go like
    others (`orphans quarantine`, `orphans purge`). Also ends a rescue that was cut short, or is under way. Refused
    where the ledger is marked because it was rescued, and where a policy holds its topic.

    \b
    JSON: one object a line: {message, ledger, forgotten, rescue, onlyCopy}; onlyCopy says that BookKeeper has the
    ledger no more, or another one by its id; null where that is not known.
    """
    found = Rescues(session.store, read_root(session.store).cluster)
    there = set(found.ledgers())
    for ledger in dict.fromkeys(ledgers):
        if ledger not in there:
            raise FatalError(f"nothing was rescued of ledger {ledger}; `offloader orphans rescued` lists what was")
        _forget_one(session, found, ledger, yes=yes)
    return OK


def _judged(session: CommandSession, ledgers: Sequence[int]) -> dict[int, LedgerVerdict]:
    with side_of(session) as side:
        return {one.ledger.ledger: one for one in side.scanner.scan(set(ledgers)).verdicts}


def _rescue_one(
    session: CommandSession, ledger: int, verdict: LedgerVerdict | None, *, with_losses: bool, yes: bool
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
    size = f"{(verdict.ledger.last_entry or 0) + 1} entries, {verdict.ledger.length} bytes"
    if not yes:
        return _said(session, ledger, _WOULD, f"{size}; nothing is copied without --yes")
    try:
        done = _copied(session, verdict, with_losses=with_losses)
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


def _copied(session: CommandSession, verdict: LedgerVerdict, *, with_losses: bool) -> DoneRescue:
    tree, bookies = session.bookkeeper(BOOKIE_SECONDS)
    here = session.dependencies
    phase = LedgerRescue(
        rescues_of_cluster(session), tree, bookies, here.new_token, here.clock_ms, user(), with_losses=with_losses
    )
    twice = max(2 * verdict.ledger.length, 1)  # written, and read back
    with download_progress(f"rescuing ledger {verdict.ledger.ledger}", twice, Console(stderr=True)) as advance:
        return phase.run(verdict, advance)


def _what_next(ledger: int, error: OffloadError) -> str:
    if isinstance(error, DamagedRecordError | FormatVersionError):
        return f"As long as that is its newest record nothing is rescued: `offloader orphans forget {ledger}` ends it"
    if isinstance(error, OutcomeUnknownError):
        return "Whether it counts is not known: repeat it"
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
    size = f", {record.entries} entries, {record.payload} bytes" if record else ""
    session.output.line(
        f"ledger {ledger}: {outcome}{size}" + (f": {why}" if why else ""),
        {"id": ledger, "outcome": outcome, "why": why, "rescue": None if record is None else rescue_fields(record)},
    )
    return OK if fine or outcome == _WOULD else FINDINGS


def _forget_one(session: CommandSession, found: Rescues, ledger: int, *, yes: bool) -> None:
    slot, newest = found.last_slot(ledger), read_rescue(found, ledger)
    rescued = newest.rescued if isinstance(newest, NewestRescue) else None  # also what cannot be read can be forgotten
    pending = queue_of_root(session).read(ledger_record_name(ledger))
    if pending is not None and not pending.record.has_ended and marked_as_rescued(pending.record):
        raise FatalError(
            f"ledger {ledger} is marked, because this copy is there: take the mark back first, "
            f"`offloader orphans undo {ledger}`"
        )
    held = holds(session.config.policies)(None if rescued is None else owner_of_rescued(rescued))
    if held:
        raise FatalError(f"ledger {ledger}: what was rescued of it is held by {held}")
    only = _is_only_copy(session, ledger, rescued)
    if yes:
        record = RescueForgotten(session.dependencies.clock_ms(), user())
        if not found.write(ledger, slot + 1, record, session.dependencies.new_token):
            raise FatalError(f"ledger {ledger}: somebody else has rescued or forgotten it meanwhile; look again")
    what = "is forgotten: its objects are orphans of the bucket" if yes else "would be forgotten; not without --yes"
    warning = " BookKeeper has this ledger no more: the archive has the only copy." if only else ""
    session.output.message(
        f"ledger {ledger} {what}.{warning}",
        ledger=ledger,
        forgotten=yes,
        rescue=None if rescued is None else rescue_fields(rescued),
        onlyCopy=only,
    )


def _is_only_copy(session: CommandSession, ledger: int, rescued: RescuedLedger | None) -> bool | None:
    """Another ledger may have its id by now. None: not known."""
    if not has_ledgers(session):
        return None
    try:
        there = session.bookkeeper(BOOKIE_SECONDS)[0].read(ledger).metadata
    except LedgerNotFoundError:
        return True
    except OffloadError as error:
        say(f"whether BookKeeper still has ledger {ledger} is not known: {error}", err=True)
        return None
    return None if rescued is None else not rescued.may_be_of(there.last_entry if there.closed else None, there.length)


def rescue_fields(record: RescuedLedger) -> dict[str, object]:
    """A rescued ledger as JSON has it."""
    return {
        "ledger": record.ledger,
        "topic": record.managed_ledger,
        "kind": record.kind,
        "entries": record.entries,
        "bytes": record.payload,
        "missing": [{"first": one.start.entry, "last": one.end.entry, "why": one.reason} for one in record.losses],
        "objects": 2 * len(record.segments),
        "stored": record.size,
        "sha256": record.sha256.hex(),
        "digestType": record.digest_type,
        "createdAt": moment(record.created),
        "rescuedAt": moment(record.at),
        "by": record.by,
    }


def _row(fields: dict[str, object]) -> tuple[object, ...]:
    missing = fields.get("missing")
    shown = {**fields, "missing": len(missing) if isinstance(missing, list) else None}
    return tuple(shown.get(column, fields.get("problem") if column == "topic" else None) for column in _COLUMNS)
