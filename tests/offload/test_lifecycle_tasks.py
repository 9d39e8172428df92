"""Which tasks there are, by the configuration; and the deletion task over a cluster in memory."""

from __future__ import annotations

import itertools
import logging
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import pytest

from offloader._proto import metadata_pb2 as pb
from offloader.config import Config
from offloader.errors import ConfigError, OvertakenError, StoreUnavailableError
from offloader.lifecycle.bucket.quarantine import ObjectQuarantine
from offloader.lifecycle.bucket.scan import BucketScanner
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import DeletionAnswer, DeletionState, LedgerType
from offloader.lifecycle.deletion.service import DeletionRules
from offloader.lifecycle.deletion.subscription_side import SubscriptionSide
from offloader.lifecycle.deletion.system_topic.acceptor import SystemTopicAcceptor
from offloader.lifecycle.deletion.system_topic.examining import CopyExaminer, LedgerExaminer
from offloader.lifecycle.deletion.system_topic.interfaces import NotAnnounced
from offloader.lifecycle.deletion.task import DeletionTask, LazySide
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.lifecycle.ledgers.refusals import Refusal, RefusalKind
from offloader.lifecycle.topics.cursors.policy import UnusedSubscriptions
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs
from offloader.metadata.envelope import wrap
from offloader.metadata.journal import Journal
from offloader.metadata.root import open_root
from offloader.metadata.state import Claim
from offloader.metrics import Metrics
from offloader.model import Position
from offloader.offload.deletion_told import DeletionTold, SystemTopicCounts
from offloader.offload.lifecycle_tasks import LifecycleParts, lifecycle_tasks
from offloader.runtime.connections import Dependencies, Runtime
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.lifecycle.deletion.support import candidate
from tests.lifecycle.deletion.test_service import DELETED, WIDE, Setting

SOON = 1.0

RUNS = bool  # never stopping
CLOSABLE = SimpleNamespace(close=lambda: None)
BASE = """
application: main
storage: {root: "file:///tmp/archive"}
pulsar: {serviceUrl: "pulsar://b:6650", adminUrl: "http://b:8080", metadataServiceUri: "zk://z/ledgers"}
"""


def parts(store, text: str = BASE, **opened) -> LifecycleParts:
    """`opened`: what else the tasks reach, and how it is opened."""
    journal = Journal.open(store, "main", lambda: "token")
    dependencies = Dependencies(store=lambda _: store, admin=lambda _: CLOSABLE, **opened)
    return LifecycleParts(Runtime(Config.parse(text, {}), dependencies), journal, Metrics(), "main")


def test_where_nothing_is_switched_on_there_is_no_task():
    assert lifecycle_tasks(parts(MemoryStore()), RUNS, ExitStack()) == []


def test_what_once_was_on_is_said_to_be_off_and_counted():
    store = MemoryStore()
    (on,) = lifecycle_tasks(
        parts(store, BASE + "lifecycle: {topicTwoPhaseDeletionEnabled: true}"), lambda: False, ExitStack()
    )
    assert isinstance(on, DeletionTask)
    on.queue.set_switch(on=True, now=5)
    (off,) = lifecycle_tasks(parts(store), RUNS, ExitStack())
    assert isinstance(off, DeletionTask)
    off.run()
    assert off.queue.switch().on is False


def test_a_store_that_does_not_answer_does_not_end_the_start():
    store = MemoryStore()
    made = parts(store)
    faulty = FaultyStore(store, StoreFaults([StoreFault("*", Effect.BEFORE, StoreUnavailableError, times=99)]))
    made = replace(made, runtime=Runtime(made.runtime.config, Dependencies(store=lambda _: faulty)))
    assert [one.name for one in lifecycle_tasks(made, RUNS, ExitStack())] == ["deletion", "former-removals"]


