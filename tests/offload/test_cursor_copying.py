"""The application copies subscriptions and schemas: when, of which topics, and what a failure holds up."""

from __future__ import annotations

import pytest

from offloader.cursors.copy_store import copy_times, read_copy
from offloader.cursors.facts import read_facts
from offloader.errors import BrokerUnavailableError, ProtocolError
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.cursors.live import LiveCursors
from offloader.metrics import definitions
from offloader.model import TopicName
from offloader.offload.driver.topic_copies import CursorCopying, FactsCopying
from offloader.operations.verify.verify import verify
from offloader.ports.admin import SubscriptionTraits, TopicCursors, TopicSchema
from offloader.state.subscription import CursorState
from tests.offload.simulation import Simulation

TOPIC = TopicName.parse("public/default/t")
OTHER = TopicName.parse("public/default/other")
MINUTE = 60_000
SCHEMAS = (TopicSchema(0, "AVRO", b"{}", 1), TopicSchema(1, "AVRO", b"[]", 2))


class States:
    """Brokers of a simulation: one subscription at `mark`."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.mark = (0, -1)
        self.broken: dict[TopicName, Exception] = {}
        self.known = SCHEMAS[:1]
        self.requests = 0
        self.foreign = False

    def cursors(self, topic: TopicName) -> TopicCursors:
        self._ask(topic)
        lengths = [(99_999 if self.foreign else span.ledger, 10) for span in self.sim.cluster.ledgers(topic).spans]
        return TopicCursors(tuple(lengths), {"job": CursorState(self.mark, ())})

    def subscription_traits(self, topic: TopicName) -> dict[str, SubscriptionTraits]:
        self._ask(topic)
        return {"job": SubscriptionTraits(False, ())}

    def version(self) -> str:
        return "4.0.7"

    def partitions(self, topic: TopicName) -> int | None:
        self._ask(topic)
        return 4

    def schema_version(self, topic: TopicName) -> int | None:
        self._ask(topic)
        return self.known[-1].version if self.known else None

    def schemas(self, topic: TopicName) -> tuple[TopicSchema, ...]:
        self._ask(topic)
        return self.known

    def _ask(self, topic: TopicName) -> None:
        self.requests += 1
        if topic in self.broken:
            raise self.broken[topic]


class World:
    def __init__(self, policies: str) -> None:
        self.sim = Simulation(1, roll="10m", retention=policies)
        self.states = States(self.sim)
        self.restart()
        for topic in (TOPIC, OTHER):
            self.sim.cluster.create(topic)
        self.sim.rounds(4)

    def restart(self) -> None:
        reader = LiveCursors(self.states, None, SubscriptionNames)
        context = self.sim.context
        self.sim.copying[:] = FactsCopying(context, self.states), CursorCopying(context, reader)

    def wait(self, ms: int) -> None:
        self.sim.clock.now += ms
        self.sim.rounds(3)

    def copies(self, topic: TopicName = TOPIC) -> int:
        return len(copy_times(self.sim.store, topic))

    def value(self, definition: definitions.Definition, **labels: str) -> float:
        name = definition.name if definition is definitions.CURSOR_COPY_AGE else f"{definition.name}_total"
        return self.sim.context.metrics.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture
def world():
    made = World("archiveCursors: true\ncursorInterval: 5m")
    yield made
    made.sim.close()


def test_by_default_no_subscription_is_copied():
    world = World("")
    world.wait(10 * MINUTE)
    assert world.copies() == 0
    world.sim.close()


def test_a_subscription_is_copied_at_the_start_and_where_it_has_moved(world):
    assert world.copies() == 1
    world.wait(6 * MINUTE)
    assert world.copies() == 1, "nothing has changed"
    world.states.mark = (0, 3)
    world.wait(MINUTE)
    assert world.copies() == 1, "it is not its turn"
    world.wait(5 * MINUTE)
    assert world.copies() == 2
    newest = read_copy(world.sim.store, TOPIC)
    assert newest.cursor("job").mark_delete == (0, 3)
    assert newest.broker_version == "4.0.7"
    assert world.value(definitions.CURSOR_COPIES, namespace="public/default") == 4  # of two topics


def test_each_seal_copies_at_most_once_a_minute(world):
    world.states.mark = (0, 1)
    world.sim.clock.now += 2 * MINUTE
    world.sim.produce(TOPIC, 5)
    world.sim.settle()
    world.sim.rounds(1)
    assert world.copies() == 2
    assert world.copies(OTHER) == 1 + (world.sim.clock.now - copy_times(world.sim.store, OTHER)[0] > 5 * MINUTE)


def test_one_topic_holds_up_no_other_and_is_tried_again(world):
    world.states.broken[TOPIC] = BrokerUnavailableError("down")
    world.states.mark = (0, 2)
    world.wait(6 * MINUTE)
    assert (world.copies(), world.copies(OTHER)) == (1, 2)
    assert world.value(definitions.CURSOR_COPY_FAILURES, namespace="public/default") == 1
    world.wait(MINUTE)
    assert world.value(definitions.CURSOR_COPY_AGE) >= 6 * 60
    world.states.broken.clear()
    world.wait(6 * MINUTE)
    assert world.copies() == 2
    world.sim.rounds(12)
    assert world.value(definitions.CURSOR_COPY_AGE) < 2 * 60


def test_an_answer_that_we_do_not_know_ends_nothing(world):
    world.states.broken[TOPIC] = ProtocolError("what is this")
    world.wait(6 * MINUTE)
    world.states.broken.clear()
    world.states.mark = (0, 2)
    world.wait(6 * MINUTE)
    assert world.copies() == 2


def test_another_topic_of_that_name_is_not_copied_as_this_one(world):
    world.states.foreign, world.states.mark = True, (0, 7)
    world.wait(6 * MINUTE)
    assert world.copies() == 1


def test_after_a_restart_nothing_is_written_that_is_there(world):
    world.sim.kill()
    world.restart()
    world.sim.rounds(4)
    assert world.copies() == 1


def test_schemas_and_partitions_are_copied_of_every_topic(world):
    facts = read_facts(world.sim.store, TOPIC)
    assert (facts.partitions, facts.terminated, facts.schemas) == (4, False, SCHEMAS[:1])
    world.states.known = SCHEMAS
    world.wait(10 * MINUTE)
    assert read_facts(world.sim.store, TOPIC).schemas == SCHEMAS[:1]
    world.wait(60 * MINUTE)
    assert read_facts(world.sim.store, TOPIC).schemas == SCHEMAS


def test_a_failed_look_at_schemas_is_counted(world):
    world.states.broken[TOPIC] = BrokerUnavailableError("down")
    world.wait(61 * MINUTE)
    assert world.value(definitions.FACTS_FAILURES) == 1


def test_verify_knows_the_copies(world):
    world.sim.produce(TOPIC, 5)
    world.sim.settle()
    assert not verify(world.sim.store).findings
