"""Which schemas of consumers can read messages, by Avro's rules and by types."""

from __future__ import annotations

import json
import time
from struct import pack
from typing import Any

import pytest

from offloader.gateway.protocol.schemas import SchemaText, why_unreadable


def record(*fields: dict[str, Any], name: str = "shop.Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, type_: object, **more: object) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


def why(written: object, reader: object, kind: str = "AVRO") -> str | None:
    return why_unreadable(SchemaText(kind, json.dumps(written).encode()), SchemaText(kind, json.dumps(reader).encode()))


ID = field("id", "int")
TREE = record(ID, field("next", ["null", "shop.Order"]))
COLOURS = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}


@pytest.mark.parametrize(
    ("written", "reader"),
    [
        (record(ID), record(ID)),
        (record(ID), record(field("id", "long"))),
        (record(ID), record(field("id", ["null", "int"]))),
        (record(ID, field("more", "string")), record(ID)),
        (record(ID), record(ID, field("more", ["null", "string"], default=None))),
        (record(ID), record(field("number", "int", aliases=["id"]))),
        (record(ID), record(ID, name="other.Order")),
        (record(field("c", COLOURS)), record(field("c", {**COLOURS, "symbols": ["RED", "BLUE", "GREEN"]}))),
        (
            record(field("l", {"type": "array", "items": "int"})),
            record(field("l", {"type": "array", "items": "double"})),
        ),
        (TREE, TREE),
    ],
)
def test_what_avro_can_read_is_accepted(written: object, reader: object) -> None:
    assert why(written, reader) is None


@pytest.mark.parametrize(
    ("written", "reader", "reason"),
    [
        (record(ID), record(field("id", "string")), "field id is int, and string for the consumer"),
        (record(field("id", "long")), record(ID), "field id is long"),
        (record(ID), record(ID, field("more", "string")), "field more is not in the messages"),
        (record(field("id", ["null", "int"])), record(ID), "field id is null"),
        (record(field("c", COLOURS)), record(field("c", {**COLOURS, "symbols": ["RED"]})), "may be BLUE"),
        (record(field("m", {"type": "map", "values": "int"})), record(field("m", {"type": "map", "values": "boolean"})),
         "a value of field m is int"),
        (TREE, record(field("id", "string"), field("next", ["null", "shop.Order"])), "field id is int"),
        (
            record(field("a", [record(field("x", "string"), name="A")])),
            record(field("a", [record(field("x", "int"), name="A"), "int"]), ),
            "field a is record",
        ),
    ],
)  # fmt: skip
def test_what_avro_cannot_read_is_refused_with_the_reason(written: object, reader: object, reason: str) -> None:
    found = why(written, reader)
    assert found is not None
    assert reason in found
    assert why(written, reader, "JSON") == found


def test_other_types_must_be_the_same() -> None:
    assert why_unreadable(SchemaText("STRING"), SchemaText("STRING")) is None
    assert "type STRING" in str(why_unreadable(SchemaText("STRING"), SchemaText("INT32")))


def test_keys_and_values_are_compared_each() -> None:
    def both(value: str) -> SchemaText:
        parts = [b"", json.dumps(record(field("id", value))).encode()]
        data = b"".join(pack(">i", len(part)) + part for part in parts)
        return SchemaText("KEY_VALUE", data, {"key.schema.type": "STRING", "value.schema.type": "AVRO"})

    assert why_unreadable(both("int"), both("long")) is None
    assert "field id is long" in str(why_unreadable(both("long"), both("int")))


@pytest.mark.parametrize(
    "data", [b"", b"{", b"null", b'{"type":"record","fields":[3]}', b"[" * 100_000, b"x" * 300_000]
)
def test_what_is_no_definition_is_refused_of_a_consumer_and_says_nothing_of_messages(data: bytes) -> None:
    good = SchemaText("JSON", json.dumps(record(ID)).encode())
    assert "no definition" in str(why_unreadable(good, SchemaText("JSON", data)))
    assert why_unreadable(SchemaText("JSON", data), good) is None


def test_a_definition_that_takes_long_to_compare_is_refused_soon() -> None:
    many = [record(field("x", "int"), name=f"R{number}") for number in range(2_000)]
    others = [record(field("x", "string"), name=f"S{number}") for number in range(2_000)]
    began = time.thread_time()
    assert "cannot be compared" in str(why(many, [*others, many[0]]))
    assert time.thread_time() - began < 2
