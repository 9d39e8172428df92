"""Bridged objects: whatever segments a ledger lies in, stock brokers read every entry of it from one object."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offloader._proto.managed_ledger_pb2 import LedgerMetadataFormat
from offloader.bookkeeper.model import DigestType, Fragment, LedgerMetadata, LedgerState
from offloader.bridge.core.assembly import assemble, index_metadata, thinned
from offloader.bridge.core.pieces import ObjectPlan, SourceRange
from offloader.errors import DamagedObjectError, IntegrityError
from offloader.format.index import IndexEntry
from offloader.format.ledger_account import account_ledger
from offloader.format.v1 import decode_ledger_index, encode_ledger_index
from offloader.model import SegmentLayout
from tests.format.support import small_cuts

from .stock_reader import StockReader, StockReaderError
from .support import ArchivedTopic, archived, copied_from_brokers, topics

OWNER = "pulsar/managed-ledger"

FEWER = settings(max_examples=max(settings.default.max_examples // 5, 10))
LEAST = st.sampled_from([1, 300, 2_000, 20_000])
WAYS = pytest.mark.parametrize("seeks_first", [True, False], ids=["4.0.7", "before"])


def planned(
    topic: ArchivedTopic, ledger: int, least: int = 300, copy: int = 2_000, *, copies: bool = True
) -> ObjectPlan:
    coverage = topic.whole(ledger)
    filled = topic.filled(coverage.missing)
    return assemble(coverage, topic.sources, filled, copy_size=copy, least_part=least, server_copies=copies)


def encoded(plan: ObjectPlan, last: int) -> bytes:
    return encode_ledger_index(plan.size, index_metadata(last, plan.length, "a/b/persistent/c", 1, None), plan.index)


@FEWER
@given(topics(), LEAST, st.integers(1, 60_000), st.booleans(), st.randoms(use_true_random=False))
def test_a_stock_broker_reads_every_entry_in_any_order(
    topic: ArchivedTopic, least, copy, copies, random: Random
) -> None:
    for ledger, entries in topic.entries.items():
        plan = planned(topic, ledger, least, copy, copies=copies)
        data, last = topic.uploaded(plan), len(entries) - 1
        index = encoded(plan, last)
        assert len(data) == plan.size
        assert plan.length == sum(map(len, entries))
        for seeks_first in (True, False):
            reader = StockReader(data, index, last, seeks_first=seeks_first)
            for _ in range(10):
                first = random.randint(0, last)
                until = random.choice((first, last, random.randint(first, last)))
                assert reader.read(first, until) == entries[first : until + 1]
            assert StockReader(data, index, last, seeks_first=seeks_first).read(0, last) == entries


@FEWER
@given(topics())
def test_every_byte_and_index_entry_of_it_is_accounted_for(topic: ArchivedTopic) -> None:
    for ledger, entries in topic.entries.items():
        plan = planned(topic, ledger)
        decoded = decode_ledger_index(encoded(plan, len(entries) - 1), ledger)
        account = account_ledger([topic.uploaded(plan)], ledger, decoded)
        assert (account.entries, account.payload) == (len(entries), plan.length)
        assert decoded.entries == plan.index


@FEWER
@given(topics())
def test_no_read_goes_over_more_than_a_block(topic: ArchivedTopic) -> None:
    """And with segments' own steps over no more than one of them, or one entry."""
    for ledger, entries in topic.entries.items():
        plan, last = planned(topic, ledger), len(entries) - 1
        reader = StockReader(topic.uploaded(plan), encoded(plan, last), last)
        for entry in range(len(entries)):
            reader.read(entry, entry)
        steps = [segment.cuts.index_step for segment in topic.segments]
        largest = max(map(len, entries)) + 12
        assert reader.skipped <= max(*steps, largest, 256 * 1024 if plan.filled else 0)


