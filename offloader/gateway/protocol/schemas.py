"""Schemas as the binary protocol has them. Pure."""

from __future__ import annotations

import json
from struct import pack

from offloader.ports.topic_states import TopicSchema

_NAMES = (
    "NONE STRING JSON PROTOBUF AVRO BOOLEAN INT8 INT16 INT32 INT64 FLOAT DOUBLE DATE TIME TIMESTAMP KEY_VALUE INSTANT "
    "LOCAL_DATE LOCAL_TIME LOCAL_DATE_TIME PROTOBUF_NATIVE"
)
SCHEMA_TYPES = {name: number for number, name in enumerate(_NAMES.split())}
"""The protocol's numbers by the names of the admin REST."""


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
