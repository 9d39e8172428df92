"""An entry taken apart, to the last field, also where it is damaged. Pure."""

from __future__ import annotations

from typing import Any

import crc32c
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from offloader._proto.pulsar_messages_pb2 import BrokerEntryMetadata, CompressionType, MessageMetadata
from offloader.archive.messages.message import MAX_MESSAGE
from offloader.archive.messages.unpack import unpack_batch
from offloader.errors import DamagedObjectError
from offloader.format.compression import decompress
from offloader.format.entry import MAGIC_BROKER_METADATA, MAGIC_CHECKSUM
from offloader.printable import printable

Facts = dict[str, Any]

UNKNOWN = "unknownFields"
PREVIEW = 64
MAX_SHOWN = 1000  # messages of a batch


def take_apart(data: bytes, limit: int = MAX_MESSAGE) -> Facts:
    """Everything that an entry says, of a payload of at most `limit` bytes. `problem`: where it stops making sense."""
    facts: Facts = {"size": len(data)}
    try:
        _take_apart(data, facts, limit)
    except DamagedObjectError as error:
        facts["problem"] = str(error)
    return facts


def is_sound(facts: Facts) -> bool:
    """Whether the entry is what its frame says."""
    checksum = facts.get("checksum")
    return "problem" not in facts and (checksum is None or checksum["ok"])


def _take_apart(data: bytes, facts: Facts, limit: int) -> None:
    at = 0
    if data.startswith(MAGIC_BROKER_METADATA):
        end = _end(data, 2, "broker entry metadata")
        facts["brokerEntryMetadata"] = _parsed(BrokerEntryMetadata(), data[6:end], "broker entry metadata")[1]
        at = end
    if data.startswith(MAGIC_CHECKSUM, at):
        facts["checksum"] = _checksum(data, at)
        at += 6
    end = _end(data, at, "message metadata")
    metadata, facts["messageMetadata"] = _parsed(MessageMetadata(), data[at + 4 : end], "message metadata")
    if not metadata.HasField("publish_time"):
        raise DamagedObjectError("it is no message: there is no publish time")
    facts["payload"] = {"offset": end, "size": len(data) - end}
    _payload(metadata, data[end:], facts, limit)


def _checksum(data: bytes, at: int) -> Facts:
    if len(data) < at + 6:
        raise DamagedObjectError(f"it ends inside its checksum, after {len(data)} bytes")
    stored, computed = int.from_bytes(data[at + 2 : at + 6]), crc32c.crc32c(memoryview(data)[at + 6 :])
    return {"stored": f"{stored:08x}", "computed": f"{computed:08x}", "ok": stored == computed}


def _payload(metadata: MessageMetadata, payload: bytes, facts: Facts, limit: int) -> None:
    shown: Facts = facts["payload"]
    opened: bytes | memoryview = payload
    if metadata.encryption_keys:
        shown["note"] = "encrypted"
    elif metadata.num_chunks_from_msg > 1:
        shown["note"] = f"chunk {metadata.chunk_id + 1} of {metadata.num_chunks_from_msg}"
    else:
        opened = decompress(metadata.compression, payload, metadata.uncompressed_size, limit)
        if metadata.compression != CompressionType.NONE:
            shown["uncompressedSize"] = len(opened)
        if metadata.HasField("num_messages_in_batch"):
            facts["messages"] = []
            for number, message in enumerate(unpack_batch(opened, metadata.num_messages_in_batch)):
                if number < MAX_SHOWN:  # the others are looked at for what is wrong
                    said, shown_payload = _fields_of(message.metadata), preview(message.payload)
                    facts["messages"].append({"batchIndex": number, "metadata": said, "preview": shown_payload})
            return
    shown["preview"] = preview(opened)


def preview(payload: bytes | memoryview) -> str:
    """The beginning of a payload, on one line."""
    shown = printable(bytes(payload[:PREVIEW]))
    return shown + "…" if len(payload) > PREVIEW else shown


def _end(data: bytes, at: int, what: str) -> int:
    """Where the bytes end whose length stands at `at`."""
    begin = at + 4
    end = begin + int.from_bytes(data[at:begin])
    if begin > len(data) or end > len(data):
        raise DamagedObjectError(f"it ends inside its {what}: at {end} of {len(data)} bytes")
    return end


def _parsed(message: Any, encoded: bytes, what: str) -> tuple[Any, Facts]:
    try:
        message.ParseFromString(encoded)
    except DecodeError as error:
        raise DamagedObjectError(f"its {what} cannot be parsed") from error
    return message, _fields_of(message)


def _fields_of(message: Message) -> Facts:
    """Every field that is set, in the order of the numbers. Bytes become hex; strings that are not UTF-8 too."""
    facts: Facts = {}
    for field, value in message.ListFields():
        facts[field.name] = [_plain(one) for one in value] if field.is_repeated else _plain(value)
    unknown = _unknown(UnknownFieldSet(message))
    return facts | {UNKNOWN: unknown} if unknown else facts


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return _fields_of(value)
    return value.hex() if isinstance(value, bytes) else value


def _unknown(found: UnknownFieldSet) -> list[Facts]:
    return [{"number": one.field_number, "wireType": one.wire_type, "value": _unknown_value(one.data)} for one in found]  # type: ignore[attr-defined]


def _unknown_value(data: Any) -> Any:
    if isinstance(data, int):
        return data
    return data.hex() if isinstance(data, bytes) else _unknown(data)
