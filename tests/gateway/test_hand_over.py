"""Where the archive ends, Pulsar's own client goes on at a broker: nothing is missing, and nothing comes twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pulsar
import pytest

from offloader._proto.pulsar_wire_pb2 import (
    CloseConsumer,
    Connect,
    Flow,
    Lookup,
    MessageIdData,
    PartitionedMetadata,
    Subscribe,
)
from offloader.model import Position
from offloader.pulsar.commands import command
from offloader.storage.memory import MemoryStore
from tests.archive.messages.encoder import Producer, Sent, batch
from tests.archive.support import TOPIC, Archive, message
from tests.format.support import Stored
from tests.gateway.brokers import LiveTopics
from tests.gateway.gateway import free_port, gateway
from tests.gateway.raw import RawClient

NAME = str(TOPIC)
EARLIEST = pulsar.InitialPosition.Earliest
SHARED = pulsar.ConsumerType.Shared
PATIENCE = 20_000  # ms, for hanging


def entries(ledger: int, first: int, last: int) -> list[Stored]:
    return [Stored(ledger, entry, message(f"{ledger}:{entry}")) for entry in range(first, last + 1)]


def names(ledger: int, first: int, last: int) -> list[bytes]:
    return [b"%d:%d" % (ledger, entry) for entry in range(first, last + 1)]


def archived() -> Archive:
    """Ledger 10, and the first 200 entries of ledger 11."""
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add(entries(10, 0, 99))
    made.closed(10, 99)
    made.add(entries(11, 0, 199))
    return made


def live() -> Archive:
    """What brokers have: ledger 10 is trimmed."""
    made = Archive(MemoryStore())
    made.claim(11, 0)
    made.add(entries(11, 0, 199))
    return made


@dataclass
class Place:
    """`client` knows the gateway alone, whose address is `url`."""

    archive: Archive
    live: Archive
    brokers: LiveTopics
    client: pulsar.Client
    url: str


@contextmanager
def begun(later: Sequence[Stored] = (), **settings: object) -> Iterator[Place]:
    """`later`: what is at the end of the archive, and not all of it."""
    archive, at_brokers = archived(), live()
    if later:
        archive.add(list(later))
        at_brokers.add(list(later))
    brokers = LiveTopics(TOPIC, at_brokers.store, {11: None})
    with (
        gateway(at_brokers.store) as brokers.url,
        gateway(archive.store, brokers, atEnd="handOver", **settings) as url,
    ):
        client = connected(url)
        yield Place(archive, at_brokers, brokers, client, url)
        client.close()


@pytest.fixture
def place() -> Iterator[Place]:
    with begun() as found:
        found.live.add(entries(11, 200, 299))
        yield found


def connected(url: str) -> pulsar.Client:
    return pulsar.Client(url, operation_timeout_seconds=20, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def read(reader: pulsar.Reader, count: int) -> list[bytes]:
    return [reader.read_next(PATIENCE).data() for _ in range(count)]


def received(consumer: pulsar.Consumer, count: int) -> list[bytes]:
    return [consumer.receive(PATIENCE).data() for _ in range(count)]


def nothing_more(consumer: pulsar.Consumer) -> bool:
    try:
        consumer.receive(300)
    except pulsar.Timeout:
        return True
    return False


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE / 1000
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


# Readers


def test_a_reader_goes_on_at_the_broker_without_a_gap_and_without_a_repeat(place) -> None:
    reader = place.client.create_reader(NAME, pulsar.MessageId.earliest)
    assert read(reader, 300) == names(10, 0, 99) + names(11, 0, 199)
    assert read(reader, 100) == names(11, 200, 299)  # which only the broker has
    place.live.add(entries(11, 300, 309))
    assert read(reader, 10) == names(11, 300, 309)


def test_who_begins_in_the_past_reads_the_archive_while_another_one_of_the_client_is_at_the_broker(place) -> None:
    first = place.client.create_reader(NAME, pulsar.MessageId.earliest)
    assert len(read(first, 400)) == 400
    second = place.client.create_reader(NAME, pulsar.MessageId.earliest)
    assert read(second, 400) == names(10, 0, 99) + names(11, 0, 299)


def test_what_brokers_have_trimmed_is_taken_back(place) -> None:
    reader = place.client.create_reader(NAME, pulsar.MessageId.earliest)
    assert len(read(reader, 400)) == 400
    reader.seek(pulsar.MessageId.earliest)
    assert read(reader, 400) == names(10, 0, 99) + names(11, 0, 299)


def test_only_what_the_client_has_taken_counts_not_what_is_on_its_way_to_it(place) -> None:
    """Its position is the last message that it took: what waits in its queue would be asked of the broker."""
    reader = place.client.create_reader(NAME, pulsar.MessageId.earliest, receiver_queue_size=1000)
    assert read(reader, 50) == names(10, 0, 49)
    wait_until(lambda: place.brokers.looks > 0)
    assert read(reader, 350) == names(10, 50, 99) + names(11, 0, 299)


def test_a_reader_of_the_latest_is_given_a_message_before_it_goes(place) -> None:
    """Until then it would begin at the broker's latest, and miss what is between."""
    reader = place.client.create_reader(NAME, pulsar.MessageId.latest)
    other = place.client.create_reader(NAME, pulsar.MessageId(-1, 11, 198, -1))
    assert read(other, 101) == names(11, 199, 299)  # it went
    place.archive.add(entries(11, 200, 219))
    assert read(reader, 100) == names(11, 200, 299)


