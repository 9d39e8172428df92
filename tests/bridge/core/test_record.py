"""A managed ledger's record with our contexts and without them: nothing else in it changes by a byte."""

from __future__ import annotations

import random
import struct
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo, ManagedLedgerInfoMetadata
from offloader.bridge.core.record import (
    bytes_field,
    first_unfit,
    no_room,
    size_of,
    wire_fields,
    with_contexts,
    without_contexts,
)
from offloader.bridge.core.rounds import BridgedLedger
from offloader.errors import DamagedRecordError, IntegrityError
from offloader.model import TopicName
from offloader.state.envelope import unwrapped, wrapped
from offloader.state.managed_ledger import OffloadContext
from offloader.state.managed_ledger_codec import decode_managed_ledger, decode_record
from tests.examples import worlds
from tests.fakes.ledger_metadata import Compression

HEADER = struct.Struct(">2si")

MAGIC = bytes.fromhex("4778")

# Fields of another version: a number, a text, fixed ones of 8 and 4 bytes.
UNKNOWN = [bytes.fromhex("d00505"), bytes.fromhex("da05036e6577"), b"\xe1\x05" + b"8" * 8, b"\xed\x05" + b"4" * 4]
NUMBERS = st.integers(0, 2**63 - 1)
UUIDS = st.uuids().map(str)


@st.composite
def ledgers(draw: st.DrawFn, ledger: int) -> bytes:
    """One of the list, its fields in any order, as any version may write it."""
    one = ManagedLedgerInfo.LedgerInfo
    fields = [one(ledgerId=ledger).SerializePartialToString()]
    for name in draw(st.sets(st.sampled_from(["entries", "size", "timestamp"]))):
        fields.append(one(**{name: draw(NUMBERS)}).SerializePartialToString())
    stock = one()
    for _ in range(draw(st.integers(0, 2))):
        stock.properties.add(key=draw(st.text(max_size=5)), value=draw(st.text(max_size=5)))
    fields += [field.whole for field in wire_fields(stock.SerializePartialToString())]
    fields += draw(st.lists(st.sampled_from(UNKNOWN), max_size=2))
    if draw(st.booleans()):
        fields.append(bytes_field(5, b""))
    return bytes_field(1, b"".join(draw(st.permutations(fields))))


@st.composite
def records(draw: st.DrawFn) -> tuple[list[int], bytes]:
    """The ids in the list, and a record with it."""
    ids = draw(st.lists(NUMBERS, unique=True, min_size=1, max_size=6))
    fields = [draw(ledgers(ledger)) for ledger in ids]
    rest = ManagedLedgerInfo()
    if draw(st.booleans()):
        rest.terminatedPosition.ledgerId, rest.terminatedPosition.entryId = draw(NUMBERS), -1
    for _ in range(draw(st.integers(0, 2))):
        rest.properties.add(key="index", value=str(draw(NUMBERS)))
    fields += [field.whole for field in wire_fields(rest.SerializePartialToString())]
    fields += draw(st.lists(st.sampled_from(UNKNOWN), max_size=2))
    return ids, b"".join(draw(st.permutations(fields)))


def facts(uuid: str, **more: Any) -> OffloadContext:
    properties = (("bucket", "b"), ("managedLedgerOffloadDriver", "S3"), ("serviceEndpoint", "http://s"))
    return OffloadContext(uuid, True, False, properties, "S3", more.get("at", 1_700_000_000_000))


def envelope(compression: int) -> ManagedLedgerInfoMetadata | None:
    if compression == 0:
        return None
    return ManagedLedgerInfoMetadata(compressionType=Compression.Name(compression), uncompressedSize=0)


@worlds
@given(records(), st.data(), st.sampled_from(Compression.values()))
def test_contexts_go_in_and_out_and_nothing_else_changes(
    made: tuple[list[int], bytes], data: st.DataObject, compression: int
) -> None:
    ids, plain = made
    record = wrapped(envelope(compression), plain)
    chosen = data.draw(st.sets(st.sampled_from(ids)))
    uuids = {ledger: data.draw(UUIDS) for ledger in chosen}
    contexts = {ledger: facts(uuid) for ledger, uuid in uuids.items()}

    after = with_contexts(record, contexts)
    assert with_contexts(after, contexts) == after
    assert {one.ledger: one.copy.uuid for one in decode_managed_ledger(after).ledgers if one.copy.complete} == uuids
    assert (after == record) == (not chosen)
    assert after.startswith(MAGIC) == record.startswith(MAGIC)

    before, now = decode_record(record), decode_record(after)
    assert [one.ledgerId for one in now.ledgerInfo] == [one.ledgerId for one in before.ledgerInfo]
    for one, other in zip(before.ledgerInfo, now.ledgerInfo, strict=True):
        if one.ledgerId in chosen:
            one.ClearField("offloadContext")
            other.ClearField("offloadContext")
    assert before.SerializePartialToString() == now.SerializePartialToString()

    back = without_contexts(after, uuids)
    assert unwrapped(back)[1] == plain
    assert without_contexts(record, uuids) == record


