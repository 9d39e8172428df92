"""How `topics cat` prints messages, entries and what is missing."""

from __future__ import annotations

import hashlib
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping

from offloader.archive.items import ArchivedEntry, Missing
from offloader.archive.messages.message import Message
from offloader.archive.shown import (
    entry_fields,
    hex_lines,
    message_fields,
    message_head,
    missing_fields,
    missing_line,
    place_of,
    value_shown,
)
from offloader.cli.output import say
from offloader.model import TopicName
from offloader.printable import printable


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
        self._line(missing_line(missing))

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
        self._line(f"{message_head(message)}\t{value_shown(message)}")

    def entry(self, entry: ArchivedEntry) -> None:
        self._line(f"{entry.position}\t{len(entry.data)}\t{hashlib.sha256(entry.data).hexdigest()}")


class JsonFormat(Format):
    """An object a line."""

    def message(self, message: Message) -> None:
        self._object(message_fields(message))

    def entry(self, entry: ArchivedEntry) -> None:
        self._object(entry_fields(entry))

    def missing(self, missing: Missing) -> None:
        self._object(missing_fields(missing))

    def turn_to(self, partition: TopicName) -> None:
        self.topic = partition

    def _object(self, fields: Mapping[str, object]) -> None:
        self._line(json.dumps({"topic": str(self.topic), **fields}))


class RawFormat(Format):
    """Only the bytes; everything else on standard error."""

    def message(self, message: Message) -> None:
        if message.problem is not None:
            say(f"# {place_of(message)} has no value: {message.problem}", err=True)
        self._out.buffer.write(message.value or b"")

    def entry(self, entry: ArchivedEntry) -> None:
        self._out.buffer.write(entry.data)

    def missing(self, missing: Missing) -> None:
        say(missing_line(missing), err=True)

    def turn_to(self, partition: TopicName) -> None:
        self.topic = partition


class HexFormat(Format):
    """A head line each, then the bytes, 16 a line."""

    def message(self, message: Message) -> None:
        head = message_head(message)
        self._dump(head if message.value is not None else f"{head}\t{value_shown(message)}", message.value or b"")

    def entry(self, entry: ArchivedEntry) -> None:
        self._dump(f"{entry.position}\t{len(entry.data)}", entry.data)

    def _dump(self, head: str, data: bytes) -> None:
        self._line("\n".join([head, *hex_lines(data)]))


FORMATS: Mapping[str, type[Format]] = {"text": TextFormat, "json": JsonFormat, "raw": RawFormat, "hex": HexFormat}