@pytest.mark.parametrize(
    "change",
    [
        lambda brokers: setattr(brokers, "created", 2),
        lambda brokers: setattr(brokers, "ledgers", {12: None}),
        lambda brokers: setattr(brokers, "ledgers", {11: 150, 12: None}),
        lambda brokers: setattr(brokers, "topic", None),
    ],
    ids=["made anew", "trimmed", "another one", "deleted"],
)
def test_who_would_miss_something_waits_here(place, change) -> None:
    change(place.brokers)
    reader = place.client.create_reader(NAME, pulsar.MessageId.earliest)
    assert len(read(reader, 300)) == 300
    wait_until(lambda: place.brokers.looks > 0)
    place.archive.add(entries(11, 200, 209))
    assert read(reader, 10) == names(11, 200, 209)


def test_a_reader_of_batches_goes_too() -> None:
    batched = [batch(Producer(), [Sent(b"b%d" % number)] * 10).data for number in range(2)]
    with begun([Stored(11, 200 + number, data) for number, data in enumerate(batched)]) as place:
        place.live.add(entries(11, 202, 209))
        place.live.closed(11, 209)
        place.live.add(entries(12, 0, 9))
        place.brokers.ledgers = {11: 209, 12: None}
        reader = place.client.create_reader(NAME, pulsar.MessageId.earliest)
        found = read(reader, 338)
        assert found[300:] == [b"b0"] * 10 + [b"b1"] * 10 + names(11, 202, 209) + names(12, 0, 9)


def test_whether_a_message_is_available_counts_those_that_only_the_broker_has(place) -> None:
    reader = place.client.create_reader(NAME, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(PATIENCE).data())
    assert found == names(10, 0, 99) + names(11, 0, 299)


def test_where_brokers_have_not_what_follows_no_more_is_available_than_is_archived(place) -> None:
    place.brokers.created = 2
    reader = place.client.create_reader(NAME, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(PATIENCE).data())
    assert found == names(10, 0, 99) + names(11, 0, 199)


def test_at_the_end_nothing_comes_until_somebody_subscribes() -> None:
    archive = archived()
    with gateway(archive.store, atEnd="end") as url:
        client = connected(url)
        reader = client.create_reader(NAME, pulsar.MessageId.earliest)
        assert len(read(reader, 300)) == 300
        archive.add(entries(11, 200, 209))
        assert not reader.has_message_available()
        with pytest.raises(pulsar.Timeout):
            reader.read_next(500)
        client.create_reader(NAME, pulsar.MessageId.latest)
        assert read(reader, 10) == names(11, 200, 209)
        client.close()


# Clients that do not know what a broker's address in CLOSE_CONSUMER is


class OldReader:
    """It stands at the end of the archive, and looks up whenever it is closed."""

    def __init__(self, raw: RawClient) -> None:
        self.raw = raw
        self.raw.send(command(connect=Connect(client_version="x", protocol_version=19)))

    def is_led(self) -> CloseConsumer:
        """How it is closed, once it has subscribed."""
        at_end = Subscribe(
            topic=NAME,
            subscription="reader-1",
            type=Subscribe.EXCLUSIVE,
            consumer_id=0,
            request_id=1,
            durable=False,
            start_message_id=MessageIdData(ledger_id=11, entry_id=199),
        )
        self.raw.send(command(subscribe=at_end))
        return self.raw.until("close_consumer").close_consumer

    def looks_up(self) -> str:
        self.raw.send(command(lookup=Lookup(topic=NAME, request_id=2)))
        return self.raw.until("lookup_response").lookup_response.broker_service_url


