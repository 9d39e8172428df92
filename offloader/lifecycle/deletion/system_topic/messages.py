"""PIP-186's message, to and from bytes: pure, no I/O. Whatever is in one is a claim, and proves nothing.

The record is that of the PIP's text. Readers take the older states of the PIP's code as well (`context` in the place of
`offloadContext`, fields that we do not know), JSON, and bytes without a schema, which are read by ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote_plus
from uuid import UUID

from offloader.json_text import parse_json
from offloader.lifecycle.deletion.records import (
    PIP_TYPES,
    DeletionOffloadContext,
    LedgerComponent,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.lifecycle.ledgers.kinds import managed_ledgers_named
from offloader.metadata.avro import read_avro
from offloader.metadata.value_codec import damage_of

LONGEST_NAME = 8_192
PIP_COMPONENTS = (LedgerComponent.MANAGED_LEDGER, LedgerComponent.MANAGED_CURSOR, LedgerComponent.SCHEMA_STORAGE)
Symbol = TypeVar("Symbol", LedgerType, LedgerComponent)
_SPACE = "org.apache.bookkeeper.mledger.deletion"


def _optional(name: str, kind: object) -> dict[str, object]:
    return {"name": name, "type": ["null", kind], "default": None}


AVRO_SCHEMA: dict[str, object] = {
    "type": "record",
    "name": "PendingDeleteLedgerInfo",
    "namespace": _SPACE,
    "fields": [
        _optional("topicName", "string"),
        _optional("ledgerComponent", {"type": "enum", "name": "LedgerComponent", "symbols": list(PIP_COMPONENTS)}),
        _optional("cursorName", "string"),
        _optional("schemaId", "long"),
        _optional("ledgerType", {"type": "enum", "name": "LedgerType", "symbols": list(PIP_TYPES)}),
        _optional("ledgerId", "long"),
        _optional(
            "offloadContext",
            {
                "type": "record",
                "name": "OffloadContext",
                "fields": [
                    {"name": "lsb", "type": "long"},
                    {"name": "msb", "type": "long"},
                    _optional("driverName", "string"),
                    _optional("metadata", {"type": "map", "values": "string"}),
                ],
            },
        ),
    ],
}
_DEFINITION = json.dumps(AVRO_SCHEMA)


@dataclass(frozen=True, slots=True)
class WrittenSchema:
    """What a message was written with, as the topic's registry says: `kind` is AVRO, JSON, or anything."""

    kind: str
    definition: str


@dataclass(frozen=True, slots=True)
class PendingDeleteMessage:
    """What somebody wants to be deleted. `topic_name` as it was said: with a domain, without, or a managed ledger's."""

    ledger_id: int
    ledger_type: LedgerType
    ledger_component: LedgerComponent
    topic_name: str
    cursor_name: str = ""
    schema_id: str = ""
    offload_context: DeletionOffloadContext | None = None

    def differs_from(self, record: PendingDeleteLedgerInfo) -> str:
        """What it says otherwise than the ledger's own metadata, of which the record was made; empty: it matches."""
        pairs = {
            "ledger": (self.ledger_id, record.ledger_id),
            "type": (self.ledger_type, record.ledger_type),
            "component": (self.ledger_component, record.ledger_component),
            "cursor": (self.cursor_name, record.cursor_name),
            "copy": (_uuid_of(self.offload_context), _uuid_of(record.offload_context)),
        }
        wrong = [f"the {what} is {there}, not {said}" for what, (said, there) in pairs.items() if said != there]
        if self.schema_id and self.schema_id != record.schema_id:
            wrong.append(f"the schema is {record.schema_id}, not {self.schema_id}")
        elif record.topic_name and record.topic_name not in managed_ledgers_named(self.topic_name):
            wrong.append(f"it belongs to {record.topic_name}, not to {self.topic_name}")
        return "; ".join(wrong)


def message_of(record: PendingDeleteLedgerInfo) -> PendingDeleteMessage | None:
    """What PIP-186 would send of a deletion. None: its messages cannot say it, or it must not be said: whoever takes it
    for a command deletes without the guard that a ledger needs which is not certain to be unused."""
    numbered = record.ledger_component is not LedgerComponent.SCHEMA_STORAGE or record.schema_id.isdecimal()
    named = record.ledger_component in PIP_COMPONENTS and bool(record.topic_name) and numbered
    context = record.offload_context
    if context is not None and not (context.driver_name and _is_uuid(context.uuid)):
        return None
    if not named or not record.is_valid or record.evidence.is_by_operator:
        return None
    return PendingDeleteMessage(
        record.ledger_id,
        record.ledger_type,
        record.ledger_component,
        _short_name(record.topic_name),
        record.cursor_name,
        record.schema_id,
        context,
    )


def write_message(message: PendingDeleteMessage) -> bytes:
    """Avro by `AVRO_SCHEMA`, in which a schema's id is a number: one that is none is left out. Raises ValueError for a
    component that PIP-186 does not have."""
    schema_id = int(message.schema_id) if message.schema_id.isdecimal() else None
    context = message.offload_context
    return b"".join(
        (
            _some(_text(message.topic_name)),
            _some(_long(PIP_COMPONENTS.index(message.ledger_component))),
            _some(_text(message.cursor_name)) if message.cursor_name else _NONE,
            _NONE if schema_id is None else _some(_long(schema_id)),
            _some(_long(PIP_TYPES.index(message.ledger_type))),
            _some(_long(message.ledger_id)),
            _NONE if context is None else _some(_context(context)),
        )
    )


