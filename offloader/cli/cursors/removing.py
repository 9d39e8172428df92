"""`offloader topics cursors remove|purge|undo|removals`: subscriptions that nobody uses go in two phases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click

from offloader.ahead import map_ahead
from offloader.cli.command import ERROR, FINDINGS, OK, CommandSession, command
from offloader.cli.cursors import cursors
from offloader.cli.cursors.listing import TIMEOUT, names_of, partitions_of, stored_topics
from offloader.cli.cursors.removal_told import RemovalTeller
from offloader.cli.output import say
from offloader.cli.parsing import TOPIC
from offloader.errors import ConfigError, FatalError, OffloadError
from offloader.lifecycle.explaining.words import counted, moment_text
from offloader.lifecycle.record_queue import DamagedRecord
from offloader.lifecycle.topics.cursors.machine import due_at, is_due, is_forgotten
from offloader.lifecycle.topics.cursors.records import CursorName, CursorRemoval, RemovalState
from offloader.lifecycle.topics.cursors.removals import CursorRemovals, StoredRemoval
from offloader.lifecycle.topics.cursors.service import CursorRemover
from offloader.lifecycle.topics.pace import VisitPace
from offloader.metadata.root import open_root, read_root
from offloader.model import TopicName

BY = "offloader topics cursors remove"


@cursors.command("remove")
@click.argument("topic", callback=TOPIC)
@click.argument("subscription")
@click.option("--yes", is_flag=True, help="Mark it; and remove it where it is marked and its time has come.")
@TIMEOUT
@command()
def remove(session: CommandSession, topic: TopicName, subscription: str, *, yes: bool, timeout: int) -> int:
    """Remove a subscription that nobody uses, in two phases. Without --yes it says what would come of it.

    The first phase saves its whole state in the bucket and marks it; nothing else changes. Once lifecycle.quarantine
    has passed, the application, `topics cursors purge`, or this command again, looks once more: if the broker says
    that there is no consumer and that nothing was acknowledged between, it deletes it. `topics cursors undo` takes
    both back. Looking has the topic loaded. A name without -partition-N means all partitions that have such a
    subscription. Exit code 1 where it is refused, with --yes or without.

    \b
    JSON: one object a line, for each topic: {message, topic, subscription, state, bytes, marked, by, due, ended, next,
    reason, undo}; state is none where it is not marked; next says who does what; undo says what an undo would not bring
    back as it was.
    """
    remover = _remover(session, _removals(session, create=yes), timeout)
    teller = RemovalTeller.of(session)
    return _each(remover, topic, subscription, lambda one: _remove(teller, remover, one, subscription, yes=yes))


@cursors.command("purge")
@click.option("--yes", is_flag=True, help="Do it; without it, only say what is due.")
@TIMEOUT
@command()
def purge(session: CommandSession, *, yes: bool, timeout: int) -> int:
    """Run the second phase of what is due, now.

    Each is looked at again, and deleted where nobody has used it since. Never before lifecycle.quarantine is over.
    Looking has topics loaded: lifecycle.visits says how many at a time and a minute.

    Safe beside the running application: of two who change a record, one does. Records of what has ended are forgotten
    after lifecycle.recordRetention. Exit code 2 where a removal failed or was given up; 1 where one could not be read.

    \b
    JSON: one object a line, for each that is due: as of `topics cursors remove`. The last line: {message, due, removed,
    kept, failed, waiting, firstDue}.
    """
    found, teller = _recorded(session), RemovalTeller.of(session)
    now, states, damaged = session.dependencies.clock_ms(), Counter[str](), 0
    due: list[StoredRemoval] = []
    later: list[int] = []
    for one in () if found is None else found.records():
        if isinstance(one, DamagedRecord):
            damaged += _damage(one)
        elif is_due(one.record, now, teller.timing):
            due.append(one)
        elif one.record.is_in_flight:
            states["waiting"] += 1
            later.append(due_at(one.record, teller.timing))
        elif yes and found is not None and is_forgotten(one.record, now, teller.timing):
            found.remove(one)
    if found is None or not yes:
        for one in due:
            teller.tell(one.record)
    elif due:
        states.update(_purged(session, teller, _remover(session, found, timeout), due))
    session.output.line(*_summary(len(due), states, min(later, default=None), yes=yes))
    return ERROR if damaged else FINDINGS if states["failed"] else OK


@cursors.command("undo")
@click.argument("topic", callback=TOPIC)
@click.argument("subscription")
@click.option("--yes", is_flag=True, help="Do it. Without it nothing changes.")
@TIMEOUT
@command()
def undo(session: CommandSession, topic: TopicName, subscription: str, *, yes: bool, timeout: int) -> int:
    """Take a mark back, or a removal.

    What was removed comes back at its position, with what was acknowledged beyond it. Without --yes it says what
    cannot be brought back as it was. Where it was interrupted, call it again. Refused where there is a subscription
    of that name again, or another topic.

    \b
    JSON: as of `topics cursors remove`.
    """
    removals = _recorded(session)
    records = [one for one in _readable(removals) if _is_of(one.record, topic, subscription)]
    if removals is None or not records:
        raise FatalError(f"{topic}: no removal of {subscription} is recorded")
    remover, teller = _remover(session, removals, timeout), RemovalTeller.of(session)
    return _run(records, lambda one: one.record.topic, lambda one: _undo(teller, remover, one, yes=yes))


@cursors.command("removals")
@command()
def list_removals(session: CommandSession) -> int:
    """List the removals that are recorded.

    What is marked, removed, kept or undone, and who does what next. Reads the bucket alone.

    \b
    JSON: one object a line, as of `topics cursors remove`; of a record that cannot be read {topic, subscription, state,
    reason} alone, state being damaged, and the exit code is 2. The last line: {message, removals}: how many there are,
    by state.
    """
    found, teller, states = _recorded(session), RemovalTeller.of(session), Counter[str]()
    for one in () if found is None else found.records():
        if isinstance(one, DamagedRecord):
            states["damaged"] += 1
            topic, name = one.name
            fields = {"topic": str(topic), "subscription": name, "state": "damaged", "reason": one.why}
            session.output.line(_damage_told(one), fields)
        else:
            states[str(one.record.state)] += 1
            teller.tell(one.record)
    told = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    message = (
        f"{counted(states.total(), 'removal')} recorded: {told}"
        if told
        else f"no removal is recorded in {session.store.url}"
    )
    session.output.line(message, {"message": message, "removals": states})
    return FINDINGS if states["damaged"] else OK


def _recorded(session: CommandSession) -> CursorRemovals | None:
    """Those of the bucket's cluster. None: nothing was ever written to it."""
    store = session.store
    try:
        cluster = read_root(store).cluster
    except ConfigError:
        return None
    return CursorRemovals(store, cluster, session.dependencies.new_token)