def test_a_context_has_just_the_bytes_that_a_stock_broker_writes() -> None:
    """Halves below zero have ten bytes, the fields ascend, and `bookkeeperDeleted` is not set."""
    info = ManagedLedgerInfo()
    info.ledgerInfo.add(ledgerId=2, entries=3, size=9, timestamp=4)
    uuid = "f8f2a3c1-0000-4000-8000-00000000002a"
    after = decode_record(with_contexts(info.SerializeToString(), {2: facts(uuid)}))
    context = after.ledgerInfo[0].offloadContext
    assert UUID(int=((context.uidMsb % 2**64) << 64) + context.uidLsb % 2**64) == UUID(uuid)
    assert context.uidMsb < 0 > context.uidLsb
    assert context.complete
    assert not context.HasField("bookkeeperDeleted")
    assert context.SerializeToString()[:11] == b"\x08" + _varint(context.uidMsb % 2**64)
    assert next((one.key, one.value) for one in context.driverMetadata.properties) == ("bucket", "b")
    assert [field.number for field in wire_fields(context.SerializeToString())] == [1, 2, 3, 5, 6]


def _varint(number: int) -> bytes:
    found = []
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def listed(**context: Any) -> bytes:
    info = ManagedLedgerInfo()
    info.ledgerInfo.add(ledgerId=1, entries=3)
    info.ledgerInfo.add(ledgerId=2, entries=3)
    for name, value in context.items():
        setattr(info.ledgerInfo[0].offloadContext, name, value)
    return info.SerializeToString()


OURS = "00000000-0000-0001-0000-000000000002"
OTHER = "00000000-0000-0001-0000-000000000003"


@pytest.mark.parametrize("complete", [True, False])
def test_a_context_of_brokers_is_never_replaced_nor_taken_out(complete: bool) -> None:
    record = listed(uidMsb=1, uidLsb=3, complete=complete)
    assert decode_managed_ledger(record).ledgers[0].copy.uuid == OTHER
    with pytest.raises(IntegrityError, match="another offload context"):
        with_contexts(record, {1: facts(OURS)})
    assert without_contexts(record, {1: OURS}) == record


def test_what_a_broker_noted_in_our_context_stays() -> None:
    record = listed(uidMsb=1, uidLsb=2, complete=True, bookkeeperDeleted=True, timestamp=77)
    assert with_contexts(record, {1: facts(OURS)}) == record


def test_a_context_stays_once_bookkeeper_s_copy_is_gone() -> None:
    record = listed(uidMsb=1, uidLsb=2, complete=True, bookkeeperDeleted=True)
    with pytest.raises(IntegrityError, match="deleted BookKeeper's copy"):
        without_contexts(record, {1: OURS})


def test_a_ledger_that_is_not_in_the_list_gets_no_context() -> None:
    with pytest.raises(IntegrityError, match=r"not in the list: \[3\]"):
        with_contexts(listed(), {3: facts(OURS)})
    assert without_contexts(listed(), {3: OURS}) == listed()


TWICE = bytes_field(1, b"\x08\x01" + 2 * bytes_field(5, b"\x08\x01"))
STRANGE = {
    "two contexts, which readers merge": TWICE,
    "two ids": bytes_field(1, b"\x08\x01\x08\x02"),
    "a group": bytes_field(1, b"\x08\x01") + b"\xdb\x05\xdc\x05",
    "a ledger twice": 2 * bytes_field(1, b"\x08\x01"),
    "no id": bytes_field(1, b"\x10\x01"),
    "cut off": bytes_field(1, b"\x08\x01")[:-1],
    "a header without a record": MAGIC + bytes(4),
    "an envelope of an unknown codec": HEADER.pack(MAGIC, 4) + b"\x08\x09\x10\x01" + b"x",
}


@pytest.mark.parametrize("record", STRANGE.values(), ids=STRANGE)
def test_a_record_that_is_not_understood_is_refused(record: bytes) -> None:
    with pytest.raises(DamagedRecordError):
        with_contexts(record, {1: facts(OURS)})


