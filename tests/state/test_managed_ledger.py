"""What a managed ledger says of its ledgers, from its node and from the admin REST."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo
from offloader.archive.ledgers.found import found_in
from offloader.archive.snapshot import OffloadedLedger
from offloader.errors import DamagedRecordError, ProtocolError
from offloader.model import LedgerSpan, Position
from offloader.pulsar.topic_rest import managed_ledger_of
from offloader.state.managed_ledger import ListedLedger, ManagedLedger, OffloadContext
from offloader.state.managed_ledger_codec import decode_managed_ledger, encode_context
from tests.archive.support import TOPIC, uuid_of
from tests.bookkeeper.damage import damaged
from tests.fakes.ledger_metadata import Compression, encode_managed_ledger

IN_A_BUCKET = (("region", "us-east-1"), ("bucket", "ledgers"))
NUMBERS = st.integers(0, 2**62)
TEXTS = st.text(max_size=5)
COMPRESSIONS = st.sampled_from(Compression.values())


def copy(uuid: str, *, complete: bool) -> OffloadContext:
    return OffloadContext(uuid, complete, properties=IN_A_BUCKET, driver="S3", timestamp_ms=5)


OFFLOADED = ListedLedger(3, 60, 6609234, 1, copy("f03accb8-3ebf-4598-8959-910acf1e18b1", complete=True))
ATTEMPTED = ListedLedger(5, 60, 5263525, 1, copy("cb755402-a6af-470f-93ca-ba1e6ce29ec2", complete=False))
CLOSED = ListedLedger(7, 10, 1000, 1)
OPEN = ListedLedger(8)
RECORD = ManagedLedger((OFFLOADED, ATTEMPTED, CLOSED, OPEN))

CONTEXTS = st.builds(
    OffloadContext,
    uuid=st.uuids().map(str),
    complete=st.booleans(),
    bookkeeper_deleted=st.booleans(),
    properties=st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple),
    driver=TEXTS,
    timestamp_ms=NUMBERS,
)
LEDGERS = st.builds(ListedLedger, NUMBERS, st.integers(1, 2**40), NUMBERS, NUMBERS, st.none() | CONTEXTS)
MANAGED_LEDGERS = st.builds(
    ManagedLedger,
    st.lists(LEDGERS, max_size=5, unique_by=lambda one: one.ledger).map(
        lambda found: tuple(sorted(found, key=lambda one: one.ledger))
    ),
    terminated=st.none() | st.tuples(NUMBERS, st.integers(-1, 2**40)),
    properties=st.dictionaries(TEXTS, TEXTS, max_size=3),
)


@given(MANAGED_LEDGERS, COMPRESSIONS)
def test_whatever_a_broker_writes_is_read(written: ManagedLedger, codec: int) -> None:
    assert decode_managed_ledger(encode_managed_ledger(written, codec)) == written


@given(
    MANAGED_LEDGERS.flatmap(lambda one: COMPRESSIONS.map(lambda codec: encode_managed_ledger(one, codec))).flatmap(
        damaged
    )
)
def test_damage_is_refused_or_still_a_list_in_order(data: bytes) -> None:
    try:
        found = decode_managed_ledger(data)
    except DamagedRecordError:
        return
    ids = [one.ledger for one in found.ledgers]
    assert ids == sorted(set(ids))
    assert min(ids, default=0) >= 0


def test_a_context_of_no_text_is_damage() -> None:
    context = encode_context(copy(uuid_of(1), complete=True)).replace(b"us-east-1", b"\xff" * 9)
    info = ManagedLedgerInfo()
    info.ledgerInfo.add(ledgerId=3).offloadContext.MergeFromString(context)
    with pytest.raises(DamagedRecordError, match="a property is no text"):
        decode_managed_ledger(info.SerializeToString())


def test_only_complete_copies_are_offloaded() -> None:
    found = found_in(TOPIC, RECORD, lambda bucket: f"s3://{bucket}")
    assert found.ledgers == (
        OffloadedLedger(Position(0, 3, 0), Position(0, 3, 59), OFFLOADED.copy.uuid, 6609234, "s3://ledgers"),
    )
    assert found.listed is not None
    assert found.listed.spans == (LedgerSpan(3, 59), LedgerSpan(5, 59), LedgerSpan(7, 9), LedgerSpan(8, None))


def test_an_empty_ledger_is_listed_and_not_offloaded() -> None:
    listed = ManagedLedger((ListedLedger(2, timestamp_ms=1), OFFLOADED, OPEN))
    assert [listed.last_entry(one) for one in listed.ledgers] == [-1, 59, None]
    assert [ledger.start.ledger for ledger in found_in(TOPIC, listed).ledgers] == [3]


def test_a_ledger_behind_the_end_of_a_terminated_topic_is_empty() -> None:
    listed = ManagedLedger((OFFLOADED, OPEN), terminated=(3, 59))
    assert [listed.last_entry(one) for one in listed.ledgers] == [59, -1]
    assert ManagedLedger((OFFLOADED, OPEN), terminated=(8, 4)).last_entry(OPEN) is None  # its count is not recorded yet


def test_the_record_of_a_new_topic_is_empty() -> None:
    assert decode_managed_ledger(b"") == ManagedLedger()


def stats(**offloaded: bool) -> dict[str, object]:
    """What 4.0.7 answers to `internalStats`, shortened."""
    ledgers = [
        {
            "ledgerId": 3,
            "entries": 60,
            "size": 6609234,
            "offloaded": offloaded.get("first", True),
            "underReplicated": False,
        },
        {"ledgerId": 5, "entries": 60, "size": 5263525, "offloaded": False, "underReplicated": False},
        {"ledgerId": 8, "entries": 0, "size": 0, "offloaded": False, "underReplicated": False},
    ]
    return {
        "currentLedgerEntries": 32,
        "currentLedgerSize": 1620566,
        "lastConfirmedEntry": "8:31",
        "state": "LedgerOpened",
        "ledgers": ledgers,
        "cursors": {},
    }


INFO = {
    "version": 9,
    "creationDate": "2026-11-21T15:01:18.653Z",
    "modificationDate": "2026-11-21T15:01:19.653Z",
    "ledgers": [
        # in this order; the second one's copy failed
        {"ledgerId": 8, "timestamp": 1795273281753, "isOffloaded": False},
        {
            "ledgerId": 3,
            "entries": 60,
            "size": 6609234,
            "timestamp": 1,
            "isOffloaded": True,
            "offloadedContextUuid": OFFLOADED.copy.uuid,
        },
        {
            "ledgerId": 5,
            "entries": 60,
            "size": 5263525,
            "timestamp": 1,
            "isOffloaded": True,
            "offloadedContextUuid": ATTEMPTED.copy.uuid,
        },
    ],
    "cursors": {},
    "properties": {},
}


def test_rest_says_which_copies_are_complete_in_one_place_and_where_they_are_in_another() -> None:
    found = managed_ledger_of(INFO, stats())
    assert found.ledgers == (
        ListedLedger(3, 60, 6609234, 1, OffloadContext(OFFLOADED.copy.uuid, complete=True)),
        ListedLedger(5, 60, 5263525, 1, OffloadContext(ATTEMPTED.copy.uuid)),
        ListedLedger(8),
    )
    assert [ledger.uuid for ledger in found_in(TOPIC, found).ledgers] == [OFFLOADED.copy.uuid]
    assert found_in(TOPIC, managed_ledger_of(INFO, stats(first=False))).ledgers == ()


def test_the_last_ledger_of_a_terminated_topic_has_a_count_though_its_record_has_none() -> None:
    found = managed_ledger_of(INFO, {**stats(), "state": "Terminated"})
    assert found.terminated == (8, 31)
    assert found.last_entry(found.ledgers[-1]) == 31


def test_an_answer_that_we_do_not_know_is_refused() -> None:
    with pytest.raises(ProtocolError, match="a way that we do not know"):
        managed_ledger_of({**INFO, "ledgers": [{"id": 3}]}, stats())


def test_a_uuid_has_its_leading_zeros() -> None:
    listed = ManagedLedger((ListedLedger(1, 1, 1, 1, OffloadContext(uuid_of(1), complete=True)),))
    assert decode_managed_ledger(encode_managed_ledger(listed)) == listed
