"""Random days of a subscription: clients, brokers, crashes, two services and an operator, in any order.

What must hold, whatever happens: a subscription that anybody has used since its mark is never deleted by us; whenever
it was, its whole state at that moment is saved and named by its record; and what is brought back is that state.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import BrokerUnavailableError, OffloadError, OutcomeUnknownError
from offloader.lifecycle.deletion import service, subscription_side
from offloader.lifecycle.deletion.machine import DeletionRuling, DeletionStep
from offloader.lifecycle.deletion.records import DeletionState
from offloader.lifecycle.deletion.subscription_side import SubscriptionSide
from tests.fakes.cluster_subscriptions import HeldCursor
from tests.times import HOUR_MS

from .removing import SUB, TIMING, TOPIC, RemovalWorld
from .test_removing import unused

STEPS = 40
CALLS = ("look", "delete", "create", "move", "acknowledge")
BUSY_STATES = (DeletionState.DELETING, DeletionState.DELETED, DeletionState.UNDOING, DeletionState.GIVEN_UP)


class Days:
    """One world, and what its oracle knows. `used`: somebody has used the subscription since it was marked."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.world = RemovalWorld()
        self.used = False
        self.gone_with = None  # what it was when we deleted it
        self.undone = 0
        real = self.world.brokers.delete

        def watched(topic, subscription):
            there = self.world.facts()
            lost = None
            try:
                real(topic, subscription)
            except OutcomeUnknownError as error:
                lost = error
            if there is not None and self.world.facts() is None:
                assert not self.used, "it was deleted in use"
                assert self.world.record().state is DeletionState.DELETING, "deleted without a record"
                self.gone_with = there
            if lost is not None:
                raise lost

        self.world.brokers.delete = watched

    def step(self):
        self.world.pass_time(1)
        getattr(self, self.random.choice(self.ACTIONS))()
        self.check()

    def run(self):
        for _ in range(STEPS):
            self.step()
        return self

    def check(self):
        record = self.world.record()
        if self.gone_with is None or self.world.facts() is not None:
            return
        assert record is not None
        assert record.state in BUSY_STATES
        saved = record.subscription
        mark, ranges, batches, properties = self.gone_with
        state = saved.state
        assert (state.mark_delete, state.ranges) == (mark, ranges)
        assert {(one.ledger, one.entry): one.words for one in state.batches} == batches
        assert dict(state.subscription_properties) == properties

    def _cursor(self):
        return self.world.topic.cursors.get(SUB)

    def time_passes(self):
        passed = self.random.choice((1000, HOUR_MS, TIMING.effective_delay + 1, TIMING.longest_wait))
        if passed >= HOUR_MS:
            self.world.brokers.flush()  # brokers store within a minute
        self.world.pass_time(passed)

    def a_client_acknowledges(self):
        if self._cursor() is not None:
            entry = self.random.choice(((1, 5), (1, 9), (2, 5), (2, 6), (3, 1)))
            before = self._cursor().ranges
            self.world.brokers.acknowledge_as_a_client(TOPIC, SUB, entry)
            if self._cursor().ranges != before:
                self.used = True

    def a_client_acknowledges_a_part(self):
        if self._cursor() is not None:
            place = self.random.choice(((2, 7), (3, 5)))
            words = (self._cursor().batches.get(place, (-1,))[0] & self.random.getrandbits(12),)
            if self._cursor().batches.get(place) != words:
                self._cursor().batches[place] = words
                self._cursor().active_ms = self.world.now
                self.used = True

    def a_client_comes(self):
        if self._cursor() is not None:
            self._cursor().consumers = 1
            self._cursor().active_ms = self.world.now
            self.used = True

    def a_client_goes(self):
        if self._cursor() is not None:
            self._cursor().consumers = 0

    def somebody_subscribes_anew(self):
        if self._cursor() is None and self.random.random() < 0.2:
            self.world.topic.cursors[SUB] = HeldCursor((3, 9), active_ms=self.world.now)
            self.world.brokers.flush()
            self.used, self.gone_with = True, None

    def the_broker_stores(self):
        self.world.brokers.flush()

    def the_topic_is_loaded_anew(self):
        self.world.brokers.flush()
        for cursor in self.world.topic.cursors.values():
            cursor.active_ms = cursor.consumers = 0

    def an_answer_gets_lost(self):
        error = BrokerUnavailableError if self.random.random() < 0.3 else OutcomeUnknownError
        call = self.random.choice(CALLS)
        kind = BrokerUnavailableError if call == "look" else error
        self.world.brokers.faults.add(call, lambda: kind("lost"), effect=self.random.random() < 0.5)

    def we_crash(self):
        self.world.store.cut = self.world.store.writes + self.random.randint(1, 3)
        self.world.store.effect = self.random.random() < 0.5

    def it_is_marked(self):
        before = self.world.record()
        unused = self._cursor() is not None and not self._cursor().consumers
        self.world.brokers.flush()
        with suppress(OffloadError):
            self.world.mark()
        record = self.world.record()
        if record is not None and record != before and record.state is DeletionState.MARKED:
            assert unused
            self.used = False

    def it_goes_on(self):
        stored = self.world.stored()
        if stored is not None:
            with suppress(OffloadError):
                self.world.service.go_on(stored)

    def a_stale_service_goes_on(self):
        stored = self.world.stored()
        if stored is not None:
            older = replace(stored, slot=max(stored.slot - 1, 0))
            with suppress(OffloadError):
                self.world.service.go_on(older)

    def it_is_undone(self):
        stored = self.world.stored()
        if stored is None or not self.random.randint(0, 2):
            return
        was_gone = self.world.facts() is None
        with suppress(OffloadError):
            self.world.undo()
        if self.world.record().state is DeletionState.UNDONE and was_gone and self.gone_with is not None:
            assert self.world.facts() == self.gone_with, "it came back as another one"
            self.gone_with, self.undone = None, self.undone + 1

    ACTIONS = (
        *("time_passes", "it_goes_on") * 4,
        *("it_is_marked", "it_is_undone", "the_broker_stores") * 2,
        *("a_client_acknowledges", "a_client_acknowledges_a_part", "a_client_comes", "a_client_goes", "a_client_goes"),
        *("somebody_subscribes_anew", "the_topic_is_loaded_anew"),
        *("an_answer_gets_lost", "we_crash", "a_stale_service_goes_on"),
    )


@given(st.integers(0, 2**32))
def test_whatever_happens_nothing_in_use_goes_and_nothing_is_lost(seed):
    Days(seed).run()


def test_much_happens():
    """The days above do remove, keep and bring back."""
    days = [Days(seed).run() for seed in range(150)]
    assert sum(one.gone_with is not None for one in days) > 5
    assert sum(one.undone for one in days) > 5
    ends = {one.world.record().state for one in days if one.world.record() is not None}
    assert {DeletionState.KEPT, DeletionState.MARKED, DeletionState.DELETED, DeletionState.UNDONE} <= ends


@pytest.mark.parametrize("broken", ["no look counts", "no record first"])
def test_the_model_sees_what_is_broken(broken, monkeypatch):
    if broken == "no look counts":
        monkeypatch.setattr(subscription_side, "second_look", unused)
    else:
        delete = SubscriptionSide.delete
        monkeypatch.setattr(service, "rule", lambda record, *_: DeletionRuling(record, DeletionStep.DELETE))
        monkeypatch.setattr(SubscriptionSide, "delete", lambda side, record, _: delete(side, record, lambda: True))
    with pytest.raises(AssertionError):
        [Days(seed).run() for seed in range(300)]
