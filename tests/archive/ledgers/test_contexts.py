"""What a managed ledger says of its offloaded ledgers."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo
from offloader.archive.ledgers.contexts import LedgerContext, contexts_of_record, contexts_of_rest, found_in
from offloader.archive.snapshot import OffloadedLedger
from offloader.bookkeeper.managed_ledgers import Compression
from offloader.errors import ProtocolError
from offloader.model import LedgerSpan, Position
from offloader.testing.ledger_metadata import envelope
from tests.archive.support import TOPIC, uuid_of


def record(*ledgers: LedgerContext) -> ManagedLedgerInfo:
    """As a broker writes it."""
    info = ManagedLedgerInfo()
    for one in ledgers:
        added = info.ledgerInfo.add(ledgerId=one.ledger, timestamp=1)
        if one.last is not None:
            added.entries, added.size = one.last + 1, one.size
        if one.uuid:
            number = UUID(one.uuid).int
            halves = [half - 2**64 if half >= 2**63 else half for half in divmod(number, 2**64)]
            added.offloadContext.uidMsb, added.offloadContext.uidLsb = halves
            added.offloadContext.complete = one.complete
            added.offloadContext.driverMetadata.name = one.driver
            if one.bookkeeper_deleted:
                added.offloadContext.bookkeeperDeleted = True
            added.offloadContext.driverMetadata.properties.add(key="region", value="us-east-1")
            added.offloadContext.driverMetadata.properties.add(key="bucket", value=one.bucket)
    return info


OFFLOADED = LedgerContext(
    3, 59, 6609234, "f03accb8-3ebf-4598-8959-910acf1e18b1", complete=True, bucket="ledgers", driver="S3"
)
ATTEMPTED = LedgerContext(
    5, 59, 5263525, "cb755402-a6af-470f-93ca-ba1e6ce29ec2", complete=False, bucket="ledgers", driver="S3"
)
CLOSED = LedgerContext(7, 9, 1000)
OPEN = LedgerContext(8, None, 0)


def test_a_record_is_read():
    assert contexts_of_record(record(OFFLOADED, ATTEMPTED, CLOSED, OPEN).SerializeToString()) == (
        OFFLOADED,
        ATTEMPTED,
        CLOSED,
        OPEN,
    )


def test_only_complete_copies_are_offloaded():
    found = found_in(TOPIC, (OFFLOADED, ATTEMPTED, CLOSED, OPEN), lambda bucket: f"s3://{bucket}")
    assert found.ledgers == (
        OffloadedLedger(Position(0, 3, 0), Position(0, 3, 59), OFFLOADED.uuid, 6609234, "s3://ledgers"),
    )
    assert found.listed is not None
    assert found.listed.spans == (LedgerSpan(3, 59), LedgerSpan(5, 59), LedgerSpan(7, 9), LedgerSpan(8, None))


def test_an_empty_ledger_is_listed_and_not_offloaded():
    contexts = contexts_of_record(record(LedgerContext(2, -1, 0), OFFLOADED, OPEN).SerializeToString())
    assert contexts[0] == LedgerContext(2, -1, 0)
    assert [ledger.start.ledger for ledger in found_in(TOPIC, contexts).ledgers] == [3]


def test_the_record_of_a_new_topic_is_empty():
    assert contexts_of_record(b"") == ()


contexts = st.builds(
    LedgerContext,
    ledger=st.integers(0, 2**62),
    last=st.integers(0, 2**40),
    size=st.integers(0, 2**40),
    uuid=st.uuids().map(str),
    complete=st.booleans(),
    bucket=st.text(max_size=5),
    driver=st.text(max_size=5),
    bookkeeper_deleted=st.booleans(),
)


@given(st.lists(contexts, max_size=5, unique_by=lambda c: c.ledger), st.sampled_from(Compression.values()))
def test_whatever_a_broker_writes_is_read_in_order(written, codec):
    data = record(*written).SerializeToString()
    assert contexts_of_record(envelope(data, codec)) == tuple(sorted(written, key=lambda c: c.ledger))


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
    "ledgers": [
        # in this order; the second one's copy failed
        {"ledgerId": 8, "timestamp": 1795273281753, "isOffloaded": False},
        {"ledgerId": 3, "entries": 60, "size": 6609234, "isOffloaded": True, "offloadedContextUuid": OFFLOADED.uuid},
        {"ledgerId": 5, "entries": 60, "size": 5263525, "isOffloaded": True, "offloadedContextUuid": ATTEMPTED.uuid},
    ],
    "cursors": {},
    "properties": {},
}


def test_rest_says_which_copies_are_complete_in_one_place_and_where_they_are_in_another():
    assert contexts_of_rest(stats(), INFO) == (
        LedgerContext(3, 59, 6609234, OFFLOADED.uuid, complete=True),
        LedgerContext(5, 59, 5263525, ATTEMPTED.uuid, complete=False),
        LedgerContext(8, None, 1620566),
    )
    assert [ledger.uuid for ledger in found_in(TOPIC, contexts_of_rest(stats(), INFO)).ledgers] == [OFFLOADED.uuid]
    assert found_in(TOPIC, contexts_of_rest(stats(first=False), INFO)).ledgers == ()


def test_an_answer_that_we_do_not_know_is_refused():
    with pytest.raises(ProtocolError, match="a way that we do not know"):
        contexts_of_rest(stats(), {**INFO, "ledgers": [{"id": 3}]})


def test_a_uuid_has_its_leading_zeros():
    context = LedgerContext(1, 0, 1, uuid_of(1), complete=True)
    assert contexts_of_record(record(context).SerializeToString()) == (context,)
