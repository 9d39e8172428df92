"""MESSAGE frames that are written by hand are those that protobuf reads; permits never let too much out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.pulsar_wire_pb2 import BaseCommand
from offloader.gateway.protocol.message_frames import MessageFrames, bits_of, words_of
from offloader.gateway.protocol.topic_lists import topics_hash
from offloader.gateway.server.limits import PermitWindow
from offloader.gateway.values import ServedEntry

_NUMBERS = st.integers(0, 2**63 - 1)


@given(
    st.integers(0, 2**64 - 1), _NUMBERS, _NUMBERS, st.integers(-1, 2**31 - 1), st.integers(0, 2**32 - 1),
    st.none() | st.integers(1, 2**200), st.none() | _NUMBERS, st.binary(max_size=50), st.integers(-200, 200),
    st.integers(0, 9),
)  # fmt: skip
def test_a_message_s_head_says_all_that_it_was_given(
    consumer: int, ledger: int, entry: int, partition: int, redeliveries: int, left: int | None, epoch: int | None,
    data: bytes, before: int, skip: int,
) -> None:  # fmt: skip
    one = ServedEntry((ledger, entry), bytes(skip) + data, skip, 1, 0, 0, left)
    other = one._replace(place=(ledger, max(entry + before, 0)), left=None)  # nothing of the one before stays
    pieces, all_bytes = MessageFrames(consumer, partition, redeliveries, epoch).of([other, one], whole=False)
    assert all_bytes == sum(map(len, pieces))
    head = bytes(pieces[2])
    assert bytes(pieces[3]) == data
    total, size = int.from_bytes(head[:4]), int.from_bytes(head[4:8])
    assert total == len(head) - 4 + len(data)
    assert size == len(head) - 8
    command = BaseCommand.FromString(head[8:])
    message = command.message
    assert command.type == BaseCommand.MESSAGE_FIELD_NUMBER
    assert (message.consumer_id, message.message_id.ledger_id, message.message_id.entry_id) == (consumer, ledger, entry)
    assert (message.message_id.partition, message.redelivery_count) == (partition, redeliveries)
    assert bits_of(list(message.ack_set)) == (left or 0)
    assert (message.consumer_epoch if message.HasField("consumer_epoch") else None) == epoch


@given(st.integers(0, 2**300))
def test_an_ack_set_is_its_words(left: int) -> None:
    signed = [word - 2**64 if word >= 2**63 else word for word in words_of(left)]
    assert bits_of(signed) == left


def test_lists_of_topics_have_the_hash_that_clients_know() -> None:
    names = ["persistent://public/default/pat-b", "persistent://public/default/pat-a"]
    assert topics_hash(names) == "5639b208"


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 10**6)), max_size=50))
def test_no_permit_is_lost_and_none_is_given_twice(flows: list[tuple[int, int]]) -> None:
    window, given_out = PermitWindow(), 0
    for permits, size in flows:
        window.add(permits)
        while taken := window.take(10**6):
            given_out += taken
            for _ in range(taken):
                window.sent(1, 1, size)
    assert given_out == sum(permits for permits, _ in flows)


def test_of_large_messages_few_are_on_their_way() -> None:
    window = PermitWindow()
    window.add(1000)
    most = 0
    for _ in range(200):
        taken = window.take(10**6)
        most = max(most, taken)
        for _ in range(taken):
            window.sent(1, 1, 10**6)
    assert window.take(10**6) <= 1
    assert most <= 61, "of the first ones nobody knows how large they are"
