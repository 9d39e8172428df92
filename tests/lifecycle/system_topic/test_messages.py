"""PIP-186's message: what we write is its record, what others write is read in every state it has had, and whatever is
no complete message is damage."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import DamagedRecordError
from offloader.lifecycle.deletion.records import (
    DeletionOffloadContext,
    DeletionProof,
    LedgerComponent,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.lifecycle.deletion.system_topic.messages import (
    AVRO_SCHEMA,
    PendingDeleteMessage,
    WrittenSchema,
    message_of,
    read_message,
    write_message,
)
from tests.bookkeeper.damage import damaged
from tests.lifecycle.deletion.support import EVIDENCE, candidate

from .avro_writer import write
from .support import asked

PIP_186 = ("MANAGED_LEDGER", "MANAGED_CURSOR", "SCHEMA_STORAGE")  # the components that it has

UUID = "0f000000-0000-0001-8000-000000000002"
COPY = DeletionOffloadContext(UUID, "aws-s3", (("bucket", "b"), ("region", "r")))
name = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
plain = st.builds(
    PendingDeleteMessage,
    st.integers(0, 2**63 - 1),
    st.just(LedgerType.LEDGER),
    st.just(LedgerComponent.MANAGED_LEDGER),
    name,
)
cursors = st.builds(
    lambda m, c: replace(m, ledger_component=LedgerComponent.MANAGED_CURSOR, cursor_name=c), plain, name
)
schemas = st.builds(
    lambda m, i: replace(m, ledger_component=LedgerComponent.SCHEMA_STORAGE, schema_id=str(i)),
    plain,
    st.integers(0, 2**63 - 1),
)
pairs = st.dictionaries(name, name, max_size=3).map(lambda found: tuple(sorted(found.items())))
copies = st.builds(
    lambda m, uuid, driver, metadata: replace(
        m,
        ledger_type=LedgerType.OFFLOAD_LEDGER,
        offload_context=DeletionOffloadContext(str(uuid), driver, metadata),
    ),
    plain,
    st.uuids(),
    name,
    pairs,
)
messages = plain | cursors | schemas | copies


@given(messages)
def test_what_we_write_is_the_record_of_the_text(message: PendingDeleteMessage) -> None:
    data = write_message(message)
    assert read_message(data) == message
    assert read_message(data, WrittenSchema("AVRO", json.dumps(AVRO_SCHEMA))) == message
    assert data == write(AVRO_SCHEMA, as_java(message)) or message.offload_context is not None  # blocks may differ


def as_java(message: PendingDeleteMessage) -> dict[str, Any]:
    context = message.offload_context
    return {
        "topicName": message.topic_name,
        "ledgerComponent": str(message.ledger_component),
        "cursorName": message.cursor_name or None,
        "schemaId": int(message.schema_id) if message.schema_id else None,
        "ledgerType": str(message.ledger_type),
        "ledgerId": message.ledger_id,
        "offloadContext": context
        and {"lsb": -(2**63) + 2, "msb": 0x0F00000000000001, "driverName": "d", "metadata": None},
    }


def test_these_are_its_bytes() -> None:
    assert write_message(asked(7, topic_name="a/b/c")) == b"\2\x0aa/b/c\2\0\0\0\2\0\2\x0e\0"


JAVA_TEXT = {"type": "string", "avro.java.string": "String"}
OLDER = {
    "type": "record",
    "name": "PendingDeleteLedgerInfo",
    "namespace": "org.apache.bookkeeper.mledger.deletion",
    "fields": [
        {"name": "checkLedgerStillInUse", "type": "boolean"},
        {
            "name": "context",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "LedgerInfo",
                    "fields": [
                        {"name": "ledgerId_", "type": "long"},
                        {
                            "name": "offloadContext_",
                            "type": {
                                "type": "record",
                                "name": "OffloadContext",
                                "fields": [
                                    {"name": "uidMsb_", "type": "long"},
                                    {"name": "uidLsb_", "type": "long"},
                                    {
                                        "name": "driverMetadata_",
                                        "type": {
                                            "type": "record",
                                            "name": "OffloadDriverMetadata",
                                            "fields": [
                                                {"name": "name_", "type": JAVA_TEXT},
                                                {
                                                    "name": "properties_",
                                                    "type": {
                                                        "type": "array",
                                                        "items": {
                                                            "type": "record",
                                                            "name": "KeyValue",
                                                            "fields": [
                                                                {"name": "key_", "type": JAVA_TEXT},
                                                                {"name": "value_", "type": JAVA_TEXT},
                                                            ],
                                                        },
                                                    },
                                                },
                                            ],
                                        },
                                    },
                                ],
                            },
                        },
                    ],
                },
            ],
        },
        {
            "name": "ledgerComponent",
            "type": ["null", {"type": "enum", "name": "LedgerComponent", "symbols": ["X", *PIP_186]}],
        },
        {"name": "ledgerId", "type": ["null", "long"]},
        {
            "name": "ledgerType",
            "type": ["null", {"type": "enum", "name": "LedgerType", "symbols": ["OFFLOAD_LEDGER", "LEDGER"]}],
        },
        {"name": "properties", "type": ["null", {"type": "map", "values": JAVA_TEXT}]},
        {"name": "topicName", "type": ["null", JAVA_TEXT]},
    ],
}
OLD_VALUE: dict[str, Any] = {
    "checkLedgerStillInUse": True,
    "context": None,
    "ledgerComponent": "MANAGED_LEDGER",
    "ledgerId": 7,
    "ledgerType": "LEDGER",
    "properties": {"a": "b"},
    "topicName": "acme/orders/placed",
}


def test_an_older_state_of_the_pip_is_read_by_its_own_schema() -> None:
    written = WrittenSchema("AVRO", json.dumps(OLDER))
    assert read_message(write(OLDER, OLD_VALUE), written) == asked(7)
    driver = {"name_": "aws-s3", "properties_": [{"key_": "region", "value_": "r"}, {"key_": "bucket", "value_": "b"}]}
    half = {"uidMsb_": 0x0F00000000000001, "uidLsb_": -(2**63) + 2, "driverMetadata_": driver}
    context = {"ledgerId_": 7, "offloadContext_": half}
    offloaded = {**OLD_VALUE, "ledgerType": "OFFLOAD_LEDGER", "context": context}
    assert read_message(write(OLDER, offloaded), written) == asked(
        7, ledger_type=LedgerType.OFFLOAD_LEDGER, offload_context=COPY
    )


JSON = {
    "ledgerId": 7,
    "topicName": "persistent://acme/orders/placed",
    "ledgerType": "LEDGER",
    "ledgerComponent": "MANAGED_LEDGER",
}


def test_a_script_may_send_what_the_pips_payload_holds_as_json() -> None:
    data = json.dumps({**JSON, "offloadContext": None, "unknown": [1]}).encode()
    expected = asked(7, topic_name="persistent://acme/orders/placed")
    assert read_message(data) == read_message(data, WrittenSchema("JSON", "{}")) == expected
    schema = {**JSON, "ledgerComponent": "SCHEMA_STORAGE", "schemaId": "acme/orders/placed"}
    assert read_message(json.dumps(schema).encode()).schema_id == "acme/orders/placed"


WRONG: list[dict[str, Any]] = [
    {"ledgerId": "7"},
    {"ledgerId": 7.0},
    {"ledgerId": True},
    {"ledgerId": None},
    {"ledgerId": -1},
    {"ledgerId": 2**63},
    {"ledgerId": [7]},
    {"topicName": ""},
    {"topicName": None},
    {"topicName": 3},
    {"topicName": "x" * 10_000},
    {"ledgerType": "Ledger"},
    {"ledgerType": None},
    {"ledgerComponent": "COMPACTED_VIEW"},
    {"ledgerComponent": "DELAYED_INDEX"},
    {"ledgerComponent": ["MANAGED_LEDGER"]},
    {"ledgerComponent": "MANAGED_CURSOR"},  # of no cursor
    {"cursorName": "c"},  # of no cursor's ledger
    {"cursorName": 3},
    {"schemaId": 2**70},
    {"schemaId": {}},
    {"ledgerType": "OFFLOAD_LEDGER"},
    {"ledgerType": "OFFLOAD_LEDGER", "offloadContext": {"msb": 0, "lsb": 0}},
    {"ledgerType": "OFFLOAD_LEDGER", "offloadContext": {"msb": 1}},
    {"ledgerType": "OFFLOAD_LEDGER", "offloadContext": {"msb": "1", "lsb": 1}},
    {"ledgerType": "OFFLOAD_LEDGER", "offloadContext": {"msb": 1, "lsb": 1, "metadata": 3}},
    {"ledgerType": "OFFLOAD_LEDGER", "offloadContext": {"msb": 1, "lsb": 1, "metadata": {"k": 3}}},
    {"offloadContext": {"msb": 1, "lsb": 1}},
]


@pytest.mark.parametrize("change", WRONG, ids=str)
def test_a_message_that_lacks_something_or_says_it_in_another_type_is_damage(change: dict[str, Any]) -> None:
    with pytest.raises(DamagedRecordError):
        read_message(json.dumps({**JSON, **change}).encode())


@given(messages, st.data())
def test_forged_bytes_are_damage_at_worst(message: PendingDeleteMessage, data: st.DataObject) -> None:
    with suppress(DamagedRecordError):
        found = read_message(data.draw(damaged(write_message(message))))
        assert write_message(found)  # it can be sent again


def test_what_it_says_is_compared_with_the_ledgers_own_metadata() -> None:
    record = candidate(7)
    for topic in (
        "acme/orders/placed",
        "persistent://acme/orders/placed",
        "acme/orders/persistent/placed",
    ):
        assert asked(7, topic_name=topic).differs_from(record) == ""
    assert "ledger" in asked(8).differs_from(record)
    assert "acme/orders/persistent/placed" in asked(7, topic_name="acme/orders/other").differs_from(record)
    assert asked(7, topic_name="acme").differs_from(record)
    assert asked(7, topic_name="non-persistent://acme/orders/placed").differs_from(record)
    cursor = replace(record, ledger_component=LedgerComponent.MANAGED_CURSOR, cursor_name="c")
    assert "component" in asked(7).differs_from(cursor)
    of_cursor = asked(7, ledger_component=LedgerComponent.MANAGED_CURSOR, cursor_name="d")
    assert "cursor" in of_cursor.differs_from(cursor)
    schema = replace(record, ledger_component=LedgerComponent.SCHEMA_STORAGE, topic_name="", schema_id="acme/orders/x")
    of_schema = asked(7, ledger_component=LedgerComponent.SCHEMA_STORAGE)
    assert of_schema.differs_from(schema) == ""
    assert "schema" in replace(of_schema, schema_id="3").differs_from(schema)
    encoded = replace(record, topic_name="acme/orders/persistent/a+b%3F")
    assert asked(7, topic_name="acme/orders/a b?").differs_from(encoded) == ""
    assert asked(7, topic_name="acme/orders/a+b%3F").differs_from(encoded) == ""


def sendable() -> list[PendingDeleteLedgerInfo]:
    cursor = candidate(8, ledger_component=LedgerComponent.MANAGED_CURSOR, cursor_name="c")
    copy = candidate(9, ledger_type=LedgerType.OFFLOAD_LEDGER, offload_context=COPY)
    return [candidate(7), cursor, copy]


@pytest.mark.parametrize("record", sendable(), ids=lambda record: record.name)
def test_a_record_is_told_as_the_pip_would_tell_it(record: PendingDeleteLedgerInfo) -> None:
    message = message_of(record)
    assert message is not None
    assert message.topic_name == "acme/orders/placed"
    assert message.differs_from(record) == ""
    assert read_message(write_message(message)) == message


NOT_SENDABLE = {
    "a compacted view": candidate(7, ledger_component=LedgerComponent.COMPACTED_VIEW),
    "a delayed index": candidate(7, ledger_component=LedgerComponent.DELAYED_INDEX),
    "a schema, whose id is no number": candidate(
        7, ledger_component=LedgerComponent.SCHEMA_STORAGE, schema_id="acme/orders/placed"
    ),
    "a suspect that an operator asked for": candidate(7, evidence=replace(EVIDENCE, proof=DeletionProof.ON_DEMAND)),
    "a copy that no driver is named of": candidate(
        7, ledger_type=LedgerType.OFFLOAD_LEDGER, offload_context=replace(COPY, driver_name="")
    ),
    "a copy without a whole uuid": candidate(
        7, ledger_type=LedgerType.OFFLOAD_LEDGER, offload_context=replace(COPY, uuid="0f")
    ),
    "what is not valid": candidate(-7),
    "what names no topic": candidate(7, topic_name=""),
}


@pytest.mark.parametrize("what", NOT_SENDABLE)
def test_what_a_foreign_consumer_could_not_delete_as_safely_as_we_do_is_never_told(what: str) -> None:
    assert message_of(NOT_SENDABLE[what]) is None
