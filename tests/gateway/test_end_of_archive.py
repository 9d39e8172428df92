"""Where the archive ends, and what is missing before that."""

from __future__ import annotations

import itertools

import pulsar
import pytest

from offloader._proto.pulsar_wire_pb2 import Connect, Subscribe
from offloader.cursors.core.records import FirstState
from offloader.cursors.durable import DurableCursor
from offloader.gateway.values import ErrorCode
from offloader.metadata.layout import subscription_folder
from offloader.model import Position
from offloader.pulsar.commands import command
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.format.support import Stored
from tests.gateway.gateway import durable_gateway, gateway
from tests.gateway.raw import RawClient
from tests.gateway.test_stock_client import EARLIEST, NAME, PATIENCE, connected, received

TOKENS = itertools.count()


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


def with_a_loss() -> Archive:
    """Entries 200 to 219 of ledger 11 are lost."""
    archive = archived()
    archive.lose(Position(0, 11, 200), Position(0, 11, 219))
    archive.add(entries(11, 220, 229))
    return archive


def read(reader: pulsar.Reader, count: int) -> list[bytes]:
    return [reader.read_next(PATIENCE).data() for _ in range(count)]


def test_who_has_read_everything_waits_and_gets_what_is_sealed_later() -> None:
    archive = archived()
    with gateway(archive.store) as url:
        client = connected(url)
        reader = client.create_reader(NAME, pulsar.MessageId.earliest)
        assert len(read(reader, 300)) == 300
        assert not reader.has_message_available()
        archive.add(entries(11, 200, 209))
        assert read(reader, 10) == names(11, 200, 209)
        client.close()


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


def test_what_is_lost_is_passed_over_where_that_is_wanted() -> None:
    with gateway(with_a_loss().store, onLoss="skip") as url:
        client = connected(url)
        reader = client.create_reader(NAME, pulsar.MessageId.earliest)
        assert read(reader, 310) == names(10, 0, 99) + names(11, 0, 199) + names(11, 220, 229)
        client.close()


def test_who_subscribes_before_a_loss_is_refused() -> None:
    with gateway(with_a_loss().store) as url:
        client = connected(url)
        with pytest.raises(pulsar.NotAllowedError):
            client.create_reader(NAME, pulsar.MessageId.earliest)
        client.close()


def test_a_loss_that_a_durable_subscription_has_behind_it_is_no_matter() -> None:
    archive = with_a_loss()
    with durable_gateway(archive.store, onLoss="skip", durableAcks=True) as url:
        client = connected(url)
        consumer = client.subscribe(NAME, "s", initial_position=EARLIEST)
        for _ in range(305):
            consumer.acknowledge(consumer.receive(PATIENCE))
        client.close()
    with durable_gateway(archive.store, onLoss="fail") as url:
        client = connected(url)
        consumer = client.subscribe(NAME, "s")
        assert received(consumer, 5) == names(11, 225, 229)
        with pytest.raises(pulsar.NotAllowedError):
            client.subscribe(NAME, "new", initial_position=EARLIEST)
        client.close()


def test_a_subscription_that_was_handed_over_to_brokers_is_refused_by_name() -> None:
    archive = archived()
    folder = subscription_folder(TOPIC, "s")
    cursor = DurableCursor.open(
        archive.store, folder, lambda: FirstState(Position(0, 10, -1)), lambda: f"c{next(TOKENS)}"
    )
    cursor.count_property("offloader.handed-over", 1_000)
    cursor.flush()
    with durable_gateway(archive.store) as url, RawClient(url) as client:
        client.send(command(connect=Connect(client_version="test", protocol_version=19)))
        for request in (1, 2):
            asked = Subscribe(topic=NAME, subscription="s", type=Subscribe.SHARED, consumer_id=0, request_id=request)
            client.send(command(subscribe=asked))
            refused = client.answer().error
            assert refused.error == ErrorCode.NOT_ALLOWED
            assert refused.message.startswith(f"{NAME}: subscription s was handed over to brokers, and 1db0db3f")