def test_switched_on_without_a_metadata_service_is_refused():
    text = BASE.replace(', metadataServiceUri: "zk://z/ledgers"', "")
    with pytest.raises(ConfigError, match=r"lifecycle\.topicTwoPhaseDeletionEnabled: .*metadataServiceUri"):
        Config.parse(text + "lifecycle: {topicTwoPhaseDeletionEnabled: true}", {})


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("visitUnloaded: true", "visitUnloaded"),
        ("removeCursorsAfter: 30d", "removeCursorsAfter"),
        ("systemTopic: accept", "systemTopic"),
        ("orphanScan: {interval: 1d}", "orphanScan"),
    ],
)
def test_what_needs_the_metadata_service_is_refused_without_it(said, name):
    text = BASE.replace(', metadataServiceUri: "zk://z/ledgers"', "")
    with pytest.raises(ConfigError, match=rf"lifecycle\.{name}: .*metadataServiceUri"):
        Config.parse(text + f"lifecycle: {{{said}}}", {})


def test_each_task_is_there_where_it_is_switched_on():
    def names(said: str) -> list[str]:
        return [
            one.name
            for one in lifecycle_tasks(
                parts(MemoryStore(), BASE + f"lifecycle: {{{said}}}"), lambda: False, ExitStack()
            )
        ]

    assert names("visitUnloaded: true") == ["unloaded-topics"]
    assert names("removeCursorsAfter: 30d") == ["deletion", "cursors"]
    assert names("orphanScan: {interval: 1d}") == ["orphan-scan"]
    assert names("orphanScan: {quarantine: true}") == []
    assert names("topicTwoPhaseDeletionEnabled: true") == ["deletion"]


def test_the_door_comes_before_the_mirror(monkeypatch):
    monkeypatch.setattr("offloader.lifecycle.deletion.system_topic.pulsar_channel.check_library", lambda: None)
    monkeypatch.setattr("offloader.lifecycle.deletion.system_topic.opening.check_library", lambda: None)
    on = "topicTwoPhaseDeletionEnabled: true, "

    def tasks(use: str) -> list:
        made = parts(MemoryStore(), BASE + f"lifecycle: {{{on}systemTopic: {use}}}")
        return lifecycle_tasks(made, RUNS, ExitStack())

    assert [one.name for one in tasks("both")] == ["system-topic", "deletion"]
    assert [one.name for one in tasks("accept")] == ["system-topic", "deletion"]
    assert [one.name for one in tasks("publish")] == ["deletion"]
    mirrors = [tasks(use)[-1].announce.__name__ for use in ("both", "accept", "publish", "off")]
    assert mirrors == ["announce", "<lambda>", "announce", "<lambda>"]


@pytest.mark.parametrize(("said", "bucket"), [("stockBucket: s3://stock", "stock"), ("systemTopic: accept", None)])
def test_the_door_looks_at_copies_where_somebody_says_which_bucket_they_are_in(monkeypatch, said, bucket):
    monkeypatch.setattr("offloader.lifecycle.deletion.system_topic.pulsar_channel.check_library", lambda: None)
    monkeypatch.setattr("offloader.lifecycle.deletion.system_topic.opening.check_library", lambda: None)
    text = BASE.replace("file:///tmp/archive", "s3://archive") + f"lifecycle: {{systemTopic: accept, {said}}}"
    (door, *_) = lifecycle_tasks(parts(MemoryStore(), text.replace(", systemTopic: accept", "")), RUNS, ExitStack())
    assert isinstance(door, SystemTopicAcceptor)
    examiner = door._examine
    assert isinstance(examiner, LedgerExaminer)
    copies = examiner.copies
    assert copies is None or isinstance(copies, CopyExaminer)
    assert (copies and copies.bucket) == bucket


def test_the_lacking_package_is_told_at_the_start(monkeypatch):
    monkeypatch.setitem(sys.modules, "pulsar", None)
    with pytest.raises(ConfigError, match="pulsar-client"):
        lifecycle_tasks(parts(MemoryStore(), BASE + "lifecycle: {systemTopic: accept}"), RUNS, ExitStack())


