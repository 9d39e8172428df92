"""Avro of others is read as it was written; what is none is damage, and takes neither memory nor time."""

from __future__ import annotations

import json
from contextlib import suppress
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import DamagedRecordError
from offloader.metadata.avro import LARGEST_SCHEMA, read_avro
from tests.bookkeeper.damage import damaged
from tests.lifecycle.system_topic.avro_writer import long, write

DEEPEST = 64
MOST_VALUES = 100_000

i64 = st.integers(-(2**63), 2**63 - 1)
text = st.text(st.characters(codec="utf-8"), max_size=5)
PRIMITIVES = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": i64,
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=5),
    "string": text,
}


@st.composite
def written(draw: Any, depth: int = 0) -> tuple[Any, Any]:
    """A schema and a value of it."""
    leaf = st.sampled_from(sorted(PRIMITIVES))
    kind = draw(leaf if depth > 2 else leaf | st.sampled_from(["record", "array", "map", "enum", "fixed", "union"]))
    name = f"n{draw(st.uuids()).hex}"
    if kind in PRIMITIVES:
        return draw(st.sampled_from([kind, {"type": kind, "logicalType": "x"}])), draw(PRIMITIVES[kind])
    if kind == "enum":
        symbols = ["A", "B", "C"]
        return {"type": "enum", "name": name, "symbols": symbols}, draw(st.sampled_from(symbols))
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": 3}, draw(st.binary(min_size=3, max_size=3))
    inner, value = draw(written(depth + 1))
    if kind == "union":
        empty = inner in ("null", {"type": "null", "logicalType": "x"})
        union = inner if isinstance(inner, list) else [inner] if empty else ["null", inner]
        return union, value if isinstance(inner, list) or draw(st.booleans()) or empty else None
    if kind == "array":
        return {"type": "array", "items": inner}, [value] * draw(st.integers(0, 3))
    if kind == "map":
        keys = draw(st.lists(text, max_size=3, unique=True))
        return {"type": "map", "values": inner}, dict.fromkeys(keys, value)
    other, second = draw(written(depth + 1))
    fields = [{"name": "a", "type": inner}, {"name": "b", "type": other, "default": None}]
    return {"type": "record", "name": name, "fields": fields}, {"a": value, "b": second}


@given(written())
def test_what_was_written_is_read_as_it_was(made: tuple[Any, Any]) -> None:
    schema, value = made
    assert read_avro(json.dumps(schema), write(schema, value)) == value


@given(written(), st.data())
def test_damage_is_damage(made: tuple[Any, Any], data: st.DataObject) -> None:
    schema, value = made
    with suppress(DamagedRecordError):
        read_avro(json.dumps(schema), data.draw(damaged(write(schema, value))))
    with suppress(DamagedRecordError):
        read_avro(data.draw(damaged(json.dumps(schema).encode())).decode(errors="replace"), write(schema, value))


def test_a_record_may_be_within_itself_and_is_known_by_either_name() -> None:
    schema = {
        "type": "record",
        "name": "Node",
        "namespace": "a.b",
        "fields": [{"name": "next", "type": ["null", "Node"]}, {"name": "also", "type": ["null", "a.b.Node"]}],
    }
    assert read_avro(json.dumps(schema), b"\2\0\0\2\0\0") == {
        "next": {"next": None, "also": None},
        "also": {"next": None, "also": None},
    }
    with pytest.raises(DamagedRecordError, match="nests too deep"):
        read_avro(json.dumps(schema), b"\2" * (DEEPEST + 2))


RECORD = {"type": "record", "name": "R", "fields": []}
WIDE = {"type": "record", "name": "W", "fields": [{"name": f"f{n}", "type": "null"} for n in range(5_000)]}
POISON: dict[str, tuple[str, bytes]] = {
    "an endless array of nothing": (json.dumps({"type": "array", "items": "null"}), long(2**62) + long(0)),
    "an endless array of empty records": (json.dumps({"type": "array", "items": RECORD}), long(2**62) + long(0)),
    "few bytes that are many wide records of nothing": (
        json.dumps({"type": "array", "items": WIDE}),
        long(2_000) + long(0),
    ),
    "a text of 8 EB": ('"string"', long(2**62)),
    "a negative length": ('"bytes"', long(-1)),
    "a number without end": ('"long"', b"\xff" * 100),
    "a schema that nests": ('{"type":' * 2_000 + '"long"' + "}" * 2_000, b"\0"),
    "a schema of brackets": ("[" * 100_000, b"\0"),
    "a schema as large as a message": ('"' + "x" * LARGEST_SCHEMA + '"', b"\0"),
    "a name that nobody defines": ('"Unknown"', b"\0"),
    "a record that is a list": (json.dumps({"type": "record", "name": "R", "fields": 3}), b"\0"),
    "a fixed without size": (json.dumps({"type": "fixed", "name": "F", "size": "3"}), b"abc"),
    "a fixed of a negative size": (json.dumps({"type": "fixed", "name": "F", "size": -3}), b"abc"),
    "a union of nothing": ("[]", b"\0"),
    "a type that is a number": ("3", b"\0"),
    "no JSON": ("no", b"\0"),
    "bytes that are left": ('"null"', b"\0"),
    "a record that is only itself": (
        json.dumps({"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}),
        b"",
    ),
}


@pytest.mark.parametrize("name", POISON)
def test_a_poisoned_schema_is_damage_in_no_time(name: str) -> None:
    began = perf_counter()
    with pytest.raises(DamagedRecordError):
        read_avro(*POISON[name])
    assert perf_counter() - began < 5, f"{MOST_VALUES} values are no work"
