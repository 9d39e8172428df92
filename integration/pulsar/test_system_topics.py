"""PIP-186's system topics in a real Pulsar: what we tell, what others send, retry and dead letters, foreign workers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count

import pulsar as client_library
import pytest

from integration.processes import HANGS
from integration.pulsar.foreign_worker import foreign_worker
from integration.pulsar.waiting import until
from offloader.errors import DamagedRecordError
from offloader.lifecycle.deletion.records import LedgerComponent, LedgerType
from offloader.lifecycle.deletion.system_topic.acceptor import OpenDoor, SystemTopicAcceptor
from offloader.lifecycle.deletion.system_topic.answers import MessageAnswer, MessageVerdict
from offloader.lifecycle.deletion.system_topic.interfaces import SystemTopicName
from offloader.lifecycle.deletion.system_topic.letters import WORKER
from offloader.lifecycle.deletion.system_topic.messages import read_message, write_message
from offloader.lifecycle.deletion.system_topic.opening import SystemTopicOpening
from offloader.lifecycle.deletion.system_topic.publisher import SystemTopicPublisher
from offloader.lifecycle.deletion.system_topic.pulsar_channel import PulsarChannel
from offloader.lifecycle.deletion.system_topic.topics import KEPT, SystemTopics
from offloader.lifecycle.deletion.timing import DeletionTiming
from offloader.model import TopicName
from tests.lifecycle.deletion.support import candidate
from tests.lifecycle.system_topic.avro_writer import write
from tests.lifecycle.system_topic.support import MARK, Examiner, Told, asked
from tests.lifecycle.system_topic.test_messages import COPY, OLD_VALUE, OLDER

pytestmark = pytest.mark.pulsar

DELETION, RETRY, DEAD = SystemTopicName
NAMES = count()
TIMING = DeletionTiming(reconsume_later=1_500, longest_wait=1_500, max_tries=1)
FAILED = MessageAnswer(MessageVerdict.FAILED, "ZooKeeper is away")
QUIET = client_library.FileLogger(client_library.LoggerLevel.Error, "/dev/null")


class World:
    """Mirror and door on a real Pulsar, and clients of others."""

    def __init__(self, settings, rest, stack: ExitStack) -> None:
        self.settings, self.stack = settings, stack
        self.topics = SystemTopics(rest, 2)
        self.ahead = 0.0  # of the clock that only goes forward
        token = settings.auth_params.removeprefix("token:")
        credentials = client_library.AuthenticationToken(token) if token else None
        self.client = client_library.Client(settings.service_url, authentication=credentials, logger=QUIET)
        stack.callback(self.client.close)

    def clock(self) -> float:
        return time.monotonic() + self.ahead

    def acceptor(self, examine: Examiner, told: Told) -> SystemTopicAcceptor:
        door = OpenDoor(self.topics, self.channel, MARK, lambda: f"ours-{next(NAMES)}", self.clock)
        now: Callable[[], int] = lambda: int(time.time() * 1000)  # noqa: E731
        task = SystemTopicAcceptor(door, self.topics, MARK, examine, told, TIMING, 5.0, now, self.clock)
        self.stack.callback(task.close)
        return task

    def publisher(self, told: Told) -> SystemTopicPublisher:
        mirror = SystemTopicPublisher(self.topics, self.channel, MARK, told, self.clock)
        self.stack.callback(mirror.close)
        return mirror

    def channel(self) -> PulsarChannel:
        return PulsarChannel(self.settings, put_back_ms=500)

    def foreign_worker(self):
        return self.client.subscribe(DELETION.value, WORKER, client_library.ConsumerType.Shared)

    def send(self, *payloads: bytes, schema=None, **more) -> None:
        producer = self.client.create_producer(DELETION.value, **({"schema": schema} if schema else {}))
        for payload in payloads:
            producer.send(payload, **more)
        producer.close()

    def dead_letters(self, number: int) -> list:
        consumer = self.client.subscribe(DEAD.value, KEPT)
        found = [consumer.receive(30_000) for _ in range(number)]
        for one in found:
            consumer.acknowledge(one)
        with pytest.raises(client_library.Timeout):
            consumer.receive(200)
        consumer.close()
        return found


@pytest.fixture
def world(pulsar, admin, settings) -> Iterator[World]:
    """All tests have the same topics. What is left of others may come again: each has ledgers of its own."""
    until(lambda: pulsar.answer("GET", "namespaces/pulsar/system").is_success)  # made as a broker starts
    with ExitStack() as stack:
        world = World(settings, admin.rest, stack)
        for path in (*world.topics._parts(DELETION), *world.topics._parts(RETRY)):
            pulsar.web.delete(f"{path}/subscription/{WORKER}?force=true", timeout=HANGS)  # where it is there
        yield world


def encoded(definition):
    """A schema of somebody else's, who has encoded his messages by himself."""

    class Encoded(client_library.schema.Schema):
        def encode(self, obj):
            return obj

        def decode(self, data):
            return data

    kind = __import__("_pulsar").SchemaType.AVRO
    return Encoded(bytes, kind, definition, definition["name"])


