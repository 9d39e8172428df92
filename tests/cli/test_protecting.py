"""`offloader subscriptions protect`: from the command line to the bucket."""

from __future__ import annotations

import json
import signal
import threading
from dataclasses import replace

import pytest

from offloader.bookkeeper.cursor_codec import encode_cursor_entry
from offloader.bookkeeper.cursor_state import CursorState
from offloader.bookkeeper.digests import digest_for, master_key
from offloader.bookkeeper.entry_codec import encode
from offloader.bookkeeper.model import LedgerState, StoredEntry
from offloader.cli import subscriptions
from offloader.cursors.protection_store import ProtectionStore
from offloader.errors import BrokerUnavailableError
from offloader.lifecycle.topics.protecting.told import LookOutcome, Told
from offloader.metrics.protection import ProtectionMetrics
from offloader.model import AcknowledgedRange
from offloader.ports.subscriptions import SubscriptionUse
from offloader.ports.topic_states import CursorLook, CursorLooks, SubscriptionTraits
from tests.lifecycle.topics.world import TOPIC, StoredWorld

JOB = CursorState((1, 2), (AcknowledgedRange((1, 3), (1, 5)),))
MORE = (*JOB.ranges, AcknowledgedRange((1, 6), (1, 8)))


class Brokers:
    """A topic with the subscription `job`, of which less is stored than is in memory. It speaks REST and the binary
    protocol."""

    def __init__(self):
        self.mark, self.ranges, self.fresh, self.load = (1, 2), MORE, False, "1"
        self.acknowledged = []
        self.error = None
        self.is_loaded = True

    def uses(self):
        if self.error is not None:
            raise self.error
        return {TOPIC: {"job": SubscriptionUse(0, 1)}} if self.is_loaded else {}

    def cursors(self, _topic):
        look = CursorLook(self.mark, self.ranges, (), self.fresh, self.load)
        return CursorLooks(((1, 10), (2, None)), {"job": look, "__compaction": look})

    def subscriptions(self, _topic):
        return {"job": SubscriptionTraits(False, (), 0, "None")}

    def acknowledge_as_seen(self, _topic, subscription, decide):
        decided = decide()
        if decided is not None:
            self.acknowledged.append((subscription, *decided))
            self.ranges, self.fresh = MORE, False
        return decided is not None

    def close(self):
        pass


@pytest.fixture
def world():
    world = StoredWorld()
    world.topic((1, 10, 1000), (2, 0, 0))
    world.create(2, 3, 3, 2)
    for name, ledger in (("job", 90), ("__compaction", 91)):
        world.cursor(name, CursorState((1, -1), cursor_ledger=ledger))
        world.cursor_ledger(ledger, JOB)
    return world


@pytest.fixture
def brokers():
    return Brokers()


@pytest.fixture
def line(line, world, brokers, monkeypatch):
    line.root()
    line.dependencies = replace(
        line.dependencies,
        bookkeeper=lambda _config, _timeout: tuple(reversed(world.client())),
        subscriptions=lambda _: brokers,
        topic_states=lambda _: brokers,
    )
    monkeypatch.setattr(subscriptions, "SETTLES", 0.0)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    return line


def told(line, *more, code=0):
    result = line.run("subscriptions", "protect", str(TOPIC), "--once", *more, "--output", "json")
    assert result.exit_code == code, result.output
    return [json.loads(one) for one in result.stdout.splitlines()]


def crash(world, brokers):
    """The broker of the topic is another one: it has what is stored, and the ledger was closed."""
    metadata = world.metadata.read(90).metadata
    world.metadata.cluster.put_ledger(90, replace(metadata, state=LedgerState.CLOSED, last_entry=0, length=9))
    brokers.ranges, brokers.fresh, brokers.load = JOB.ranges, True, "2"


