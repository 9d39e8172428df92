"""Values are read by the schema that was archived beside them, and whatever does not fit is one line."""

from __future__ import annotations

import base64
import json
from struct import pack

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import DESCRIPTOR, KeyValue
from offloader.errors import DamagedRecordError
from offloader.ports.admin import TopicSchema
from offloader.viewer.schemas import decoded, json_text, version_of, views_of
from tests.viewer.example import AVRO, avro_order

PARSING_INFO = "__PARSING_INFO__"
SHOWN_TEXT = 16_384


def native(*files: FileDescriptorProto, root: str = "pulsar.proto.KeyValue") -> TopicSchema:
    described = {
        "fileDescriptorSet": base64.b64encode(FileDescriptorSet(file=files).SerializeToString()).decode(),
        "rootMessageTypeName": root,
        "rootFileDescriptorName": "x.proto",
    }
    return TopicSchema(0, "PROTOBUF_NATIVE", json.dumps(described).encode())


def own_file() -> FileDescriptorProto:
    file = FileDescriptorProto()
    DESCRIPTOR.CopyToProto(file)
    return file


FALSE_TIME = FileDescriptorProto(name="t", package="google.protobuf", message_type=[DescriptorProto(name="Timestamp")])


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("STRING", "Zo\u00eb".encode(), "Zo\u00eb"),
        ("INT8", b"\xff", -1),
        ("INT16", pack(">h", -2), -2),
        ("INT32", pack(">i", 7), 7),
        ("INT64", pack(">q", 2**40), 2**40),
        ("FLOAT", pack(">f", 0.5), 0.5),
        ("DOUBLE", pack(">d", 0.1), 0.1),
        ("BOOLEAN", b"\x01", True),
        ("TIMESTAMP", pack(">q", 1000), "1970-01-01T00:00:01+00:00"),
        ("TIME", pack(">q", 3_600_000), "1970-01-01T01:00:00+00:00"),
        ("INSTANT", pack(">qi", 1, 500_000_000), "1970-01-01T00:00:01.5Z"),
        ("INSTANT", pack(">qi", -1, 1), "1969-12-31T23:59:59.000000001Z"),
        ("INSTANT", pack(">qi", -62_135_596_800, 0), "0001-01-01T00:00:00Z"),
        ("LOCAL_DATE", pack(">q", 20_418), "2025-11-26"),
        ("LOCAL_DATE", pack(">q", -1), "1969-12-31"),
        ("LOCAL_TIME", pack(">q", 86_400 * 10**9 - 1), "23:59:59.999999999"),
        ("LOCAL_TIME", pack(">q", 0), "00:00:00"),
        ("LOCAL_DATE_TIME", pack(">qq", 20_418, 45_296 * 10**9), "2025-11-26T12:34:56"),
        ("JSON", b'{"a": 1}', {"a": 1}),
    ],
)
def test_pulsars_own_types(kind: str, data: bytes, value: object) -> None:
    assert decoded(TopicSchema(0, kind), data) == value


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("INSTANT", pack(">qi", 0, -1)),
        ("INSTANT", pack(">qi", 2**62, 0)),
        ("INSTANT", pack(">q", 0)),
        ("LOCAL_DATE", pack(">q", 2**62)),
        ("LOCAL_DATE", pack(">q", -(2**20))),
        ("LOCAL_TIME", pack(">q", -1)),
        ("LOCAL_TIME", pack(">q", 86_400 * 10**9)),
        ("LOCAL_DATE_TIME", pack(">q", 0)),
        ("TIME", b""),
    ],
)
def test_what_is_no_date_or_time_is_one_line(kind: str, data: bytes) -> None:
    with pytest.raises(DamagedRecordError, match=f"a value of type {kind}"):
        decoded(TopicSchema(0, kind), data)


def test_protobuf_by_the_descriptors_of_its_schema() -> None:
    full = f"{own_file().package}.KeyValue".lstrip(".")
    message = KeyValue(key="k", value="v").SerializeToString()
    assert decoded(native(own_file(), root=full), message) == {"key": "k", "value": "v"}


def test_protobuf_without_descriptors_has_the_names_of_its_fields() -> None:
    info = json.dumps([{"number": 1, "name": "key"}])
    schema = TopicSchema(0, "PROTOBUF", b"{}", properties=((PARSING_INFO, info),))
    assert decoded(schema, KeyValue(key="k", value="v").SerializeToString()) == {"key": "k", "2": "v"}


