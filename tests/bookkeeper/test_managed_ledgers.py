"""A topic's nodes: names, ledger lists, cursors, in every compression."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.managed_ledger_pb2 import ManagedCursorInfo, ManagedLedgerInfo, ManagedLedgerInfoMetadata
from offloader.errors import DamagedRecordError
from offloader.model import AcknowledgedRange, TopicName, joined
from offloader.state.managed_ledger import ListedLedger, ManagedLedger
from offloader.state.managed_ledger_codec import decode_managed_ledger, decode_record
from offloader.state.names import decoded, encoded, managed_ledger_name, managed_ledger_of, topic_of
from offloader.state.subscription import CursorState
from offloader.state.subscription_codec import decode_cursor_node
from tests.fakes.ledger_metadata import Compression, encode_managed_ledger, envelope

from .damage import damaged, refusal

MAGIC = bytes.fromhex("4778")

NAMES = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1)
TOPICS = st.builds(TopicName, st.just("public"), st.just("default"), NAMES)
COMPRESSIONS = st.sampled_from(Compression.values())
NUMBERS = st.integers(0, 2**63 - 1)

# Fields of a newer version, at each level: 90: 5 of the list, 91: "new" of a ledger.
NEW_FIELD = bytes.fromhex("d00505")
NEW_FIELD_OF_A_LEDGER = bytes.fromhex("da05036e6577")


def info(*ledgers: ListedLedger) -> ManagedLedgerInfo:
    """As a broker writes it."""
    record = ManagedLedgerInfo()
    for one in ledgers:
        record.ledgerInfo.add(ledgerId=one.ledger, entries=one.entries, size=one.size, timestamp=one.timestamp_ms)
    record.properties.add(key="k", value="v")
    return record


@pytest.mark.parametrize(
    ("name", "encoded"),
    [("orders-partition-3", "orders-partition-3"), ("off l*~+%é.x", "off+l*%7E%2B%25%C3%A9.x")],  # as 4.0.7 wrote them
)
def test_the_name_that_a_broker_gives(name, encoded):
    topic = TopicName("public", "default", name)
    assert managed_ledger_name(topic) == f"public/default/persistent/{encoded}"
    assert topic_of(f"public/default/persistent/{encoded}") == topic


@given(TOPICS)
def test_each_topic_has_a_name_of_its_own(topic):
    assert topic_of(managed_ledger_name(topic)) == topic
    assert managed_ledger_name(topic).count("/") == 3


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_each_cursor_has_a_node_of_its_own(name):
    assert decoded(encoded(name)) == name
    assert "/" not in encoded(name)


@pytest.mark.parametrize(
    "name", ["", "a/b/c", "public/default/non-persistent/x", "a/cluster/b/persistent/x", "a//persistent/x"]
)
def test_what_is_no_topic_is_refused(name):
    with pytest.raises(ValueError, match="persistent topic"):
        topic_of(name)


def test_a_ledger_says_whose_it_is():
    assert managed_ledger_of({"pulsar/managed-ledger": b"public/default/persistent/x"}) == "public/default/persistent/x"
    assert managed_ledger_of({}) == ""


@given(
    st.lists(
        st.builds(ListedLedger, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.none()),
        max_size=5,
        unique_by=lambda one: one.ledger,
    ),
    COMPRESSIONS,
)
def test_a_list_is_read_in_the_order_of_its_ledgers(ledgers, packed):
    value = envelope(info(*ledgers).SerializeToString(), packed)
    assert decode_managed_ledger(value, 3) == ManagedLedger(
        tuple(sorted(ledgers, key=lambda one: one.ledger)), 3, properties={"k": "v"}
    )


def test_a_new_topics_list_is_empty():
    assert decode_managed_ledger(b"", 0) == ManagedLedger()


def test_a_terminated_topic_says_where():
    record = info(ListedLedger(1, 2, 3))
    record.terminatedPosition.ledgerId, record.terminatedPosition.entryId = 1, 1
    assert decode_managed_ledger(record.SerializeToString(), 0).terminated == (1, 1)


def test_an_open_ledgers_counts_stay_absent():
    record = ManagedLedgerInfo()
    record.ledgerInfo.add(ledgerId=4)
    assert encode_managed_ledger(decode_managed_ledger(record.SerializeToString(), 0)) == record.SerializeToString()


@pytest.mark.parametrize(
    "ledgers", [(ListedLedger(3, 1, 1), ListedLedger(3, 2, 2)), (ListedLedger(-1, 0, 0),), (ListedLedger(3, -1, 0),)]
)
def test_an_impossible_list_is_refused(ledgers):
    with pytest.raises(DamagedRecordError, match="list of ledgers"):
        decode_managed_ledger(info(*ledgers).SerializeToString(), 0)


POSITIONS = st.tuples(NUMBERS, st.integers(-1, 2**63 - 1))


@given(
    st.none() | NUMBERS,
    st.none() | POSITIONS,
    st.lists(st.tuples(POSITIONS, POSITIONS).map(sorted), max_size=3),
    COMPRESSIONS,
)
def test_a_cursor_is_read(ledger, mark_delete, deleted, packed):
    record = ManagedCursorInfo(cursorsLedgerId=-1 if ledger is None else ledger, lastActive=8)
    if mark_delete is not None:
        record.markDeleteLedgerId, record.markDeleteEntryId = mark_delete
    for lower, upper in deleted:
        one = record.individualDeletedMessages.add()
        one.lowerEndpoint.ledgerId, one.lowerEndpoint.entryId = lower
        one.upperEndpoint.ledgerId, one.upperEndpoint.entryId = upper
    assert decode_cursor_node(envelope(record.SerializeToString(), packed)) == CursorState(
        mark_delete, joined(AcknowledgedRange(*one) for one in deleted), cursor_ledger=ledger, last_active_ms=8
    )


def test_an_envelope_may_be_uncompressed():
    body = info(ListedLedger(3, 5, 50)).SerializeToString()
    metadata = ManagedLedgerInfoMetadata(
        compressionType=Compression.NONE, uncompressedSize=len(body)
    ).SerializeToString()
    assert decode_record(MAGIC + len(metadata).to_bytes(4, "big") + metadata + body) == info(ListedLedger(3, 5, 50))


@pytest.mark.parametrize("packed", Compression.values())
def test_a_record_that_is_cut_short_is_refused(packed):
    whole = envelope(info(ListedLedger(3, 60, 6609234), ListedLedger(5, 60, 5263525)).SerializeToString(), packed)
    tail = 6 if packed == Compression.ZLIB else 0  # Java flushes the stream and does not end it
    cut_ends = {len(info().SerializeToString()), *_field_ends(whole)} if packed == Compression.NONE else set()
    for length in set(range(1, len(whole) - tail)) - cut_ends:
        with pytest.raises(DamagedRecordError, match="managed ledger"):
            decode_record(whole[:length])


def _field_ends(record: bytes) -> set[int]:
    """Where a shorter record would end, which nothing can tell from a whole one."""
    ends, at = set(), 0
    while at < len(record):
        at += 2 + record[at + 1]
        ends.add(at)
    return ends


@pytest.mark.parametrize("packed", [codec for codec in Compression.values() if codec != Compression.NONE])
@pytest.mark.parametrize("more", [-1, 1, 1000])
def test_a_record_is_as_long_as_its_envelope_says(packed, more):
    body = info(ListedLedger(3, 60, 9)).SerializeToString() + bytes(5)  # a block's last literals may look like any end
    metadata = ManagedLedgerInfoMetadata(compressionType=packed, uncompressedSize=len(body)).SerializeToString()
    whole = envelope(body, packed)
    said = ManagedLedgerInfoMetadata(compressionType=packed, uncompressedSize=len(body) + more).SerializeToString()
    with pytest.raises(DamagedRecordError, match="managed ledger"):
        decode_record(MAGIC + len(said).to_bytes(4, "big") + said + whole[6 + len(metadata) :])


@pytest.mark.parametrize("size", [-1, 2**31 - 1])
def test_a_record_of_no_possible_size_is_refused(size):
    metadata = ManagedLedgerInfoMetadata(compressionType=Compression.ZSTD, uncompressedSize=size).SerializeToString()
    with pytest.raises(DamagedRecordError, match=f"have {size} bytes"):
        decode_record(MAGIC + len(metadata).to_bytes(4, "big") + metadata)


@given(
    COMPRESSIONS.map(lambda packed: envelope(info(ListedLedger(3, 60, 9)).SerializeToString(), packed)).flatmap(damaged)
)
def test_damage_is_a_typed_error(data):
    refusal(lambda: decode_managed_ledger(data, 0), DamagedRecordError)
    refusal(lambda: decode_cursor_node(data), DamagedRecordError)