def test_once_tells_how_each_subscription_stands(line):
    assert told(line) == [
        {
            "topic": str(TOPIC),
            "subscription": "job",
            "outcome": "protected",
            "entries": 2,
            "batches": 0,
            "why": "",
        }
    ]


def test_what_a_crash_took_is_acknowledged_again_by_a_later_call(line, world, brokers):
    told(line)
    crash(world, brokers)
    would, again = told(line, "--dry-run")[-1:], told(line)
    assert [(one["outcome"], one["entries"]) for one in would] == [("would acknowledge", 2)]
    assert [(one["outcome"], one["entries"]) for one in again[:1]] == [("acknowledged again", 2)]
    ((subscription, whole, parts),) = brokers.acknowledged
    assert (subscription, [(one.ledger, one.first, one.last) for one in whole], list(parts)) == ("job", [(1, 7, 8)], [])


def test_a_reset_is_left_alone_and_told(line, world, brokers):
    told(line)
    metadata = world.metadata.read(90).metadata
    stored = encode(StoredEntry(90, 1, 0, 0, encode_cursor_entry(CursorState((1, 0)))), digest_for(metadata))
    for bookie in world.bookies.values():
        bookie.memory.add(90, 1, stored, master_key(b""))
    brokers.mark, brokers.ranges = (1, 0), ()
    (one,) = [one for one in told(line, code=2) if one["outcome"] == "ended"]
    assert "it was reset" in one["why"]
    assert not brokers.acknowledged


def test_a_dry_run_writes_nothing(line, world):
    told(line, "--dry-run")
    store = ProtectionStore(line.dependencies.store(None), lambda: "token")
    assert store.read(TOPIC) == {}
    told(line)
    assert store.read(TOPIC).keys() == {"job"}


def test_a_topic_that_is_not_loaded_is_left_alone(line, brokers):
    brokers.is_loaded = False
    assert told(line) == []


def test_a_topic_that_is_not_there_gets_one_line(line):
    assert "there is no such topic" in line.error("subscriptions", "protect", "public/default/none", "--once")


def test_brokers_that_are_away_end_nothing_and_a_signal_does(line, brokers, monkeypatch):
    handlers = {}

    def stop(self):
        handlers[signal.SIGTERM]()
        return before(self)

    brokers.error = BrokerUnavailableError("down")
    before = subscriptions.ProtectionRounds.round
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(subscriptions.ProtectionRounds, "round", stop)
    result = line.run("subscriptions", "protect")
    assert result.exit_code == 0, result.output
    assert "not protected now: down; see docs/running.md#not-protected" in result.stderr


def test_metrics_say_how_subscriptions_stand_and_what_was_done(line, world, brokers, monkeypatch):
    """Protected; then its broker dies, and what it forgot is acknowledged again; then brokers are away."""
    handlers, made = {}, []

    def next_round(self):
        match len(seen):
            case 2:
                crash(world, brokers)
            case 4:
                brokers.error = BrokerUnavailableError("down")
        seen.append(len(seen))
        yield from before(self)

    class Metrics(ProtectionMetrics):
        def __init__(self):
            super().__init__()
            made.append(self)

        def round_ended(self, seconds):
            super().round_ended(seconds)
            said.append({standing: value("subscriptions", standing=standing) for standing in ("protected", "not yet")})

        def round_failed(self, why):
            super().round_failed(why)
            handlers[signal.SIGTERM]()

    def value(name, **labels):
        found = made[0].registry.get_sample_value(
            f"offloader_protection_{name}", {"namespace": TOPIC.namespace, **labels}
        )
        return found or 0

    seen, said, before = [], [], subscriptions.ProtectionRounds.round
    monkeypatch.setattr(subscriptions, "ProtectionMetrics", Metrics)
    monkeypatch.setattr(subscriptions.ProtectionRounds, "round", next_round)
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(subscriptions.threading.Event, "wait", lambda self, timeout=None: self.is_set())
    line.config += "protection: {metricsListen: '127.0.0.1:0'}\n"
    line.run("subscriptions", "protect", str(TOPIC))
    assert said == [{"protected": 0, "not yet": 1}, *[{"protected": 1, "not yet": 0}] * 3]
    assert value("at_stake_entries") == 2
    assert value("acknowledged_entries_total") == 2
    assert value("ended_total") == value("failures_total") == 0
    assert not made[0].health.ready().good


