"""Records: what was written is read back; what is damaged is told apart; what a newer version wrote is not lost."""

import dataclasses
import zlib
from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError, FatalError, FormatVersionError
from offloader.lifecycle.deletion.records import PendingDeleteLedgerInfo
from offloader.metadata import envelope
from offloader.metadata.catalog_codec import decode_catalog, encode_catalog, standing
from offloader.metadata.envelope import encode_fence, unwrap, wrap
from offloader.metadata.journal_codec import (
    decode_journal,
    decode_topic,
    encode_changes,
    encode_full,
    encode_topic,
)
from offloader.metadata.message_codec import MESSAGES, parts_message, read_parts
from offloader.metadata.state import CatalogHead, OpenTopic, Record, Releasing, TopicState
from offloader.model import Part

from . import support
from .support import MIXES, TOPIC, catalog_records, claim, full_segment, offloaded, state, topic_states


@given(st.lists(support.parts, min_size=1, max_size=4))
def test_parts_survive(parts: list[Part]):
    assert read_parts(parts_message(parts)) == tuple(parts)


@pytest.mark.parametrize("mix", MIXES, ids=lambda m: m[0])
def test_the_parts_of_a_full_segment_survive(mix):
    parts = full_segment(mix[1], mix[2], seed=1).parts
    assert read_parts(parts_message(parts)) == parts


@given(topic_states)
def test_a_topic_s_state_survives(topic: TopicState):
    encoded = encode_topic(topic)
    assert decode_topic("key", encoded.data) == encoded


@given(topic=topic_states, full=st.booleans())
def test_a_journal_record_survives(topic: TopicState, *, full: bool):
    data = (
        encode_full("t", [encode_topic(topic).data], "new")
        if full
        else encode_changes("t", [encode_topic(topic).data], [TOPIC])
    )
    record = decode_journal("key", data)
    assert {t: decode_topic("key", raw).state for t, raw in record.topics.items()} == {topic.topic: topic}
    assert (record.token, record.full, record.fence) == ("t", full, False)
    assert (record.removed, record.taken_over_by) == (((), "new") if full else ((TOPIC,), ""))


@given(catalog_records)
def test_a_catalog_record_survives(record: Record):
    assert decode_catalog("key", encode_catalog("t", record)) == record


@given(catalog_records)
def test_the_same_token_and_record_give_the_same_bytes(record: Record):
    assert encode_catalog("t", record) == encode_catalog("t", record)
    assert encode_catalog("t", record) != encode_catalog("u", record)


@given(topic_states)
def test_fields_of_a_newer_version_are_kept_when_a_topic_is_rewritten(topic: TopicState):
    newer = encode_topic(topic).data + b"\xfa\x3e\x05hello\xf8\x3f\x07"  # fields 1007 (text) and 1023 (number)
    read = decode_topic("key", newer).state
    assert read.unknown_fields == b"\xfa\x3e\x05hello\xf8\x3f\x07"
    assert not replace(TopicState(topic.topic), unknown_fields=read.unknown_fields).idle
    changed = replace(read, releasing=None if read.releasing else Releasing.POLICY)
    assert decode_topic("key", encode_topic(changed).data).state == changed


def test_every_field_of_a_value_is_written():
    topic = {"topic", "unknown_fields"}
    by_hand = {
        "CatalogHead": {"last", "continued_in"},
        "TopicState": topic,
        "OpenTopic": topic,
        "PendingDeleteLedgerInfo": {"unknown_fields"},
        "DeletionSwitch": {"number"},
        "TopicClaim": {"address"},
        "Tombstone": {"parts", "gaps"},
    }
    assert PendingDeleteLedgerInfo in MESSAGES
    for kind, message in MESSAGES.items():
        fields = {field.name for field in dataclasses.fields(kind)}
        assert fields - set(message.DESCRIPTOR.fields_by_name) == by_hand.get(kind.__name__, set())


DAMAGED = [
    (encode_catalog("t", offloaded("u", 0, 9)), decode_catalog),
    (encode_catalog("t", claim()), decode_catalog),
    (encode_fence("t"), decode_journal),
    (encode_full("t", [encode_topic(state()).data]), decode_journal),
]


