"""One acknowledgement with a huge set of messages: it costs as much as its bytes, and is kept by nobody."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

from offloader._proto.pulsar_wire_pb2 import Ack, Connect, Flow, MessageIdData, Seek, Subscribe
from offloader.gateway.protocol.message_frames import bits_of, words_of
from offloader.model import MIB
from offloader.pulsar.commands import command
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.examples import few
from tests.format.support import Stored
from tests.gateway.gateway import durable_gateway
from tests.gateway.raw import RawClient

WORDS = 100_000  # 800 kB
MOST_SECONDS = 5.0  # of a processor; in quadratic time it takes more than a minute


def test_an_ack_set_of_800_kb_does_not_stop_the_gateway() -> None:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message("m")) for entry in range(3)])
    of_first = MessageIdData(ledger_id=10, entry_id=0, ack_set=[-1] * WORDS, batch_size=64 * WORDS)
    with durable_gateway(made.store) as url, RawClient(url) as client:
        client.send(command(connect=Connect(client_version="x", protocol_version=21)))
        client.until("connected")
        wanted = Subscribe(
            topic=str(TOPIC), subscription="s", type=Subscribe.SHARED, consumer_id=0, request_id=1, initial_position=1
        )
        client.send(command(subscribe=wanted))
        client.until("success")
        began = time.process_time()
        for kind in (Ack.INDIVIDUAL, Ack.CUMULATIVE):
            client.send(command(ack=Ack(consumer_id=0, type=kind, request_id=2, message_id=[of_first])))
            assert client.until("ack_response")
        client.send(command(seek=Seek(consumer_id=0, request_id=3, message_id=of_first)))
        while not (answer := client.command()).HasField("success"):
            assert not answer.HasField("error")
        assert time.process_time() - began < MOST_SECONDS


def test_words_are_made_in_time_that_grows_with_their_number() -> None:
    left = (1 << 64 * WORDS) - 1
    began = time.process_time()
    signed = [word - 2**64 for word in words_of(left)]
    assert bits_of(signed) == left
    assert time.process_time() - began < MOST_SECONDS


ENTRIES = 1_500
LARGEST = 1 << 20  # messages that a batch may have at most
MOST_GROWTH = 60 * MIB  # 1,500 sets of so many messages take 190 MiB


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.large
@pytest.mark.parametrize("durable", few([True, False], 1))
def test_batches_of_a_million_messages_that_are_none_take_no_memory(durable: bool) -> None:
    """A client says of entries of one message that they have 2^20, of which one is acknowledged."""
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message("m")) for entry in range(ENTRIES)])
    left = [-1] * (LARGEST // 64 - 1) + [2**63 - 1]
    with durable_gateway(made.store, durableAcks=True) as url, RawClient(url) as client:
        client.send(command(connect=Connect(client_version="x", protocol_version=21)))
        client.until("connected")
        wanted = Subscribe(
            topic=str(TOPIC),
            subscription="s",
            type=Subscribe.SHARED,
            consumer_id=0,
            request_id=1,
            initial_position=1,
            durable=durable,
            start_message_id=None if durable else MessageIdData(ledger_id=10, entry_id=0),
        )
        client.send(command(subscribe=wanted))
        client.until("success")
        client.send(command(flow=Flow(consumer_id=0, permits=ENTRIES // 2)))
        for _ in range(ENTRIES // 2):
            client.until("message")
        before = resident()
        for begin in range(0, ENTRIES, 25):
            ids = [
                MessageIdData(ledger_id=10, entry_id=entry, ack_set=left, batch_size=LARGEST)
                for entry in range(begin, begin + 25)
            ]
            client.send(command(ack=Ack(consumer_id=0, type=Ack.INDIVIDUAL, request_id=2, message_id=ids)))
            answer = client.until("ack_response").ack_response
            assert begin >= ENTRIES // 2 or "more messages than the batch has" in answer.message
        assert resident() - before < MOST_GROWTH
        whole = [MessageIdData(ledger_id=10, entry_id=entry) for entry in range(ENTRIES)]
        client.send(command(ack=Ack(consumer_id=0, type=Ack.INDIVIDUAL, request_id=3, message_id=whole)))
        assert not client.until("ack_response").ack_response.HasField("error"), "it is written"