def read_message(data: bytes, written: WrittenSchema | None = None) -> PendingDeleteMessage:
    """Raises DamagedRecordError for whatever is no complete message of PIP-186's."""
    with damage_of("a message of the system topic"):
        if written is not None and written.kind == "AVRO":
            return _read(read_avro(written.definition, data))
        if data.startswith(b"{"):  # no union of ours begins so
            return _read(parse_json(data))
        return _read(read_avro(_DEFINITION, data))


def _read(value: Any) -> PendingDeleteMessage:
    if not isinstance(value, dict):
        raise TypeError(f"it is {type(value).__name__}, not a record")
    schema = value.get("schemaId")
    message = PendingDeleteMessage(
        ledger_id=_number(value, "ledgerId"),
        ledger_type=_symbol(PIP_TYPES, value.get("ledgerType")),
        ledger_component=_symbol(PIP_COMPONENTS, value.get("ledgerComponent")),
        topic_name=_name(value, "topicName"),
        cursor_name=_name(value, "cursorName"),
        schema_id=str(_number(value, "schemaId")) if isinstance(schema, int) else _name(value, "schemaId"),
        offload_context=_read_context(_context_in(value)),
    )
    _check(message)
    return message


def _check(message: PendingDeleteMessage) -> None:
    if message.ledger_id < 0:
        raise ValueError(f"{message.ledger_id} is no ledger's id")
    if not message.topic_name:
        raise ValueError("it names no topic")
    if (message.ledger_component is LedgerComponent.MANAGED_CURSOR) != bool(message.cursor_name):
        raise ValueError("a cursor's ledger names its cursor, and no other one does")
    if (message.ledger_type is LedgerType.OFFLOAD_LEDGER) != (message.offload_context is not None):
        raise ValueError("an offloaded ledger names its copy, and no other one does")


def _symbol(known: tuple[Symbol, ...], value: object) -> Symbol:
    for one in known:
        if value == one:
            return one
    raise ValueError(f"it names no {type(known[0]).__name__} that PIP-186 has")


def _number(value: Mapping[str, Any], field: str) -> int:
    number = value.get(field)
    if not isinstance(number, int) or isinstance(number, bool) or not -(2**63) <= number < 2**63:
        raise ValueError(f"its {field} is no number of 64 bits")
    return number


def _name(value: Mapping[str, Any], field: str) -> str:
    name = value.get(field)
    if name is None:
        return ""
    if not isinstance(name, str) or len(name) > LONGEST_NAME:
        raise ValueError(f"its {field} is no text, or has more than {LONGEST_NAME} characters")
    name.encode()  # half of a surrogate pair has no place in a record
    return name


def _context_in(value: Mapping[str, Any]) -> Any:
    """An older state has the whole of the ledger list's record, of which only this part matters."""
    found = value.get("offloadContext")
    whole = value.get("context")
    return _plain(whole).get("offloadContext") if found is None and isinstance(whole, dict) else found


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """Names as protobuf has them: what Avro makes of its Java classes ends in an underscore."""
    return {name.rstrip("_"): value for name, value in record.items()}


def _read_context(value: Any) -> DeletionOffloadContext | None:
    if not isinstance(value, dict):
        return None
    context = _plain(value)
    msb, lsb = (_number({"uuid": context.get(half, context.get(other))}, "uuid") for half, other in _HALVES)
    if msb == lsb == 0:  # never offloaded
        return None
    driver = context.get("driverMetadata")
    driver = _plain(driver) if isinstance(driver, dict) else {}
    return DeletionOffloadContext(
        str(UUID(int=(msb % 2**64) << 64 | lsb % 2**64)),
        _name(context, "driverName") or _name(driver, "name"),
        tuple(sorted(_properties(context.get("metadata") or driver.get("properties") or {}))),
    )


_HALVES = (("msb", "uidMsb"), ("lsb", "uidLsb"))


def _properties(value: Any) -> list[tuple[str, str]]:
    if isinstance(value, list):
        pairs = [_plain(one) for one in value if isinstance(one, dict)]
        value = {_name(pair, "key"): pair.get("value") for pair in pairs}
    if not isinstance(value, dict):
        raise TypeError("its driver's metadata are no map")
    return [(_name({"key": key}, "key"), _name(value, key)) for key in value]


def _uuid_of(context: DeletionOffloadContext | None) -> str:
    return "" if context is None else context.uuid


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _short_name(managed_ledger: str) -> str:
    """As PIP-186 names a topic: without its domain."""
    *namespace, domain, name = managed_ledger.split("/")
    return "/".join((*namespace, unquote_plus(name))) if domain == "persistent" and namespace else managed_ledger


_NONE = b"\0"


def _some(value: bytes) -> bytes:
    return b"\2" + value


def _long(value: int) -> bytes:
    rest = (value << 1 ^ value >> 63) & (2**64 - 1)
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes((*found, rest))


def _text(value: str) -> bytes:
    data = value.encode()
    return _long(len(data)) + data


def _context(context: DeletionOffloadContext) -> bytes:
    halves = UUID(context.uuid).int
    lsb, msb = (half - 2**64 if half >= 2**63 else half for half in (halves % 2**64, halves >> 64))
    pairs = b"".join(_text(key) + _text(value) for key, value in context.driver_metadata)
    metadata = (_long(len(context.driver_metadata)) + pairs if pairs else b"") + _long(0)
    return _long(lsb) + _long(msb) + _some(_text(context.driver_name)) + _some(metadata)
