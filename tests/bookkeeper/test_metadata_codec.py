"""A ledger's record in both formats: round trips, what is not known survives, damage is refused."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO

import pytest
from google.protobuf import proto
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.managed_ledger_pb2 import LedgerMetadataFormat
from offloader.bookkeeper.metadata_codec import decode_metadata, encode_metadata
from offloader.bookkeeper.model import NO_ENTRY, DigestType, Fragment, LedgerMetadata, LedgerState
from offloader.errors import DamagedRecordError

from .damage import damaged, refusal

BOOKIES = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="/"), min_size=1).filter(
    lambda name: name not in (".", "..")
)
ENSEMBLES = st.lists(BOOKIES, min_size=1, max_size=4).map(tuple)
COUNTS = st.integers(1, 2**31 - 1)
NUMBERS = st.integers(0, 2**63 - 1)


@st.composite
def metadatas(draw: st.DrawFn) -> LedgerMetadata:
    firsts = [0, *sorted(draw(st.sets(st.integers(1, 2**63 - 1), max_size=3)))]
    state = draw(st.sampled_from(LedgerState))
    closed = state is LedgerState.CLOSED
    return LedgerMetadata(
        ensemble_size=draw(COUNTS),
        write_quorum=draw(COUNTS),
        ack_quorum=draw(COUNTS),
        state=state,
        fragments=tuple(Fragment(first, draw(ENSEMBLES)) for first in firsts),
        digest=draw(st.sampled_from(DigestType)),
        password=draw(st.binary(max_size=5)),
        last_entry=draw(st.integers(-1, 2**63 - 1)) if closed else NO_ENTRY,
        length=draw(NUMBERS) if closed else 0,
        created_ms=draw(st.none() | NUMBERS),
        custom=draw(st.dictionaries(st.text(st.characters(codec="utf-8")), st.binary(max_size=5), max_size=3)),
        format_version=draw(st.sampled_from((2, 3))),
    )


OPEN = LedgerMetadata(
    3,
    2,
    2,
    LedgerState.OPEN,
    (Fragment(0, ("a:1", "b", "c")), Fragment(7, ("a:1", "b", "d"))),
    custom={"application": b"pulsar", "k": b"\xff\0\n"},
)


def closing(metadata: LedgerMetadata, last: int = 9, length: int = 100) -> LedgerMetadata:
    return replace(metadata, state=LedgerState.CLOSED, last_entry=last, length=length)


def binary(body: bytes) -> bytes:
    """A record of format 3."""
    length = bytes([len(body)]) if len(body) < 128 else bytes([len(body) % 128 + 128, len(body) // 128])
    return b"BookieMetadataFormatVersion\t3\n" + length + body


def text(body: str) -> bytes:
    """A record of format 2."""
    return b"BookieMetadataFormatVersion\t2\n" + body.encode()


def message(**changes: object) -> LedgerMetadataFormat:
    fields = {
        "quorumSize": 2,
        "ensembleSize": 3,
        "length": 0,
        "lastEntryId": -1,
        "state": LedgerMetadataFormat.OPEN,
        "segment": [LedgerMetadataFormat.Segment(firstEntryId=0, ensembleMember=["a", "b", "c"])],
        **changes,
    }
    return LedgerMetadataFormat(**{name: value for name, value in fields.items() if value is not None})


# In the form in which BookKeeper writes it.
WRITTEN_TEXT = """quorumSize: 2
ensembleSize: 3
length: 0
lastEntryId: -1
state: OPEN
segment {
  ensembleMember: "127.0.0.1:3181"
  ensembleMember: "bookie-1"
  ensembleMember: "bookie-2"
  firstEntryId: 0
}
digestType: CRC32C
password: "s\\000\\303\\251"
ackQuorumSize: 2
ctime: 1700000000000
customMetadata {
  key: "application"
  value: "pulsar"
}
cToken: 7
"""


@given(metadatas())
def test_a_record_is_read_back(metadata):
    assert decode_metadata(encode_metadata(metadata)) == metadata


@given(metadatas(), metadatas())
def test_a_record_is_rewritten(before, after):
    """Whatever changes; only the time of creation stays."""
    old = decode_metadata(encode_metadata(before))
    new = replace(after, raw=old.raw, format_version=old.format_version)
    assert decode_metadata(encode_metadata(new)) == replace(new, created_ms=old.created_ms)


@given(metadatas())
def test_a_record_without_changes_stays_as_it_is(metadata):
    written = encode_metadata(metadata)
    assert encode_metadata(decode_metadata(written)) == written


def test_format_2_is_read_and_stays_in_its_form():
    metadata = decode_metadata(text(WRITTEN_TEXT))
    assert metadata == LedgerMetadata(
        3,
        2,
        2,
        LedgerState.OPEN,
        (Fragment(0, ("127.0.0.1:3181", "bookie-1", "bookie-2")),),
        DigestType.CRC32C,
        b"s\0\xc3\xa9",
        created_ms=1700000000000,
        custom={"application": b"pulsar"},
        format_version=2,
    )
    changed = (
        WRITTEN_TEXT.replace("OPEN", "CLOSED")
        .replace("length: 0", "length: 100")
        .replace("lastEntryId: -1", "lastEntryId: 9")
    )
    assert encode_metadata(closing(metadata)) == text(changed)


def test_what_is_absent_stays_absent():
    body = message().SerializeToString()
    metadata = decode_metadata(binary(body))
    assert metadata.ack_quorum == 2
    assert metadata.digest is DigestType.CRC32C
    assert encode_metadata(replace(metadata, state=LedgerState.IN_RECOVERY)) == binary(
        message(state=LedgerMetadataFormat.IN_RECOVERY).SerializeToString()
    )


def test_with_a_password_a_digest_that_is_not_said_is_crc32():
    assert decode_metadata(binary(message(password=b"").SerializeToString())).digest is DigestType.CRC32


@pytest.mark.parametrize("last", [7, -1, None])
def test_only_the_end_of_a_closed_ledger_counts(last):
    metadata = decode_metadata(binary(message(lastEntryId=last, length=70).SerializeToString()))
    assert (metadata.last_entry, metadata.length) == (NO_ENTRY, 0)
    empty = encode_metadata(closing(metadata, NO_ENTRY, 0))
    closed = message(lastEntryId=-1, length=0, state=LedgerMetadataFormat.CLOSED)
    assert empty == binary(closed.SerializeToString())


# One field of each wire type, with numbers that nobody uses: what newer versions may add.
NEW_FIELDS = st.lists(
    st.sampled_from(
        [bytes.fromhex(f) for f in ("d00505", "da05036e6577", "dd0501020304", "d9050102030405060708", "db05080adc05")]
    ),
    min_size=1,
    max_size=3,
).map(b"".join)


def rewrites(record: bytes) -> list[bytes]:
    """The record closed; and with one more fragment and one more piece of custom metadata."""
    changed = closing(decode_metadata(record))
    more = Fragment(changed.fragments[-1].first_entry + 1, ("x", "y", "z"))
    grown = replace(changed, fragments=(*changed.fragments, more), custom={"new": b"new", **changed.custom})
    written = [encode_metadata(changed), encode_metadata(grown)]
    assert [decode_metadata(one) for one in written] == [changed, grown]
    return written


@given(NEW_FIELDS, NEW_FIELDS, NEW_FIELDS)
def test_what_is_not_known_survives_in_format_3(at_top, in_segment, in_custom):
    segment = message().segment[0].SerializeToString() + in_segment
    custom = LedgerMetadataFormat.CustomMetadata(key="k", value=b"v").SerializeToString() + in_custom
    known = message(segment=[LedgerMetadataFormat.Segment.FromString(segment)])
    known.customMetadata.append(LedgerMetadataFormat.CustomMetadata.FromString(custom))
    for written in rewrites(binary(known.SerializeToString() + at_top)):
        found = proto.parse_length_prefixed(LedgerMetadataFormat, BytesIO(written.partition(b"\n")[2]))
        assert found.segment[0].SerializeToString() == segment
        assert found.customMetadata[-1].SerializeToString() == custom
        assert found.SerializeToString().endswith(at_top)


NEW_TEXTS = st.lists(
    st.sampled_from(
        [
            "newNumber: -5",
            "newEnum: SOME_VALUE",
            'newMessage { a: 1 b { c: "x} \\" y" } }',
            "newMessage: <\n  a: 'it''s'\n>",
            "newList: [1, 2]",
            "newMessages: [{ a: 1 }, { a: 2 }]",
            "17: 0x10",
            "18 {\n  1: 2\n}",
            'newText: "a" "b"',
        ]
    ),
    min_size=1,
    max_size=3,
)


@given(NEW_TEXTS, NEW_TEXTS, NEW_TEXTS, st.sampled_from(["\n", " ", ";\n", ", ", " # about: { this\n"]))
def test_what_is_not_known_survives_in_format_2(at_top, in_segment, in_custom, between):
    segment = "segment { " + between.join(
        ['ensembleMember: "a"', *in_segment, 'ensembleMember: "b" firstEntryId: 0\n}']
    )
    custom = "customMetadata {" + between.join([*in_custom, 'key: "k" value: "v\\n"\n}'])
    known = ["quorumSize: 2", "ensembleSize: 2", "length: 0", "lastEntryId: -1"]
    record = text(between.join([*known, segment, *at_top, custom, "state: OPEN"]) + "\n")
    for written in rewrites(record):
        found = written.decode()
        for kept in (segment, custom, *at_top):
            assert f"\n{kept}" in found
        assert sum(found.count(one) for one in set(at_top)) == sum(record.decode().count(one) for one in set(at_top))


def test_a_changed_part_is_written_anew():
    """What is not known of it may not be true of it any more."""
    record = text(
        "quorumSize: 1 ensembleSize: 1 length: 0 state: OPEN segment { ensembleMember: 'a' firstEntryId: 0 new: 1 }"
    )
    metadata = decode_metadata(record)
    assert b"new" not in encode_metadata(replace(metadata, fragments=(Fragment(0, ("b",)),)))


@pytest.mark.parametrize("body", ["1\n2\n3\n0\t0\ta:1\n", ""])
def test_format_1_is_refused_in_one_line(body):
    with pytest.raises(
        DamagedRecordError, match=r"^metadata of format 1 is not supported, only formats 2 and 3 \(BookKeeper"
    ):
        decode_metadata(b"BookieMetadataFormatVersion\t1\n" + body.encode())


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (b"", "no beginning"),
        (b"BookieMetadataFormatVersion\t", "no beginning"),
        (b"BookieMetadataFormatVersion\t3", "no beginning"),
        (b"BookieMetadataFormatVersion\t3\n", "not as long"),
        (b"BookieMetadataFormatVersion\t4\n\0", "format 4 is not supported"),
        (binary(b""), "a required field"),
        (binary(message().SerializeToString()) + b"x", "not as long"),
        (binary(message().SerializeToString())[:-1], "cannot be read"),
        (binary(message().SerializeToString() + bytes.fromhex("3809")), "have a digestType that we cannot read"),
        (binary(message().SerializeToString() + bytes.fromhex("2809")), "have a state that we cannot read"),
        (
            binary(message().SerializeToString().replace(b"\x01b", b"\x01\xff")),
            "have a ensembleMember that we cannot read",
        ),
        (binary(message().SerializeToString() + bytes.fromhex("5a030a01ff")), "have a key that we cannot read"),
        (binary(message(quorumSize=0).SerializeToString()), "a write quorum of 0"),
        (binary(message(ackQuorumSize=0).SerializeToString()), "an ack quorum of 0"),
        (binary(message(ensembleSize=-1).SerializeToString()), "an ensemble of -1"),
        (binary(message(segment=[]).SerializeToString()), "begin at the entries"),
        (
            binary(message(segment=[{"firstEntryId": 1, "ensembleMember": ["a"]}]).SerializeToString()),
            "begin at the entries",
        ),
        (
            binary(message(segment=[{"firstEntryId": 0, "ensembleMember": ["a"]}] * 2).SerializeToString()),
            "begin at the entries",
        ),
        (binary(message(segment=[{"firstEntryId": 0}]).SerializeToString()), "on the bookies"),
        (
            binary(message(segment=[{"firstEntryId": 0, "ensembleMember": ["a/b"]}]).SerializeToString()),
            "on the bookies",
        ),
        (
            binary(message(segment=[{"firstEntryId": 0, "ensembleMember": [".."]}]).SerializeToString()),
            "on the bookies",
        ),
        (binary(message(state=LedgerMetadataFormat.CLOSED, lastEntryId=-2).SerializeToString()), "end with entry -2"),
        (binary(message(state=LedgerMetadataFormat.CLOSED, length=-1).SerializeToString()), "-1 bytes"),
        (
            binary(message(state=LedgerMetadataFormat.CLOSED, lastEntryId=None).SerializeToString()),
            "closed .* have no lastEntryId",
        ),
        (text(WRITTEN_TEXT.replace("OPEN", "AJAR")), "no text that can be read"),
        (text(WRITTEN_TEXT.replace("quorumSize: 2\n", "", 1)), "a required field"),
        (text("a {" * 5000), "no text that can be read"),
        (text(WRITTEN_TEXT.replace("bookie-1", "bookie\\q")), "begins no escape sequence"),
        (text(WRITTEN_TEXT.replace("bookie-1", "bookie\\60303")), "begins no escape sequence"),
        (text(WRITTEN_TEXT.replace("bookie-1", "bookie\\377")), "no text that can be read"),
        (text(WRITTEN_TEXT.replace("bookie-1", "bookie\\ud800")), "no text that can be read"),
        (b"BookieMetadataFormatVersion\t3\n\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "cannot be read"),
    ],
)
def test_what_no_ledger_can_have_is_refused(record, problem):
    with pytest.raises(DamagedRecordError, match=problem):
        decode_metadata(record)


def test_a_dangerous_ledger_can_be_looked_at():
    """An ensemble smaller than the write quorum, an ack quorum of 1: whoever inspects it must see it."""
    metadata = decode_metadata(binary(message(quorumSize=3, ensembleSize=2, ackQuorumSize=1).SerializeToString()))
    assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (2, 3, 1)


@pytest.mark.parametrize("version", [1, 2, 4])
def test_a_format_does_not_change(version):
    metadata = decode_metadata(encode_metadata(OPEN))
    with pytest.raises(ValueError, match=f"in format {version}"):
        encode_metadata(replace(metadata, format_version=version))


@given(st.sampled_from([encode_metadata(OPEN), encode_metadata(replace(OPEN, format_version=2))]).flatmap(damaged))
def test_damage_is_a_typed_error(data):
    if refusal(lambda: decode_metadata(data), DamagedRecordError) is None:
        assert decode_metadata(encode_metadata(closing(decode_metadata(data)))).closed


@given(st.binary(max_size=100), st.sampled_from([2, 3]))
def test_noise_is_a_typed_error(noise, version):
    with pytest.raises(DamagedRecordError):
        decode_metadata(f"BookieMetadataFormatVersion\t{version}\n".encode() + noise)