@FEWER
@given(topics(), st.booleans())
def test_what_is_said_of_a_pieces_bytes_is_so(topic: ArchivedTopic, copies) -> None:
    for ledger in topic.entries:
        plan = planned(topic, ledger, copies=copies)
        data = topic.uploaded(plan)
        for piece in plan.pieces:
            assert piece.crc32c in (None, crc32c.crc32c(data[piece.offset : piece.end]))
        for part in plan.parts:
            assert part.crc32c in (None, crc32c.crc32c(data[part.offset : part.offset + part.size]))
        assert [p.offset for p in plan.pieces] == [0, *(p.end for p in plan.pieces[:-1])]
        assert plan.crc32c in (None, crc32c.crc32c(data))


@FEWER
@given(topics(), LEAST, st.integers(1, 60_000))
def test_the_bytes_and_the_index_do_not_depend_on_how_they_are_uploaded(topic: ArchivedTopic, least, copy) -> None:
    """Brokers remember offsets of entries: an object that is built anew must have them where they were."""
    for ledger in topic.entries:
        one, other = planned(topic, ledger, least, copy), planned(topic, ledger, copies=False)
        assert (one.index, one.pieces, one.size) == (other.index, other.pieces, other.size)
        assert topic.uploaded(one) == topic.uploaded(other)


def test_whole_parts_have_sums_also_where_the_first_header_is_another() -> None:
    topic = archived({5: [b"x" * 300] * 40}, [], cuts=SegmentLayout(2_000, 1_000, 300))
    plan = planned(topic, 5)
    assert plan.crc32c == crc32c.crc32c(topic.uploaded(plan))
    assert len(plan.pieces) == 1 + len(topic.segments[0].parts)


def test_of_a_part_that_is_taken_partly_nothing_is_said() -> None:
    topic = archived({5: [b"x" * 100] * 4, 6: [b"y" * 100] * 4}, [], cuts=SegmentLayout(100_000, 1_000, 300))
    for ledger in (5, 6):
        _header, rest = planned(topic, ledger).pieces
        assert isinstance(rest.source, SourceRange)
        assert rest.crc32c is None


@FEWER
@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=60),
    st.integers(450, 2_000),
    small_cuts(),
    st.integers(1, 3_000),
)
def test_a_ledger_that_brokers_had_offloaded_is_copied_as_it_is(entries, block_size, cuts, least) -> None:
    topic = copied_from_brokers(5, entries, block_size, cuts)
    plan, last = planned(topic, 5, least), len(entries) - 1
    data = topic.uploaded(plan)
    assert (data,) == tuple(topic.objects.values())
    assert plan.crc32c == crc32c.crc32c(data)
    assert account_ledger([data], 5, decode_ledger_index(encoded(plan, last), 5)).entries == len(entries)
    for seeks_first in (True, False):
        reader = StockReader(data, encoded(plan, last), last, seeks_first=seeks_first)
        assert [reader.read(entry, entry) for entry in reversed(range(len(entries)))] == [[e] for e in entries[::-1]]


# What would be wrong is found.


def broken_topic() -> ArchivedTopic:
    """Blocks that begin with entries 0, 6, 12 and so on, and one with 128."""
    return archived({5: [bytes([n]) * 60 for n in range(200)]}, [(5, 127)], cuts=SegmentLayout(1_000, 580, 200))


def test_without_padding_between_blocks_a_broker_reads_something_else() -> None:
    topic = broken_topic()
    plan = planned(topic, 5)
    data, index = topic.uploaded(plan), encoded(plan, 199)
    blocks = [entry for i, entry in enumerate(plan.index) if i == 0 or entry.block != plan.index[i - 1].block]
    bare, moved = _without_padding(data, plan, [block.offset for block in blocks])
    broken = encode_ledger_index(len(bare), decode_ledger_index(index, 5).metadata, moved)
    with pytest.raises(StockReaderError):
        StockReader(bare, broken, 199).read(0, 199)
    with pytest.raises(DamagedObjectError, match="no padding stands before"):
        account_ledger([bare], 5, decode_ledger_index(broken, 5))
    assert StockReader(data, index, 199).read(0, 199) == topic.entries[5]


def _without_padding(data: bytes, plan: ObjectPlan, begins: list[int]) -> tuple[bytes, list[IndexEntry]]:
    """Each block cut off behind its entries, its length and the index as if that were right."""
    found, moved = b"", []
    for number, (begin, end) in enumerate(zip(begins, [*begins[1:], len(data)], strict=True), 1):
        block = data[begin:end]
        block = block[: block.rindex(bytes.fromhex("fedcdead"))]
        moved += [replace(e, offset=e.offset - begin + len(found)) for e in plan.index if e.block == number]
        found += block[:12] + len(block).to_bytes(8, "big") + block[20:]
    return found, moved


