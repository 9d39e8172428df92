"""Subscriptions of a real Pulsar are copied exactly: holes, and messages of batches."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from pulsar import ConsumerType, InitialPosition, MessageId
from pulsar.schema import Integer, JsonSchema, Record

from integration.conftest import PULSAR_SETTINGS
from integration.patient import PatientPulsar
from integration.produce import HANGS_MS, open_client
from integration.pulsar.waiting import until
from offloader.bookkeeper.connect import BookKeeperSettings, clients
from offloader.bookkeeper.settings import BookieSettings
from offloader.cursors.copies import CopiedCursor, CursorSource
from offloader.cursors.facts import FactsCopier, read_facts
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.cursors.live import LiveCursors
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.model import TopicName
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.settings import PulsarSettings
from offloader.storage.memory import MemoryStore

pytestmark = pytest.mark.pulsar

TOPIC = TopicName.parse("public/default/copied")
BATCHES, IN_BATCH = 200, 10
SUBSCRIPTIONS = [f"team/job {number}" for number in range(5)]
Place = tuple[int, int]


@pytest.fixture(scope="module")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PatientPulsar]:
    settings = {
        **PULSAR_SETTINGS,
        "acknowledgmentAtBatchIndexLevelEnabled": "true",
        "managedLedgerMaxEntriesPerLedger": "60",
        "defaultRetentionTimeInMinutes": "-1",
        "defaultRetentionSizeInMB": "-1",
    }
    folder = tmp_path_factory.mktemp("pulsar-copied")
    with PatientPulsar(folder, zookeeper=True, configuration=settings) as standalone:
        yield standalone


@pytest.fixture
def states(pulsar: PatientPulsar) -> Iterator[AdminClient]:
    settings = PulsarSettings(service_url=pulsar.service_url, admin_url=pulsar.admin_url, application="tests")
    with closing(AdminClient(settings)) as found:
        yield found


@pytest.fixture
def stored(pulsar: PatientPulsar) -> Iterator[StoredTopics]:
    bookies = BookieSettings()
    tree, client = clients(BookKeeperSettings(f"zk://{pulsar.zookeeper_address}/ledgers", bookies, 10))
    with closing(tree), closing(client):
        yield StoredTopics(tree, client, 10)


def fill(client: Any) -> dict[str, dict[Place, set[int]]]:
    """By subscription and entry: the messages of its batch that are left."""
    consumers = {
        name: client.subscribe(
            str(TOPIC),
            name,
            consumer_type=ConsumerType.Shared,
            initial_position=InitialPosition.Earliest,
            batch_index_ack_enabled=True,
        )
        for name in SUBSCRIPTIONS
    }
    producer = client.create_producer(
        str(TOPIC),
        batching_enabled=True,
        batching_max_messages=IN_BATCH,
        batching_max_publish_delay_ms=60_000,
        block_if_queue_full=True,
    )
    for number in range(BATCHES * IN_BATCH):
        producer.send_async(b"%d" % number, lambda *_: None)
    producer.flush()
    return {name: acknowledge(consumer, random.Random(name)) for name, consumer in consumers.items()}


def acknowledge(consumer: Any, choose: random.Random) -> dict[Place, set[int]]:
    left: dict[Place, set[int]] = defaultdict(set)
    received = [consumer.receive(HANGS_MS) for _ in range(BATCHES * IN_BATCH)]
    shares = [choose.choice((0.0, 0.3, 1.0)) if n >= 5 else float(n < 3) for n in range(BATCHES)]
    done = {at for at in range(len(received) - 1) if choose.random() < shares[at // IN_BATCH]}
    for at, message in enumerate(received):
        place = message.message_id().ledger_id(), message.message_id().entry_id()
        left[place].update(() if at in done else {message.message_id().batch_index()})
        if at in done:
            consumer.acknowledge(message)
    time.sleep(1.2)  # brokers store a position once a second, and the next acknowledgement then
    last = received[-1].message_id()
    consumer.acknowledge(received[-1])
    left[last.ledger_id(), last.entry_id()].discard(last.batch_index())
    return left


def left_by(cursor: CopiedCursor, places: list[Place]) -> dict[Place, set[int]]:
    """The same, by a copy."""
    acks, found = cursor.acks(), dict[tuple[int, int], set[int]]()
    for ledger, entry in places:
        one = acks.get(ledger)
        if (ledger, entry) <= cursor.mark_delete or (one is not None and one.is_acknowledged(entry)):
            found[ledger, entry] = set()
        else:
            batch = one.batches.get(entry) if one is not None else None
            bits = batch.left if batch is not None else (1 << IN_BATCH) - 1
            found[ledger, entry] = {index for index in range(IN_BATCH) if bits >> index & 1}
    return found


def test_five_subscriptions_with_holes_and_parts_of_batches_are_copied_exactly(
    pulsar: PatientPulsar, states: AdminClient, stored: StoredTopics
) -> None:
    with closing(open_client(pulsar.service_url)) as client:
        client.create_reader(str(TOPIC), start_message_id=MessageId.earliest)
        expected = fill(client)
        copier = LiveCursors(states, lambda: stored, SubscriptionNames)

        def exact() -> dict[str, CopiedCursor] | None:
            """Once what was acknowledged last has reached the broker, and the store."""
            found = {one.name: one for one in copier.read(TOPIC, loaded=True).cursors}
            same = all(left_by(found[name], list(left)) == left for name, left in expected.items() if name in found)
            return found if set(found) == set(expected) and same else None

        found = until(exact)
    for name, cursor in found.items():
        assert cursor.sources == (CursorSource.BROKER, CursorSource.CURSOR_LEDGER)
        assert not cursor.missing
        holes = sum(1 for acks in cursor.acks().values() for _ in acks.runs())
        batches = sum(len(acks.batches) for acks in cursor.acks().values())
        assert holes > 20, name
        assert batches > 20, name


class Order(Record):
    number = Integer()


def test_a_topic_s_schema_is_copied(pulsar: PatientPulsar, states: AdminClient) -> None:
    topic, plain = TopicName.parse("public/default/schemas"), TopicName.parse("public/default/no-schema")
    with closing(open_client(pulsar.service_url)) as client:
        client.create_producer(str(topic), schema=JsonSchema(Order)).send(Order(number=1))
        client.create_producer(str(plain)).send(b"1")
    store = MemoryStore()
    copier = FactsCopier(store, states, lambda: "token")
    copier.take(topic, 5, None, terminated=False)
    copier.take(plain, 5, None, terminated=False)
    found = read_facts(store, topic)
    assert found is not None
    assert [(one.version, one.type) for one in found.schemas] == [(0, "JSON")]
    assert b"number" in found.schemas[0].data
    nothing = read_facts(store, plain)
    assert nothing is not None
    assert (nothing.schemas, nothing.partitions) == ((), None)
