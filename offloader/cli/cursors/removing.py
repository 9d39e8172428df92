"""`offloader topics cursors remove|undo|removals`: subscriptions that nobody uses go in two phases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click

from offloader.cli.command import ERROR, OK, CommandSession, command
from offloader.cli.cursors import cursors
from offloader.cli.cursors.listing import TIMEOUT, names_of, partitions_of, stored_topics
from offloader.cli.output import say
from offloader.cli.parsing import TOPIC
from offloader.cli.topics import time_text
from offloader.errors import FatalError, OffloadError
from offloader.lifecycle.deletion.timing import DeletionTiming
from offloader.lifecycle.topics.cursors.configured import removal_timing
from offloader.lifecycle.topics.cursors.machine import is_due
from offloader.lifecycle.topics.cursors.records import CursorRemoval
from offloader.lifecycle.topics.cursors.removals import CursorRemovals, DamagedRemoval, StoredRemoval
from offloader.lifecycle.topics.cursors.service import CursorRemover, RemovalPlan
from offloader.metadata.root import read_root
from offloader.model import TopicName

BY = "offloader topics cursors remove"
COLUMNS = ("topic", "subscription", "state", "marked", "due", "bytes", "by", "reason")


@cursors.command("remove")
@click.argument("topic", callback=TOPIC)
@click.argument("subscription")
@click.option("--yes", is_flag=True, help="Mark it; and remove it where it is marked and its time has come.")
@TIMEOUT
@command()
def remove(session: CommandSession, topic: TopicName, subscription: str, *, yes: bool, timeout: int) -> int:
    """Remove a subscription that nobody uses, in two phases. Without --yes it says what would come of it.

    The first phase saves its whole state in the bucket and marks it; nothing else changes. Once lifecycle.quarantine
    has passed, the application, or this command again, looks once more: if the broker says that there is no consumer
    and that nothing was acknowledged between, it deletes it. `topics cursors undo` takes both back. Looking has the
    topic loaded. A name without -partition-N means all partitions that have such a subscription.

    \b
    JSON: one object a line, for each topic: {message, topic, subscription, state, bytes, due, reason, undo}; state is
    none where it is not marked; undo says what an undo would not bring back as it was.
    """
    remover = remover_of(session, timeout)
    return _each(remover, topic, subscription, lambda one: _remove(session, remover, one, subscription, yes=yes))


@cursors.command("undo")
@click.argument("topic", callback=TOPIC)
@click.argument("subscription")
@click.option("--yes", is_flag=True, help="Do it. Without it nothing changes.")
@TIMEOUT
@command()
def undo(session: CommandSession, topic: TopicName, subscription: str, *, yes: bool, timeout: int) -> int:
    """Take a mark back, or bring a removed subscription back at its position, with what was acknowledged beyond it.

    Without --yes it says what cannot be brought back as it was. Where it was interrupted, call it again. Refused where
    there is a subscription of that name again, or another topic.

    \b
    JSON: as of `topics cursors remove`.
    """
    remover = remover_of(session, timeout)
    records = [one for one in _readable(remover) if _is_of(one.record, topic, subscription)]
    if not records:
        raise FatalError(f"{topic}: no removal of {subscription} is recorded")
    return _run(records, lambda one: one.record.topic, lambda one: _undo(session, remover, one, yes=yes))


@cursors.command("removals")
@TIMEOUT
@command()
def removals(session: CommandSession, *, timeout: int) -> None:
    """The removals that are recorded: marked, removed, kept, undone.

    \b
    JSON: an array of {topic, subscription, state, marked, due, bytes, by, reason}.
    """
    remover = remover_of(session, timeout)
    rows = [_row(one, remover.timing) for one in remover.removals.all()]
    session.output.table(COLUMNS, rows, "no subscription was ever marked")


def remover_of(session: CommandSession, timeout: int) -> CursorRemover:
    """Both phases, by the configuration. Raises ConfigError."""
    return CursorRemover(
        removals=CursorRemovals(session.store, read_root(session.store).cluster, session.dependencies.new_token),
        stored=stored_topics(session, timeout),
        brokers=session.subscriptions,
        names=names_of(session),
        timing=removal_timing(session.config.lifecycle),
        clock_ms=session.dependencies.clock_ms,
    )


def _remove(session: CommandSession, remover: CursorRemover, topic: TopicName, name: str, *, yes: bool) -> None:
    stored = remover.removals.read(topic, name)
    pending = stored is not None and not stored.record.has_ended
    if stored is not None and pending:
        due = is_due(stored.record, remover.clock_ms(), remover.timing)
        _tell(session, remover, remover.go_on(stored) if yes and due else stored.record)
    elif yes:
        _tell(session, remover, remover.mark(topic, name, BY))
    else:
        _tell_plan(session, topic, name, remover.plan(topic, name))


def _undo(session: CommandSession, remover: CursorRemover, stored: StoredRemoval, *, yes: bool) -> None:
    if yes:
        _tell(session, remover, remover.undo(stored))
        return
    record = stored.record
    says = remover.undo_plan(record).says if not record.is_in_flight else ()
    _tell(session, remover, record, says)


def _tell(session: CommandSession, remover: CursorRemover, record: CursorRemoval, says: tuple[str, ...] = ()) -> None:
    due = _due(record, remover.timing)
    message = f"{record.topic}: {record.subscription} is {record.state}"
    message += f"; it goes after {due}" if due else ""
    message += f": {record.reason}" if record.reason else ""
    fields = {
        "message": message, "topic": str(record.topic), "subscription": record.subscription,
        "state": str(record.state), "bytes": record.held, "due": due, "reason": record.reason, "undo": says,
    }  # fmt: skip
    session.output.lines([message, *(f"  {one}" for one in says)], fields)


def _tell_plan(session: CommandSession, topic: TopicName, name: str, plan: RemovalPlan) -> None:
    says = plan.undo.says if plan.undo is not None else ()
    message = (
        f"{topic}: {name} would not be removed: {plan.objection}"
        if plan.objection
        else f"{topic}: {name} would be marked; it holds back {plan.held} bytes. --yes does it"
    )
    fields = {
        "message": message, "topic": str(topic), "subscription": name, "state": "none", "bytes": plan.held,
        "due": None, "reason": plan.objection, "undo": says,
    }  # fmt: skip
    session.output.lines([message, *(f"  an undo: {one}" for one in says)], fields)


def _each(remover: CursorRemover, topic: TopicName, subscription: str, act: Callable[[TopicName], None]) -> int:
    names = partitions_of(remover.stored, topic)
    found = [one for one in names if _has(remover, one, subscription)]
    if not found:
        raise FatalError(f"{topic}: there is no subscription {subscription}")
    return _run(found, lambda one: one, act)


def _has(remover: CursorRemover, topic: TopicName, subscription: str) -> bool:
    """By its node, or because its removal is under way."""
    if remover.stored.cursor(topic, subscription) is not None:
        return True
    stored = remover.removals.read(topic, subscription)
    return stored is not None and not stored.record.has_ended


def _run(these: list[Any], name: Callable[[Any], TopicName], act: Callable[[Any], None]) -> int:
    """What fails for one of several does not stop the others."""
    if len(these) == 1:
        act(these[0])
        return OK
    code = OK
    for one in these:
        try:
            act(one)
        except OffloadError as error:
            say(f"error: {name(one)}: {error}", err=True)
            code = ERROR
    return code


def _readable(remover: CursorRemover) -> Iterator[StoredRemoval]:
    for one in remover.removals.all():
        if isinstance(one, DamagedRemoval):
            say(f"error: {one.why}", err=True)
        else:
            yield one


def _is_of(record: CursorRemoval, topic: TopicName, subscription: str) -> bool:
    named = topic in (record.topic, TopicName.parse(record.topic.partitioned_name))
    return named and record.subscription == subscription


def _due(record: CursorRemoval, timing: DeletionTiming) -> str | None:
    at = max(record.marked_at + timing.effective_delay, record.next_at)
    return time_text(at) if record.is_in_flight else None


def _row(one: StoredRemoval | DamagedRemoval, timing: DeletionTiming) -> tuple[Any, ...]:
    if isinstance(one, DamagedRemoval):
        return (str(one.topic), one.subscription, "damaged", None, None, None, None, one.why)
    record = one.record
    return (
        str(record.topic), record.subscription, str(record.state), time_text(record.marked_at), _due(record, timing),
        record.held, record.marked_by, record.reason,
    )  # fmt: skip
