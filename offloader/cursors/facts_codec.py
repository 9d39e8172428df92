"""A topic's schemas and partitions: the value, to and from bytes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from offloader._proto import metadata_pb2 as pb
from offloader.metadata.envelope import unwrap_kind, wrap
from offloader.metadata.value_codec import damage_of, read_topic, topic_message
from offloader.model import TopicName
from offloader.ports.admin import TopicSchema


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """`at`: when it was looked at, in ms. `partitions`: of the partitioned topic that it is one of; None: of none.
    `schemas`: all versions, in order."""

    topic: TopicName
    at: int
    partitions: int | None = None
    terminated: bool = False
    schemas: tuple[TopicSchema, ...] = ()


def encode_facts(token: str, facts: TopicFacts) -> bytes:
    """The bytes of a copy. `token`: of this very write."""
    message = pb.TopicFacts(
        topic=topic_message(facts.topic),
        at=facts.at,
        partitions=facts.partitions,
        terminated=facts.terminated,
        schemas=map(_message, facts.schemas),
    )
    return wrap(token, pb.Body(topic_facts=message))


def decode_facts(key: str, data: bytes) -> TopicFacts:
    """The copy that `key` holds. Raises DamagedRecordError, FormatVersionError."""
    m = unwrap_kind(key, data, "topic_facts").body.topic_facts
    with damage_of(key):
        partitions = m.partitions if m.HasField("partitions") else None
        return TopicFacts(read_topic(m.topic), m.at, partitions, m.terminated, tuple(map(_read, m.schemas)))


def _message(schema: TopicSchema) -> pb.TopicSchema:
    properties = [pb.Property(key=name, value=value) for name, value in schema.properties]
    return pb.TopicSchema(
        version=schema.version, type=schema.type, data=schema.data, timestamp=schema.timestamp, properties=properties
    )


def _read(m: pb.TopicSchema) -> TopicSchema:
    properties = tuple((one.key, one.value) for one in m.properties)
    return TopicSchema(m.version, m.type, m.data, m.timestamp, properties)
