"""Frames survive any way of cutting the stream; broken ones are refused before memory is spent on them."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.pulsar_wire_pb2 import BaseCommand
from offloader.errors import ProtocolError
from offloader.pulsar import commands
from offloader.pulsar.commands import message_id
from offloader.pulsar.frames import Frame, FrameBuffer, encode
from tests.pulsar.fake_broker import command

FRAME_SLACK = 64 * 1024

messages = st.builds(
    lambda ledger, entry, data: (
        command(message={"consumer_id": 3, "message_id": message_id(ledger, entry)}),
        data,
    ),
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**40),
    st.binary(min_size=1, max_size=2000),
)
plain = st.sampled_from([commands.PING, commands.PONG, command(success={"request_id": 7})]).map(lambda c: (c, None))


def feed(buffer, data, cuts=()):
    found = []
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    for piece in pieces:
        rest = piece
        while rest:
            space = buffer.space()
            count = min(len(space), len(rest))
            space[:count] = rest[:count]
            buffer.received(count)
            rest = rest[count:]
            found += buffer.frames()
    return found


@given(st.lists(st.one_of(messages, plain), max_size=20), st.data())
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(sent, data):
    stream = b"".join(encode(c, entry or b"") for c, entry in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    assert [(f.command, f.entry) for f in feed(FrameBuffer(), stream, cuts)] == sent


@given(st.lists(st.one_of(messages, plain), max_size=20), st.data())
def test_a_strangers_frames_come_out_the_same_in_no_more_memory_than_has_come(sent, data):
    stream = b"".join(encode(c, entry or b"") for c, entry in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    buffer = FrameBuffer(chunk=64, trusted=False)
    assert [(f.command, f.entry) for f in feed(buffer, stream, cuts)] == sent
    assert buffer.memory == 0


def test_frames_that_wait_in_a_full_buffer_leave_room_for_more():
    buffer, found = FrameBuffer(chunk=64, trusted=False), list[Frame]()
    for byte in encode(commands.PING) * 100:  # nobody asks for frames meanwhile
        buffer.space()[0] = byte
        buffer.received(1)
    found += buffer.frames()
    assert len(found) == 100


def test_who_announces_much_and_sends_nothing_gets_no_memory():
    buffer = FrameBuffer(chunk=1024, trusted=False)
    for piece in (struct.pack(">II", 5_000_000, 4_000_000), bytes(3_000)):
        feed(buffer, piece)
    assert 3_000 < buffer.memory + 1024 < 10_000


def test_a_strangers_command_has_few_values_beside_ids():
    ids = [message_id(1, entry) for entry in range(20_000)]
    feed(FrameBuffer(trusted=False), encode(command(ack={"consumer_id": 1, "type": 0, "message_id": ids})))
    asked = {"topic": "t", "subscription": "s", "type": 0, "consumer_id": 1, "request_id": 1}
    many = encode(command(subscribe={**asked, "metadata": [{"key": "k", "value": "v"}] * 5_000}))
    assert feed(FrameBuffer(), many)
    with pytest.raises(ProtocolError, match="values"):
        feed(FrameBuffer(trusted=False), many)


def test_an_entry_of_the_largest_size_passes_a_small_buffer():
    large = bytes(range(256)) * 20 * 1024
    c = command(message={"consumer_id": 1, "message_id": message_id(1, 2)})
    stream = encode(c, large) * 3
    found = feed(FrameBuffer(), stream, range(0, len(stream), 65_536))
    assert [f.entry for f in found] == [large] * 3


def test_a_frame_that_is_too_large_is_refused_by_its_length_alone():
    buffer = FrameBuffer(max_message=1000)
    with pytest.raises(ProtocolError, match="a frame of"):
        feed(buffer, struct.pack(">II", 1000 + FRAME_SLACK + 1, 10))


def test_the_brokers_own_limit_counts():
    buffer = FrameBuffer(max_message=1000)
    buffer.allow(10_000_000)
    assert feed(buffer, struct.pack(">II", 9_000_000, 10)) == []


@pytest.mark.parametrize(("total", "size"), [(0, 0), (3, 0), (4, 1), (10, 7), (10, 2**32 - 1)])
def test_lengths_that_contradict_each_other_are_refused(total, size):
    with pytest.raises(ProtocolError, match="a frame of"):
        feed(FrameBuffer(), struct.pack(">II", total, size) + bytes(20))


def test_a_command_that_cannot_be_parsed_is_refused():
    with pytest.raises(ProtocolError, match="cannot be parsed"):
        feed(FrameBuffer(), struct.pack(">II", 7, 3) + b"\xff\xff\xff")


def test_a_message_without_an_entry_is_refused():
    with pytest.raises(ProtocolError, match="without an entry"):
        feed(FrameBuffer(), encode(command(message={"consumer_id": 1, "message_id": message_id(1, 2)})))


def test_an_unknown_command_is_passed_on():
    unknown = BaseCommand(type=999)
    assert feed(FrameBuffer(), encode(unknown))[0].command.type == 999


@given(st.binary(max_size=300))
def test_garbage_is_refused_or_waited_for_and_nothing_else(data):
    buffer = FrameBuffer(max_message=1000)
    try:
        feed(buffer, data)
    except ProtocolError:
        return
    assert len(buffer.space()) > 0


@given(st.integers(-1, 2**62), st.integers(-1, 2**62))
def test_positions_survive_the_wire(ledger, entry):
    assert commands.position(message_id(ledger, entry)) == (ledger, entry)


def test_text_that_is_no_text_is_refused():
    """The library gives bytes for it, which nobody expects."""
    sound = command(lookup_response={"request_id": 1, "broker_service_url": "pulsar://host:6650"})
    broken = encode(sound).replace(b"pulsar://h", b"pulsar://\xff")
    with pytest.raises(ProtocolError, match="whose broker_service_url is no text"):
        list(feed(FrameBuffer(), broken))