def test_an_older_client_is_led_by_its_second_lookup_and_stays_here_after_that(place, caplog) -> None:
    with RawClient(place.url) as raw:
        reader = OldReader(raw)
        assert reader.is_led().assigned_broker_service_url == place.brokers.url
        assert reader.looks_up() == place.url
        assert not reader.is_led().HasField("assigned_broker_service_url")
        assert reader.looks_up() == place.brokers.url
        assert reader.looks_up() == place.url  # once
        assert "came back from the brokers" in caplog.text


def test_a_lookup_that_may_be_of_somebody_new_leads_to_the_archive(place) -> None:
    with RawClient(place.url) as raw:
        reader = OldReader(raw)
        reader.is_led()
        reader.is_led()
        raw.send(command(partitioned_metadata=PartitionedMetadata(topic=NAME, request_id=3)))
        assert reader.looks_up() == place.url


# Durable subscriptions


def test_a_durable_subscription_with_holes_gets_at_the_broker_exactly_what_was_not_acknowledged() -> None:
    batched = Stored(11, 200, batch(Producer(), [Sent(b"b%d" % number) for number in range(10)]).data)
    with begun([batched]) as place:
        place.live.add(entries(11, 201, 299))
        consumer = place.client.subscribe(
            NAME, "s", consumer_type=SHARED, initial_position=EARLIEST, batch_index_ack_enabled=True
        )
        left = {b"11:7", b"11:8", b"11:100", b"b3", b"b7"}
        for got in (consumer.receive(PATIENCE) for _ in range(310)):
            if got.data() not in left:
                consumer.acknowledge(got)
        assert sorted(received(consumer, len(left) + 99)) == sorted([*left, *names(11, 201, 299)])
        assert nothing_more(consumer)


def test_what_went_to_the_brokers_is_counted() -> None:
    port = free_port()
    with begun(metricsListen=f"127.0.0.1:{port}") as place:
        place.live.add(entries(11, 200, 299))
        consumer = place.client.subscribe(NAME, "s", initial_position=EARLIEST)
        for _ in range(301):
            consumer.acknowledge(consumer.receive(PATIENCE))
        reader = place.client.create_reader(NAME, pulsar.MessageId.earliest)
        assert read(reader, 301)[-1] == b"11:200"
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20) as asked:
            status = asked.get("/status").json()["hand_overs"]
            assert (status["subscription"], status["reader"], status["under way"]) == (1, 1, 0)
            text = asked.get("/metrics").text
    assert 'offloader_gateway_hand_overs_total{what="subscription"} 1.0' in text
    assert 'offloader_gateway_hand_overs_total{what="refused"} 0.0' in text


def test_what_brokers_do_not_have_keeps_a_durable_subscription_here(place) -> None:
    consumer = place.client.subscribe(NAME, "s", consumer_type=SHARED, initial_position=EARLIEST)
    for got in (consumer.receive(PATIENCE) for _ in range(300)):
        if got.data() != b"10:50":
            consumer.acknowledge(got)
            last = got
    wait_until(lambda: place.brokers.looks > 0)
    assert nothing_more(consumer)
    assert last.data() == b"11:199"
    assert place.brokers.subscriptions.look(TOPIC, "s") is None
    consumer.redeliver_unacknowledged_messages()
    assert received(consumer, 1) == [b"10:50"]


def test_all_consumers_of_a_subscription_go_on_at_the_broker(place) -> None:
    consumers = [
        place.client.subscribe(NAME, "s", consumer_type=SHARED, initial_position=EARLIEST, receiver_queue_size=10)
        for _ in range(4)
    ]
    found: list[bytes] = []
    while len(found) < 400:
        for consumer in consumers:
            try:
                got = consumer.receive(100)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(got)
            found.append(got.data())
    assert sorted(found) == sorted(names(10, 0, 99) + names(11, 0, 299))


def test_a_subscription_that_brokers_have_themselves_stays_here(place, caplog) -> None:
    place.brokers.subscriptions.create(TOPIC, "s", {})
    consumer = place.client.subscribe(NAME, "s", initial_position=EARLIEST)
    for _ in range(300):
        consumer.acknowledge(consumer.receive(PATIENCE))
    wait_until(lambda: "the brokers have a subscription s of their own" in caplog.text)
    place.archive.add(entries(11, 200, 209))
    assert received(consumer, 10) == names(11, 200, 209)


