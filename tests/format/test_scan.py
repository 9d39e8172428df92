"""The vector parser agrees with protobuf wherever it does not pass a message on as odd."""

from __future__ import annotations

import numpy as np
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import KeyValue, MessageMetadata
from offloader.format.scan import Ranges, scan

NUMBERS = [
    "sequence_id",
    "publish_time",
    "compression",
    "uncompressed_size",
    "num_messages_in_batch",
    "deliver_at_time",
    "null_value",
]
BYTES = ["partition_key", "ordering_key", "schema_version"]

_uint64 = st.integers(0, 2**64 - 1) | st.integers(0, 300)
_int32 = st.integers(-(2**31), 2**31 - 1) | st.integers(0, 300)
metadatas = st.builds(
    MessageMetadata,
    sequence_id=_uint64,
    publish_time=_uint64,
    compression=st.none() | _int32,
    uncompressed_size=st.none() | st.integers(0, 2**32 - 1),
    num_messages_in_batch=st.none() | _int32,
    deliver_at_time=st.none() | st.integers(-(2**63), 2**63 - 1),
    null_value=st.none() | st.booleans(),
    partition_key=st.none() | st.text(max_size=200),
    ordering_key=st.none() | st.binary(max_size=10),
    schema_version=st.none() | st.binary(max_size=200),
    properties=st.lists(st.builds(KeyValue, key=st.text(max_size=3), value=st.text(max_size=3)), max_size=3),
)
_wire = st.one_of(
    metadatas.map(lambda m: m.SerializeToString()),
    st.binary(max_size=30),
    st.builds(
        lambda m, at, b: m[:at] + b + m[at:],
        metadatas.map(lambda m: m.SerializeToString()),
        st.integers(0, 40),
        st.binary(max_size=3),
    ),
    st.builds(
        lambda a, b: a.SerializeToString() + b.SerializeToString(), metadatas, metadatas
    ),  # the later value counts
    st.builds(
        lambda a: a.SerializeToString() + b"\x9d\x06abcd" + b"\x99\x06abcdefgh" + b"\x9a\x06\x02zz", metadatas
    ),  # unknown fields
)


def _parsed(encoded: bytes) -> MessageMetadata | None:
    try:
        return MessageMetadata.FromString(encoded)
    except DecodeError:
        return None


@given(st.lists(_wire, min_size=1, max_size=6), st.integers(0, 3))
def test_fields_are_those_that_protobuf_reads(messages: list[bytes], gap: int):
    data = b"".join(bytes(gap) + message for message in messages) + b"\x08\x01"
    ends = np.cumsum([len(message) + gap for message in messages])
    ranges = Ranges(ends - [len(message) for message in messages], ends)
    fields = scan(np.frombuffer(data, np.uint8), ranges, MessageMetadata, [*NUMBERS, *BYTES, "properties"])
    repeated = fields.repeated("properties")
    for n, message in enumerate(messages):
        if fields.irregular[n]:
            continue
        parsed = _parsed(message)
        if parsed is None or not parsed.IsInitialized():
            continue  # nested fields and UTF-8 are checked where they are used
        for name in NUMBERS:
            assert fields.has(name)[n] == parsed.HasField(name)
            if parsed.HasField(name):
                assert fields.number(name)[n] == np.array(getattr(parsed, name)).astype(np.uint64).view(np.int64)
        for name in BYTES:
            found = data[fields.bytes(name).begin[n] : fields.bytes(name).end[n]]
            value = getattr(parsed, name)
            assert found == (value.encode() if isinstance(value, str) else value)
        mine = repeated.ranges[repeated.row == n]
        assert [data[b:e] for b, e in zip(mine.begin, mine.end, strict=True)] == [
            p.SerializeToString() for p in parsed.properties
        ]


@given(st.lists(metadatas, min_size=1, max_size=6))
def test_what_clients_write_is_never_odd(messages: list[MessageMetadata]):
    encoded = [message.SerializeToString() for message in messages]
    ends = np.cumsum([len(message) for message in encoded])
    ranges = Ranges(ends - [len(message) for message in encoded], ends)
    assert not scan(np.frombuffer(b"".join(encoded), np.uint8), ranges, MessageMetadata, NUMBERS).irregular.any()


def test_a_message_without_a_required_field_is_odd():
    encoded = b"\x0a\x01k"  # a key without a value
    fields = scan(np.frombuffer(encoded, np.uint8), Ranges(np.array([0]), np.array([3])), KeyValue, ["key", "value"])
    assert fields.irregular.tolist() == [True]