def test_what_others_send_is_looked_at_tried_again_after_a_delay_and_given_up_at_last(world) -> None:
    seen: dict[int, list[float]] = {}

    def answer(message):
        seen.setdefault(message.ledger_id, []).append(time.monotonic())
        first = len(seen[message.ledger_id]) == 1
        failed = message.ledger_id == 103 or (message.ledger_id == 102 and first)
        return FAILED if failed else MessageAnswer(MessageVerdict.MARKED)

    told, examine = Told(), Examiner(answer)
    door, mirror = world.acceptor(examine, told), world.publisher(told)
    door.run()
    for ledger in range(4):
        assert mirror.announce(candidate(ledger)), "its own door is no foreign worker"
    world.send(write_message(asked(101)), write_message(asked(102)), write_message(asked(103)))
    world.send(write(OLDER, {**OLD_VALUE, "ledgerId": 104}), schema=encoded(OLDER))
    script = {"ledgerId": 105, "ledgerType": "LEDGER", "ledgerComponent": "MANAGED_LEDGER", "topicName": "a/b/c"}
    world.send(json.dumps(script).encode(), b"junk", b"{}", b"\0" * 4_000_000)
    ours = write_message(asked(1))
    world.send(write_message(asked(106)), properties=MARK.of_message(ours))  # forged
    until(lambda: door.run() and told.counts["gave up"] and told.counts["received"] >= 4 + 3 + 1 + 4 + 1 + 2)
    assert sorted(seen) == [101, 102, 103, 104, 105, 106]
    assert [len(seen[ledger]) for ledger in sorted(seen)] == [1, 2, 2, 1, 1, 1]
    assert all(times[1] - times[0] >= 1.4 for times in seen.values() if len(times) > 1), "not before the delay"
    assert told.counts["sent LEDGER"] == 4
    assert (told.counts["sent again"], told.counts["gave up"]) == (2, 1)
    assert told.counts["acknowledged"] == 4 + 3 + 1 + 4 + 1 + 2, "a letter may come a little early, and then once more"
    (dead,) = world.dead_letters(1)
    assert read_message(dead.data()) == asked(103)
    properties = dead.properties()
    assert (properties["RECONSUMETIMES"], properties["offloader-why"]) == ("2", "ZooKeeper is away")
    assert properties["REAL_TOPIC"].startswith(f"{DELETION.value}-partition-")
    assert properties["ORIGIN_MESSAGE_ID"].count(":") == 2
    counted = told.counts["received"]
    door.run()
    assert told.counts["received"] == counted, "nothing comes again"


def test_pulsars_own_client_reads_what_we_write_and_we_read_what_it_writes(world, tmp_path) -> None:
    told = Told()
    mirror = world.publisher(told)
    cursor = candidate(202, ledger_component=LedgerComponent.MANAGED_CURSOR, cursor_name="billing")
    copy = candidate(203, ledger_type=LedgerType.OFFLOAD_LEDGER, offload_context=COPY)
    for record in (candidate(201), cursor, copy):
        assert mirror.announce(record)
    with foreign_worker(world.settings.service_url, tmp_path / "worker") as worker:
        offloaded = "1080863910568919041:-9223372036854775806:aws-s3:{bucket=b, region=r}"
        assert sorted(worker.do("work 3 201 200")) == [
            "201 LEDGER MANAGED_LEDGER acme/orders/placed null null null",
            "202 LEDGER MANAGED_CURSOR acme/orders/placed billing null null",
            f"203 OFFLOAD_LEDGER MANAGED_LEDGER acme/orders/placed null null {offloaded}",
        ]
        worker.do("send 204")
        examine = Examiner(lambda message: FAILED if message.offload_context else MessageAnswer(MessageVerdict.MARKED))
        door = world.acceptor(examine, told)
        until(lambda: door.run() and told.counts["acknowledged"] >= 3)  # with its letter of our first
        theirs = asked(204, ledger_type=LedgerType.OFFLOAD_LEDGER, offload_context=COPY)
        until(lambda: door.run() and {asked(204), theirs} <= set(examine.asked))
        assert not {201, 202, 203} & {one.ledger_id for one in examine.asked}
        assert told.counts["sent again"] == 1
        door.close()
        assert worker.do("work 1 204 200") == [
            f"204 OFFLOAD_LEDGER MANAGED_LEDGER acme/orders/placed null 1 {offloaded}"
        ]
    (dead,) = world.dead_letters(1)  # by its client, after our try and its own
    assert dead.properties()["RECONSUMETIMES"] == "2"
    assert read_message(dead.data()) == theirs


