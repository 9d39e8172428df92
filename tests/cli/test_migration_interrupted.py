"""`offloader migrate` beside the running application: interrupted anywhere, it can be continued, and taken back."""

from __future__ import annotations

import pytest

from offloader.cli.command import CommandDependencies
from offloader.model import TopicName
from tests.bridge.driver.simulation import TOPIC, BridgedSimulation
from tests.cli.support import Line

OTHER = TopicName.parse("public/default/u")
BOTH = (TOPIC, OTHER)
NAMESPACE = "public/default"
SIZE = "managedLedgerOffloadThresholdInBytes"
BACK, THERE = ("to-ledger-based", NAMESPACE, "--yes"), ("to-streaming", NAMESPACE)
STEPS_BACK = 7  # requests, records and changes of policies
STEPS_THERE = 4
CONFIG = """
application: sim
pulsar: {serviceUrl: "pulsar://localhost:6650", adminUrl: "http://localhost:8080"}
storage: {root: "file:///unused"}
spark: {trigger: 60s}
namespaces: {public/default: {enabled: true}}
"""


class InterruptedCommandError(BaseException):
    """Somebody has ended the command."""


class Migration:
    """Two topics that are streamed, and an operator. While a command sleeps the application works."""

    def __init__(self, line: Line) -> None:
        self.line, self.steps_left = line, -1
        self.sim = sim = BridgedSimulation(seed=1, readable=False, roll="5s")
        for topic in BOTH:
            sim.cluster.create(topic)
        sim.rounds(2)
        for topic in BOTH:
            sim.cluster.add_subscription(topic, "a-client")
            sim.produce(topic, 22)
        self.policies = sim.cluster.namespace(NAMESPACE).policies
        self.policies["offload_policies"] = {"managedLedgerOffloadDriver": "S3", SIZE: -1}
        set_threshold, admin = sim.cluster.admin.set_offload_threshold, sim.cluster.admin

        def stepwise(namespace: str, size: int, seconds: int | None = None) -> None:
            self.step()
            set_threshold(namespace, size, seconds)

        admin.set_offload_threshold = stepwise
        store = sim.store
        assert store is not None
        line.config = CONFIG
        line.dependencies = CommandDependencies(
            store=lambda _: store,
            admin=lambda _: admin,
            clock_ms=sim.clock,
            sleep=lambda _: self.work(),
            new_token=self.token,
        )
        self.restart()

    def restart(self) -> None:
        self.sim.kill()
        sim = self.sim
        sim.serve_requests()

    def token(self) -> str:
        self.step()
        self.sim.clock.now += 1
        return self.sim.uuid()

    def step(self) -> None:
        self.steps_left -= 1
        if self.steps_left == 0:
            raise InterruptedCommandError

    def work(self) -> None:
        self.sim.rounds(1, step_ms=5_000)
        self.somebody_offloads()

    def somebody_offloads(self) -> None:
        """At each moment either we or brokers do."""
        assert self.brokers or all(self.pinned(topic) for topic in BOTH)

    @property
    def brokers(self) -> bool:
        return self.policies["offload_policies"][SIZE] >= 0  # type: ignore[index]

    def pinned(self, topic: TopicName) -> bool:
        return self.sim.cluster.mark_delete(topic) is not None

    def run(self, *arguments: str, steps: int = -1) -> int | None:
        """Its exit code; None: it was interrupted before so many steps were done."""
        self.steps_left = steps
        try:
            result = self.line.run("migrate", *arguments)
        except InterruptedCommandError:
            return None
        finally:
            self.steps_left = -1
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        return result.exit_code


@pytest.fixture
def migration(line, monkeypatch: pytest.MonkeyPatch):
    """Its entries are no messages: what a stock client gets of them is shown elsewhere."""
    monkeypatch.setattr("offloader.cli.migrate._proven", lambda *_: True)
    made = Migration(line)
    yield made
    made.sim.close()


def everywhere(steps: int) -> pytest.MarkDecorator:
    """Interrupted before each step, and not at all."""
    return pytest.mark.parametrize("steps", range(1, steps + 2))


@everywhere(STEPS_BACK)
def test_the_way_back_goes_on_where_it_was_interrupted(migration, steps: int) -> None:
    assert (migration.run(*BACK, steps=steps) is None) == (steps <= STEPS_BACK)
    for topic in BOTH:
        migration.sim.produce(topic, 5)
    if steps % 2:
        migration.restart()
    migration.work()
    assert migration.run(*BACK) == 0
    assert [migration.pinned(topic) for topic in BOTH] == [False, False]
    assert migration.brokers


@everywhere(STEPS_BACK)
def test_the_way_back_is_taken_back_where_it_was_interrupted(migration, steps: int) -> None:
    """Where nothing is let go of yet, `undo` alone does it; else brokers go on, and the way there takes all again."""
    migration.run(*BACK, steps=steps)
    for _ in range(5 * (1 - steps % 2)):
        migration.work()
    undone = migration.run("undo", NAMESPACE)
    kept = [migration.pinned(topic) for topic in BOTH]
    assert sum(kept) == {6: 1, 7: 0, 8: 0}.get(steps, 2)
    assert (undone == 0) == all(kept)
    assert migration.brokers != all(kept)
    migration.somebody_offloads()
    assert migration.run(*THERE) == 0
    assert [migration.pinned(topic) for topic in BOTH] == [True, True]
    assert not migration.brokers
    for topic in BOTH:
        assert not migration.sim.driver.state(topic).handed_over


@pytest.fixture
def theirs(migration):
    """Both topics are brokers' own."""
    assert migration.run(*BACK) == 0
    return migration


@everywhere(STEPS_THERE)
def test_the_way_there_goes_on_where_it_was_interrupted(theirs, steps: int) -> None:
    assert (theirs.run(*THERE, steps=steps) is None) == (steps <= STEPS_THERE)
    for topic in BOTH:
        theirs.sim.produce(topic, 5)
    if steps % 2:
        theirs.restart()
    theirs.work()
    assert theirs.run(*THERE) == 0
    assert [theirs.pinned(topic) for topic in BOTH] == [True, True]
    assert not theirs.brokers


@everywhere(STEPS_THERE)
def test_the_way_there_is_taken_back_where_it_was_interrupted(theirs, steps: int) -> None:
    """From half way the way back is open, too, and brokers go on as they did."""
    theirs.run(*THERE, steps=steps)
    for _ in range(5 * (1 - steps % 2)):
        theirs.work()
    if steps % 2:
        theirs.restart()
    assert theirs.run(*BACK) == 0
    assert [theirs.pinned(topic) for topic in BOTH] == [False, False]
    assert theirs.brokers