@pytest.mark.parametrize("use", ["publish", "both"])
def test_a_mirror_of_deletions_that_are_switched_off_is_refused_in_one_line(use):
    text = BASE + f"lifecycle: {{systemTopic: {use}"
    with pytest.raises(ConfigError, match=r"lifecycle\.systemTopic: .*topicTwoPhaseDeletionEnabled, too \(line \d+\)$"):
        Config.parse(text + "}", {})
    Config.parse(text + ", topicTwoPhaseDeletionEnabled: true}", {})


def test_what_the_topics_tell_is_counted():
    metrics = Metrics()
    counts = SystemTopicCounts(metrics)
    counts.sent(LedgerType.LEDGER)
    counts.not_sent(NotAnnounced.FOREIGN_CONSUMER)
    counts.received()
    counts.acknowledged()
    counts.sent_again()
    counts.gave_up()
    assert value(metrics, "offloader_deletion_sent_total", type="LEDGER") == 1
    assert value(metrics, "offloader_deletion_not_sent_total", why="foreign consumer") == 1
    assert value(metrics, "offloader_deletion_received_total") == 1
    for outcome in ("acknowledged", "sent again", "gave up"):
        assert value(metrics, "offloader_deletion_messages_total", outcome=outcome) == 1


def subscriptions(store, *ends: tuple[str, DeletionState, int]) -> DeletionQueue:
    """What is recorded of some, by name."""
    numbers = itertools.count()
    queue = DeletionQueue(store, "main", lambda: f"t{next(numbers)}")
    for name, state, ended in ends:
        fields = {"topic_name": str(TOPIC), "cursor_name": name, "state": state, "ended_at": ended}
        answer = DeletionAnswer.DELETED if ended else None
        assert queue.write(candidate(-1, ledger_type=LedgerType.SUBSCRIPTION, answer=answer, **fields), None)
    return queue


def test_without_a_policy_and_a_recorded_removal_nobody_is_reached_for_subscriptions():
    made = parts(MemoryStore(), BASE + "lifecycle: {topicTwoPhaseDeletionEnabled: true}")
    (task,) = lifecycle_tasks(made, RUNS, ExitStack())
    assert isinstance(task, DeletionTask)

    def refused(_: ExitStack) -> SubscriptionSide:
        raise AssertionError("it is opened")

    task.sides[LedgerType.SUBSCRIPTION].open_side = refused
    assert task.run() == 600.0


def test_subscriptions_that_have_ended_are_forgotten_in_their_time_also_where_none_is_switched_on():
    """Somebody deleted subscriptions by a command once. What is pending stays, and is counted."""
    store, day = MemoryStore(), 86_400_000
    now = time.time_ns() // 1_000_000
    old, late = now - 31 * day, now - 29 * day
    queue = subscriptions(
        store,
        ("old", DeletionState.DELETED, old),
        ("kept", DeletionState.KEPT, old),
        ("late", DeletionState.DELETED, late),
        ("marked", DeletionState.MARKED, 0),
    )
    made = parts(store)
    (task,) = lifecycle_tasks(made, RUNS, ExitStack())
    assert (task.name, task.run()) == ("deletion", 600.0)
    assert {one.record.cursor_name for one in queue.readable()} == {"late", "marked"}
    assert value(made.metrics, "offloader_cursor_removals_pending", state="marked") == 1
    assert value(made.metrics, "offloader_cursor_removals_in_flight") == 1
    assert value(made.metrics, "offloader_deletion_pending", type="SUBSCRIPTION", state="marked") is None


def test_who_was_overtaken_forgets_no_subscription():
    store = MemoryStore()
    queue = subscriptions(store, ("s", DeletionState.DELETED, 2))
    (task,) = lifecycle_tasks(parts(store), RUNS, ExitStack())
    Journal.open(store, "main", lambda: "another")
    with pytest.raises(OvertakenError):
        task.run()
    assert len([*queue.records()]) == 1


