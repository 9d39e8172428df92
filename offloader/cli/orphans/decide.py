"""`offloader orphans undo|retry|drop`: what an operator decides about a deletion.

What an undo can still bring back depends on how often a bookie collects garbage. A bookie that has its HTTP end point
on says that itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException

import click
from google.protobuf.message import DecodeError

from offloader._proto.bookie_service_pb2 import BookieServiceInfoFormat
from offloader.bookkeeper.metadata import MetadataTree
from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.orphans import orphans
from offloader.cli.orphans.deletion_parts import (
    BOOKIE_SECONDS,
    NamedDeletion,
    parse_deletion,
    queue_of_root,
    shown,
    timing,
    tree_of,
    way_back_of,
)
from offloader.cli.orphans.quarantine import YES
from offloader.cli.output import say
from offloader.cli.parsing import parsed
from offloader.errors import FatalError, OffloadError
from offloader.json_text import parse_json
from offloader.lifecycle.deletion.machine import retried
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import DeletionAnswer, DeletionState, LedgerType, PendingDeleteLedgerInfo
from offloader.lifecycle.deletion.undo import LedgerCopies, UndoneLedger, closed_metadata
from offloader.lifecycle.deletion.undo import drop as drop_deletion
from offloader.lifecycle.deletion.undo import undo as undo_deletion

Change = Callable[[PendingDeleteLedgerInfo, int], PendingDeleteLedgerInfo]
_NAMES = click.argument("names", metavar="[ID]...", nargs=-1, callback=parsed(parse_deletion))
_ALL = click.option("--all", "all_given_up", is_flag=True, help="All that were given up.")
_EVERY = 10_000  # copies between two lines of progress
GC_SETTINGS = "/api/v1/config/server_config"
GC_WAIT = "gcWaitTime"  # ms
BOOKIE_TIMEOUT = 3.0  # seconds
MOST_OF_ANSWER = 1 << 20  # bytes


@orphans.command()
@click.argument("named", metavar="ID", callback=parsed(parse_deletion))
@command()
def undo(session: CommandSession, named: NamedDeletion) -> int:
    """Take a deletion back. As long as the ledger is there, that costs nothing: while it is marked, between two tries,
    when it was given up. Where nobody knows what came of a try, the ledger is looked at first, in a way that whatever
    is still on its way deletes nothing; an object of the bucket is left alone until the request must have ended.

    A ledger that was deleted is created again from its saved metadata, if it was closed, and every entry is read from
    every bookie. That is a second chance and no promise: each bookie drops what it has when it next collects garbage,
    between 0 and its gcWaitTime after the deletion. Can be repeated. Exit code 2 where copies are gone or not known.

    A subscription that was deleted is made again as it was saved; `offloader topics cursors undo` says before what of
    it cannot be brought back.

    \b
    JSON: {message, deletion, entries, lost, lostNumber, unknown, copies}; deletion as of `orphans list`; copies are
    [{bookie, there, gone, silent, windowSeconds, asked}], null where nothing had been deleted yet; asked: the bookie
    itself says its window, else it is Pulsar's default.
    """
    stored = undo_deletion(queue_of_root(session), named.record, way_back_of(session), session.dependencies.clock_ms)
    if stored is None:
        raise FatalError(named.not_marked)
    record, found = stored.record, None
    if record.ledger_type is LedgerType.LEDGER and record.answer is DeletionAnswer.DELETED:
        found = _copies_left(session, record)
    _say_undone(session, record, found)
    return OK if found is None or found.whole else FINDINGS


def _copies_left(session: CommandSession, record: PendingDeleteLedgerInfo) -> UndoneLedger:
    done = 0

    def progress(number: int) -> None:
        nonlocal done
        done += number
        if done % _EVERY == 0:
            say(f"undo: {done} copies read", err=True)

    tree, (_, bookies) = tree_of(session), session.bookkeeper(BOOKIE_SECONDS)
    copies = LedgerCopies(bookies, window_of(tree), BOOKIE_SECONDS)
    return copies.check(record.ledger_id, closed_metadata(record), progress)


def _say_undone(session: CommandSession, record: PendingDeleteLedgerInfo, found: UndoneLedger | None) -> None:
    copies = None if found is None else [
        {
            "bookie": one.bookie,
            "there": one.there,
            "gone": one.gone,
            "silent": one.silent,
            "windowSeconds": one.window_ms // 1000,
            "asked": one.asked,
        }
        for one in found.copies
    ]  # fmt: skip
    session.output.message(
        undone_told(record) if found is None else _told(record.ledger_id, found),
        [] if found is None else list(_copy_lines(found)),
        deletion=shown(record, timing(session)),
        entries=None if found is None else found.entries,
        lost=[] if found is None else list(found.lost),
        lostNumber=0 if found is None else found.lost_number,
        unknown=0 if found is None else found.unknown,
        copies=copies,
    )


def undone_told(record: PendingDeleteLedgerInfo) -> str:
    """What came of an undo, in one line."""
    if record.answer is DeletionAnswer.DELETED and record.ledger_type is LedgerType.SUBSCRIPTION:
        return " ".join((f"{record.thing} is there again.", record.reason)).rstrip()
    if record.answer is DeletionAnswer.DELETED:  # and created again
        return f"{record.thing} is there again; `orphans scan` tells whether ledgers of it are missing"
    return f"{record.thing} is not marked any more" + (f"; {record.reason}" if record.reason else "")


def _copy_lines(found: UndoneLedger) -> Sequence[str]:
    return [
        f"{one.bookie}: {one.there} copies there, {one.gone} gone, {one.silent} not known; collects every "
        f"{one.window_ms // 1000} s" + ("" if one.asked else " by Pulsar's default")
        for one in found.copies
    ]


def _told(ledger: int, found: UndoneLedger) -> str:
    if found.whole:
        return f"ledger {ledger} is there again, with every copy of its {found.entries} entries"
    if found.lost_number:
        first = f"entry {found.lost[0]}"
        return f"ledger {ledger} is there again, but {found.lost_number} entries have no copy any more, first {first}"
    if found.unknown:
        return f"ledger {ledger} is there again; of {found.unknown} entries nobody could show a copy: ask again"
    return f"ledger {ledger} is there again with all entries, but copies are gone or not known: see above"


@orphans.command()
@_NAMES
@_ALL
@YES
@command()
def retry(session: CommandSession, names: tuple[NamedDeletion, ...], *, all_given_up: bool, yes: bool) -> int:
    """Try deletions again that were given up: they are due at once, looked at in the next round, and deleted if the
    evidence is still the same. Subscriptions that were given up are among them, with --all, too.

    \b
    JSON: {message, deletions}; as of `orphans list`, and without --yes as they would be.
    """
    return _decide(session, names, retried, "tried again", all_given_up=all_given_up, yes=yes)


@orphans.command()
@_NAMES
@_ALL
@command()
def drop(session: CommandSession, names: tuple[NamedDeletion, ...], *, all_given_up: bool) -> int:
    """Drop deletions that were given up: what they are about stays, and is marked again only by its ID. Where nobody
    knows what came of the last try, it is looked at first; what is gone was deleted, and `orphans undo` is the way
    back. Subscriptions that were given up are among them, with --all, too.

    \b
    JSON: {message, deletions}; as of `orphans list`.
    """

    def dropped(record: PendingDeleteLedgerInfo, now: int) -> PendingDeleteLedgerInfo:
        return drop_deletion(record, way_back_of(session), now)

    return _decide(session, names, dropped, "dropped", all_given_up=all_given_up, yes=True)


def _decide(
    session: CommandSession,
    names: tuple[NamedDeletion, ...],
    change: Change,
    word: str,
    *,
    all_given_up: bool,
    yes: bool,
) -> int:
    if bool(names) == all_given_up:
        raise FatalError("say which: IDs, or --all")
    queue, now = queue_of_root(session), session.dependencies.clock_ms

    def decided(record: PendingDeleteLedgerInfo) -> PendingDeleteLedgerInfo:
        return _changed(record, change, now(), skip=all_given_up)

    records = []
    for name in _given_up(queue) if all_given_up else names:
        stored = queue.change(name.record, decided) if yes else queue.read(name.record)
        if stored is None:
            raise FatalError(name.not_marked)
        records.append(stored.record if yes else decided(stored.record))
    would = "are" if yes else "would be"
    session.output.message(
        f"{len(records)} deletions {would} {word}" + ("" if yes else "; nothing is without --yes"),
        deletions=[shown(one, timing(session)) for one in records],
    )
    return OK


def _changed(record: PendingDeleteLedgerInfo, change: Change, now: int, *, skip: bool) -> PendingDeleteLedgerInfo:
    """`skip`: what somebody else has decided meanwhile stays as it is."""
    return record if skip and record.state is not DeletionState.GIVEN_UP else change(record, now)


def _given_up(queue: DeletionQueue) -> list[NamedDeletion]:
    return [
        NamedDeletion(one.record.thing, one.record.name)
        for one in queue.readable()
        if one.record.state is DeletionState.GIVEN_UP
    ]


def window_of(tree: MetadataTree) -> Callable[[str], int | None]:
    """Asks a bookie, by its id. None: it does not say."""

    def asked(bookie: str) -> int | None:
        for host, port in _endpoints(tree, bookie):
            found = ask_window(host, port)
            if found is not None:
                return found
        return None

    return asked


def ask_window(host: str, port: int) -> int | None:
    """Milliseconds. None: no such answer."""
    connection = HTTPConnection(host, port, timeout=BOOKIE_TIMEOUT)
    try:
        connection.request("GET", GC_SETTINGS)
        answer = connection.getresponse()
        text = answer.read(MOST_OF_ANSWER)
        if answer.status != 200:
            return None
        said = parse_json(text)
        value = said.get(GC_WAIT) if isinstance(said, dict) else None
        return int(value) if isinstance(value, (str, int)) and str(value).isdecimal() else None
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()


def _endpoints(tree: MetadataTree, bookie: str) -> list[tuple[str, int]]:
    found = []
    for folder in ("", "/readonly"):
        with suppress(OffloadError, DecodeError):
            node = tree.nodes.get(f"{tree.uri.root}/available{folder}/{bookie}")
            info = BookieServiceInfoFormat.FromString(node.value if node is not None else b"")
            found += [(one.host, one.port) for one in info.endpoints if one.protocol in ("http", "https")]
    return [(host, port) for host, port in found if host and 0 < port < 2**16]
