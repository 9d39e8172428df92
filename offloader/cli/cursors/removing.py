"""`offloader topics cursors remove|purge|undo|removals`: subscriptions that nobody uses are deleted in two phases, as
all that `offloader orphans` deletes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from offloader.cli.command import ERROR, OK, CommandSession, command
from offloader.cli.cursors import cursors
from offloader.cli.cursors.listing import TIMEOUT, partitions_of
from offloader.cli.orphans.decide import undone_told
from offloader.cli.orphans.deletion_parts import (
    clocks_of,
    queue_if_any,
    queue_of_cluster,
    say_former,
    shown,
    subscription_side,
    timing,
)
from offloader.cli.orphans.pending import list_deletions
from offloader.cli.orphans.purge import Heard, run_purge
from offloader.cli.orphans.quarantine import YES
from offloader.cli.output import say_failed
from offloader.cli.parsing import TOPIC
from offloader.errors import FatalError, OffloadError
from offloader.lifecycle.deletion.machine import due_at
from offloader.lifecycle.deletion.marking import Marker, MarkOutcome
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import DeletionState, LedgerType, PendingDeleteLedgerInfo
from offloader.lifecycle.deletion.records import subscription_record_name as record_name
from offloader.lifecycle.deletion.service import DeletionRules, LedgerDeletionService
from offloader.lifecycle.deletion.subscription_side import SubscriptionSide, name_of
from offloader.lifecycle.deletion.undo import undo as undo_deletion
from offloader.lifecycle.explaining.words import moment_text, size_text
from offloader.lifecycle.topics.cursors.former import removed_former
from offloader.metadata.root import read_root
from offloader.model import TopicName
from offloader.printable import meant
from offloader.runtime.deletion import bounds_of

BY = "offloader topics cursors remove"
COLUMNS = ("topic", "cursor", "state", "markedAt", "goesAt", "tries", "answer", "reason")
KINDS = (LedgerType.SUBSCRIPTION,)
PURGE = "`offloader topics cursors purge --yes` deletes it"
T = TypeVar("T")


@cursors.command("remove")
@click.argument("topic", callback=TOPIC)
@click.argument("subscription")
@YES
@TIMEOUT
@command()
def remove(session: CommandSession, topic: TopicName, subscription: str, *, yes: bool, timeout: int) -> int:
    """Delete a subscription that nobody uses, in two phases. Without --yes it says what would come of it.

    The first phase marks it: the record has its whole state; nothing else changes. Once lifecycle.quarantine has
    passed, the application, `topics cursors purge`, or this command again, looks once more: if the broker says that
    there is no consumer and that nothing was acknowledged between, it deletes it. `topics cursors undo` takes both
    back. Looking has the topic loaded. A name without -partition-N means all partitions that have such a subscription.
    Exit code 1 where it is refused, with --yes or without.

    \b
    JSON: one object a line, for each topic: {message, outcome, held, why, next, undo, deletion}; outcome as of
    `orphans quarantine`; held: bytes that it holds back, null where it is pending already; next says who does what;
    undo says what an undo would not bring back as it was; deletion as of `orphans list`, and without --yes as it would
    be.
    """
    side = subscription_side(session, timeout / 1000)
    queue = queue_of_cluster(session, create=yes)
    topics = partitions_of(side.stored, topic)

    def is_there(one: TopicName, name: str) -> bool:
        pending = queue.read(record_name(str(one), name))
        return side.stored.cursor(one, name) is not None or (pending is not None and not pending.record.has_ended)

    name = meant(subscription, lambda name: any(is_there(one, name) for one in topics))
    found = [one for one in topics if is_there(one, name)]
    if not found:
        raise FatalError(f"{topic}: there is no subscription {subscription}")
    if former := [one for one in say_former(session) if one.topic in found and one.subscription == name]:
        raise FatalError(f"{former[0].topic}: {name} is not marked: its removal by an earlier version is pending")
    return _each(found, str, lambda one: _remove(session, side, queue, one, name, yes=yes))


@cursors.command("purge")
@YES
@TIMEOUT
@command()
def purge(session: CommandSession, *, yes: bool, timeout: int) -> int:
    """Run the second phase now, for the subscriptions that are due: look again, and delete what nobody has used since.

    As `offloader orphans purge`, for subscriptions alone. Never before lifecycle.quarantine is over. Looking has topics
    loaded: lifecycle.visits says how many at a time and a minute.

    \b
    JSON: as of `orphans purge`.
    """
    return run_purge(session, KINDS, None, timeout / 1000, yes=yes)


@cursors.command("undo")
@click.argument("topic", callback=TOPIC)
@click.argument("subscription")
@click.option("--yes", is_flag=True, help="Do it. Without it nothing changes.")
@TIMEOUT
@command()
def undo(session: CommandSession, topic: TopicName, subscription: str, *, yes: bool, timeout: int) -> int:
    """Take a mark back, or a deletion.

    What was deleted comes back at its position, with what was acknowledged beyond it. Without --yes it says what
    cannot be brought back as it was. Where it was interrupted, call it again. Refused where there is a subscription
    of that name again, or another topic. `offloader orphans undo` is the same for one record by its name.

    \b
    JSON: one object a line, for each topic: {message, next, undo, deletion}; undo says what would not be as it was;
    deletion as of `orphans list`.
    """
    queue, pending = queue_if_any(session), say_former(session)
    of_topic = [] if queue is None else [
        one.record for one in queue.readable_of(LedgerType.SUBSCRIPTION) if _is_of(one.record, topic)
    ]  # fmt: skip
    removed = [] if queue is None else removed_former(session.store, read_root(session.store).cluster)
    former = [one for one in (*pending, *removed) if _is_part(one.topic, topic)]
    names = {record.cursor_name for record in of_topic} | {one.subscription for one in former}
    name = meant(subscription, names.__contains__)
    records = [record for record in of_topic if record.cursor_name == name]
    if queue is None or not records:
        of_name = [one for one in former if one.subscription == name]
        says = [one.says for one in of_name if one in removed]  # of what is pending it is said already
        nothing = f"{topic}: no deletion of {subscription} is recorded" + (" by this version" * bool(of_name))
        raise FatalError("; ".join((nothing, *says)))
    side = subscription_side(session, timeout / 1000)

    def act(record: PendingDeleteLedgerInfo) -> None:
        _undo(session, side, queue, record, yes=yes)

    return _each(records, lambda record: record.topic_name, act)


@cursors.command("removals")
@command()
def list_removals(session: CommandSession) -> int:
    """List the subscriptions that are marked, and what became of them. As `offloader orphans list`, for subscriptions
    alone. Reads the bucket alone.

    \b
    JSON: as of `orphans list`.
    """
    return list_deletions(session, COLUMNS, lambda record: record.ledger_type is LedgerType.SUBSCRIPTION)


def _remove(
    session: CommandSession, side: SubscriptionSide, queue: DeletionQueue, topic: TopicName, name: str, *, yes: bool
) -> None:
    stored = queue.read(record_name(str(topic), name))
    if stored is not None and not stored.record.has_ended:
        if yes:
            refusals = _service(session, side, queue).go_on(stored)
            if refusals:
                raise FatalError(f"{topic}: {name} is not deleted: {refusals[0]}")
            stored = queue.read(stored.record.name) or stored
        standing = _standing(session, stored.record)
        _tell(session, standing, stored.record, outcome=str(MarkOutcome.PENDING), held=None, why=stored.record.reason)
        return
    clocks = clocks_of(session)
    compared = clocks.compare()
    if yes and compared.differ:  # the quarantine would begin too early, and end too early
        raise FatalError(f"{topic}: {name} is not marked: {compared.doubt}")
    plan = side.plan(topic, name)
    marker = Marker(queue, clocks.now_ms, None, by_name=True, dry=not yes, ours_ms=clocks.now_ms)
    mark = side.mark(plan, marker, BY)
    says = plan.undo.says if plan.undo is not None else ()
    warning = f"warning: {plan.by_name_only}" if plan.by_name_only else ""
    message = f"{mark}; it holds back {size_text(plan.held)}" if mark.record is None else (
        f"{topic}: {name} would be marked; it holds back {size_text(plan.held)}. --yes does it"
        if not yes
        else f"{_standing(session, mark.record)}; it held back {size_text(plan.held)}"
    )  # fmt: skip
    _tell(
        session, "; ".join(filter(None, (message, warning))), mark.record,
        outcome=str(mark.outcome), held=plan.held, why=mark.why or warning, says=says,
    )  # fmt: skip
    if mark.record is None:  # as with --yes
        raise FatalError(f"{topic}: {name} is not marked: {mark.why}")


def _undo(
    session: CommandSession, side: SubscriptionSide, queue: DeletionQueue, record: PendingDeleteLedgerInfo, *, yes: bool
) -> None:
    if yes:
        done = undo_deletion(queue, record.name, lambda _: side, session.dependencies.clock_ms)
        if done is None:
            raise FatalError(f"{record.thing}: its record has been removed meanwhile")
        _tell(session, undone_told(done.record), done.record)
    elif record.is_in_flight:
        _tell(session, f"{_standing(session, record)}; --yes takes the mark back", record)
    else:
        message = f"{_standing(session, record)}; --yes brings it back"
        _tell(session, message, record, says=side.says(record))


def _tell(
    session: CommandSession,
    message: str,
    record: PendingDeleteLedgerInfo | None,
    *,
    says: Sequence[str] = (),
    **more: object,
) -> None:
    """`says`: what an undo would not bring back as it was."""
    deletion = None if record is None else shown(record, timing(session))
    fields = {"message": message, **more, "next": _next(session, record), "undo": says, "deletion": deletion}
    session.output.lines([message, *(f"  an undo: {one}" for one in says)], fields)


def _standing(session: CommandSession, record: PendingDeleteLedgerInfo) -> str:
    """One record, for people, with who does what next."""
    ended_otherwise = record.answer is not None and str(record.answer) != str(record.state)
    word = f"{record.state}, {record.answer}" if ended_otherwise else str(record.state)
    since = f" since {moment_text(record.ended_at)}" if record.has_ended else ""
    marked = (
        f" on {moment_text(record.marked_at)} by {record.marked_by}" if record.state is DeletionState.MARKED else ""
    )
    stands = f"{record.topic_name}: {record.cursor_name} is {word}{since}{marked}"
    return "; ".join(filter(None, (stands, record.reason, _next(session, record))))


def _next(session: CommandSession, record: PendingDeleteLedgerInfo | None) -> str:
    """Who does what next; empty: nothing is left to do."""
    if record is None:
        return ""
    if record.state is DeletionState.GIVEN_UP:
        return "`offloader orphans retry` tries again, `offloader topics cursors undo --yes` takes it back"
    if record.state is DeletionState.UNDOING:
        return "its undo was interrupted: call it again"
    if not record.is_in_flight:
        return ""
    section, due = session.config.lifecycle, due_at(record, timing(session))
    by_application = section.topic_two_phase_deletion_enabled or section.remove_cursors_after_ms is not None
    who = "the application looks again and deletes it" if by_application else PURGE
    is_due = session.dependencies.clock_ms() >= due
    return f"it is due: {who}" if is_due else f"{who}, not before {moment_text(due)}"


def _service(session: CommandSession, side: SubscriptionSide, queue: DeletionQueue) -> LedgerDeletionService:
    rules = DeletionRules(timing(session), bounds_of(session.config.lifecycle))
    return LedgerDeletionService(queue, {KINDS[0]: side}, rules, Heard(), clocks_of(session).now_ms)


def _each(these: Sequence[T], name: Callable[[T], str], act: Callable[[T], None]) -> int:
    """What fails for one of several does not stop the others."""
    if len(these) == 1:
        act(these[0])
        return OK
    code = OK
    for one in these:
        try:
            act(one)
        except OffloadError as error:
            say_failed(name(one), error)
            code = ERROR
    return code


def _is_of(record: PendingDeleteLedgerInfo, topic: TopicName) -> bool:
    return _is_part(name_of(record)[0], topic)


def _is_part(own: TopicName, topic: TopicName) -> bool:
    return topic in (own, TopicName.parse(own.partitioned_name))
