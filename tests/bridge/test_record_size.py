"""No context is put into a record that ZooKeeper might refuse afterwards."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo, ManagedLedgerInfoMetadata
from offloader.bookkeeper.managed_ledgers import Compression, wrapped
from offloader.bridge.core.rewrite import OffloadContextFacts, with_contexts
from offloader.bridge.record_size import no_room, size_of
from offloader.metadata.bridges import BridgedLedger
from offloader.model import TopicName

TOPIC = TopicName.parse("public/default/t")
BUCKET = "s3://pulsar-brokers"


def ledgers(first: int, count: int) -> list[BridgedLedger]:
    return [
        BridgedLedger(1_000_000 + n, 9, 100, str(UUID(int=Random(n).getrandbits(128))))
        for n in range(first, first + count)
    ]


def record_of(count: int, bridged: int = 0) -> bytes:
    info = ManagedLedgerInfo()
    for one in ledgers(0, count):
        info.ledgerInfo.add(ledgerId=one.ledger, entries=50_000, size=900_000_000, timestamp=1_760_000_000_000)
    facts = {
        one.ledger: OffloadContextFacts(one.uuid, "aws-s3", (("bucket", "pulsar-brokers"),), 1_760_000_000_000)
        for one in ledgers(0, bridged)
    }
    return with_contexts(info.SerializeToString(), facts)


def compressed(record: bytes) -> bytes:
    return wrapped(ManagedLedgerInfoMetadata(compressionType=Compression.ZSTD, uncompressedSize=len(record)), record)


def test_a_record_takes_contexts_up_to_a_size_and_no_more() -> None:
    record = record_of(300, 200)
    most = len(record_of(300, 290))  # each is counted with the longest driver's name
    assert no_room(TOPIC, record, ledgers(200, 70), BUCKET, most) == ""
    refusal = no_room(TOPIC, record, ledgers(200, 100), BUCKET, most)
    assert "managedLedgerInfoCompressionType=ZSTD" in refusal
    assert "bridge.recordSizeInBytes" in refusal


def test_what_counts_is_what_is_stored() -> None:
    record = compressed(record_of(300, 200))
    assert no_room(TOPIC, record, ledgers(200, 100), BUCKET, len(record_of(300, 200))) == ""
    refusal = no_room(TOPIC, record, ledgers(200, 100), BUCKET, len(record))
    assert "managedLedgerInfoCompressionType" not in refusal
    assert "fewer ledgers" in refusal


def test_ledgers_that_get_no_context_take_no_room() -> None:
    full = record_of(20, 20)
    assert no_room(TOPIC, full, [*ledgers(0, 20), *ledgers(100, 20)], BUCKET, len(full)) == ""


@pytest.mark.parametrize(("count", "advised"), [(100, False), (300, True)])
def test_what_makes_room_is_said_before_it_is_needed(count: int, advised: bool) -> None:
    found = size_of(record_of(count, count), 2 * len(record_of(200, 200)))
    assert bool(found.advice) is advised
    assert ("managedLedgerInfoCompressionType=ZSTD" in found.advice) is advised
