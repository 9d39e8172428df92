"""Large frames take a bounded part of the memory, however many clients send some, and however slowly."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from offloader._proto.pulsar_wire_pb2 import Ack, Connect, IntRange, KeySharedMeta, KeyValue, MessageIdData, Subscribe
from offloader.gateway.server.limits import LargeFrames
from offloader.gateway.values import ErrorCode
from offloader.model import MIB
from offloader.pulsar.commands import command
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.format.support import Stored
from tests.gateway.gateway import durable_gateway
from tests.gateway.raw import RawClient

FRAMES_AT_ONCE = 4
MOST_RANGES = 1000

CONNECT = command(connect=Connect(client_version="x", protocol_version=21))
PING = command(ping={})


@dataclass(eq=False)
class Sender:
    large: LargeFrames
    heard_at: float = 0.0
    ended: str = ""
    turns: list[str] = field(default_factory=list)

    def has_turn(self) -> None:
        self.turns.append("now")

    def end(self, why: str) -> None:
        self.ended = why
        self.large.forget(self)


def senders(large: LargeFrames, count: int) -> list[Sender]:
    return [Sender(large, heard_at=float(number)) for number in range(count)]


def test_who_has_sent_nothing_for_longest_makes_room() -> None:
    large = LargeFrames(100)
    stalled, slow, busy = senders(large, 3)
    for one in (busy, stalled, slow):
        large.holds(one, 40)
    assert [bool(one.ended) for one in (stalled, slow, busy)] == [True, False, False]
    assert large.held == 80
    large.holds(slow, 0)
    assert large.held == 40


def test_few_are_taken_apart_at_a_time_and_all_have_their_turn() -> None:
    large = LargeFrames(100, at_once=2)
    one, two, three, four = senders(large, 4)
    assert [large.begin(each) for each in (one, two, three, four)] == [True, True, False, False]
    assert large.begin(one)
    large.done(one)
    assert (three.turns, four.turns) == (["now"], [])
    large.forget(two)
    assert four.turns == ["now"]
    large.done(two)
    assert large.begin(three)


def test_who_is_told_of_its_turn_keeps_it_until_it_has_begun() -> None:
    large = LargeFrames(100, at_once=1)
    one, two, three = senders(large, 3)
    assert [large.begin(each) for each in (one, two, three)] == [True, False, False]
    large.done(one)
    large.done(two)
    assert (two.turns, three.turns) == (["now"], [])
    assert large.begin(two)
    large.waive(two)
    assert not three.turns, "it has begun"
    large.done(two)
    assert three.turns == ["now"]


def test_who_cannot_begin_gives_its_turn_to_another_one() -> None:
    large = LargeFrames(100, at_once=1)
    one, two, three = senders(large, 3)
    assert [large.begin(each) for each in (one, two, three)] == [True, False, False]
    large.done(one)
    large.waive(two)
    assert three.turns == ["now"]
    large.forget(three)
    assert large.begin(two)


def test_who_waits_for_its_turn_is_not_slow() -> None:
    large = LargeFrames(100, at_once=1)
    working, waiting, coming = senders(large, 3)
    large.begin(working)
    large.begin(waiting)
    for one in (working, waiting, coming):
        large.holds(one, 40)
    assert [bool(one.ended) for one in (working, waiting, coming)] == [False, False, True]


@pytest.fixture
def url() -> Iterator[str]:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(5)])
    with durable_gateway(made.store, memory="16M") as found:
        yield found


def subscribe(**more: object) -> Subscribe:
    return Subscribe(**{"topic": str(TOPIC), "subscription": "s", "consumer_id": 0, "request_id": 1, **more})


def test_whoever_holds_half_of_a_large_frame_keeps_nobody_from_a_whole_one(url: str) -> None:
    ids = [MessageIdData(ledger_id=10, entry_id=number % 5) for number in range(100_000)]
    halves = [RawClient(url) for _ in range(8)]
    try:
        for half in halves:  # 24 MiB, of which 10 MiB may be there
            half.send(CONNECT)
            half.socket.sendall(struct.pack(">II", 5 * MIB, 4 * MIB) + bytes(3 * MIB))
        with RawClient(url) as good:
            good.send(CONNECT, command(subscribe=subscribe(type=Subscribe.SHARED)))
            good.until("success")
            good.send(command(ack=Ack(consumer_id=0, type=0, request_id=2, message_id=ids)))
            assert good.until("ack_response").ack_response.request_id == 2
        assert halves[0].ends(), "it had sent nothing for longest"
    finally:
        for half in halves:
            half.socket.close()


@pytest.mark.large
def test_many_large_frames_at_the_same_time_are_all_taken_apart(url: str) -> None:
    ids = [MessageIdData(ledger_id=10, entry_id=number % 5) for number in range(40_000)]
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(url)) for _ in range(3 * FRAMES_AT_ONCE)]
        for number, client in enumerate(clients):
            client.send(CONNECT, command(subscribe=subscribe(subscription=f"s{number}", type=Subscribe.SHARED)))
            client.until("success")
        for client in clients:
            client.send(command(ack=Ack(consumer_id=0, type=0, request_id=2, message_id=ids)))
        for client in clients:
            assert client.until("ack_response").ack_response.request_id == 2


def test_a_list_of_ranges_that_is_too_long_is_refused(url: str) -> None:
    def asked(count: int) -> Subscribe:
        ranges = [IntRange(start=number, end=number) for number in range(count - 1, -1, -1)]
        return subscribe(type=Subscribe.KEY_SHARED, key_shared=KeySharedMeta(mode=1, ranges=ranges))

    with RawClient(url) as client:
        client.send(CONNECT, command(subscribe=asked(MOST_RANGES + 1)))
        assert client.answer().error.error == ErrorCode.CONSUMER_ASSIGN
        client.send(command(subscribe=asked(MOST_RANGES)))
        assert client.answer().success.request_id == 1


@pytest.mark.parametrize(
    "more",
    [
        {"metadata": [KeyValue(key="", value="")] * 500_000},
        {"key_shared": KeySharedMeta(mode=1, ranges=[IntRange(start=1, end=1)] * 300_000)},
    ],
    ids=["properties", "ranges"],
)
def test_a_command_of_very_many_values_ends_its_own_connection(url: str, more: dict[str, object]) -> None:
    with RawClient(url) as hostile, RawClient(url) as good:
        hostile.send(CONNECT, command(subscribe=subscribe(type=Subscribe.KEY_SHARED, **more)))
        good.send(CONNECT, PING)
        assert good.until("pong")
        assert hostile.ends()