def test_who_comes_later_is_led_to_the_broker_and_where_nobody_leads_is_told_where_it_is() -> None:
    with begun() as place:
        consumer = place.client.subscribe(NAME, "s", initial_position=EARLIEST)
        place.live.add(entries(11, 200, 299))
        for _ in range(400):
            consumer.acknowledge(consumer.receive(PATIENCE))
        consumer.close()
        again = place.client.subscribe(NAME, "s", initial_position=EARLIEST)
        place.live.add(entries(11, 300, 300))
        assert received(again, 1) == names(11, 300, 300)
    with gateway(place.archive.store) as url:
        client = connected(url)
        with pytest.raises(pulsar.NotAllowedError):
            client.subscribe(NAME, "s")
        client.close()


def test_who_comes_later_is_led_once_it_listens(place) -> None:
    """Go's client overhears what follows the answer to its SUBSCRIBE at once."""
    consumer = place.client.subscribe(NAME, "s", initial_position=EARLIEST)
    for _ in range(400):
        consumer.acknowledge(consumer.receive(PATIENCE))
    asked = Subscribe(topic=NAME, subscription="s", type=Subscribe.SHARED, consumer_id=0, request_id=1)
    with RawClient(place.url) as raw:
        raw.send(command(connect=Connect(client_version="x", protocol_version=19)), command(subscribe=asked))
        assert raw.until("success").success.request_id == 1
        raw.send(command(lookup=Lookup(topic=NAME, request_id=2)))
        assert raw.answer().HasField("lookup_response")
        raw.send(command(flow=Flow(consumer_id=0, permits=1)))
        assert raw.answer().close_consumer.assigned_broker_service_url == place.brokers.url


def test_one_that_was_deleted_at_the_broker_begins_anew_here(place) -> None:
    consumer = place.client.subscribe(NAME, "s", initial_position=EARLIEST)
    for _ in range(400):
        consumer.acknowledge(consumer.receive(PATIENCE))
    consumer.close()
    del place.brokers.subscriptions.properties["s"]
    again = place.client.subscribe(NAME, "s", initial_position=EARLIEST)
    assert received(again, 2) == names(10, 0, 1)


# Losses at the border


def with_a_loss_at_the_end() -> tuple[Archive, Archive]:
    """Entries 200 to 219 of ledger 11 are in neither."""
    archive, at_brokers = archived(), live()
    for one in (archive, at_brokers):
        one.lose(Position(0, 11, 200), Position(0, 11, 219))
    at_brokers.add(entries(11, 220, 299))
    return archive, at_brokers


def test_what_is_lost_at_the_end_is_passed_over_and_the_reader_goes_on_behind_it() -> None:
    archive, at_brokers = with_a_loss_at_the_end()
    brokers = LiveTopics(TOPIC, at_brokers.store, {11: None})
    settings = {"atEnd": "handOver", "onLoss": "skip"}
    with gateway(at_brokers.store, onLoss="skip") as brokers.url, gateway(archive.store, brokers, **settings) as url:
        client = connected(url)
        reader = client.create_reader(NAME, pulsar.MessageId.earliest)
        assert read(reader, 380) == names(10, 0, 99) + names(11, 0, 199) + names(11, 220, 299)
        client.close()


def test_what_is_lost_at_the_end_is_said_to_who_subscribes_before_it_and_nobody_goes() -> None:
    archive, at_brokers = with_a_loss_at_the_end()
    brokers = LiveTopics(TOPIC, at_brokers.store, {11: None})
    with gateway(archive.store, brokers, atEnd="handOver") as url:
        client = connected(url)
        with pytest.raises(pulsar.NotAllowedError):
            client.create_reader(NAME, pulsar.MessageId.earliest)
        client.close()
    assert not brokers.looks


def test_a_loss_that_a_durable_subscription_has_behind_it_is_no_matter() -> None:
    archive, _ = with_a_loss_at_the_end()
    archive.add(entries(11, 220, 229))
    with gateway(archive.store, onLoss="skip", durableAcks=True) as url:
        client = connected(url)
        consumer = client.subscribe(NAME, "s", initial_position=EARLIEST)
        for _ in range(305):
            consumer.acknowledge(consumer.receive(PATIENCE))
        client.close()
    with gateway(archive.store, onLoss="fail") as url:
        client = connected(url)
        consumer = client.subscribe(NAME, "s")
        assert received(consumer, 5) == names(11, 225, 229)
        with pytest.raises(pulsar.NotAllowedError):
            client.subscribe(NAME, "new", initial_position=EARLIEST)
        client.close()