def test_nothing_is_told_while_a_foreign_worker_is_subscribed_or_has_left_its_subscription(world, pulsar) -> None:
    told = Told()
    mirror = world.publisher(told)
    assert mirror.announce(candidate(1))
    foreign = world.foreign_worker()
    world.ahead += 2
    assert not mirror.announce(candidate(2))
    foreign.close()
    world.ahead += 2
    assert not mirror.announce(candidate(3)), "it may come back"
    for path in world.topics._parts(DELETION):
        pulsar.admin("DELETE", f"{path}/subscription/{WORKER}?force=true")
    world.ahead += 2
    assert mirror.announce(candidate(4))
    assert told.counts == {"sent LEDGER": 2, "not sent: foreign consumer": 2}


def test_what_was_not_acknowledged_comes_again_to_another_process(world) -> None:
    world.topics.make()
    world.send(*(write_message(asked(ledger)) for ledger in range(300, 320)))
    dying = world.channel()
    consumer = dying.consumer("dying", MARK.of_consumer("dying"))
    taken = [message for message in iter(lambda: consumer.receive(3.0), None) if is_of(message, 300)][:3]
    consumer.acknowledge(taken[0])
    consumer.put_back(taken[1])
    dying.close()  # the acknowledgement is sent before; of the others nothing is
    examine = Examiner()
    door = world.acceptor(examine, Told())
    expected = set(range(300, 320)) - {read_message(taken[0].data).ledger_id}
    until(lambda: door.run() and {one.ledger_id for one in examine.asked} >= expected)
    assert not set(range(300, 320)) - expected & {one.ledger_id for one in examine.asked}


def is_of(message, least: int) -> bool:
    """Whether it asks for one of the ledgers from there on."""
    try:
        return read_message(message.data).ledger_id >= least
    except DamagedRecordError:
        return False


def test_what_many_ask_for_is_looked_at_once(world) -> None:
    world.topics.make()
    world.send(*([write_message(asked(400))] * 300))
    examine, told = Examiner(), Told()
    opening = SystemTopicOpening(world.settings, world.topics._rest, MARK, told, 2)
    door, mirror = opening.acceptor(examine, TIMING, 5.0), opening.publisher()
    until(lambda: door.run() and told.counts["acknowledged"] >= 300)
    assert 1 <= examine.asked.count(asked(400)) < 100
    assert mirror.announce(candidate(401))
    door.close()
    mirror.close()


def test_topics_that_are_deleted_under_us_are_made_again(world, pulsar) -> None:
    examine = Examiner()
    door = world.acceptor(examine, Told())
    door.run()
    for topic in (DELETION, RETRY):
        pulsar.answer("DELETE", f"{TopicName.parse(topic.value).rest_path}/partitions?force=true")
    until(lambda: world.topics.shape()[0] is None)

    def comes() -> bool:
        world.ahead += 61
        door.run()
        world.send(write_message(asked(500)))
        return bool(door.run() and asked(500) in examine.asked)

    until(comes)
    assert world.publisher(Told()).announce(candidate(501))
    until(lambda: door.run() and not door_has_left(pulsar))


def door_has_left(pulsar) -> int:
    """Messages that wait for the worker, whatever the topic's partitions are now."""
    stats = pulsar.answer("GET", f"{TopicName.parse(DELETION.value).rest_path}/stats")
    found = stats.json()["subscriptions"] if stats.is_success else {}
    return found.get(WORKER, {}).get("msgBacklog", 0)