def test_an_index_without_entry_0_is_refused() -> None:
    topic = broken_topic()
    plan = planned(topic, 5)
    with pytest.raises(IntegrityError, match="begins with entry"):
        encode_ledger_index(plan.size, index_metadata(199, plan.length, "m", 1, None), plan.index[1:])


@WAYS
def test_without_the_first_entry_of_a_block_in_the_index_a_broker_is_lost(seeks_first) -> None:
    topic = broken_topic()
    plan = planned(topic, 5)
    second = next(entry for entry in plan.index if entry.block == 2)
    behind = [entry for entry in plan.index if entry.block != 2]
    index = encode_ledger_index(plan.size, index_metadata(199, plan.length, "m", 1, None), behind)
    with pytest.raises(StockReaderError, match="for ever"):
        StockReader(topic.uploaded(plan), index, 199, seeks_first=seeks_first).read(second.entry, second.entry)
    with pytest.raises(DamagedObjectError, match="does not name this block's first entry"):
        account_ledger([topic.uploaded(plan)], 5, decode_ledger_index(index, 5))


def test_pieces_in_a_wrong_order_are_found() -> None:
    topic = broken_topic()
    plan = planned(topic, 5)
    data = topic.uploaded(plan)
    first = plan.index[0].offset + plan.pieces[1].end
    wrong = data[first:] + data[:first]
    index = encoded(plan, 199)
    with pytest.raises(StockReaderError):
        StockReader(wrong, index, 199).read(0, 199)
    with pytest.raises(DamagedObjectError):
        account_ledger([wrong], 5, decode_ledger_index(index, 5))


def test_the_magic_of_a_v2_block_at_the_begin_would_be_an_entry_128_to_older_brokers() -> None:
    topic = broken_topic()
    plan = planned(topic, 5)
    data = topic.uploaded(plan)
    v2 = topic.objects["key-0"][:128] + data[128:]
    index = encoded(plan, 199)
    with pytest.raises(StockReaderError):
        StockReader(v2, index, 199, seeks_first=False).read(128, 130)
    assert StockReader(v2, index, 199).read(128, 130) == topic.entries[5][128:131]
    assert StockReader(data, index, 199, seeks_first=False).read(128, 130) == topic.entries[5][128:131]


@FEWER
@given(topics(), st.randoms(use_true_random=False), st.integers(1, 255))
def test_a_changed_byte_that_is_no_entrys_is_found(topic: ArchivedTopic, random: Random, change) -> None:
    """Headers, lengths and ids of entries, padding, parts' indexes behind it."""
    ledger, entries = random.choice(list(topic.entries.items()))
    plan = planned(topic, ledger)
    data, index = bytearray(topic.uploaded(plan)), decode_ledger_index(encoded(plan, len(entries) - 1), ledger)
    data[random.choice(_outside_payloads(bytes(data), entries))] ^= change
    with pytest.raises(DamagedObjectError):
        account_ledger([bytes(data)], ledger, index)


def _outside_payloads(data: bytes, entries: list[bytes]) -> list[int]:
    found, at, entry = list[int](), 0, 0
    while at < len(data):
        end = at + int.from_bytes(data[at + 12 : at + 20], "big")
        found += range(at, at + 128)
        at += 128
        while data[at : at + 12] == len(entries[entry]).to_bytes(4, "big") + entry.to_bytes(8, "big"):
            found += range(at, at + 12)
            at += 12 + len(entries[entry])
            entry += 1
            if entry == len(entries):
                break
        found += range(at, end)
        at = end
    return found


def test_filled_entries_are_exactly_those_that_are_missing() -> None:
    topic = archived({5: [b"x"] * 9}, [], [(5, 3), (5, 4)])
    coverage = topic.whole(5)
    for given_ in [(), topic.filled(coverage.missing)[1:], tuple(reversed(topic.filled(coverage.missing)))]:
        with pytest.raises(IntegrityError, match="filled entries"):
            assemble(coverage, topic.sources, given_, copy_size=1_000)


