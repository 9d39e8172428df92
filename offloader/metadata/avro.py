"""Avro values of others, read with the schema that they were written with: pure, no I/O.

Whoever may write to a topic chooses both. So everything is bounded: a schema's size and depth, how deep a value nests,
and how many values there are, of which some take no bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from offloader.json_text import parse_json
from offloader.metadata.value_codec import damage_of
from offloader.model import KIB

LARGEST_SCHEMA = 256 * KIB
DEEPEST = 64
MOST_VALUES = 100_000

Read = Callable[["AvroBytes"], object]


@dataclass(slots=True)
class AvroBytes:
    """What is left of some bytes, and how much may still be read of them."""

    data: bytes
    at: int = 0
    values: int = MOST_VALUES
    depth: int = 0

    def take(self, size: int) -> bytes:
        """The next bytes. Raises ValueError where there are not so many."""
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError(f"{size} bytes at {self.at} of {len(self.data)}")
        self.at += size
        return self.data[self.at - size : self.at]

    def long(self) -> int:
        """A whole number: zigzag, seven bits a byte, the least ones first."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 63:
                raise ValueError(f"a number at {self.at} has more than 64 bits")
        return (value & (2**64 - 1)) >> 1 ^ -(value & 1)

    def text(self) -> str:
        """Raises ValueError for what is no UTF-8."""
        return self.take(self.long()).decode()

    def count(self) -> int:
        """How many items a block of an array or a map has; behind a negative number is the block's length."""
        number = self.long()
        if number < 0:
            self.long()
        return abs(number)

    def more(self, count: int = 1) -> None:
        """Raises ValueError where there were too many values."""
        self.values -= count
        if self.values < 0:
            raise ValueError(f"it has more than {MOST_VALUES} values")


def read_avro(definition: str, data: bytes) -> Any:
    """The value: records and maps as dicts, enums as text. Raises DamagedRecordError, also for bytes that are left."""
    with damage_of("an Avro value"):
        if len(definition) > LARGEST_SCHEMA:
            raise ValueError(f"its schema has more than {LARGEST_SCHEMA} characters")
        read = _Schema().reader(parse_json(definition), "", 0)
        rest = AvroBytes(data)
        value = read(rest)
        if rest.at != len(data):
            raise ValueError(f"{len(data) - rest.at} bytes are left")
        return value


def _boolean(rest: AvroBytes) -> bool:
    byte = rest.take(1)[0]
    if byte > 1:
        raise ValueError(f"{byte} is no boolean")
    return byte == 1


_PRIMITIVES: dict[str, Read] = {
    "null": lambda _: None,
    "boolean": _boolean,
    "int": AvroBytes.long,
    "long": AvroBytes.long,
    "float": lambda rest: struct.unpack("<f", rest.take(4))[0],
    "double": lambda rest: struct.unpack("<d", rest.take(8))[0],
    "bytes": lambda rest: rest.take(rest.long()),
    "string": AvroBytes.text,
}


@dataclass(slots=True)
class _Schema:
    """Turns a schema's parts into functions that read; named ones are known by their full names."""

    named: dict[str, Read] = field(default_factory=dict)

    def reader(self, part: Any, space: str, depth: int) -> Read:
        if depth > DEEPEST:
            raise ValueError("its schema nests too deep")
        if isinstance(part, str):
            return self._by_name(part, space)
        if isinstance(part, list):
            return _union([self.reader(one, space, depth + 1) for one in part])
        kind = part["type"]
        if kind == "array":
            return _array(self.reader(part["items"], space, depth + 1))
        if kind == "map":
            return _map(self.reader(part["values"], space, depth + 1))
        if kind in ("record", "error", "enum", "fixed"):
            return self._defined(part, space, depth)
        return self.reader(kind, space, depth + 1)  # a primitive with properties, or one more level

    def _by_name(self, name: str, space: str) -> Read:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        full = name if "." in name or not space else f"{space}.{name}"
        found = full if full in self.named else name
        if found not in self.named:
            raise ValueError(f"its schema does not say what a {name!r} is")
        return lambda rest: self.named[found](rest)  # a record may be within itself

    def _defined(self, part: Any, space: str, depth: int) -> Read:
        name = _text(part["name"])
        space = name.rpartition(".")[0] or _text(part.get("namespace", space))
        full = name if "." in name or not space else f"{space}.{name}"
        if part["type"] == "enum":
            self.named[full] = _enum([_text(symbol) for symbol in part["symbols"]])
        elif part["type"] == "fixed":
            self.named[full] = _fixed(part["size"])
        else:
            self.named[full] = _PRIMITIVES["null"]  # until its fields are known
            fields = [(_text(one["name"]), self.reader(one["type"], space, depth + 1)) for one in part["fields"]]
            self.named[full] = _record(fields)
        return self.named[full]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"its schema has {type(value).__name__} where a name belongs")
    return value


def _union(branches: list[Read]) -> Read:
    def read(rest: AvroBytes) -> object:
        branch = rest.long()
        if not 0 <= branch < len(branches):
            raise ValueError(f"{branch} is none of {len(branches)} branches")
        return branches[branch](rest)

    return read


def _enum(symbols: list[str]) -> Read:
    def read(rest: AvroBytes) -> str:
        number = rest.long()
        if not 0 <= number < len(symbols):
            raise ValueError(f"{number} is none of {len(symbols)} symbols")
        return symbols[number]

    return read


def _fixed(size: Any) -> Read:
    if not isinstance(size, int):
        raise TypeError(f"its schema has {type(size).__name__} where a size belongs")
    return lambda rest: rest.take(size)


def _record(fields: list[tuple[str, Read]]) -> Read:
    def read(rest: AvroBytes) -> dict[str, object]:
        rest.more(max(len(fields), 1))
        rest.depth += 1
        if rest.depth > DEEPEST:
            raise ValueError("it nests too deep")
        found = {name: of(rest) for name, of in fields}
        rest.depth -= 1
        return found

    return read


def _array(item: Read) -> Read:
    def read(rest: AvroBytes) -> list[object]:
        found: list[object] = []
        while count := rest.count():
            for _ in range(count):
                rest.more()
                found.append(item(rest))
        return found

    return read


def _map(value: Read) -> Read:
    def read(rest: AvroBytes) -> dict[str, object]:
        found: dict[str, object] = {}
        while count := rest.count():
            for _ in range(count):
                rest.more()
                key = rest.text()
                found[key] = value(rest)
        return found

    return read