def _removals(session: CommandSession, *, create: bool) -> CursorRemovals:
    """Those of the cluster that answers; `create`: also in a bucket that has nothing yet."""
    found = _recorded(session)
    if found is None or create:
        cluster, new_token = session.admin.cluster(), session.dependencies.new_token
        if create:
            open_root(session.store, cluster, new_token)
        return CursorRemovals(session.store, cluster, new_token)
    return found


def _remover(session: CommandSession, removals: CursorRemovals, timeout: int) -> CursorRemover:
    """Both phases, by the configuration. Raises ConfigError."""
    return CursorRemover(
        removals=removals,
        stored=stored_topics(session, timeout),
        brokers=session.subscriptions,
        names=names_of(session),
        timing=RemovalTeller.of(session).timing,
        clock_ms=session.dependencies.clock_ms,
    )


def _remove(teller: RemovalTeller, remover: CursorRemover, topic: TopicName, name: str, *, yes: bool) -> None:
    stored = remover.removals.read((topic, name))
    if stored is not None and not stored.record.has_ended:
        teller.tell(remover.go_on(stored) if yes else stored.record)
    elif yes:
        teller.tell(remover.mark(topic, name, BY))
    else:
        plan = remover.plan(topic, name)
        teller.tell_plan(topic, name, plan)
        if plan.objection:  # as with --yes
            raise FatalError(f"{topic}: {name} is not removed: {plan.objection}")


