"""The parser of ZooKeeper's frames, against what kazoo's own serializers write. No server."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.protocol import serialization as wire
from kazoo.security import OPEN_ACL_UNSAFE

from integration.lifecycle.frames import FrameError, Frames, NodeWrite, Write, close_session, framed, writes

_PATHS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).map("/{}".format)
_VERSIONS = st.integers(-1, 2**31 - 1)
_VALUES = st.binary(max_size=50)
_ACL = OPEN_ACL_UNSAFE * 2

_CREATES = st.builds(
    lambda path, value: (wire.Create(path, value, _ACL, 0), NodeWrite(Write.CREATE, path, value)), _PATHS, _VALUES
)
_CREATES_2 = st.builds(
    lambda path, value: (wire.Create2(path, value, _ACL, 0), NodeWrite(Write.CREATE, path, value)), _PATHS, _VALUES
)
_DELETES = st.builds(
    lambda path, version: (wire.Delete(path, version), NodeWrite(Write.DELETE, path, version=version)),
    _PATHS,
    _VERSIONS,
)
_SETS = st.builds(
    lambda path, value, version: (wire.SetData(path, value, version), NodeWrite(Write.SET, path, value, version)),
    _PATHS,
    _VALUES,
    _VERSIONS,
)
_CHECKS = st.builds(lambda path, version: (wire.CheckVersion(path, version), None), _PATHS, _VERSIONS)
_READS = st.builds(lambda path: (wire.GetData(path, None), None), _PATHS)
_WRITES = st.one_of(_CREATES, _CREATES_2, _DELETES, _SETS)


def request(operation) -> bytes:
    """As kazoo sends it, without the length."""
    return wire.int_int_struct.pack(7, operation.type) + operation.serialize()


@given(st.one_of(_WRITES, _READS))
def test_a_request_says_what_it_writes(made):
    operation, expected = made
    assert writes(request(operation)) == (() if expected is None else (expected,))


@given(st.lists(st.one_of(_CREATES, _DELETES, _SETS, _CHECKS)))
def test_a_transaction_says_all_that_it_writes(made):
    transaction = wire.Transaction([operation for operation, _ in made])
    assert writes(request(transaction)) == tuple(expected for _, expected in made if expected is not None)


@given(st.one_of(_WRITES), st.data())
def test_what_is_cut_off_is_no_request(made, data):
    operation, expected = made
    whole = request(operation)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with contextlib.suppress(FrameError):  # or only what says nothing about the node is missing
        assert writes(whole[:cut]) == (expected,)
    with pytest.raises(FrameError):
        writes(request(wire.Transaction([operation]))[:-3])


@given(st.lists(_VALUES), st.lists(st.integers(1, 30), min_size=1))
def test_a_stream_is_cut_into_the_frames_that_were_sent(payloads, sizes):
    stream = b"".join(map(framed, payloads))
    frames, found, at = Frames(), list[bytes](), 0
    while at < len(stream):
        size = sizes[len(found) % len(sizes)]
        found += frames.feed(stream[at : at + size])
        at += size
    assert found == payloads


def test_the_frame_that_ends_a_session_is_kazoos():
    assert close_session() == framed(wire.int_int_struct.pack(0, wire.Close.type) + wire.CloseInstance.serialize())
