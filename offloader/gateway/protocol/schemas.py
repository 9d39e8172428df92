"""Schemas as the binary protocol has them, and whether messages of one can be read with another. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from struct import pack, unpack_from
from typing import Any, NamedTuple

from offloader._proto.pulsar_wire_pb2 import Subscribe
from offloader.gateway.values import ErrorCode, RefusedError
from offloader.json_text import parse_json
from offloader.model import KIB, TopicName
from offloader.ports.admin import TopicSchema

_NAMES = (
    "NONE STRING JSON PROTOBUF AVRO BOOLEAN INT8 INT16 INT32 INT64 FLOAT DOUBLE DATE TIME TIMESTAMP KEY_VALUE INSTANT "
    "LOCAL_DATE LOCAL_TIME LOCAL_DATE_TIME PROTOBUF_NATIVE"
)
SCHEMA_TYPES = {name: number for number, name in enumerate(_NAMES.split())}
"""The protocol's numbers by the names of the admin REST."""
_NAMES_OF = {number: name for name, number in SCHEMA_TYPES.items()}


def consumer_schema(asked: Subscribe) -> SchemaText | None:
    """With which a consumer reads; None: it takes bytes, or asks for the messages' own (AUTO_CONSUME)."""
    name = _NAMES_OF.get(asked.schema.type, "NONE") if asked.HasField("schema") else "NONE"
    if name == "NONE":
        return None
    return SchemaText(name, asked.schema.data, {one.key: one.value for one in asked.schema.properties})


def check_readable(topic: TopicName, newest: TopicSchema, reader: SchemaText) -> None:
    """As brokers do: a consumer can read what is written with the topic's newest schema. Raises RefusedError."""
    written = SchemaText(newest.type, wire_data(newest), dict(newest.properties))
    if why := why_unreadable(written, reader):
        text = f"Incompatible schema: {topic} cannot be read with the schema of this consumer: {why}"
        raise RefusedError(ErrorCode.INCOMPATIBLE_SCHEMA, text)


def wire_data(schema: TopicSchema) -> bytes:
    """The definition. Of `KEY_VALUE` the REST gives `{"key": …, "value": …}`, the protocol both with their lengths."""
    if schema.type != "KEY_VALUE":
        return schema.data
    try:
        both = json.loads(schema.data)
        parts = [_text(both["key"]), _text(both["value"])]
    except (ValueError, KeyError, TypeError):
        return schema.data
    return b"".join(pack(">i", len(part)) + part for part in parts)


def _text(definition: object) -> bytes:
    return (definition if isinstance(definition, str) else json.dumps(definition)).encode()


LARGEST = 256 * KIB  # of a definition
MOST_COMPARED = 20_000  # pairs of types: some 50 ms
_RECORDS = ("AVRO", "JSON")
_WIDER = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


class SchemaText(NamedTuple):
    """`type` as Pulsar names it. `data`: the definition, as the protocol has it."""

    type: str
    data: bytes = b""
    properties: Mapping[str, str] = {}


def why_unreadable(written: SchemaText, reader: SchemaText) -> str | None:
    """Why messages that were written with one schema cannot be read with the other; None: they can, as far as is known
    of these types."""
    if written.type != reader.type:
        return f"the messages are of type {written.type}, the consumer's schema of type {reader.type}"
    if written.type == "KEY_VALUE":
        pairs = zip(_parts(written), _parts(reader), strict=False)
        return next((why for one, other in pairs if (why := why_unreadable(one, other)) is not None), None)
    if written.type not in _RECORDS:
        return None
    definition = _definition(written.data)
    if definition is None:  # of JSON there is a form of old clients, which says nothing that could be compared
        return None
    wanted = _definition(reader.data)
    if wanted is None:
        return "the consumer's schema is no definition of Avro"
    try:
        return _Comparison(definition, wanted).reason()
    except (_NotAvroError, RecursionError, TypeError):
        return "the consumer's schema cannot be compared with that of the messages"


def _parts(schema: SchemaText) -> list[SchemaText]:
    """The key's and the value's; none where the definition does not say them."""
    data, found = schema.data, list[SchemaText]()
    for part in ("key", "value"):
        kind = schema.properties.get(f"{part}.schema.type", "")
        if not kind or len(data) < 4:
            return []
        size = max(unpack_from(">i", data)[0], 0)
        found.append(SchemaText(kind, data[4 : 4 + size]))
        data = data[4 + size :]
    return found


