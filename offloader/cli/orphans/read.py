"""`offloader orphans read`: what was rescued, as messages or entries."""

from __future__ import annotations

import sys

import click

from offloader.archive.archive import Archive
from offloader.archive.bounds import Bound, selected
from offloader.archive.messages.encryption import KeyReader
from offloader.archive.messages.filters import MessageFilter
from offloader.archive.reading.reader import ReadOptions
from offloader.cli.cat import messages_of, show
from offloader.cli.command import CommandSession, command
from offloader.cli.formats import FORMATS
from offloader.cli.orphans import orphans
from offloader.cli.reading import message_options, opened, range_options
from offloader.errors import FatalError
from offloader.lifecycle.ledgers.kinds import LedgerKind
from offloader.metadata.rescue_log import Rescues
from offloader.metadata.root import read_root

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
    source = Archive(opened(session), options=reading).rescued(ledger)
    wanted = MessageFilter(selection.published_from, selection.published_to)
    found = source.items(selection) if entries else messages_of(source, selection, wanted, private_keys)
    printed = FORMATS[form or session.output.name](source.name)
    show(((source.name, each) for each in found), printed, limit, live=sys.stdout.isatty())


def _check_kind(session: CommandSession, ledger: int) -> None:
    """Entries that are no messages would look like damage."""
    record = Rescues(session.store, read_root(session.store).cluster).rescued(ledger)
    if record is not None and record.kind in NO_MESSAGES:
        raise FatalError(f"ledger {ledger} is of kind {record.kind}, which has no messages: read it with --entries")