def test_what_an_earlier_version_left_pending_is_named_each_round_and_never_forgotten(caplog):
    store = MemoryStore()
    folder = layout.cursor_folder("main", TOPIC, "s")
    body = pb.Body(cursor_removal=pb.CursorRemoval(state="given up", ended_at=0))
    store.put(f"{folder}records/{0:020d}", wrap("t", body))
    (task,) = lifecycle_tasks(parts(store), RUNS, ExitStack())
    for _ in range(2):
        assert task.run() == 600.0
    assert caplog.text.count(f"{TOPIC}: the removal of subscription s is given up, as an earlier version") == 2
    assert store.stat(f"{folder}records/{0:020d}") is not None


def test_the_application_loads_topics_for_second_looks_within_the_rate(monkeypatch):
    slept, module = list[float](), "offloader.offload.lifecycle_tasks"
    monkeypatch.setattr("offloader.runtime.deletion.names_of", lambda _: None)
    monkeypatch.setattr(f"{module}.sleep_until_stopping", lambda _, seconds: slept.append(seconds))
    monkeypatch.setattr(f"{module}.host_ms", lambda: 1_000)
    said = "lifecycle: {removeCursorsAfter: 30d, visits: {atOnce: 3, aMinute: 6}}"
    made = parts(
        MemoryStore(), BASE + said, bookkeeper=lambda *_: (CLOSABLE, CLOSABLE), subscriptions=lambda _: CLOSABLE
    )
    task, _ = lifecycle_tasks(made, RUNS, ExitStack())
    assert isinstance(task, DeletionTask)
    for expected in ([], [10.0]):  # also from one pass to the next
        with ExitStack() as stack:
            side = task.sides[LedgerType.SUBSCRIPTION].open_side(stack)
            assert isinstance(side, SubscriptionSide)
            assert (side.at_once, side.stopping) == (3, RUNS)
            side.pace()
            assert slept == expected


def test_the_policy_knows_what_an_earlier_version_recorded():
    store = MemoryStore()
    body = pb.Body(cursor_removal=pb.CursorRemoval(state="removing"))
    store.put(f"{layout.cursor_folder('main', TOPIC, 's')}records/{0:020d}", wrap("t", body))
    tasks = lifecycle_tasks(parts(store, BASE + "lifecycle: {removeCursorsAfter: 30d}"), RUNS, ExitStack())
    (policy,) = (one for one in tasks if isinstance(one, UnusedSubscriptions))
    assert [one.subscription for one in policy.former()] == ["s"]


def test_a_marked_object_goes_in_the_application():
    store = MemoryStore()
    then = time.time_ns() // 1_000_000 - 60_000
    store.backing.clock_ms = lambda: then
    open_root(store, "main", lambda: "root")
    stray = layout.data_key(TOPIC, "00000000-0000-4000-8000-000000000009")
    store.put(layout.proof_key("interrupted"), b"?")
    store.put(stray, b"junk")
    text = BASE + (
        "lifecycle: {topicTwoPhaseDeletionEnabled: true, quarantine: 1s, quarantineFloor: 0s, limits: {percent: 100}}"
    )
    made = parts(store, text)
    (task,) = lifecycle_tasks(made, RUNS, ExitStack())
    store.backing.clock_ms = lambda: time.time_ns() // 1_000_000
    assert isinstance(task, DeletionTask)
    task.queue.set_switch(on=True, now=then)
    scanner = BucketScanner(store, lambda: then, lambda: "look", 0)
    marking = ObjectQuarantine(task.queue, DeletionBounds(percent=100), lambda: then, "test")
    found = marking.mark(scanner.scan())
    assert [(one.id, str(one.outcome)) for one in found.marks] == [(layout.proof_key("interrupted"), "marked")]
    task.run()
    assert store.stat(layout.proof_key("interrupted")) is None
    assert store.stat(stray) is not None  # its topic has no catalog: only suspect