def _purged(
    session: CommandSession, teller: RemovalTeller, remover: CursorRemover, due: list[StoredRemoval]
) -> Iterator[str]:
    """What has become of each, a few at a time."""

    def go_on(one: StoredRemoval) -> tuple[StoredRemoval, CursorRemoval | OffloadError]:
        try:
            return one, remover.go_on(one)
        except OffloadError as error:
            return one, error

    at_once = session.config.lifecycle.visits.at_once
    with ThreadPoolExecutor(at_once, "cursor-purge") as pool:
        for stored, after in map_ahead(pool, go_on, _paced(session, due), at_once):
            if isinstance(after, OffloadError):
                say(f"error: {stored.record.topic}: {stored.record.subscription}: {after}", err=True)
                yield "failed"
                continue
            teller.tell(after)
            yield str(after.state) if after.state in (RemovalState.REMOVED, RemovalState.KEPT) else "failed"


def _paced(session: CommandSession, due: list[StoredRemoval]) -> Iterator[StoredRemoval]:
    """A topic is loaded once for all of its subscriptions, as long as these follow each other."""
    of, pace = session.dependencies, VisitPace(session.config.lifecycle.visits.a_minute)
    last = None
    for one in due:
        if one.record.topic != last:
            of.sleep(pace.wait_ms(of.clock_ms()) / 1000)
            last = one.record.topic
        yield one


def _summary(due: int, states: Counter[str], first: int | None, *, yes: bool) -> tuple[str, dict[str, object]]:
    """`first`: when the first of those that wait is due."""
    removed, kept, failed, waiting = (states[one] for one in ("removed", "kept", "failed", "waiting"))
    until = None if first is None else moment_text(first)
    done = f"{counted(due, 'removal')} due" if due else "nothing is due"
    if due:
        done += f": {removed} removed, {kept} kept, {failed} failed" if yes else "; nothing is removed without --yes"
    message = done + (f"; {waiting} waiting, the first until {until}" if waiting else "")
    return message, {
        "message": message, "due": due, "removed": removed, "kept": kept, "failed": failed, "waiting": waiting,
        "firstDue": until,
    }  # fmt: skip


def _undo(teller: RemovalTeller, remover: CursorRemover, stored: StoredRemoval, *, yes: bool) -> None:
    if yes:
        teller.tell(remover.undo(stored))
        return
    record = stored.record
    if record.is_in_flight:
        teller.tell(record, comes="--yes takes the mark back")
    else:
        teller.tell(record, remover.undo_plan(record).says, "--yes brings it back")


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
    stored = remover.removals.read((topic, subscription))
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


def _readable(removals: CursorRemovals | None) -> Iterator[StoredRemoval]:
    for one in () if removals is None else removals.records():
        if isinstance(one, DamagedRecord):
            _damage(one)
        else:
            yield one


def _damage(one: DamagedRecord[CursorName]) -> bool:
    say(f"error: {_damage_told(one)}", err=True)
    return True


def _damage_told(one: DamagedRecord[CursorName]) -> str:
    topic, name = one.name
    return f"{topic}: what is recorded of {name} cannot be read: {one.why}"


def _is_of(record: CursorRemoval, topic: TopicName, subscription: str) -> bool:
    named = topic in (record.topic, TopicName.parse(record.topic.partitioned_name))
    return named and record.subscription == subscription
