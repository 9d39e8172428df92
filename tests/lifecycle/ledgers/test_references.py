"""What nodes refer to: read as brokers write them, empty, compressed, of a newer version, damaged."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.managed_ledger_pb2 import ManagedCursorInfo, ManagedLedgerInfo, PositionInfo, SchemaLocator
from offloader.lifecycle.ledgers.kinds import RefereeKind
from offloader.lifecycle.ledgers.references import (
    LocatorNode,
    References,
    UnreadableNode,
    cursor_path,
    named_ledgers,
    view_of,
)
from offloader.state.managed_ledger import ListedLedger, ManagedLedger, OffloadContext
from offloader.state.subscription import COMPACTED_LEDGER, CursorState
from tests.bookkeeper.damage import damaged
from tests.fakes.ledger_metadata import Compression, envelope
from tests.lifecycle.ledgers.read_nodes import read_cursor, read_last_entry, read_list, read_locator

BUCKET_PREFIX = "#pulsar.internal.delayed.bucket_"

IDS = st.integers(0, 2**63 - 1)
COMPRESSIONS = st.sampled_from(Compression.values())
NEW_FIELD = bytes.fromhex("d00505")  # 90: 5
UUID_OF_COPY = UUID("9d2f3c1e-0a57-4d28-93f5-0123456789ab")
READERS = (read_list, read_cursor, read_locator, read_last_entry)


def a_list():
    info = ManagedLedgerInfo()
    info.ledgerInfo.add(ledgerId=3, entries=5, size=50, timestamp=7)
    context = info.ledgerInfo[0].offloadContext
    signed = [half - 2**64 if half >= 2**63 else half for half in divmod(UUID_OF_COPY.int, 2**64)]
    context.uidMsb, context.uidLsb = signed
    context.complete = context.bookkeeperDeleted = True
    info.ledgerInfo.add(ledgerId=9)
    return info


def a_cursor():
    info = ManagedCursorInfo(cursorsLedgerId=4, lastActive=8)
    info.properties.add(name=COMPACTED_LEDGER, value=17)
    info.properties.add(name="pulsar.replicated.subscription", value=1)
    info.cursorProperties.add(name=f"{BUCKET_PREFIX}1_20", value="12")
    info.cursorProperties.add(name="of.the.user", value="x")
    position = info.batchedEntryDeletionIndexInfo.add(deleteSet=[3]).position
    position.ledgerId, position.entryId = 1, 2
    return info


def a_locator(*ledgers, first=0):
    versions = []
    for number, ledger in enumerate(ledgers):
        one = SchemaLocator.Version(version=first + number, hash=b"\xff")
        one.position.ledgerId, one.position.entryId = ledger, 0
        versions.append(one)
    return SchemaLocator(info=versions[-1], index=versions)


@given(COMPRESSIONS)
def test_a_ledger_list_with_an_offloaded_copy(packed):
    copy = OffloadContext(str(UUID_OF_COPY), complete=True, bookkeeper_deleted=True)
    expected = ManagedLedger((ListedLedger(3, 5, 50, 7, copy), ListedLedger(9, 0, 0, 0)), 6)
    assert read_list(envelope(a_list().SerializeToString(), packed), 6) == expected
    assert expected.greatest == 9
    assert [one.copy.bookkeeper_deleted for one in expected.ledgers] == [True, False]


def test_a_list_that_was_only_just_created_is_empty():
    assert read_list(b"", 0) == ManagedLedger()
    assert ManagedLedger().greatest is None


@given(st.lists(IDS, unique=True, max_size=8), COMPRESSIONS)
def test_every_listed_ledger_is_read_in_order(ids, packed):
    info = ManagedLedgerInfo()
    for one in ids:
        info.ledgerInfo.add(ledgerId=one)
    node = read_list(envelope(info.SerializeToString(), packed), 1)
    assert [one.ledger for one in node.ledgers] == sorted(ids)


@pytest.mark.parametrize("ids", [(-1,), (3, 3)])
def test_an_impossible_list_is_damaged(ids):
    info = ManagedLedgerInfo()
    for one in ids:
        info.ledgerInfo.add(ledgerId=one)
    assert isinstance(read_list(info.SerializeToString(), 1), UnreadableNode)


@given(COMPRESSIONS)
def test_a_cursor_with_its_ledger_its_view_and_the_buckets_of_the_delayed_index(packed):
    node = read_cursor(envelope(a_cursor().SerializeToString(), packed), 2)
    assert (node.version, node.cursor_ledger, node.view, node.says_more) == (2, 4, 17, False)
    assert node.buckets == {f"{BUCKET_PREFIX}1_20": 12}
    assert node.batches == ()  # a scan has those of all topics in memory


def test_a_cursor_of_minus_one_has_no_ledger():
    assert read_cursor(ManagedCursorInfo(cursorsLedgerId=-1).SerializeToString(), 0) == CursorState()


@pytest.mark.parametrize("value", ["", "x", "-1", "\u0661", "1.0"])
def test_a_bucket_whose_ledger_is_no_number_says_more_than_we_know(value):
    info = ManagedCursorInfo(cursorsLedgerId=4)
    info.cursorProperties.add(name=f"{BUCKET_PREFIX}1_2", value=value)
    node = read_cursor(info.SerializeToString(), 0)
    assert (node.cursor_ledger, node.buckets, node.says_more) == (4, {}, True)


@pytest.mark.parametrize("old", [b"of.the.user", b"x-is-the-value"])
def test_a_property_that_is_no_text_is_damage(old):
    info = ManagedCursorInfo(cursorsLedgerId=4)
    info.cursorProperties.add(name="of.the.user", value="x-is-the-value")
    value = info.SerializeToString()
    assert isinstance(read_cursor(value.replace(old, b"\xff" * len(old)), 0), UnreadableNode)


def test_a_property_of_numbers_whose_name_is_no_text_names_no_view():
    value = a_cursor().SerializeToString().replace(COMPACTED_LEDGER.encode(), b"\xff" * len(COMPACTED_LEDGER))
    node = read_cursor(value, 0)
    assert isinstance(node, UnreadableNode) or node.view is None


def test_an_empty_cursor_node_is_damaged():
    assert isinstance(read_cursor(b"", 5), UnreadableNode)


def test_a_schema_locator_with_its_index():
    assert read_locator(a_locator(7, 5, 9).SerializeToString(), 3) == LocatorNode(3, (5, 7, 9))


def test_a_locator_of_an_old_cluster_has_holes():
    assert read_locator(a_locator(7, 9, first=1).SerializeToString(), 3) == LocatorNode(3, (7, 9), whole=False)


def test_a_cursor_ledgers_last_entry_names_the_view():
    entry = PositionInfo(ledgerId=1, entryId=2)
    entry.properties.add(name=COMPACTED_LEDGER, value=17)
    found = read_last_entry(entry.SerializeToString(), 4)
    assert (found.cursor_ledger, found.view) == (4, 17)
    assert read_last_entry(PositionInfo(ledgerId=1, entryId=2).SerializeToString(), 4).view is None


def test_a_footer_of_another_program_cannot_be_read():
    assert isinstance(read_last_entry(b'{"numParts": 2, "length": 100}', 4), UnreadableNode)


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (read_list, a_list().SerializeToString()),
        (read_cursor, a_cursor().SerializeToString()),
        (read_locator, a_locator(1, 2).SerializeToString()),
        (read_last_entry, PositionInfo(ledgerId=1, entryId=2).SerializeToString()),
    ],
)
def test_a_newer_versions_field_is_told_and_the_rest_is_read(read, body):
    assert not read(body, 1).says_more
    newer = read(body + NEW_FIELD, 1)
    assert newer.says_more
    assert type(newer) is type(read(body, 1))


def test_a_newer_versions_field_is_told_wherever_it_is():
    context = a_list().ledgerInfo[0].offloadContext.SerializeToString() + NEW_FIELD
    ledger = b"\x08\x03\x2a" + bytes([len(context)]) + context
    assert read_list(b"\x0a" + bytes([len(ledger)]) + ledger, 0).says_more


@given(
    st.sampled_from(READERS),
    st.sampled_from([a_list(), a_cursor(), a_locator(1, 2)])
    .flatmap(lambda one: COMPRESSIONS.map(lambda packed: envelope(one.SerializeToString(), packed)))
    .flatmap(damaged),
)
def test_damage_is_a_value_of_one_line(read, value):
    node = read(value, 4)
    if isinstance(node, UnreadableNode):
        assert node.version == 4
        assert node.why
        assert "\n" not in node.why


# Which compacted view counts

TOPIC = "t/ns/persistent/x"


def naming(view, cursor_ledger=None):
    return CursorState((1, 1), properties=((COMPACTED_LEDGER, view),), cursor_ledger=cursor_ledger)


def with_compaction(cursor, last=None):
    views = {} if last is None else {TOPIC: last}
    return References("s", lists={TOPIC: ManagedLedger()}, cursors={TOPIC: {"__compaction": cursor}}, views=views)


def test_while_loaded_the_cursor_ledgers_last_entry_counts():
    assert view_of(with_compaction(naming(5, 4), naming(17, 4)), TOPIC) == 17


def test_after_a_clean_unload_the_cursors_node_counts():
    assert view_of(with_compaction(naming(5)), TOPIC) == 5
    assert view_of(References("s"), TOPIC) is None


@pytest.mark.parametrize(
    ("cursor", "last"),
    [
        (UnreadableNode(1, "damaged"), None),
        (naming(5, 4), None),
        (naming(5, 4), UnreadableNode(4, "no bookie answers")),
        (naming(5, 4), naming(17, 3)),  # it got another ledger meanwhile
        (naming(5, 4), replace(naming(17, 4), unknown=("a field",))),
    ],
)
def test_what_cannot_be_read_names_no_view(cursor, last):
    assert isinstance(view_of(with_compaction(cursor, last), TOPIC), UnreadableNode)


def test_everybody_who_names_a_ledger_is_told():
    node = read_cursor(a_cursor().SerializeToString(), 2)
    known = References(
        "s",
        lists={TOPIC: read_list(a_list().SerializeToString(), 6)},
        cursors={TOPIC: {"__compaction": node, "a b": CursorState(cursor_ledger=30)}},
        schemas={"t/ns/x": LocatorNode(3, (5, 7))},
        views={TOPIC: naming(18, 4)},
        packages=frozenset({40}),
    )
    named = {(ledger, referee.kind) for ledger, referee in named_ledgers(known)}
    assert named == {
        (9, RefereeKind.LEDGER_LIST),  # 3 has left BookKeeper
        (4, RefereeKind.CURSOR_NODE),
        (30, RefereeKind.CURSOR_NODE),
        (12, RefereeKind.DELAYED_BUCKETS),
        (18, RefereeKind.COMPACTION_CURSOR),  # and not 17, which the node says
        (5, RefereeKind.SCHEMA_LOCATOR),
        (7, RefereeKind.SCHEMA_LOCATOR),
        (40, RefereeKind.FUNCTIONS_LOG),
    }
    assert cursor_path(TOPIC, "a b") in {referee.node for _, referee in named_ledgers(known)}
