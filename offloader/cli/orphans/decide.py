"""`offloader orphans undo|retry|drop`: what an operator decides about a deletion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import click

from offloader.bookkeeper.metadata import MetadataTree
from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.orphans import orphans
from offloader.cli.orphans.bookie_window import window_of
from offloader.cli.orphans.deletion_parts import (
    BOOKIE_SECONDS,
    NamedDeletion,
    parse_deletion,
    queue_of_root,
    shown,
    timing,
)
from offloader.cli.orphans.quarantine import YES
from offloader.cli.output import say
from offloader.cli.parsing import parsed
from offloader.errors import FatalError
from offloader.lifecycle.deletion.decisions import dropped, let_be, recreated, retried, taken_back, undone
from offloader.lifecycle.deletion.leftover_undo import recreate_leftover
from offloader.lifecycle.deletion.queue import DeletionQueue, StoredDeletion
from offloader.lifecycle.deletion.records import (
    DeletionAnswer,
    DeletionState,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.lifecycle.deletion.still_there import still_in_bucket, still_in_zookeeper
from offloader.lifecycle.deletion.undo import LedgerUndo, UndoneLedger

Change = Callable[[PendingDeleteLedgerInfo, int], PendingDeleteLedgerInfo]
_NAMES = click.argument("names", metavar="[ID]...", nargs=-1, callback=parsed(parse_deletion))
_ALL = click.option("--all", "all_given_up", is_flag=True, help="All that were given up.")
_EVERY = 10_000  # copies between two lines of progress


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

    \b
    JSON: {message, deletion, entries, lost, lostNumber, unknown, copies}; deletion as of `orphans list`; copies are
    [{bookie, there, gone, silent, windowSeconds, asked}], null where nothing had been deleted yet; asked: the bookie
    itself says its window, else it is Pulsar's default.
    """
    queue = queue_of_root(session)
    stored = queue.read(named.record)
    if stored is not None and not stored.record.has_ended:
        stored = queue.change(named.record, lambda it: _taken_back(session, it))
        if stored is not None and stored.record.state is DeletionState.UNDONE:
            _say_undone(session, stored, None)
            return OK
    if stored is None:
        raise FatalError(named.not_marked)
    if stored.record.state is DeletionState.UNDONE and stored.record.answer is not DeletionAnswer.DELETED:
        _say_undone(session, stored, None)  # a second time
        return OK
    if stored.record.ledger_type is LedgerType.MANAGED_LEDGER:
        return _recreate_leftover(session, queue, stored.record)
    found = _recreate(session, queue, stored)
    return OK if found.whole else FINDINGS


def _taken_back(session: CommandSession, record: PendingDeleteLedgerInfo) -> PendingDeleteLedgerInfo:
    """As it is after that, if nobody changes it meanwhile. What somebody else has ended stays as it is."""
    now = session.dependencies.clock_ms()
    if record.has_ended or not record.in_doubt:
        return record if record.has_ended else undone(record, now)
    return taken_back(record, there=_is_there(session, record, now), now=now)


def _dropped(session: CommandSession, record: PendingDeleteLedgerInfo, now: int) -> PendingDeleteLedgerInfo:
    """What may be gone is looked at first: of what we have deleted there is a way back."""
    if record.state is DeletionState.GIVEN_UP and record.in_doubt:
        return let_be(record, there=_is_there(session, record, now), now=now)
    return dropped(record, now)


def _is_there(session: CommandSession, record: PendingDeleteLedgerInfo, now: int) -> bool | None:
    if record.ledger_type in (LedgerType.LEDGER, LedgerType.MANAGED_LEDGER):
        return still_in_zookeeper(record, _tree(session))
    return still_in_bucket(record, session.store, now)


def _tree(session: CommandSession) -> MetadataTree:
    tree, _ = session.bookkeeper(BOOKIE_SECONDS)
    if not isinstance(tree, MetadataTree):
        raise FatalError("the metadata service is no ZooKeeper: nothing can be deleted, or undone, there")
    return tree


def _recreate_leftover(session: CommandSession, queue: DeletionQueue, record: PendingDeleteLedgerInfo) -> int:
    """Its ledgers are not looked at: `orphans scan` tells which of them are missing."""
    now = session.dependencies.clock_ms
    recreated(record, now())  # raises where it was not we who deleted it
    recreate_leftover(_tree(session), record)
    _say_undone(session, queue.change(record.name, lambda it: recreated(it, now())), None)
    return OK


def _recreate(session: CommandSession, queue: DeletionQueue, stored: StoredDeletion) -> UndoneLedger:
    record, now = stored.record, session.dependencies.clock_ms
    if record.ledger_type is not LedgerType.LEDGER:
        raise FatalError(f"{record.thing} was deleted from the bucket: only a bucket with versioning has it still")
    recreated(record, now())  # raises where it was not we who deleted it
    tree, (_, bookies) = _tree(session), session.bookkeeper(BOOKIE_SECONDS)
    way_back = LedgerUndo(tree, bookies, window_of(tree), BOOKIE_SECONDS)
    metadata = way_back.recreate(record)
    changed = queue.change(record.name, lambda it: recreated(it, now()))
    done = 0

    def progress(number: int) -> None:
        nonlocal done
        done += number
        if done % _EVERY == 0:
            say(f"undo: {done} copies read", err=True)

    found = way_back.check(record.ledger_id, metadata, progress)
    _say_undone(session, changed, found)
    return found


def _say_undone(session: CommandSession, changed: StoredDeletion | None, found: UndoneLedger | None) -> None:
    if changed is None:
        raise FatalError("the record has been removed meanwhile: look at `orphans list`")
    ledger = changed.record.ledger_id
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
        _not_marked(changed.record) if found is None else _told(ledger, found),
        [] if found is None else list(_copy_lines(found)),
        deletion=shown(changed.record, timing(session)),
        entries=None if found is None else found.entries,
        lost=[] if found is None else list(found.lost),
        lostNumber=0 if found is None else found.lost_number,
        unknown=0 if found is None else found.unknown,
        copies=copies,
    )


def _not_marked(record: PendingDeleteLedgerInfo) -> str:
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
    evidence is still the same.

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
    back.

    \b
    JSON: {message, deletions}; as of `orphans list`.
    """
    return _decide(session, names, partial(_dropped, session), "dropped", all_given_up=all_given_up, yes=True)


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