@pytest.mark.parametrize("hold", ["", "case 4711"])
def test_the_hold_of_the_running_application_decides_at_the_second_look(hold):
    store = MemoryStore()
    then = time.time_ns() // 1_000_000 - 60_000
    store.backing.clock_ms = lambda: then
    open_root(store, "main", lambda: "root")
    catalogs = Catalogs(store, "app")
    catalogs.append(catalogs.head(TOPIC), Claim("app", 0, 1, Position(0, 5, 0), then, "test"))
    stray = layout.data_key(TOPIC, "00000000-0000-4000-8000-000000000009")
    store.put(stray, b"junk")
    text = BASE + (
        "lifecycle: {topicTwoPhaseDeletionEnabled: true, quarantine: 1s, quarantineFloor: 0s, limits: {percent: 100}}\n"
        f'policies: {{hold: "{hold}"}}'
    )
    (task,) = lifecycle_tasks(parts(store, text), RUNS, ExitStack())
    store.backing.clock_ms = lambda: time.time_ns() // 1_000_000
    assert isinstance(task, DeletionTask)
    task.queue.set_switch(on=True, now=then)
    scanner = BucketScanner(store, lambda: then, lambda: "look", 0)
    found = ObjectQuarantine(task.queue, DeletionBounds(percent=100), lambda: then, "test").mark(scanner.scan())
    assert stray in [one.id for one in found.marks if str(one.outcome) == "marked"]  # before the hold
    task.run()
    assert (store.stat(stray) is not None) == bool(hold)
    task.run()
    assert (store.stat(stray) is not None) == bool(hold)


@pytest.fixture
def setting():
    return Setting()


def task_of(setting: Setting, *, on: bool = True, opened: list[str] | None = None, side=None, **more) -> DeletionTask:
    def open_side(stack):
        if opened is not None:
            opened.append("opened")
            stack.callback(opened.append, "closed")
        return side or setting.cluster.side()

    rules = DeletionRules(setting.timing, more.pop("bounds", WIDE))
    metrics = more.pop("metrics", None) or Metrics()
    sides = {LedgerType.LEDGER: LazySide(open_side)}
    told = DeletionTold(metrics)
    return DeletionTask(on, 600.0, setting.queue, sides, rules, told, lambda: setting.cluster.now_ms)


def test_an_idle_task_reaches_nobody(setting):
    opened: list[str] = []
    assert task_of(setting, opened=opened).run() == 600.0
    assert opened == []


def test_what_is_due_goes_and_what_was_opened_is_closed(setting):
    opened: list[str] = []
    task = task_of(setting, opened=opened)
    task.run()
    setting.passed_by(5)
    setting.mark()
    setting.later()
    task.run()
    assert setting.end_of(5) == DELETED
    assert opened == ["opened", "closed"]


def test_more_than_a_share_is_gone_on_with_at_once(setting):
    setting.on()
    setting.passed_by(5, 6, 7)
    setting.mark()
    setting.later()
    task = task_of(setting, bounds=DeletionBounds(percent=100, a_round=2))
    assert [task.run(), task.run()] == [SOON, 600.0]


def test_what_is_open_between_two_rounds_is_closed_with_the_application(setting):
    setting.on()
    setting.passed_by(5, 6)
    setting.mark()
    setting.later()
    opened: list[str] = []
    task = task_of(setting, opened=opened, bounds=DeletionBounds(number=100, percent=100, a_round=1))
    task.run()
    assert opened == ["opened"]
    task.run()
    assert opened == ["opened", "closed"]
    again = task_of(setting, opened=opened)
    again.end()
    assert opened == ["opened", "closed"]


def test_the_application_closes_what_deletion_has_open(monkeypatch):
    ended: list[str] = []
    monkeypatch.setattr(DeletionTask, "end", lambda task: ended.append(task.name))
    with ExitStack() as stack:
        lifecycle_tasks(parts(MemoryStore(), BASE + "lifecycle: {topicTwoPhaseDeletionEnabled: true}"), RUNS, stack)
        assert ended == []
    assert ended == ["deletion"]


