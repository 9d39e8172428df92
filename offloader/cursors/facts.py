"""What else belongs to a topic, for whoever serves it without a broker: its schemas, and how many partitions there are.
In the bucket, the newest copy counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from offloader._proto import metadata_pb2 as pb
from offloader.errors import IntegrityError
from offloader.metadata.layout import facts_folder
from offloader.metadata.message_codec import add_messages
from offloader.metadata.record_codec import codec_of
from offloader.metadata.records import Records
from offloader.model import TopicName
from offloader.ports.admin import Admin, TopicSchema
from offloader.ports.object_store import ObjectStore

KEPT = 3  # copies


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """`at`: when it was looked at, in ms. `partitions`: of the partitioned topic that it is one of; None: of none.
    `schemas`: all versions, in order."""

    topic: TopicName
    at: int
    partitions: int | None = None
    terminated: bool = False
    schemas: tuple[TopicSchema, ...] = ()


add_messages({TopicSchema: pb.TopicSchema, TopicFacts: pb.TopicFacts}, {})
FACTS = codec_of({"topic_facts": TopicFacts})


def facts_records(store: ObjectStore, topic: TopicName) -> Records[TopicFacts]:
    """The copies, by their time."""
    return Records(store, facts_folder(topic), FACTS)


def read_facts(store: ObjectStore, topic: TopicName) -> TopicFacts | None:
    """The newest; None: there are none. Raises DamagedRecordError, FormatVersionError, and what the store raises."""
    newest = facts_records(store, topic).newest()
    return None if newest is None else newest.record


def archived_schemas(store: ObjectStore, topics: Iterable[TopicName]) -> tuple[TopicSchema, ...]:
    """All versions that are archived of a topic, or of the partitions of one, in order. Raises as `read_facts`."""
    found = (read_facts(store, topic) for topic in topics)
    schemas: tuple[TopicSchema, ...] = ()
    for facts in sorted((facts for facts in found if facts is not None), key=lambda facts: facts.at):
        schemas = _joined(schemas, facts.schemas)
    return schemas


@dataclass(frozen=True)
class FactsCopier:
    """Safe to use from several threads, of one topic by one at a time."""

    store: ObjectStore
    states: Admin
    new_token: Callable[[], str]

    def take(self, topic: TopicName, at: int, known: TopicFacts | None, *, terminated: bool) -> TopicFacts:
        """Look at a topic, and write what has changed; returns what the newest copy says. `known`: what the last call
        returned; None: this is the first. One request, of a partition two; one more where there is a new schema.
        Raises what the brokers and the store raise."""
        before = known or self._newest(topic)
        version = self.states.schema_version(topic)
        schemas = before.schemas if before is not None else ()
        if version is not None and (not schemas or schemas[-1].version != version):
            schemas = _joined(schemas, self.states.schemas(topic))
        found = TopicFacts(topic, at, self.states.partitions(topic), terminated, schemas)
        if before is not None and replace(before, at=at) == found:
            return before
        return self._write(found)

    def _newest(self, topic: TopicName) -> TopicFacts | None:
        try:
            return read_facts(self.store, topic)
        except IntegrityError:  # the next one takes its place
            return None

    def _write(self, facts: TopicFacts) -> TopicFacts:
        records = facts_records(self.store, facts.topic)
        times = records.slots()  # also of a newest one that cannot be read
        at = max(facts.at, times[-1] + 1) if times else facts.at
        written = records.write_from(at, self.new_token, lambda time: replace(facts, at=time))
        records.remove(sorted({*times, written.slot})[:-KEPT])
        return written.record


def _joined(known: Iterable[TopicSchema], found: Iterable[TopicSchema]) -> tuple[TopicSchema, ...]:
    """Archived messages need what Pulsar has forgotten, too. Of a version that both have, the later look counts."""
    versions = {one.version: one for one in (*known, *found)}
    return tuple(versions[version] for version in sorted(versions))