@worlds
@given(records(), st.data())
def test_damage_is_refused_or_kept_as_it_is(made: tuple[list[int], bytes], data: st.DataObject) -> None:
    ids, record = made
    place = data.draw(st.integers(0, len(record) - 1))
    broken = record[:place] + bytes([data.draw(st.integers(0, 255))]) + record[place + 1 :]
    assume(broken != record)
    try:
        after = with_contexts(broken, {ids[0]: facts(OURS)})
    except IntegrityError:
        return
    assert without_contexts(after, {ids[0]: OURS}) in (broken, after)


def test_a_list_of_ten_thousand_ledgers_takes_its_contexts_in_a_second() -> None:
    info = ManagedLedgerInfo()
    for ledger in range(10_000):
        info.ledgerInfo.add(ledgerId=ledger, entries=50_000, size=2**31, timestamp=1_700_000_000_000)
    record = info.SerializeToString()
    rng = random.Random(1)
    contexts = {ledger: facts(str(UUID(int=rng.getrandbits(128)))) for ledger in range(0, 10_000, 100)}
    after = with_contexts(record, contexts)
    assert without_contexts(after, {ledger: one.uuid for ledger, one in contexts.items()}) == record


def test_the_newest_ledger_of_a_list_is_unfit_and_so_is_the_end_of_a_terminated_topic() -> None:
    """A broker makes its part of the list anew at each load, without context (ManagedLedgerImpl.initialize)."""
    info = ManagedLedgerInfo()
    for ledger in (9, 4, 7):
        info.ledgerInfo.add(ledgerId=ledger, entries=1)
    assert first_unfit(decode_managed_ledger(info.SerializeToString())) == 9
    info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = 7, 0
    assert first_unfit(decode_managed_ledger(info.SerializeToString())) == 7


TOPIC = TopicName.parse("public/default/t")
BUCKET = "s3://pulsar-brokers"


def bridged_ledgers(first: int, count: int) -> list[BridgedLedger]:
    return [
        BridgedLedger(1_000_000 + n, 9, 100, str(UUID(int=Random(n).getrandbits(128))))
        for n in range(first, first + count)
    ]


def record_of(count: int, bridged: int = 0) -> bytes:
    info = ManagedLedgerInfo()
    for one in bridged_ledgers(0, count):
        info.ledgerInfo.add(ledgerId=one.ledger, entries=50_000, size=900_000_000, timestamp=1_760_000_000_000)
    facts = {
        one.ledger: OffloadContext(one.uuid, True, False, (("bucket", "pulsar-brokers"),), "aws-s3", 1_760_000_000_000)
        for one in bridged_ledgers(0, bridged)
    }
    return with_contexts(info.SerializeToString(), facts)


def compressed(record: bytes) -> bytes:
    return wrapped(ManagedLedgerInfoMetadata(compressionType=Compression.ZSTD, uncompressedSize=len(record)), record)


def test_a_record_takes_contexts_up_to_a_size_and_no_more() -> None:
    record = record_of(300, 200)
    most = len(record_of(300, 290))  # each is counted with the longest driver's name
    assert no_room(TOPIC, record, bridged_ledgers(200, 70), BUCKET, most) == ""
    refusal = no_room(TOPIC, record, bridged_ledgers(200, 100), BUCKET, most)
    assert "managedLedgerInfoCompressionType=ZSTD" in refusal
    assert "bridge.recordSizeInBytes" in refusal


def test_what_counts_is_what_is_stored() -> None:
    record = compressed(record_of(300, 200))
    assert no_room(TOPIC, record, bridged_ledgers(200, 100), BUCKET, len(record_of(300, 200))) == ""
    refusal = no_room(TOPIC, record, bridged_ledgers(200, 100), BUCKET, len(record))
    assert "managedLedgerInfoCompressionType" not in refusal
    assert "fewer ledgers" in refusal


def test_ledgers_that_get_no_context_take_no_room() -> None:
    full = record_of(20, 20)
    assert no_room(TOPIC, full, [*bridged_ledgers(0, 20), *bridged_ledgers(100, 20)], BUCKET, len(full)) == ""


@pytest.mark.parametrize(("count", "advised"), [(100, False), (300, True)])
def test_what_makes_room_is_said_before_it_is_needed(count: int, advised: bool) -> None:
    found = size_of(record_of(count, count), 2 * len(record_of(200, 200)))
    assert bool(found.advice) is advised
    assert ("managedLedgerInfoCompressionType=ZSTD" in found.advice) is advised