def test_who_cannot_reach_zookeeper_is_refused_and_counts_no_try(setting, caplog):
    setting.on()
    setting.passed_by(5)
    setting.mark()
    setting.later()
    task = task_of(setting)

    def away(stack):
        raise StoreUnavailableError("no ZooKeeper")

    task.sides[LedgerType.LEDGER].open_side = away
    task.run()
    task.run()
    assert setting.record(5).tries == 0
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.__dict__["see"] for record in warnings] == ["deletion-refused"]


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_refusals_are_told_once_and_counted_until_they_are_gone(setting, caplog):
    setting.on()
    setting.passed_by(5)
    setting.mark()
    setting.later()
    metrics, side = Metrics(), setting.cluster.side()
    task = task_of(setting, side=side, metrics=metrics)
    side.scanner.refusals = (Refusal(RefusalKind.MAY_BE_SHARED),)
    task.run()
    task.run()
    assert [record.__dict__["see"] for record in caplog.records] == ["deletion-refused"]
    assert caplog.messages[0].startswith("none of the ledgers is deleted: ")
    assert value(metrics, "offloader_deletion_refusals") == 1
    assert value(metrics, "offloader_deletion_in_flight", type="LEDGER") == 1
    side.scanner.refusals = ()
    task.run()
    task.run()
    assert value(metrics, "offloader_deletion_refusals") == 0
    assert value(metrics, "offloader_deletion_deleted_total", type="LEDGER") == 1
    assert value(metrics, "offloader_deletion_acknowledged_total", type="LEDGER") == 1
    assert value(metrics, "offloader_deletion_records", type="LEDGER", state="deleted") == 1


def test_the_side_that_refuses_is_named_and_each_is_told_once_until_it_changes(caplog):
    metrics = Metrics()
    told = DeletionTold(metrics)
    away, shared = ["a bookie is away"], ["it may be shared", "a listing failed"]
    with caplog.at_level(logging.INFO):
        for ledgers, objects in ((away, []), (away, shared), (away, shared), ([], shared), (away, []), ([], [])):
            told.refused({LedgerType.LEDGER: ledgers, LedgerType.OBJECT: objects})
    assert caplog.messages == [
        "none of the ledgers is deleted: a bookie is away",
        "none of the objects is deleted: it may be shared a listing failed",
        "nothing stands against the deletion of ledgers any more",
        "none of the ledgers is deleted: a bookie is away",
        "nothing stands against the deletion of objects any more",
        "nothing stands against the deletion of ledgers any more",
    ]
    assert value(metrics, "offloader_deletion_refusals") == 0


def test_off_with_records_pending_is_told_once(setting, caplog):
    setting.on()
    setting.passed_by(5)
    setting.mark()
    task = task_of(setting, on=False)
    task.run()
    task.run()
    assert [record.__dict__["see"] for record in caplog.records] == ["deletion-off"]


def test_what_looks_forged_and_what_was_given_up_are_alarms(setting, caplog):
    setting.on()
    setting.passed_by(5, 6, is_open=True)
    setting.mark()
    name = setting.record(5).name
    setting.queue.change(name, lambda it: replace(it, node=replace(it.node, data=b"others")))
    for bookie in setting.cluster.bookies.values():
        bookie.up = False
    metrics = Metrics()
    task = task_of(setting, metrics=metrics)
    for _ in range(12):
        setting.later(2 * 86_400)
        task.run()
    assert {record.__dict__["see"] for record in caplog.records if record.levelno >= logging.WARNING} == {
        "deletion-kept",
        "deletion-given-up",
    }
    assert value(metrics, "offloader_deletion_gave_up_total", type="LEDGER") == 1
    assert value(metrics, "offloader_deletion_failed_total", type="LEDGER") == 10
    assert value(metrics, "offloader_deletion_ended_total", type="LEDGER", answer="does not match") == 1


def test_an_owner_that_was_overtaken_ends_and_the_owner_s_own_writes_are_no_takeover():
    store = MemoryStore()
    first = Journal.open(store, "main", lambda: "a")
    first.check_from_beside()
    second = Journal.open(store, "main", lambda: "b")
    with pytest.raises(OvertakenError):
        first.check_from_beside()
    second.check_from_beside()
