"""How `topics cat` prints messages, entries and what is missing."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

from offloader.archive.items import ArchivedEntry, Missing
from offloader.archive.messages.filters import time_said
from offloader.archive.messages.message import Message
from offloader.cli.output import say
from offloader.cli.topics import time_text
from offloader.format.entry import inspect
from offloader.model import TopicName
from offloader.printable import printable

_HEX_LINE = 16


class Format(ABC):
    """One way to print what a topic, or its partitions, have. What was printed is certainly out after `flush`."""

    def __init__(self, topic: TopicName) -> None:
        self.topic = topic
        self._out = sys.stdout

    @abstractmethod
    def message(self, message: Message) -> None: ...

    @abstractmethod
    def entry(self, entry: ArchivedEntry) -> None: ...

    def missing(self, missing: Missing) -> None:
        self._line(_gap_line(missing))

    def turn_to(self, partition: TopicName) -> None:
        """What follows is of this partition."""
        self.topic = partition
        self._line(printable(f"# {partition}"))

    def flush(self) -> None:
        self._out.flush()

    def _line(self, text: str) -> None:
        self._out.write(text + "\n")


class TextFormat(Format):
    """A line each, fields separated by tabs."""

    def message(self, message: Message) -> None:
        self._line(f"{_head(message)}\t{_shown(message)}")

    def entry(self, entry: ArchivedEntry) -> None:
        self._line(f"{entry.position}\t{len(entry.data)}\t{hashlib.sha256(entry.data).hexdigest()}")


class JsonFormat(Format):
    """An object a line."""

    def message(self, message: Message) -> None:
        self._object(_message_fields(message))

    def entry(self, entry: ArchivedEntry) -> None:
        facts = inspect(entry.data)
        self._object({
            "position": str(entry.position),
            "size": len(entry.data),
            "publishTime": when(time_said(facts)),
            "messages": facts.messages,
            "unreadable": facts.unreadable,
            "brokerTime": when(facts.broker_time),
            "index": facts.broker_index,
            "sha256": hashlib.sha256(entry.data).hexdigest(),
            "data": _base64(entry.data),
        })  # fmt: skip

    def missing(self, missing: Missing) -> None:
        self._object({"missing": {"from": str(missing.start), "to": str(missing.end)}, "why": missing.why})

    def turn_to(self, partition: TopicName) -> None:
        self.topic = partition

    def _object(self, fields: Mapping[str, object]) -> None:
        self._line(json.dumps({"topic": str(self.topic), **fields}))


class RawFormat(Format):
    """Only the bytes; everything else on standard error."""

    def message(self, message: Message) -> None:
        if message.problem is not None:
            say(f"# {_place(message)} has no value: {message.problem}", err=True)
        self._out.buffer.write(message.value or b"")

    def entry(self, entry: ArchivedEntry) -> None:
        self._out.buffer.write(entry.data)

    def missing(self, missing: Missing) -> None:
        say(_gap_line(missing), err=True)

    def turn_to(self, partition: TopicName) -> None:
        self.topic = partition


class HexFormat(Format):
    """A head line each, then the bytes, 16 a line."""

    def message(self, message: Message) -> None:
        head = _head(message)
        self._dump(head if message.value is not None else f"{head}\t{_shown(message)}", message.value or b"")

    def entry(self, entry: ArchivedEntry) -> None:
        self._dump(f"{entry.position}\t{len(entry.data)}", entry.data)

    def _dump(self, head: str, data: bytes) -> None:
        self._line("\n".join([head, *_hex_lines(data)]))


FORMATS: Mapping[str, type[Format]] = {"text": TextFormat, "json": JsonFormat, "raw": RawFormat, "hex": HexFormat}


def when(ms: int | None) -> str | None:
    """A time; one that no calendar has as it stands."""
    try:
        return None if ms is None else time_text(ms)
    except (OverflowError, ValueError, OSError):
        return str(ms)


def _message_fields(message: Message) -> dict[str, object]:
    key = message.key
    return {
        "position": str(message.position),
        "batchIndex": None if message.batch_index < 0 else message.batch_index,
        "size": _size(message),
        "publishTime": when(message.publish_time),
        "eventTime": when(message.event_time),
        "key": None if key is None else _utf8(key),
        "keyBytes": _base64(key),
        "properties": message.properties,
        "producer": message.producer_name,
        "sequenceId": message.sequence_id,
        "orderingKey": _base64(message.ordering_key),
        "schemaVersion": _base64(message.schema_version),
        "replicatedFrom": message.replicated_from,
        "brokerTime": when(message.broker_time),
        "index": message.broker_index,
        "encryptionKeys": None if message.encryption is None else [key.name for key in message.encryption.keys],
        "payload": _base64(message.value),
        "problem": message.problem,
    }


def _head(message: Message) -> str:
    """What text and dump say before the payload."""
    key = "-" if message.key is None else printable(message.key)
    return "\t".join((_place(message), str(_size(message)), when(message.publish_time) or "-", key))


def _place(message: Message) -> str:
    return str(message.position) if message.batch_index < 0 else f"{message.position}:{message.batch_index}"


def _size(message: Message) -> int:
    return 0 if message.value is None else len(message.value)


def _shown(message: Message) -> str:
    if message.value is not None:
        return printable(message.value)
    return "(null)" if message.problem is None else f"({message.problem})"


def _gap_line(missing: Missing) -> str:
    return printable(f"# {missing.start}..{missing.end} is missing: {missing.why}")


def _hex_lines(data: bytes) -> Iterator[str]:
    for at in range(0, len(data), _HEX_LINE):
        piece = data[at : at + _HEX_LINE]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        yield f"{at:08x}  {piece[:8].hex(' '):<23}  {piece[8:].hex(' '):<23}  |{text}|"


def _utf8(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
