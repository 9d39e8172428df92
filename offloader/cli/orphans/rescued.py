"""`offloader orphans rescued|read|forget`: what was copied into the archive, reading it, and letting it go."""

from __future__ import annotations

import sys

import click
from rich.console import Console

from offloader.archive.archive import Archive, owner_of_rescued
from offloader.archive.messages.encryption import KeyReader
from offloader.archive.messages.filters import MessageFilter
from offloader.archive.reading.reader import ReadOptions
from offloader.archive.selection import Bound, selected
from offloader.cli.asking import user
from offloader.cli.cat import messages_of, show
from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.formats import FORMATS
from offloader.cli.orphans import orphans
from offloader.cli.orphans.deletion_parts import BOOKIE_SECONDS, moment, queue_of_root
from offloader.cli.orphans.quarantine import YES
from offloader.cli.output import say
from offloader.cli.progress_bar import download_progress
from offloader.cli.reading import message_options, range_options
from offloader.errors import FatalError, LedgerNotFoundError, OffloadError
from offloader.lifecycle.bucket.holds import holds
from offloader.lifecycle.deletion.ledger_records import marked_as_rescued
from offloader.lifecycle.deletion.records import ledger_record_name
from offloader.lifecycle.ledgers.kinds import LedgerKind
from offloader.lifecycle.rescue.objects import damage_of_rescue
from offloader.metadata.rescue_log import Rescues, read_rescue
from offloader.metadata.rescues import NewestRescue, RescuedLedger, RescueForgotten
from offloader.metadata.root import read_root

RESCUED_LEDGERS = click.argument(
    "ledgers", metavar="LEDGER...", nargs=-1, required=True, type=click.IntRange(0, 2**63 - 1)
)
_COLUMNS = ("ledger", "topic", "kind", "entries", "bytes", "missing", "objects", "rescuedAt", "by", "problem")
NO_MESSAGES = frozenset(
    {
        LedgerKind.CURSOR,
        LedgerKind.SCHEMA,
        LedgerKind.DELAYED_INDEX,
        LedgerKind.TRANSACTION_LOG,
        LedgerKind.PENDING_ACKS,
    }
)


@orphans.command()
@click.option("--read-back", is_flag=True, help="Read all copies back, every byte, and say which are damaged.")
@command()
def rescued(session: CommandSession, *, read_back: bool) -> int:
    """List the ledgers that were copied into the archive, from their records.

    Exit code 2 where a record cannot be read, or (--read-back) a copy is damaged.

    \b
    JSON: one object a line: {ledger, topic, kind, entries, bytes, missing, objects, stored, sha256, digestType,
    createdAt, rescuedAt, by}; missing are the ranges [{first, last, why}] that no bookie gave; stored are bytes in the
    bucket; sha256 is of each entry's length (4 bytes, big-endian) and bytes. Where a record cannot be read: {ledger,
    problem}; problem is also what is wrong with a copy.
    """
    found = Rescues(session.store, read_root(session.store).cluster)
    rows, damaged = [], False
    for ledger in found.ledgers():
        fields = _copied(found, ledger, read_back=read_back)
        if fields is None:
            continue
        damaged = damaged or "problem" in fields
        if session.output.name == "json":
            session.output.line("", fields)
        else:
            rows.append(_row(fields))
    if session.output.name != "json":
        session.output.table(_COLUMNS, rows, "nothing was rescued")
    return FINDINGS if damaged else OK


@orphans.command()
@RESCUED_LEDGERS
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


def _copied(found: Rescues, ledger: int, *, read_back: bool) -> dict[str, object] | None:
    """As JSON has it; None: nothing counts. Raises what the store raises."""
    newest = read_rescue(found, ledger)
    if isinstance(newest, str):
        return {"ledger": ledger, "problem": newest}
    record = newest.rescued
    if record is None:
        return None
    damage = ""
    if read_back:
        with download_progress(
            f"reading ledger {ledger} back", max(record.payload, 1), Console(stderr=True)
        ) as advance:
            damage = damage_of_rescue(found.store, found.folder(ledger, newest.slot), record, advance)
    return {**rescue_fields(record), **({"problem": damage} if damage else {})}


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
    if not session.has_bookkeeper:
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
    return tuple(shown.get(column) for column in _COLUMNS)


@orphans.command()
@click.argument("ledger", type=click.IntRange(0, 2**63 - 1))
@range_options("--to", "--until")
@click.option("--entries", is_flag=True, help="The entries as BookKeeper stored them instead of messages.")
@click.option("--format", "form", type=click.Choice(list(FORMATS)), help="As of `topics cat`.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="No more than so many messages (entries).")
@message_options
@command()
def read(
    session: CommandSession,
    ledger: int,
    *,
    start: Bound | None,
    end: Bound | None,
    entries: bool,
    form: str | None,
    limit: int | None,
    private_keys: KeyReader | None,
    reading: ReadOptions,
) -> None:
    """Read what was rescued of a ledger, as `topics cat` reads a topic: to produce it again, for example. Needs no
    Pulsar, and may only read the bucket. What is no message (a cursor's ledger, a schema's) is read with --entries.

    \b
    JSON: as of `topics cat`; topic is whose the ledger was.
    """
    if not entries:
        _check_kind(session, ledger)
    selection = selected(start, end)
    source = Archive(session.open_archive(), options=reading).rescued(ledger)
    wanted = MessageFilter(selection.published_from, selection.published_to)
    found = source.items(selection) if entries else messages_of(source, selection, wanted, private_keys)
    printed = FORMATS[form or session.output.name](source.name)
    show(((source.name, each) for each in found), printed, limit, live=sys.stdout.isatty())


def _check_kind(session: CommandSession, ledger: int) -> None:
    """Entries that are no messages would look like damage."""
    record = Rescues(session.store, read_root(session.store).cluster).rescued(ledger)
    if record is not None and record.kind in NO_MESSAGES:
        raise FatalError(f"ledger {ledger} is of kind {record.kind}, which has no messages: read it with --entries")