def test_a_key_and_a_value_together_and_apart() -> None:
    both = json.dumps({"key": "", "value": json.loads(AVRO)}).encode()
    kinds = (("key.schema.type", "STRING"), ("value.schema.type", "AVRO"))
    order = avro_order(1, "x", paid=False)
    inline = pack(">i", 1) + b"k" + pack(">i", len(order)) + order
    expected = {"id": 1, "customer": "x", "paid": False}
    assert decoded(TopicSchema(0, "KEY_VALUE", both, properties=kinds), inline) == {"key": "k", "value": expected}
    apart = (*kinds, ("kv.encoding.type", "SEPARATED"))
    assert decoded(TopicSchema(0, "KEY_VALUE", both, properties=apart), order) == expected
    with pytest.raises(DamagedRecordError, match="ends inside its value"):
        decoded(TopicSchema(0, "KEY_VALUE", both, properties=kinds), inline[:-1])


@pytest.mark.parametrize(
    "schema",
    [
        TopicSchema(0, "LOCAL_DATE"),
        TopicSchema(0, "AVRO", b"[" * 10_000),
        TopicSchema(0, "AVRO", b'"int"' + b" " * 300_000),
        TopicSchema(0, "INT32"),
        TopicSchema(0, "JSON"),
        TopicSchema(0, "KEY_VALUE", b"{}"),
        TopicSchema(0, "PROTOBUF", properties=((PARSING_INFO, "5"),)),
        TopicSchema(0, "PROTOBUF_NATIVE", b"{}"),
        native(FileDescriptorProto(name="a", dependency=["b"])),
        native(FileDescriptorProto(name="a"), root="none"),
        native(FileDescriptorProto(name="a", dependency=["a"])),
        native(FALSE_TIME, root="google.protobuf.Timestamp"),
        native(*(FileDescriptorProto(name=f"{n}", dependency=[f"{n + 1}"]) for n in range(9_000))),
    ],
    ids=str,
)
def test_what_does_not_fit_is_one_line(schema: TopicSchema) -> None:
    with pytest.raises(DamagedRecordError) as refused:
        decoded(schema, b"\x00\xff?")
    assert views_of(b"\x00\xff?", schema)[0].note.startswith("The schema does not fit: ")
    assert str(refused.value)


KINDS = st.sampled_from(["AVRO", "JSON", "PROTOBUF", "PROTOBUF_NATIVE", "KEY_VALUE", "STRING", "INT64", "DATE", "X"])
DEFINITIONS = st.binary(max_size=60) | st.recursive(
    st.none() | st.integers() | st.text(max_size=5), lambda each: st.lists(each) | st.dictionaries(st.text(), each)
).map(lambda value: json.dumps(value).encode())


@given(KINDS, DEFINITIONS, st.binary(max_size=60))
def test_whatever_schema_and_bytes_are_there_is_always_something_to_see(kind: str, data: bytes, value: bytes) -> None:
    views = views_of(value, TopicSchema(0, kind, data, properties=((PARSING_INFO, data.decode("latin-1")),)))
    assert views[-1].name == "Hex"
    assert all(line.replace("\t", "").isprintable() for view in views for line in view.text.split("\n"))


def test_what_is_large_is_cut_and_says_so() -> None:
    wide, deep = json.dumps(list(range(50_000))).encode(), b"[" * 900 + b"]" * 900
    for value in (wide, deep, b"x" * 10**6):
        for view in views_of(value):
            assert len(view.text) <= 80 * 1024
        assert any(view.cut for view in views_of(value))
    assert json_text(list(range(10)))[1] is False
    assert len(json_text(["x" * 10**6])[0]) == SHOWN_TEXT


@pytest.mark.parametrize("at", range(4))
def test_a_text_is_cut_between_two_characters(at: int) -> None:
    assert views_of(b"x" * at + "\U0001f600".encode() * 20_000)[0].name == "Text"


def test_versions() -> None:
    assert version_of(None) is None
    assert version_of(pack(">q", 3)) == 3
    assert version_of(b"") == 0
    assert version_of(b"x" * 5_000) is None


@pytest.mark.parametrize(("kind", "one"), [("JSON", b"[],"), ("PROTOBUF", b"\x08\x00")])
def test_of_what_is_large_and_may_be_millions_of_values_the_beginning_is_shown(kind: str, one: bytes) -> None:
    first, *others = views_of(one * 2**19, TopicSchema(0, kind))
    assert (first.text, "too large to be decoded here" in first.note) == ("", True)
    assert others
