"""Bodies survive any way of cutting the stream; too large ones are refused before memory is spent on them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.bookkeeper.frames import BookieFrameBuffer, frame
from offloader.errors import ProtocolError
from offloader.model import MIB

FRAME_SLACK = 64 * 1024


def feed(buffer, data, cuts=()):
    found = []
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        rest = data[begin:end]
        while rest:
            space = buffer.space()
            count = min(len(space), len(rest))
            space[:count] = rest[:count]
            buffer.received(count)
            rest = rest[count:]
            found += [body.tobytes() for body in buffer.bodies()]
    return found


@given(st.lists(st.binary(max_size=2000), max_size=20), st.data())
def test_bodies_come_out_as_they_went_in_however_the_stream_is_cut(bodies, data):
    stream = b"".join(map(frame, bodies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    assert feed(BookieFrameBuffer(MIB), stream, cuts) == bodies


def test_a_body_that_is_larger_than_the_buffer_passes():
    large = bytes(range(256)) * 20 * 1024
    stream = frame(large) + frame(b"small") + frame(large)
    assert feed(BookieFrameBuffer(5 * MIB), stream, range(0, len(stream), 65_536)) == [large, b"small", large]


def test_a_body_that_is_too_large_is_refused_by_its_length_alone():
    with pytest.raises(ProtocolError, match="a frame of"):
        feed(BookieFrameBuffer(1000), (1001 + FRAME_SLACK).to_bytes(4))
