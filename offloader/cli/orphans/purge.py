"""`offloader orphans purge`: the second phase, in this process.

It sends to PIP-186's system topic where the configuration says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock

import click

from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.orphans import orphans
from offloader.cli.orphans.deletion_parts import (
    BOOKIE_SECONDS,
    moment,
    queue_if_any,
    say_former,
    shown,
    sides_of,
    subscription_side,
    timing,
)
from offloader.cli.orphans.quarantine import YES
from offloader.cli.output import say
from offloader.lifecycle.deletion.machine import DeletionTurn, due_at, turn
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import (
    DeletionAnswer,
    DeletionSwitch,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.lifecycle.deletion.service import REMOVALS, Announce, DeletionRules, LedgerDeletionService
from offloader.lifecycle.deletion.system_topic.interfaces import NotAnnounced
from offloader.lifecycle.deletion.timing import DeletionTiming
from offloader.lifecycle.deletion.watcher import PendingDeletions
from offloader.metadata.root import read_root
from offloader.runtime.deletion import bounds_of, system_topic, timing_of

SHOWN = 20


@dataclass
class Announced:
    """`SystemTopicEvents`: what was sent, and why what was not. A purge receives nothing."""

    done: Counter[LedgerType] = field(default_factory=Counter)
    missing: Counter[NotAnnounced] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock)

    def sent(self, ledger_type: LedgerType) -> None:
        with self._lock:
            self.done[ledger_type] += 1

    def not_sent(self, why: NotAnnounced) -> None:
        with self._lock:
            self.missing[why] += 1

    def received(self) -> None:
        raise RuntimeError("a purge opens no door")

    acknowledged = sent_again = gave_up = received


@contextmanager
def announcing(session: CommandSession, announced: Announced) -> Iterator[Announce]:
    """As the application does it. Raises ConfigError where the package is not installed."""
    if session.config.lifecycle.system_topic not in ("publish", "both"):
        yield lambda _: None
        return
    topic = system_topic(session, read_root(session.store).cluster, announced)
    if topic is None:
        raise RuntimeError("the system topic is off")
    with closing(topic.publisher()) as publisher:
        yield publisher.announce


class Heard:
    """What a purge tells in the end: of subscriptions without what was saved, which may be megabytes for each."""

    def __init__(self) -> None:
        self.damages: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self.ends: list[PendingDeleteLedgerInfo] = []
        self.given_up: list[PendingDeleteLedgerInfo] = []
        self.refusals: Mapping[LedgerType, Sequence[str]] = {}

    def pending(self, pending: PendingDeletions, *, on: bool) -> None:
        """Counted elsewhere."""

    def refused(self, refusals: Mapping[LedgerType, Sequence[str]]) -> None:
        self.refusals = refusals

    def damaged(self, name: str, why: str) -> None:
        self.damages[name] = why

    def failed(self, record: PendingDeleteLedgerInfo, why: str) -> None:
        self.failures[record.name] = why

    def ended(self, record: PendingDeleteLedgerInfo) -> None:
        self.failures.pop(record.name, None)
        self.ends.append(replace(record, subscription=None))

    def gave_up(self, record: PendingDeleteLedgerInfo) -> None:
        self.given_up.append(replace(record, subscription=None))


@dataclass(frozen=True, slots=True)
class _Marked:
    """What is in flight. `due`: by type; `later`: how many wait for their time, the first of them until `first`."""

    due: Counter[LedgerType]
    later: int = 0
    first: int = 0


@orphans.command()
@YES
@click.option("--stock", metavar="URL", help="The bucket of Pulsar's own offloader: what is marked there waits for it.")
@command()
def purge(session: CommandSession, *, yes: bool, stock: str | None) -> int:
    """Run the second phase now, for what is due: look again, close what is open, delete under guard. Never before the
    quarantine is over. Ledgers need pulsar.metadataServiceUri; without it they wait, and objects go. Records that have
    ended are removed after lifecycle.recordRetention. Subscriptions that were marked are deleted, too, as by `topics
    cursors purge`.

    Safe beside the running application: of two who change a record one does, and of two who look, the later one alone
    deletes. Where deletion was switched off, what was marked before begins anew. With lifecycle.systemTopic publish or
    both, what is deleted is sent to PIP-186's system topic. Exit code 2 where something stands against deletion, or a
    deletion failed or was given up.

    \b
    JSON: {message, due, later, nextDue, waiting, ended, failed, gaveUp, damaged, refusals, removed, sent, notSent};
    later: how many are marked and not due yet, the first at nextDue; waiting are [{type, due, why}], of what cannot be
    reached as it is called; ended and gaveUp as of `orphans list`, failed and damaged are [{record, why}]; removed:
    records; sent: {type: number} to the system topic; notSent: {why: number}.
    """
    return run_purge(session, tuple(LedgerType), stock, BOOKIE_SECONDS, yes=yes)


def run_purge(
    session: CommandSession, kinds: Collection[LedgerType], stock: str | None, timeout_s: float, *, yes: bool
) -> int:
    """The second phase of what is due of these types. `timeout_s`: of a bookie that has a subscription's state. The
    exit code."""
    queue, by_config = queue_if_any(session), timing(session)
    heard, announced, removed = Heard(), Announced(), 0
    marked, why = _Marked(Counter()), dict[LedgerType, str]()
    if queue is not None:
        switch = _switch(queue)
        marked = _marked(queue, session.dependencies.clock_ms(), by_config, switch, kinds)
        why = {kind: text for kind, text in _unreachable(session, stock).items() if marked.due[kind]}
        if yes:
            due = marked.due.total() - sum(marked.due[kind] for kind in why)
            reached = set(kinds if due else ())
            with _service(session, stock, queue, heard, announced, reached, timeout_s) as service:
                removed = _rounds(service, switch, due)
    _tell(session, marked, why, heard, announced, removed, yes=yes)
    former = say_former(session) if LedgerType.SUBSCRIPTION in kinds else []
    return FINDINGS if former or heard.refusals or heard.failures or heard.given_up or heard.damages else OK


def _tell(
    session: CommandSession,
    marked: _Marked,
    why: Mapping[LedgerType, str],
    heard: Heard,
    announced: Announced,
    removed: int,
    *,
    yes: bool,
) -> None:
    by_config = timing(session)
    due = marked.due.total() - sum(marked.due[kind] for kind in why)
    missing = announced.missing.total()
    not_sent = [f"{missing} were not sent to the system topic: {', '.join(announced.missing)}"] if missing else []
    waiting = [f"{marked.due[kind]} that are due wait: {text}" for kind, text in why.items()]
    gone = {one.ledger_type for one in heard.ends if one.answer is DeletionAnswer.DELETED}
    refused = [
        f"{'no more' if kind in gone else 'none'} of the {kind.many} is deleted: {one}"
        for kind, each in heard.refusals.items()
        for one in each
    ]
    session.output.message(
        _summary(due, marked, heard, yes=yes),
        [*waiting, *refused, *_lines(heard), *not_sent],
        due=due,
        later=marked.later,
        nextDue=moment(marked.first),
        waiting=[{"type": str(kind), "due": marked.due[kind], "why": text} for kind, text in why.items()],
        ended=[shown(one, by_config) for one in heard.ends],
        failed=[{"record": name, "why": text} for name, text in heard.failures.items()],
        gaveUp=[shown(one, by_config) for one in heard.given_up],
        damaged=[{"record": name, "why": text} for name, text in heard.damages.items()],
        refusals=[one for each in heard.refusals.values() for one in each],
        removed=removed,
        sent={str(kind): number for kind, number in announced.done.items()},
        notSent={str(reason): number for reason, number in announced.missing.items()},
    )


def _switch(queue: DeletionQueue) -> DeletionSwitch:
    """On, for this purge; what was marked before it was last set begins anew."""
    stored = queue.switch()
    return DeletionSwitch(on=True, at=0) if stored is None else replace(stored, on=True)


def _marked(
    queue: DeletionQueue, now: int, timing: DeletionTiming, switch: DeletionSwitch, kinds: Collection[LedgerType]
) -> _Marked:
    due, later, rules = Counter[LedgerType](), [], DeletionRules()
    for one in queue.readable():
        kind = one.record.ledger_type
        if kind not in kinds or not one.record.is_in_flight:
            continue
        if turn(one.record, now, timing, rules.switch_of(kind, switch)) is DeletionTurn.LOOK:
            due[kind] += 1
        else:
            later.append(due_at(one.record, timing))
    return _Marked(due, len(later), min(later, default=0))


@contextmanager
def _service(
    session: CommandSession,
    stock: str | None,
    queue: DeletionQueue,
    heard: Heard,
    announced: Announced,
    kinds: AbstractSet[LedgerType],
    timeout_s: float,
) -> Iterator[LedgerDeletionService]:
    """`kinds`: what is reached; none: nothing is due."""
    section = session.config.lifecycle
    parallelism = section.two_phase_deletion_ledger_deletion_parallelism
    rules = DeletionRules(timing_of(section), bounds_of(section), parallelism)
    now_ms = session.dependencies.clock_ms
    if kinds <= {LedgerType.SUBSCRIPTION}:
        sides = {kind: subscription_side(session, timeout_s) for kind in kinds}
        yield LedgerDeletionService(queue, sides, rules, heard, now_ms)
        return
    with sides_of(session, stock) as sides_of_all, announcing(session, announced) as announce:
        yield LedgerDeletionService(queue, sides_of_all, rules, heard, now_ms, announce)


def _unreachable(session: CommandSession, stock: str | None) -> dict[LedgerType, str]:
    found = {}
    if not session.has_bookkeeper:
        for kind in (LedgerType.LEDGER, LedgerType.MANAGED_LEDGER, LedgerType.SUBSCRIPTION):
            what = "subscriptions" if kind is LedgerType.SUBSCRIPTION else "ledgers"
            found[kind] = f"{what} are looked at in ZooKeeper: set pulsar.metadataServiceUri"
    if stock is None:
        found[LedgerType.OFFLOAD_LEDGER] = "they are in the bucket of Pulsar's own offloader: name it with --stock"
    return found


def _rounds(service: LedgerDeletionService, switch: DeletionSwitch, due: int) -> int:
    """Until all that was due was looked at; a side that refuses keeps no other from going on. How many records were
    removed."""
    done = removed = 0
    while True:
        this = service.round(switch, goes_on=done > 0)
        done, removed = done + this.looked_at, removed + this.removed
        if this.removed < REMOVALS and (done >= due or not this.looked_at or not this.left):
            return removed
        say(f"purge: {done} of {due}", err=True)


def _lines(heard: Heard) -> list[str]:
    """What was not simply deleted, one by one, up to a number."""
    kept = [one for one in heard.ends if one.answer is not DeletionAnswer.DELETED]
    lines = [
        *(f"{one.thing}: {one.answer}" + (f": {one.reason}" if one.reason else "") for one in kept),
        *(f"{one.thing}: given up: {one.reason}" for one in heard.given_up),
        *(f"{name}: failed, tried again later: {why}" for name, why in heard.failures.items()),
        *(f"{name}: cannot be read: {why}" for name, why in heard.damages.items()),
    ]
    more = [f"… and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return [*lines[:SHOWN], *more]


def _summary(due: int, marked: _Marked, heard: Heard, *, yes: bool) -> str:
    wait = f"; {marked.later} more wait, the first until {moment(marked.first)}" if marked.later else ""
    if not due:
        return f"nothing is due{wait}" if wait or marked.due else "nothing is marked"
    if not yes:
        return f"{due} are due; nothing is deleted without --yes{wait}"
    deleted = sum(one.answer is DeletionAnswer.DELETED for one in heard.ends)
    said = f"{deleted} of {due} that were due are deleted{wait}"
    return f"{said}; something stands against the others: see above" if heard.refusals else said
