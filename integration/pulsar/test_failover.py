"""Topics of a real Pulsar that allow no exclusive subscription: the applications are alone in a Failover one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pulsar import ConsumerType, InitialPosition, MessageId, PulsarException

from integration.application import RunningApplication
from integration.patient import PatientPulsar
from integration.produce import MODES, open_client, produce, random_contents
from integration.pulsar.waiting import until
from integration.test_shards import DEAL, owners
from integration.world import PIN, World, keep_everything
from offloader.model import TopicName
from offloader.storage.settings import StoreSettings

pytestmark = [pytest.mark.pulsar, pytest.mark.timeout(600)]

BUSY = "not the only consumer of the Failover subscription"
SEALED_SOON = {"maxOffloadSegmentRolloverTimeInSeconds": "1s"}
OVERTAKEN = 3


@pytest.fixture
def new_topic(pulsar: PatientPulsar, namespace: str, client: Any) -> Callable[[str], TopicName]:
    """Makes topics that allow Failover subscriptions alone. (A whole namespace that does cannot load topics where
    brokers have transactions: Pulsar's own reader of snapshots is exclusive.)"""
    keep_everything(pulsar, namespace)

    def new_topic(name: str) -> TopicName:
        topic = TopicName.parse(f"{namespace}/{name}")
        pulsar.admin("PUT", topic.rest_path)
        pulsar.admin("POST", f"{topic.rest_path}/subscriptionTypesEnabled", ["Failover"])
        until(lambda: refuses_exclusive(client, topic))
        return topic

    return new_topic


def refuses_exclusive(client: Any, topic: TopicName) -> bool:
    try:
        client.create_reader(str(topic), MessageId.latest).close()
    except PulsarException:
        return True
    return False


@pytest.fixture
def client(pulsar: PatientPulsar) -> Iterator[Any]:
    with closing(open_client(pulsar.service_url)) as client:
        yield client


def world_of(pulsar: PatientPulsar, namespace: str, folder: Path, **more: Any) -> World:
    storage = StoreSettings((folder / "archive").as_uri())
    return World(pulsar, storage, folder / "world", [namespace], policies=SEALED_SOON, light=True, **more)


def subscription(pulsar: PatientPulsar, topic: TopicName) -> dict[str, Any]:
    """What `stats` say of the offload subscription."""
    found: dict[str, Any] = pulsar.admin("GET", f"{topic.rest_path}/stats").json()["subscriptions"].get(PIN, {})
    return found


def is_failover(pulsar: PatientPulsar, topic: TopicName) -> bool:
    return subscription(pulsar, topic).get("type") == "Failover"


def at_rest(world: World, application: RunningApplication) -> None:
    application.until(world.at_rest, "at rest")


def test_a_second_process_waits_until_the_first_has_let_go(
    pulsar: PatientPulsar, new_topic: Callable[[str], TopicName], namespace: str, client: Any, tmp_path: Path
) -> None:
    topic = new_topic("t")
    produce(client, str(topic), random_contents(1, 50, largest=2_000), MODES[0])
    with world_of(pulsar, namespace, tmp_path) as world:
        world.see()
        first = world.new_application().start().wait_ready()
        at_rest(world, first)
        assert is_failover(pulsar, topic)
        first.suspend()
        stands = world.mark_delete(topic)
        produce(client, str(topic), random_contents(2, 50, largest=2_000), MODES[0])
        world.see()
        second = world.new_application().start()
        second.until(lambda: second.logged(BUSY), "told that another consumer is there")
        assert world.mark_delete(topic) == stands
        first.resume()
        assert first.exit_code() == OVERTAKEN
        at_rest(world, second)
        assert second.stop() == 0
        world.check()


def test_nothing_is_acknowledged_while_a_foreign_consumer_acknowledges(
    pulsar: PatientPulsar, new_topic: Callable[[str], TopicName], namespace: str, client: Any, tmp_path: Path
) -> None:
    topic = new_topic("t")
    produce(client, str(topic), random_contents(1, 50, largest=2_000), MODES[0])
    with world_of(pulsar, namespace, tmp_path) as world:
        world.see()
        application = world.new_application().start().wait_ready()
        at_rest(world, application)
        foreign = client.subscribe(
            str(topic),
            PIN,
            consumer_type=ConsumerType.Failover,
            initial_position=InitialPosition.Earliest,
            consumer_name="a stranger",
        )
        produced = produce(client, str(topic), random_contents(2, 50, largest=2_000), MODES[0])
        world.see()
        application.until(lambda: application.logged(BUSY), "told that another consumer is there")
        application.until(lambda: application.logged("cannot acknowledge topic"), "refused to acknowledge")
        last = produced.positions[str(topic)][-1]
        assert world.mark_delete(topic) < last
        foreign.acknowledge_cumulative(MessageId(-1, *last, -1))
        until(lambda: world.mark_delete(topic) == last)
        application.until(lambda: application.logged("past what was acknowledged"), "alarmed")
        foreign.close()
        produce(client, str(topic), random_contents(3, 50, largest=2_000), MODES[0])
        world.see()
        at_rest(world, application)
        assert application.stop() == 0
        world.check()
        assert world.catalog(topic).losses == ()


def test_a_shard_that_is_killed_is_run_by_the_other_one_and_comes_back(
    pulsar: PatientPulsar, new_topic: Callable[[str], TopicName], namespace: str, client: Any, tmp_path: Path
) -> None:
    topics = [new_topic(f"t{number}") for number in range(4)]
    with world_of(pulsar, namespace, tmp_path, shards={"count": 2, "takeOverAfter": "5s"}) as world:

        def write(seed: int) -> None:
            for topic in topics:
                produce(client, str(topic), random_contents(seed, 20, largest=2_000), MODES[0])
            world.see()

        world.see()
        first = world.new_application(shard=0).start().wait_ready()
        second = world.new_application(shard=1).start().wait_ready()
        first.until(lambda: owners(world, topics) == {topic: DEAL.owner_of(topic) for topic in topics}, "dealt out")
        write(1)
        assert all(is_failover(pulsar, topic) for topic in topics)
        second.kill()
        write(2)
        at_rest(world, first)
        back = world.new_application(shard=1).start().wait_ready()
        first.until(lambda: first.logged("shard 1 is run by another process"), "relieved of it")
        write(3)
        at_rest(world, back)
        assert back.stop() == 0
        assert first.stop() == 0
        world.check()