@given(st.sampled_from(DAMAGED), st.data())
def test_any_flipped_bit_is_damage(record, data: st.DataObject):
    whole, decode = record
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    flipped = bytearray(whole)
    flipped[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedRecordError, match="the/key"):
        decode("the/key", bytes(flipped))


@pytest.mark.parametrize(("whole", "decode"), [*DAMAGED, (standing(CatalogHead(TOPIC), DAMAGED[0][0]), decode_catalog)])
def test_any_truncation_is_damage(whole: bytes, decode):
    for length in range(len(whole)):
        with pytest.raises(DamagedRecordError, match="the/key"):
            decode("the/key", whole[:length])


def test_a_record_of_the_wrong_use_is_damage():
    with pytest.raises(DamagedRecordError, match="the/key: a claim record does not belong into a journal"):
        decode_journal("the/key", encode_catalog("t", claim()))
    with pytest.raises(DamagedRecordError, match="the/key: a fence record does not belong into a catalog"):
        decode_catalog("the/key", encode_fence("t"))


def test_contents_that_make_no_sense_are_damage():
    broken = pb.Parts(etags=["a", "b"], crcs=[1, 2], size=[1, 1])
    body = pb.Body(segment=pb.Segment(uuid="u", source="broker", roll_reason="age", parts=broken))
    with pytest.raises(DamagedRecordError, match="the/key: a column of 0 values where 2 belong"):
        decode_catalog("the/key", wrap("t", body))


def test_a_newer_format_version_is_told_apart_from_damage():
    with pytest.raises(FormatVersionError, match=r"the/key has format version 4, .* run a newer one"):
        unwrap("the/key", wrap("t", pb.Body(fence=pb.Fence()), envelope.DELETIONS_VERSION + 1))


def test_an_older_format_version_is_refused_in_one_line():
    with pytest.raises(FormatVersionError, match=r"^the/key has format version 1, .* choose another bucket or folder$"):
        unwrap("the/key", wrap("t", pb.Body(fence=pb.Fence()), 1))


def test_a_record_kind_of_a_newer_version_is_refused():
    newer = pb.Body()
    newer.MergeFromString(b"\xfa\x3e\x00")  # field 1007: a message
    with pytest.raises(FormatVersionError, match="the/key is of a kind that this version does not know"):
        unwrap("the/key", wrap("t", newer))


def test_a_word_of_a_newer_version_is_refused():
    body = pb.Body(segment=pb.Segment(uuid="u", source="telepathy"))
    with pytest.raises(FormatVersionError, match="'telepathy' is a Source that this version does not know"):
        decode_catalog("the/key", wrap("t", body))


def test_a_body_is_compressed_only_where_that_helps():
    small, large = pb.Body(fence=pb.Fence()), pb.Body(claim=pb.Claim(reason="x" * 1000))
    assert len(wrap("t", large)) < 100
    assert pb.Record.FromString(wrap("t", small)[8:]).compressed is False


@pytest.mark.parametrize("mix", MIXES, ids=lambda m: m[0])
def test_a_snapshot_of_1000_open_segments_of_1_gib_stays_small(mix):
    _, size, messages, most = mix
    one = encode_topic(OpenTopic(TOPIC, open=full_segment(size, messages, seed=1))).data
    assert 1000 * len(encode_full("t", [one])) < most  # a thousand others, of which compression finds nothing in common


@pytest.mark.parametrize("cut", [0, 1])
def test_no_record_takes_more_memory_than_a_record_may(monkeypatch, cut):
    monkeypatch.setattr(envelope, "LARGEST", 1_000_000)
    largest = wrap("t", pb.Body(claim=pb.Claim(reason="x" * 999_900)))
    assert unwrap("key", largest).kind == "claim"
    with pytest.raises(FatalError, match="larger than any"):
        wrap("t", pb.Body(claim=pb.Claim(reason="x" * 1_000_000)))
    bomb = zlib.compress(bytes(50_000_000))
    record = pb.Record(format_version=envelope.FORMAT_VERSION, token="t", body=bomb[: len(bomb) - cut], compressed=True)
    data = record.SerializeToString()
    with pytest.raises(DamagedRecordError, match="key: the body is no whole record"):
        unwrap("key", envelope.HEAD.pack(envelope.MAGIC, crc32c(data)) + data)
