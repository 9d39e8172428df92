"""What is published is the archived entry: only its mark, its transaction and its origin's cluster differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import BrokerEntryMetadata, MessageMetadata
from offloader.archive.messages.envelope import Envelope, parse_envelope
from offloader.errors import DamagedObjectError
from offloader.format.entry import crc_ok
from offloader.operations.restore.provenance import Provenance, outgoing, read_provenance
from tests.operations.restore.support import ORIGIN, at

BEFORE = "offloader.source.before."
NUMBER = "offloader.source.number"
POSITION = "offloader.source.position"
PREFIX = "offloader.source."
REPLICATED_FROM = "offloader.source.replicated-from"
ROOT = "offloader.source.root"
TOPIC = "offloader.source.topic"

MARK = Provenance(ORIGIN, at(12, 345, incarnation=2), 17)
# Field 7 is `replicate_to`, 200 one that nobody knows: neither is in our subset.
UNKNOWN = b"\x3a\x02us" + b"\xc2\x0c\x03abc"


def entry(
    payload: bytes = b"payload", extra: bytes = b"", broker: bool = True, checksum: bool = True, **fields
) -> bytes:
    metadata = (
        MessageMetadata(**{"producer_name": "p", "sequence_id": 7, "publish_time": 5} | fields).SerializeToString()
        + extra
    )
    body = len(metadata).to_bytes(4) + metadata + payload
    data = body
    if checksum:
        import crc32c

        data = b"\x0e\x01" + crc32c.crc32c(body).to_bytes(4) + body
    if broker:
        front = BrokerEntryMetadata(broker_timestamp=1, index=9).SerializeToString()
        data = b"\x0e\x02" + len(front).to_bytes(4) + front + data
    return data


def sent(data: bytes):
    made = outgoing(parse_envelope(data), MARK)
    assert crc_ok(made.data)
    assert made.data.startswith(b"\x0e\x01")
    return made, parse_envelope(made.data)


def said(envelope: Envelope) -> dict[str, str]:
    """No name is there twice."""
    pairs = [(p.key, p.value) for p in envelope.metadata.properties]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def test_the_mark_says_where_it_was() -> None:
    made, envelope = sent(entry())
    assert read_provenance(envelope.metadata) == MARK == made.provenance
    properties = {p.key: p.value for p in envelope.metadata.properties}
    assert properties == {ROOT: ORIGIN.root, TOPIC: str(ORIGIN.topic), POSITION: "2:12:345", NUMBER: "17"}


@given(
    payload=st.binary(max_size=300),
    broker=st.booleans(),
    checksum=st.booleans(),
    fields=st.fixed_dictionaries(
        {},
        optional={
            "partition_key": st.text(max_size=5),
            "event_time": st.integers(0, 2**63),
            "compression": st.sampled_from(range(5)),
            "num_messages_in_batch": st.integers(1, 1000),
            "deliver_at_time": st.integers(0, 2**60),
            "encryption_algo": st.text(max_size=5),
            "encryption_param": st.binary(max_size=12),
            "schema_version": st.binary(max_size=8),
            "ordering_key": st.binary(max_size=5),
            "null_value": st.booleans(),
            "chunk_id": st.integers(0, 9),
            "properties": st.lists(
                st.builds(lambda k, v: {"key": k, "value": v}, st.text(max_size=4), st.text(max_size=4)), max_size=3
            ),
        },
    ),
)
def test_everything_else_stays(payload: bytes, broker: bool, checksum: bool, fields: dict) -> None:
    data = entry(payload, UNKNOWN, broker, checksum, **fields)
    made, envelope = sent(data)
    assert envelope.payload == payload
    assert made.messages == fields.get("num_messages_in_batch", 1)
    assert parse_envelope(made.data).metadata.schema_version == fields.get("schema_version", b"")
    count = len(envelope.metadata.properties)
    assert all(p.key.startswith(PREFIX) for p in envelope.metadata.properties[count - 4 :])
    del envelope.metadata.properties[count - 4 :]
    assert envelope.metadata == parse_envelope(data).metadata
    assert envelope.metadata.SerializeToString().endswith(UNKNOWN)


def test_the_transaction_is_left_out() -> None:
    _, envelope = sent(entry(txnid_most_bits=3, txnid_least_bits=4))
    assert not envelope.metadata.HasField("txnid_most_bits")
    assert not envelope.metadata.HasField("txnid_least_bits")


def test_the_cluster_that_it_came_from_becomes_a_property() -> None:
    _, envelope = sent(entry(replicated_from="us"))
    assert not envelope.metadata.HasField("replicated_from")
    assert {p.key: p.value for p in envelope.metadata.properties}[REPLICATED_FROM] == "us"
    assert read_provenance(envelope.metadata) == MARK


def test_chunks_are_announced_as_such() -> None:
    assert sent(entry(num_chunks_from_msg=2, chunk_id=0))[0].chunk
    assert not sent(entry())[0].chunk


def test_what_the_message_has_under_our_names_is_kept_under_others() -> None:
    properties = {"a": "1", NUMBER: "3", f"{PREFIX}shop": "x", REPLICATED_FROM: "eu", BEFORE + "root": "user's"}
    data = entry(properties=[{"key": key, "value": value} for key, value in properties.items()], replicated_from="us")
    made, once = sent(data)
    _, twice = sent(made.data)

    ours = {ROOT: ORIGIN.root, TOPIC: str(ORIGIN.topic), POSITION: "2:12:345", NUMBER: "17"}
    kept = {"a": "1", f"{PREFIX}shop": "x"}
    assert said(once) == kept | ours | {
        BEFORE + "number": "3", BEFORE + "replicated-from": "eu", BEFORE + "before.root": "user's",
        REPLICATED_FROM: "us"
    }  # fmt: skip
    assert said(twice) == kept | ours | {
        BEFORE + "before.number": "3", BEFORE + "before.replicated-from": "eu", BEFORE + "before.before.root": "user's",
        BEFORE + "replicated-from": "us", **{key.replace(PREFIX, BEFORE): value for key, value in ours.items()},
    }  # fmt: skip
    assert read_provenance(once.metadata) == read_provenance(twice.metadata) == MARK


def test_a_property_whose_name_is_no_text_is_kept() -> None:
    data = entry(extra=b"\x22\x07\x0a\x02\xff\xfe\x12\x01x")  # field 4: a pair with a name of bytes FF FE
    made, envelope = sent(data)
    assert b"\x22\x07\x0a\x02\xff\xfe\x12\x01x" in made.data
    assert read_provenance(envelope.metadata) == MARK


@pytest.mark.parametrize("name", ["a", PREFIX + "shop", BEFORE + "root"])
def test_an_entry_without_a_mark_has_none(name: str) -> None:
    assert read_provenance(parse_envelope(entry(properties=[{"key": name, "value": "1"}])).metadata) is None


@pytest.mark.parametrize("properties", [{NUMBER: "1"}, {ROOT: "r", TOPIC: "t", POSITION: "1:2", NUMBER: "1"}])
def test_a_mark_that_makes_no_sense_is_refused(properties: dict) -> None:
    with pytest.raises(DamagedObjectError, match="no restore has written"):
        read_provenance(MessageMetadata(properties=[{"key": k, "value": v} for k, v in properties.items()]))


@pytest.mark.parametrize("name", [POSITION, NUMBER])
def test_a_mark_whose_value_is_no_text_is_refused(name: str) -> None:
    pair = b"\x0a" + bytes([len(name)]) + name.encode() + b"\x12\x01\xff"
    others = [
        {"key": key, "value": value}
        for key, value in {ROOT: "r", TOPIC: "t", POSITION: "1:2:3", NUMBER: "1"}.items()
        if key != name
    ]
    envelope = parse_envelope(entry(properties=others, extra=b"\x22" + bytes([len(pair)]) + pair))
    with pytest.raises(DamagedObjectError, match="no restore has written"):
        read_provenance(envelope.metadata)