def test_who_waits_for_long_or_finds_nothing_loaded_is_alive(line, brokers, monkeypatch):
    """Between rounds that are hours apart, and while it passes over many topics that are at rest."""
    handlers, said, now = {}, [], [0.0]

    class Metrics(ProtectionMetrics):
        def __init__(self):
            super().__init__(lambda: now[0])
            self.alive = self.health.alive
            made.append(self)

    def wait(event, timeout=None):
        if timeout is None:  # a thread's
            return before(event)
        now[0] += max(timeout, 500.0)
        said.append(made[0].alive().good)
        if len(said) == 6:
            handlers[signal.SIGTERM]()
        return event.is_set()

    made, brokers.is_loaded, before = [], False, threading.Event.wait
    monkeypatch.setattr(subscriptions, "ProtectionMetrics", Metrics)
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(subscriptions.threading.Event, "wait", wait)
    line.config += "protection: {interval: 2h}\n"
    line.run("subscriptions", "protect", str(TOPIC))
    assert said == [True] * 6


def test_a_reset_is_counted(line, world, brokers):
    metrics = ProtectionMetrics()
    told = [
        Told(TOPIC, "job", LookOutcome.ENDED, why="it was reset"),
        Told(TOPIC, "", LookOutcome.FAILED, why="away"),
    ]
    assert list(subscriptions._counted(told, metrics)) == told
    metrics.round_ended(3.0)
    labels = {"namespace": TOPIC.namespace}
    for series in ("ended_total", "failures_total"):
        assert metrics.registry.get_sample_value(f"offloader_protection_{series}", labels) == 1
    standing = {**labels, "standing": "ended"}
    assert metrics.registry.get_sample_value("offloader_protection_subscriptions", standing) == 1
    assert metrics.registry.get_sample_value("offloader_protection_round_seconds") == 3
    assert metrics.health.ready().good


def test_a_named_topic_that_is_deleted_does_not_end_the_protection_of_others(line, brokers, monkeypatch):
    handlers, looked = {}, []

    def look(topic):
        looked.append(topic)
        handlers[signal.SIGTERM]()
        return before(topic)

    before, brokers.cursors = brokers.cursors, look
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    result = line.run("subscriptions", "protect", "public/default/none", str(TOPIC))
    assert looked == [TOPIC]
    assert "not protected now: persistent://public/default/none has no managed ledger" in result.stderr


def test_a_round_that_takes_longer_than_the_interval_says_so(line, brokers, monkeypatch):
    handlers = {}

    def slowly():
        line.clock.now += 31_000
        handlers[signal.SIGTERM]()
        return {}

    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    brokers.uses = slowly
    result = line.run("subscriptions", "protect")
    assert "took 31 s, longer than protection.interval" in result.stderr


def test_after_a_slow_round_no_topic_is_looked_at_again_before_a_reset_has_taken_effect(line, brokers, monkeypatch):
    class Stop(threading.Event):
        def wait(self, timeout=None):
            if timeout is None:  # threads' own
                return super().wait()
            waits.append(timeout)
            if len(waits) > 1:  # the first one is for the pace
                self.set()
            return self.is_set()

    def slowly(topic):
        line.clock.now += 31_000
        return before(topic)

    waits, before, brokers.cursors = [], brokers.cursors, slowly
    monkeypatch.setattr(subscriptions, "SETTLES", 2.0)
    monkeypatch.setattr(subscriptions.threading, "Event", Stop)
    line.run("subscriptions", "protect", str(TOPIC))
    assert waits == [0.0, 2.0]
