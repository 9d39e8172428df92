"""A topic's schemas and partitions from what the admin REST says of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offloader.model import TopicName
from offloader.ports.admin import TopicSchema
from offloader.pulsar.answers import count, described, integer, properties_of, text


def schemas_path(topic: TopicName) -> str:
    """Of a topic's schemas in the admin REST; partitions have one schema together."""
    return TopicName.parse(topic.partitioned_name).rest_path.replace("persistent", "schemas", 1)


def partition_count(metadata: Any) -> int:
    """From `partitions`; 0: the topic is not partitioned. Raises ProtocolError."""
    with described("a partitioned topic"):
        return count(metadata["partitions"])


def newest_version(schema: Any) -> int:
    """From `schema`. Raises ProtocolError."""
    with described("a schema"):
        return count(schema["version"])


def version_number(answer: Any) -> int:
    """From the answer to an upload, or to the question for a schema's version; below 0: there is none. Raises
    ProtocolError."""
    with described("a schema's version"):
        version = answer["version"]
        return integer(version["version"] if isinstance(version, Mapping) else version)


def schema_versions(answer: Any) -> tuple[TopicSchema, ...]:
    """From `schemas`. Raises ProtocolError."""
    with described("a topic's schemas"):
        found = (_schema(one) for one in answer["getSchemaResponses"])
        return tuple(sorted(found, key=lambda one: one.version))


def _schema(said: Mapping[str, Any]) -> TopicSchema:
    return TopicSchema(
        count(said["version"]),
        text(said["type"]),
        text(said.get("data") or "").encode(),
        count(said.get("timestamp", 0)),
        properties_of(said.get("properties")),
    )
