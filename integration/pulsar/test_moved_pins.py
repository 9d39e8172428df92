"""How a real broker moves pins and trims ledgers: the in-memory cluster, in which the simulation lives, does the same
step by step."""

from __future__ import annotations

import time

import pytest

from integration.processes import HANGS
from integration.pulsar.waiting import until
from offloader.model import Position
from tests.world.pins import FULL, SCRIPTS, Told
from tests.world.pins_in_memory import InMemory

pytestmark = pytest.mark.pulsar

STILL = 0.3  # seconds: what is not to follow from a step would have followed
OLD = 1.1  # seconds: more than messages may live
RATE_LIMITED = 1.1  # managedLedgerDefaultMarkDeleteRateLimit: what comes sooner is stored up to a minute later


class Real:
    """A topic of a real Pulsar."""

    def __init__(self, pulsar, topic, pins, transactions):
        self._pulsar, self._topic, self._pins, self._transactions = pulsar, topic, pins, transactions
        self._seen = []
        self._pins.open(topic)
        self._look()

    def produce(self, count):
        for _ in range(count):
            self._transactions.send(str(self._topic), b"x")

    def acknowledge(self, ledger, entry):
        self._pins.acknowledge(self._topic, Position(0, self._seen[ledger], entry))
        time.sleep(RATE_LIMITED)

    def skip_all(self):
        self._on_subscription("POST", "skip_all")

    def skip(self, count):
        self._on_subscription("POST", f"skip/{count}")

    def reset(self, ledger, entry):
        body = {"ledgerId": self._seen[ledger], "entryId": entry, "partitionIndex": -1}
        self._pins.drop(self._topic)
        self._on_subscription("POST", "resetcursor", json=body)
        until(lambda: self._pins.open(self._topic))

    def expire(self):
        time.sleep(OLD)
        self._on_subscription("POST", "expireMessages/1")

    def unload(self):
        self._pulsar.admin("PUT", f"{self._topic.rest_path}/unload")
        self._transactions.forget(str(self._topic))
        until(lambda: not isinstance(self._pins.ends([self._topic])[self._topic], Exception))

    def trim(self):
        self._pulsar.admin("POST", f"{self._topic.rest_path}/trim")

    def comes_to(self, expected):
        """What there is a while after it was as expected for the first time: a broker goes on behind its answers."""
        deadline = time.monotonic() + HANGS
        while (told := self._look()) != expected:
            if time.monotonic() > deadline:
                return told
            time.sleep(0.05)
        time.sleep(STILL)
        return self._look()

    def _look(self):
        stats = self._pulsar.admin("GET", f"{self._topic.rest_path}/internalStats").json()
        ledgers = [x["ledgerId"] for x in stats["ledgers"]]
        ledger, entry = (int(x) for x in stats["cursors"]["__offloader"]["markDeletePosition"].split(":"))
        for found in sorted({*ledgers, ledger}):
            if found not in self._seen:
                self._seen.append(found)
        return Told(tuple(self._seen.index(x) for x in ledgers), (self._seen.index(ledger), entry))

    def _on_subscription(self, method, what, json=None):
        self._pulsar.admin(method, f"{self._topic.rest_path}/subscription/__offloader/{what}", json=json)


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_in_memory_cluster_moves_pins_and_trims_ledgers_as_a_real_broker_does(
    script, pulsar, topic, pins, transactions
):
    real, memory = Real(pulsar, topic, pins, transactions), InMemory(FULL)
    for name, step in SCRIPTS[script]:
        step(memory)
        step(real)
        expected = memory.tell()
        assert real.comes_to(expected) == expected, name
