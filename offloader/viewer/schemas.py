"""The ways to look at a payload: by the schema that was archived beside it, as JSON, as text, as hex. Pure.

Whoever may write to a topic chooses schema and bytes: whatever does not fit is one line, and no more."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from graphlib import TopologicalSorter
from itertools import islice
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.empty_pb2 import Empty
from google.protobuf.json_format import Error as JsonFormatError
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from offloader.archive.shown import hex_lines
from offloader.errors import DamagedRecordError
from offloader.json_text import parse_json
from offloader.metadata.avro import LARGEST_SCHEMA, read_avro
from offloader.metadata.value_codec import damage_of
from offloader.pages.rendering import TextBlock, text_block
from offloader.ports.admin import TopicSchema

PARSING_INFO = "__PARSING_INFO__"
SECOND = 10**9  # ns
DAY_SECONDS = 86_400
LONGEST_VERSION = 8  # bytes: brokers number versions with a long
SHOWN_TEXT = 16 * 1024  # characters
SHOWN_HEX = 4 * 1024  # bytes
LARGEST_DECODED = 512 * 1024  # of what is larger the beginning is shown as text
UNBOUNDED = frozenset(("JSON", "PROTOBUF", "PROTOBUF_NATIVE", "KEY_VALUE"))  # two bytes may be a value of these


def decoded(schema: TopicSchema, data: bytes) -> object:
    """The value. Raises DamagedRecordError for what the schema does not describe, or where there is no way to read
    it."""
    reader = _READERS.get(schema.type)
    if reader is None:
        raise DamagedRecordError(f"values of type {schema.type} are not decoded here")
    with damage_of(f"a value of type {schema.type}"):
        if len(schema.data) > LARGEST_SCHEMA:
            raise ValueError(f"its schema has more than {LARGEST_SCHEMA} bytes")
        try:
            return reader(schema, data)
        except (JsonFormatError, RecursionError) as error:
            raise ValueError(str(error)) from error


def version_of(schema_version: bytes | None) -> int | None:
    """The number of the version that a message names; None: it names none, or what is no number of a broker's."""
    if schema_version is None or len(schema_version) > LONGEST_VERSION:
        return None
    return int.from_bytes(schema_version, signed=True)


def _avro(schema: TopicSchema, data: bytes) -> object:
    return read_avro(schema.data.decode(), data)


def _number(code: str) -> Callable[[TopicSchema, bytes], object]:
    def read(_: TopicSchema, data: bytes) -> object:
        return struct.unpack(code, data)[0]

    return read


def _moment(_: TopicSchema, data: bytes) -> object:
    ms = struct.unpack(">q", data)[0]
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)).isoformat()


def _instant(_: TopicSchema, data: bytes) -> object:
    seconds, nanos = struct.unpack(">qi", data)
    days, second = divmod(seconds, DAY_SECONDS)
    return f"{_day(days)}T{_time_of_day(second * SECOND)}{_fraction(nanos)}Z"


def _local_date(_: TopicSchema, data: bytes) -> object:
    return _day(struct.unpack(">q", data)[0])


def _local_time(_: TopicSchema, data: bytes) -> object:
    return _time_of_day(struct.unpack(">q", data)[0])


def _local_date_time(_: TopicSchema, data: bytes) -> object:
    days, nanos = struct.unpack(">qq", data)
    return f"{_day(days)}T{_time_of_day(nanos)}"


def _day(days: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=days)).isoformat()


def _time_of_day(nanos: int) -> str:
    seconds, rest = divmod(nanos, SECOND)
    if not 0 <= seconds < DAY_SECONDS:
        raise ValueError(f"{nanos} ns is no time of a day")
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{_fraction(rest)}"


def _fraction(nanos: int) -> str:
    if not 0 <= nanos < SECOND:
        raise ValueError(f"{nanos} ns is no part of a second")
    return f".{nanos:09}".rstrip("0") if nanos else ""


def _native(schema: TopicSchema, data: bytes) -> object:
    """Protobuf by the descriptors that the schema carries."""
    described = parse_json(schema.data)
    files = FileDescriptorSet.FromString(base64.b64decode(described["fileDescriptorSet"], validate=True))
    pool = DescriptorPool()
    for file in _in_order(files.file):
        pool.AddSerializedFile(file.SerializeToString())
    kind = GetMessageClass(pool.FindMessageTypeByName(described["rootMessageTypeName"]))
    try:
        return MessageToDict(kind.FromString(data), preserving_proto_field_name=True)
    except AttributeError as error:  # a Timestamp, say, that is not Google's
        raise ValueError(f"its schema has a well-known type that has no field {error}") from error


