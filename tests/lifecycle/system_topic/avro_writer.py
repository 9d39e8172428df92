"""Writes Avro by any schema: as a Java client would, for tests. Of the schema's form only what these use."""

from __future__ import annotations

import struct
from typing import Any


def write(schema: Any, value: Any, named: dict[str, Any] | None = None) -> bytes:
    named = {} if named is None else named
    if isinstance(schema, list):
        number, branch = next((n, b) for n, b in enumerate(schema) if fits(b, value, named))
        return long(number) + write(branch, value, named)
    if isinstance(schema, str):
        return write(named[schema], value, named) if schema in named else primitive(schema, value)
    kind = schema["type"]
    if kind == "record":
        named[schema["name"]] = schema
        return b"".join(write(one["type"], value[one["name"]], named) for one in schema["fields"])
    if kind == "enum":
        named[schema["name"]] = schema
        return long(schema["symbols"].index(value))
    if kind == "array":
        return blocks([write(schema["items"], one, named) for one in value])
    if kind == "map":
        return blocks([primitive("string", k) + write(schema["values"], v, named) for k, v in value.items()])
    if kind == "fixed":
        return bytes(value)
    return write(kind, value, named)


def blocks(items: list[bytes]) -> bytes:
    """In two blocks, the first with its size, which a writer may choose."""
    first, rest = items[:1], items[1:]
    sized = long(-len(first)) + long(len(b"".join(first))) + b"".join(first) if first else b""
    return sized + (long(len(rest)) + b"".join(rest) if rest else b"") + long(0)


def primitive(kind: str, value: Any) -> bytes:
    if kind == "null":
        return b""
    if kind in ("int", "long"):
        return long(value)
    if kind == "boolean":
        return b"\1" if value else b"\0"
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", value)
    data = value.encode() if kind == "string" else value
    return long(len(data)) + bytes(data)


def long(value: int) -> bytes:
    rest, found = value * 2 if value >= 0 else -value * 2 - 1, []
    while rest >= 128:
        found.append(rest % 128 + 128)
        rest //= 128
    return bytes([*found, rest])


def fits(schema: Any, value: Any, named: dict[str, Any]) -> bool:
    kind = schema["type"] if isinstance(schema, dict) else schema
    kind = named[kind]["type"] if kind in named else kind
    types: dict[str, type | tuple[type, ...]] = {
        "null": type(None),
        "boolean": bool,
        "int": int,
        "long": int,
        "float": float,
        "double": float,
        "string": str,
        "enum": str,
        "bytes": bytes,
        "fixed": bytes,
        "array": list,
        "map": dict,
        "record": dict,
    }
    return isinstance(value, types[kind])