def test_an_index_that_does_not_fit_the_record_is_refused() -> None:
    topic = archived({5: [b"x" * 50] * 30}, [], cuts=SegmentLayout(1_000, 500, 200))
    (uuid, source), *_ = topic.sources.items()
    shorter = replace(source, index=replace(source.index, data_length=source.index.data_length - 1))
    headless = replace(source.index.groups[0], entries=source.index.groups[0].entries[1:])
    for wrong in (shorter, replace(source, index=replace(source.index, groups=(headless,)))):
        with pytest.raises(IntegrityError, match=uuid):
            planned(replace(topic, sources={uuid: wrong}), 5)


@FEWER
@given(topics(), st.integers(1, 20))
def test_a_thinned_index_still_has_each_block(topic: ArchivedTopic, most) -> None:
    for ledger, entries in topic.entries.items():
        plan, last = planned(topic, ledger), len(entries) - 1
        thin = thinned(plan.index, most)
        blocks = {entry.block for entry in plan.index}
        assert {entry.block for entry in thin} == blocks
        assert set(thin) <= set(plan.index)
        assert len(thin) <= max(len(blocks) + most + 1, most)
        reader = StockReader(topic.uploaded(plan), encoded(replace(plan, index=thin), last), last)
        for entry in range(0, len(entries), 7):
            assert reader.read(entry, last) == entries[entry:]


NAME = "public/default/persistent/t"
KNOWN = LedgerMetadata(
    3,
    2,
    2,
    LedgerState.CLOSED,
    (Fragment(0, ("a:3181", "b:3181", "c:3181")), Fragment(7, ("a:3181", "d:3181", "c:3181"))),
    DigestType.HMAC,
    b"secret",
    9,
    1_000,
    5,
    {"application": b"pulsar", OWNER: b"other/ns/persistent/t", "ours": b"\xff"},
)


def said(known: LedgerMetadata | None, last: int = 9, length: int = 1_000) -> LedgerMetadataFormat:
    return LedgerMetadataFormat.FromString(index_metadata(last, length, NAME, 77, known))


def custom(message: LedgerMetadataFormat) -> dict[str, bytes]:
    return {each.key: each.value for each in message.customMetadata}


def test_bookkeepers_record_is_kept_without_its_password() -> None:
    message = said(KNOWN)
    assert (message.ensembleSize, message.quorumSize, message.ackQuorumSize) == (3, 2, 2)
    assert (message.digestType, message.ctime) == (LedgerMetadataFormat.HMAC, 5)
    assert [(each.firstEntryId, tuple(each.ensembleMember)) for each in message.segment] == [
        (each.first_entry, each.ensemble) for each in KNOWN.fragments
    ]
    assert custom(message) == {"component": b"managed-ledger", **KNOWN.custom}
    assert not message.HasField("password")
    assert not message.HasField("cToken")


def test_without_one_it_is_small_and_names_the_owner() -> None:
    message = said(None)
    assert (message.ensembleSize, message.quorumSize, message.ackQuorumSize, message.ctime) == (1, 1, 1, 77)
    assert custom(message) == {"application": b"pulsar", "component": b"managed-ledger", OWNER: NAME.encode()}


@pytest.mark.parametrize("known", [KNOWN, None, replace(KNOWN, state=LedgerState.OPEN, last_entry=-1, length=0)])
def test_it_is_closed_with_what_the_archive_has(known) -> None:
    message = said(known)
    assert (message.state, message.lastEntryId, message.length) == (LedgerMetadataFormat.CLOSED, 9, 1_000)
    assert index_metadata(9, 1_000, NAME, 77, known) == index_metadata(9, 1_000, NAME, 77, known)


@pytest.mark.parametrize(("last", "length"), [(8, 1_000), (9, 999), (10, 1_000)])
def test_another_end_or_length_than_bookkeepers_is_damage(last, length) -> None:
    with pytest.raises(IntegrityError, match="ends with entry 9 and has 1000 bytes"):
        said(KNOWN, last, length)