def _definition(data: bytes) -> Any:
    """None: it is none."""
    try:
        found = parse_json(data) if len(data) <= LARGEST else None
        _Types(found)
    except (ValueError, TypeError, _NotAvroError, RecursionError):
        return None
    return found


class _NotAvroError(Exception):
    """A definition is not what Avro has, or takes too long."""


class _Types:
    """The named types of a definition. References are by full names, or by short ones."""

    def __init__(self, definition: object) -> None:
        self.named: dict[str, dict[str, Any]] = {}
        self._find(definition)
        if definition is None or not self.kind(definition):
            raise _NotAvroError

    def kind(self, one: object) -> str:
        if isinstance(one, list):
            return "union"
        kind = self.resolved(one).get("type")
        return kind if isinstance(kind, str) else ""

    def resolved(self, one: object) -> dict[str, Any]:
        """A type that is no union, as an object."""
        for _ in range(8):  # {"type": {"type": …}}
            if isinstance(one, str):
                one = self.named.get(one) or self.named.get(_short(one)) or {"type": one}
            if not isinstance(one, dict):
                raise _NotAvroError
            kind = one.get("type")
            is_name = isinstance(kind, str) and (kind in self.named or _short(kind) in self.named)
            if not is_name and not isinstance(kind, dict):
                return one
            one = kind
        raise _NotAvroError

    def _find(self, one: object) -> None:
        if isinstance(one, list):
            for each in one:
                self._find(each)
        elif isinstance(one, dict):
            name = one.get("name")
            if isinstance(name, str) and one.get("type") in ("record", "error", "enum", "fixed"):
                self.named.setdefault(name, one)
                self.named.setdefault(_short(name), one)
            for key in ("type", "items", "values"):
                self._find(one.get(key))
            for field in one.get("fields") or ():
                if not isinstance(field, dict):
                    raise _NotAvroError
                self._find(field.get("type"))


class _Comparison:
    def __init__(self, written: object, reader: object) -> None:
        self._written, self._reader = (written, _Types(written)), (reader, _Types(reader))
        self._compared: dict[tuple[int, int], str | None] = {}  # records, which may contain themselves
        self._count = 0

    def reason(self) -> str | None:
        return self._why(self._written[0], self._reader[0], "it")

    def _why(self, written: object, reader: object, where: str) -> str | None:
        self._count += 1
        if self._count > MOST_COMPARED:
            raise _NotAvroError
        ours, theirs = self._written[1], self._reader[1]
        if isinstance(written, list):
            return next((why for each in written if (why := self._why(each, reader, where)) is not None), None)
        if isinstance(reader, list):
            if any(self._why(written, each, where) is None for each in reader):
                return None
            return f"{where} is {ours.kind(written)}, which the consumer's schema does not have there"
        one, other = ours.resolved(written), theirs.resolved(reader)
        kind, wanted = ours.kind(one), theirs.kind(other)
        if kind != wanted:
            if wanted in _WIDER.get(kind, ()):
                return None
            return f"{where} is {kind}, and {wanted} for the consumer"
        match kind:
            case "array":
                return self._why(one.get("items"), other.get("items"), f"an item of {where}")
            case "map":
                return self._why(one.get("values"), other.get("values"), f"a value of {where}")
            case "record" | "error" | "enum" | "fixed":
                return self._why_named(one, other, kind, where)
        return None

    def _why_named(self, one: dict[str, Any], other: dict[str, Any], kind: str, where: str) -> str | None:
        if kind == "fixed":
            return None if one.get("size") == other.get("size") else f"{where} has another size for the consumer"
        if kind == "enum":
            missing = set(map(str, one.get("symbols") or ())) - set(map(str, other.get("symbols") or ()))
            if not missing or "default" in other:
                return None
            return f"{where} may be {min(missing)}, which the consumer's schema does not have"
        key = id(one), id(other)
        if key not in self._compared:
            self._compared[key] = None
            self._compared[key] = self._why_fields(one, other)
        return self._compared[key]

    def _why_fields(self, one: dict[str, Any], other: dict[str, Any]) -> str | None:
        there = {str(field.get("name")): field for field in one.get("fields") or ()}
        for field in other.get("fields") or ():
            name = str(field.get("name"))
            found = next((there[each] for each in (name, *map(str, field.get("aliases") or ())) if each in there), None)
            if found is None:
                if "default" not in field:
                    return f"field {name} is not in the messages, and has no default"
            elif (why := self._why(found.get("type"), field.get("type"), f"field {name}")) is not None:
                return why
        return None


def _short(name: str) -> str:
    return name.rpartition(".")[2]