def _in_order(files: Iterable[FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Each behind those that it imports."""
    named = {file.name: file for file in files}
    order = TopologicalSorter({name: file.dependency for name, file in named.items()}).static_order()
    try:
        return [named[name] for name in order]
    except KeyError as error:
        raise ValueError(f"its schema imports {error}, a file that it does not have") from error


def _protobuf(schema: TopicSchema, data: bytes) -> object:
    """Protobuf without descriptors: the numbers of its fields, by the names that the schema's properties give."""
    said = parse_json(dict(schema.properties).get(PARSING_INFO, "[]"))
    names = {one["number"]: str(one["name"]) for one in said}
    message = Empty()
    message.ParseFromString(data)
    return dict(_unnamed(UnknownFieldSet(message), names))


def _unnamed(found: Any, names: Mapping[int, str]) -> list[tuple[str, object]]:
    grouped: dict[str, list[object]] = {}
    for one in found:
        grouped.setdefault(names.get(one.field_number, str(one.field_number)), []).append(_plain(one.data))
    return [(name, values[0] if len(values) == 1 else values) for name, values in grouped.items()]


def _plain(value: Any) -> object:
    if isinstance(value, int):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return dict(_unnamed(value, {}))


def _pair(schema: TopicSchema, data: bytes) -> object:
    """A key and a value. Where they are apart, the payload is the value alone."""
    both, said = parse_json(schema.data), dict(schema.properties)
    if said.get("kv.encoding.type") == "SEPARATED":
        return _part(both["value"], said.get("value.schema.type", ""), data)
    found, at = {}, 0
    for name in ("key", "value"):
        size = struct.unpack_from(">i", data, at)[0]
        part = data[at + 4 : at + 4 + max(size, 0)]
        if len(part) != max(size, 0):
            raise ValueError(f"it ends inside its {name}")
        found[name] = None if size < 0 else _part(both[name], said.get(f"{name}.schema.type", ""), part)
        at += 4 + len(part)
    return found


def _part(definition: object, kind: str, data: bytes) -> object:
    if kind == "KEY_VALUE":
        raise ValueError("a pair within a pair is not decoded here")
    text = definition if isinstance(definition, str) else json.dumps(definition)
    return decoded(TopicSchema(0, kind or "BYTES", text.encode()), data)


_READERS: Mapping[str, Callable[[TopicSchema, bytes], object]] = {
    "AVRO": _avro,
    "JSON": lambda _, data: parse_json(data),
    "PROTOBUF": _protobuf,
    "PROTOBUF_NATIVE": _native,
    "KEY_VALUE": _pair,
    "STRING": lambda _, data: data.decode(),
    "BYTES": lambda _, data: data,
    "NONE": lambda _, data: data,
    "BOOLEAN": lambda _, data: struct.unpack(">?", data)[0],
    "INT8": _number(">b"),
    "INT16": _number(">h"),
    "INT32": _number(">i"),
    "INT64": _number(">q"),
    "FLOAT": _number(">f"),
    "DOUBLE": _number(">d"),
    "DATE": _moment,
    "TIMESTAMP": _moment,
    "TIME": _moment,  # java.sql.Time: a moment of the first day of 1970
    "INSTANT": _instant,
    "LOCAL_DATE": _local_date,
    "LOCAL_TIME": _local_time,
    "LOCAL_DATE_TIME": _local_date_time,
}


@dataclass(frozen=True, slots=True)
class View:
    """One way to look at it. `note`: what has to be known beside it; `cut`: there is more."""

    name: str
    text: TextBlock
    note: str = ""
    cut: bool = False


def views_of(value: bytes, schema: TopicSchema | None = None) -> list[View]:
    """The best one first. There is always hex."""
    found = [view for view in (_by_schema(value, schema), _as_json(value), _as_text(value)) if view is not None]
    if len(found) > 1 and found[0].text == found[1].text:  # the schema says that it is JSON, and it is
        del found[1]
    return [*found, _as_hex(value)]


def json_text(value: object) -> tuple[str, bool]:
    """With a field a line; and whether there is more than is shown."""
    encoder = json.JSONEncoder(indent=2, ensure_ascii=False, default=_bytes_as_hex)
    pieces, length = [], 0
    try:
        for piece in encoder.iterencode(value):
            pieces.append(piece[: SHOWN_TEXT - length])
            length += len(piece)
            if length > SHOWN_TEXT:
                return "".join(pieces), True
    except RecursionError:
        return "".join(pieces), True
    return "".join(pieces), False


def _by_schema(value: bytes, schema: TopicSchema | None) -> View | None:
    if schema is None or schema.type in ("BYTES", "NONE"):
        return None
    name = f"{schema.type}, version {schema.version}"
    if schema.type in UNBOUNDED and len(value) > LARGEST_DECODED:
        return View(name, TextBlock(""), f"It is larger than {LARGEST_DECODED} bytes, too large to be decoded here.")
    try:
        text, cut = json_text(decoded(schema, value))
    except DamagedRecordError as error:
        return View(name, TextBlock(""), f"The schema does not fit: {error}")
    return View(name, text_block(text), cut=cut)


def _as_json(value: bytes) -> View | None:
    if not value[:1].strip() or value.lstrip()[:1] not in (b"{", b"[") or len(value) > LARGEST_DECODED:
        return None
    try:
        text, cut = json_text(parse_json(value))
    except ValueError:
        return None
    return View("JSON", text_block(text), cut=cut)


def _as_text(value: bytes) -> View | None:
    try:
        value[: 4 * SHOWN_TEXT].decode()
    except UnicodeDecodeError as error:
        if error.start < len(value[: 4 * SHOWN_TEXT]) - 3:  # else the cut went through a character
            return None
    shown = value[: 4 * SHOWN_TEXT].decode(errors="ignore")
    return View("Text", text_block(shown[:SHOWN_TEXT]), cut=len(shown) > SHOWN_TEXT or len(value) > 4 * SHOWN_TEXT)


def _as_hex(value: bytes) -> View:
    lines = islice(hex_lines(value[:SHOWN_HEX]), SHOWN_HEX)
    return View("Hex", text_block("\n".join(lines)), cut=len(value) > SHOWN_HEX)


def _bytes_as_hex(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
