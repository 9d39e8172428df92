"""The records of a subscription's state: every field is known, nothing unknown passes for complete, and what is written
is read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.managed_ledger_pb2 import ManagedCursorInfo, PositionInfo
from offloader.errors import DamagedRecordError
from offloader.model import AcknowledgedRange, EntryRange, PartlyAcknowledged, by_ledger, joined
from offloader.state.subscription import CursorState, whole_state
from offloader.state.subscription_codec import (
    decode_cursor_entry,
    decode_cursor_node,
    encode_cursor_entry,
    encode_cursor_node,
)
from tests.fakes.ledger_metadata import Compression, envelope

MAGIC = bytes.fromhex("4778")

# Written by a broker: mark-delete 2:0; 5 and 9 acknowledged; of 3 messages 0-4, of 7 the message 9 of 10.
SEEN = bytes.fromhex(
    "080210001a0c0a04080210041204080210051a0c0a04080210081204080210092a090a040802100310e0072a090a040802100710ff03"
)

WORDS = st.integers(-(2**63), 2**63 - 1)
LEDGERS = st.integers(0, 5)
PLACES = st.tuples(LEDGERS, st.integers(-1, 300))


@st.composite
def ranges(draw, *, within_ledgers=False):
    found = []
    for _ in range(draw(st.integers(0, 6))):
        after, last = sorted((draw(PLACES), draw(PLACES)))
        if within_ledgers:
            last = (after[0], after[1] + draw(st.integers(1, 200)))
        found.append(AcknowledgedRange(after, last))
    return joined(found)


@st.composite
def states(draw, **how):
    places = draw(st.sets(PLACES.filter(lambda place: place[1] >= 0), max_size=4))
    return CursorState(
        mark_delete=draw(PLACES),
        ranges=draw(ranges(**how)),
        batches=tuple(
            PartlyAcknowledged(ledger, entry, tuple(draw(st.lists(WORDS, max_size=3))))
            for ledger, entry in sorted(places)
        ),
        properties=tuple(draw(st.lists(st.tuples(st.text(max_size=5), WORDS), max_size=3))),
    )


@st.composite
def nodes(draw):
    text = st.text(max_size=8)
    said = tuple(draw(st.lists(st.tuples(text, text), max_size=3)))
    ledger, active = draw(st.none() | LEDGERS), draw(st.none() | st.integers(0, 2**62))
    state = draw(states())
    return CursorState(state.mark_delete, state.ranges, state.batches, state.properties, said, ledger, active)


def test_what_a_broker_wrote_is_read_whole_and_written_the_same():
    state = decode_cursor_entry(SEEN)
    assert state == CursorState(
        (2, 0),
        (AcknowledgedRange((2, 4), (2, 5)), AcknowledgedRange((2, 8), (2, 9))),
        (PartlyAcknowledged(2, 3, (0x3E0,)), PartlyAcknowledged(2, 7, (0x1FF,))),
    )
    assert state.complete
    assert encode_cursor_entry(state) == SEEN


@given(nodes(), st.sampled_from(Compression.values()))
def test_a_node_is_read_back_raw_and_compressed(state, packed):
    assert decode_cursor_node(envelope(encode_cursor_node(state), packed)) == state


@given(states())
def test_an_entry_is_read_back(state):
    assert decode_cursor_entry(encode_cursor_entry(state)) == state


@given(states(within_ledgers=True))
def test_dense_sets_say_the_same_as_ranges(state):
    assert decode_cursor_entry(encode_cursor_entry(state, dense=True)) == state


@given(nodes(), st.data())
def test_a_record_that_is_cut_off_is_damaged_or_another_record_and_never_more(state, data):
    value = encode_cursor_node(state)
    cut = value[: data.draw(st.integers(0, len(value)))]
    try:
        read = decode_cursor_node(cut)
    except DamagedRecordError:
        return
    assert len(read.batches) <= len(state.batches)
    assert len(read.ranges) <= len(state.ranges) + 1


def nested(message):
    """The message, and each that stands in it."""
    yield message
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for part in value if descriptor.is_repeated else (value,):
                yield from nested(part)


FULL = CursorState(
    (2, 0),
    (AcknowledgedRange((2, 4), (2, 5)),),
    (PartlyAcknowledged(2, 7, (0x1FF, -1)),),
    (("pulsar.replicated.subscription", 1),),
    (("owner", "joe"),),
    7,
    1_700_000_000_000,
)


@pytest.mark.parametrize("kind", ["node", "entry", "dense entry"])
def test_a_field_that_nobody_knows_makes_the_state_incomplete_wherever_it_stands(kind):
    value = encode_cursor_node(FULL) if kind == "node" else encode_cursor_entry(FULL, dense=kind != "entry")
    of, decode = (ManagedCursorInfo, decode_cursor_node) if kind == "node" else (PositionInfo, decode_cursor_entry)
    count = len(list(nested(of.FromString(value))))
    assert decode(value).complete
    assert count > 3
    for number in range(count):
        message = of.FromString(value)
        list(nested(message))[number].MergeFromString(b"\x9a\x06\x03new")
        read = decode(message.SerializeToString())
        assert not read.complete
        assert "field 99" in read.unknown[0]
        assert read.mark_delete == (2, 0)
        assert not whole_state(decode_cursor_node(encode_cursor_node(FULL)), read).complete


@pytest.mark.parametrize("payload", [b'{"numParts":3,"length":9}', MAGIC + bytes(20)])
def test_an_entry_in_the_form_of_another_program_is_kept_apart_not_misread(payload):
    read = decode_cursor_entry(payload)
    assert read.mark_delete is None
    assert not read.complete


@pytest.mark.parametrize(
    "state",
    [
        CursorState((-2, 0)),
        CursorState((1, -2)),
        CursorState((1, 0), (AcknowledgedRange((2, 5), (2, 4)),)),
        CursorState((1, 0), (), (PartlyAcknowledged(-3, 1, ()),)),
    ],
)
def test_positions_that_no_cursor_has_are_damage(state):
    with pytest.raises(DamagedRecordError):
        decode_cursor_node(encode_cursor_node(state))
    with pytest.raises(DamagedRecordError):
        decode_cursor_entry(encode_cursor_entry(state))


def test_of_several_acks_of_one_batch_each_counts():
    info = PositionInfo(ledgerId=1, entryId=0)
    for words in ([0b1110, -1], [0b0111]):
        info.batchedEntryDeletionIndexInfo.add(position={"ledgerId": 1, "entryId": 3}, deleteSet=words)
    assert decode_cursor_entry(info.SerializeToString()).batches == (PartlyAcknowledged(1, 3, (0b0110,)),)


def test_a_ledgers_last_entry_counts_and_the_node_says_what_only_it_has():
    node, entry = (
        CursorState((1, 0), (), (), (), (("owner", "joe"),), 7, 9),
        CursorState((2, 5), properties=(("a", 1),)),
    )
    assert whole_state(node, entry) == CursorState((2, 5), (), (), (("a", 1),), (("owner", "joe"),), 7, 9)
    assert whole_state(node, None) is node
    assert not CursorState(None).complete


def entries_of(each):
    return {(one.ledger, entry) for one in each for entry in one.ids}


@given(ranges(), st.dictionaries(LEDGERS, st.integers(0, 40), min_size=1))
def test_ranges_by_ledger_are_the_entries_that_the_topic_lists(found, listed):
    lengths = sorted(listed.items())
    every = {(ledger, entry) for ledger, count in lengths for entry in range(max(count, 310))}
    wanted = {p for p in every if any(after < p <= last for after, last in found)}
    split = list(by_ledger(found, lengths))
    inside = {p for p in wanted if p[1] < listed[p[0]]}
    assert inside <= entries_of(split) <= wanted
    assert all(isinstance(one, EntryRange) and one.span for one in split)
