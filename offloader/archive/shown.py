"""Entries, messages and what is missing as text and as JSON: the same wherever the product shows them. Pure."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime

from offloader.archive.items import ArchivedEntry, Missing
from offloader.archive.messages.filters import time_said
from offloader.archive.messages.message import Message
from offloader.format.entry import inspect
from offloader.printable import printable

_HEX_LINE = 16


def time_text(ms: int) -> str:
    """UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def when(ms: int | None) -> str | None:
    """A time; one that no calendar has as it stands."""
    try:
        return None if ms is None else time_text(ms)
    except (OverflowError, ValueError, OSError):
        return str(ms)


def message_fields(message: Message) -> dict[str, object]:
    """All that a message says, with its bytes in base64."""
    key = message.key
    return {
        "position": str(message.position),
        "batchIndex": None if message.batch_index < 0 else message.batch_index,
        "size": size_of_value(message),
        "publishTime": when(message.publish_time),
        "eventTime": when(message.event_time),
        "key": None if key is None else utf8(key),
        "keyBytes": base64_text(key),
        "properties": message.properties,
        "producer": message.producer_name,
        "sequenceId": message.sequence_id,
        "orderingKey": base64_text(message.ordering_key),
        "schemaVersion": base64_text(message.schema_version),
        "replicatedFrom": message.replicated_from,
        "brokerTime": when(message.broker_time),
        "index": message.broker_index,
        "encryptionKeys": None if message.encryption is None else [key.name for key in message.encryption.keys],
        "payload": base64_text(message.value),
        "problem": message.problem,
    }


def message_head(message: Message) -> str:
    """What text and dump say before the payload."""
    key = "-" if message.key is None else printable(message.key)
    return "\t".join((place_of(message), str(size_of_value(message)), when(message.publish_time) or "-", key))


def place_of(message: Message) -> str:
    """Its position, with its number in a batch."""
    return str(message.position) if message.batch_index < 0 else f"{message.position}:{message.batch_index}"


def size_of_value(message: Message) -> int:
    """Bytes; 0 where there is no value."""
    return 0 if message.value is None else len(message.value)


def value_shown(message: Message) -> str:
    """Its value on one line, or in parentheses why it has none."""
    if message.value is not None:
        return printable(message.value)
    return "(null)" if message.problem is None else f"({message.problem})"


def missing_line(missing: Missing) -> str:
    """Positions of which there is no data, on one line."""
    return printable(f"# {missing.start}..{missing.end} is missing: {missing.why}")


def hex_lines(data: bytes) -> Iterator[str]:
    """Sixteen bytes a line: offset, hex, ASCII."""
    for at in range(0, len(data), _HEX_LINE):
        piece = data[at : at + _HEX_LINE]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        yield f"{at:08x}  {piece[:8].hex(' '):<23}  {piece[8:].hex(' '):<23}  |{text}|"


def utf8(data: bytes) -> str | None:
    """As text; None where it is none."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def base64_text(data: bytes | None) -> str | None:
    """As base64."""
    return None if data is None else base64.b64encode(data).decode()


def entry_fields(entry: ArchivedEntry) -> dict[str, object]:
    """All that an entry's frame says, and its bytes."""
    facts = inspect(entry.data)
    return {
        "position": str(entry.position),
        "size": len(entry.data),
        "publishTime": when(time_said(facts)),
        "messages": facts.messages,
        "unreadable": facts.unreadable,
        "brokerTime": when(facts.broker_time),
        "index": facts.broker_index,
        "sha256": hashlib.sha256(entry.data).hexdigest(),
        "data": base64_text(entry.data),
    }


def missing_fields(missing: Missing) -> dict[str, object]:
    """Positions of which there is no data."""
    return {"missing": {"from": str(missing.start), "to": str(missing.end)}, "why": missing.why}
