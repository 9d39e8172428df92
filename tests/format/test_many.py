"""Looking at many entries at once says what looking at each says, also of those that are no messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.format.cutter import Consecutive
from offloader.format.entry import ABORT_MARKER, COMMIT_MARKER, EntryFacts, inspect
from offloader.format.many import inspect_all

from .support import broker_metadata, checksummed, plain

FEW = 32

_uint64 = st.integers(0, 2**64 - 1) | st.integers(0, 300)
_numbers = st.none() | st.integers(-(2**31), 2**31 - 1) | st.integers(0, 300)
_metadata = st.builds(
    MessageMetadata,
    producer_name=st.none() | st.text(max_size=600),
    publish_time=st.none() | _uint64,
    num_messages_in_batch=_numbers,
    marker_type=_numbers | st.sampled_from([COMMIT_MARKER, ABORT_MARKER]),
    txnid_most_bits=st.none() | _uint64,
    txnid_least_bits=st.none() | _uint64,
)
_framed = st.builds(
    lambda front, make, metadata, payload: front + make(metadata, payload),
    st.just(b"") | st.builds(lambda t, i: broker_metadata(time=t, index=i), st.none() | _uint64, st.none() | _uint64),
    st.sampled_from([checksummed, plain]),
    _metadata,
    st.binary(max_size=40),
)
_damaged = st.builds(
    lambda entry, at, byte: entry[:at] + bytes([byte]) + entry[at + 1 :],
    _framed,
    st.integers(0, 60),
    st.integers(0, 255),
)
_cut = st.builds(lambda entry, kept: entry[:kept], _framed, st.integers(0, 60))
_entries = st.lists(_framed | _damaged | _cut | st.binary(max_size=30), min_size=FEW, max_size=FEW + 20)


def answers(entries: list[bytes], *, at_once: bool) -> list[EntryFacts]:
    run = Consecutive.of(1, 0, entries)
    return [run.facts_of(number) if at_once else inspect(entry) for number, entry in enumerate(entries)]


@given(_entries)
def test_many_at_once_and_one_by_one_agree(entries: list[bytes]) -> None:
    assert answers(entries, at_once=True) == answers(entries, at_once=False)
    assert Consecutive.of(1, 0, entries).unreadable() == [
        n for n, entry in enumerate(entries) if inspect(entry).unreadable
    ]


@pytest.mark.parametrize("front", [b"", broker_metadata(time=5, index=7), broker_metadata(index=7)])
@pytest.mark.parametrize("make", [checksummed, plain])
def test_usual_entries_need_no_second_look(front: bytes, make) -> None:
    kinds = [{}, {"num_messages_in_batch": 100}, {"marker_type": 21}]
    entries = [
        front + make(MessageMetadata(producer_name="p", sequence_id=n, publish_time=n, **kinds[n % 3]))
        for n in range(FEW)
    ]
    known = inspect_all(entries)
    assert len(known.irregular) == 0
    assert [known.of(number) for number in range(FEW)] == [inspect(entry) for entry in entries]


def test_few_entries_are_left_to_the_parser() -> None:
    entries = [checksummed(MessageMetadata(publish_time=1))] * (FEW - 1)
    assert len(inspect_all(entries).irregular) == len(entries)
    assert len(inspect_all([]).irregular) == 0


@pytest.mark.parametrize("tag", [b"\xfd\xff\xff\xff\xff\xff\x01", b"\x9d\x80\x80\x80\x80\x00", b"\x9d\x80\x80\x80\x00"])
def test_a_tag_that_protobuf_refuses_is_refused(tag: bytes) -> None:
    metadata = MessageMetadata(publish_time=1).SerializePartialToString() + tag + b"\1\2\3\4"
    metadata += MessageMetadata(producer_name="p", sequence_id=2).SerializePartialToString()
    entries = [len(metadata).to_bytes(4, "big") + metadata] * FEW
    assert answers(entries, at_once=True) == answers(entries, at_once=False)


@pytest.mark.parametrize("nested", [b"\x22\x01\xff", b"\x6a\x03\x00\x00\x00", b"\x0a\x01\xff"])
def test_what_is_broken_inside_of_a_field_that_nobody_looks_at_changes_nothing(nested: bytes) -> None:
    metadata = nested + MessageMetadata(publish_time=1, num_messages_in_batch=7).SerializePartialToString()
    entries = [len(metadata).to_bytes(4, "big") + metadata] * FEW
    assert answers(entries, at_once=True) == answers(entries, at_once=False) == [EntryFacts(7, 1)] * FEW
