"""What else belongs to a topic, for whoever serves it without a broker: its schemas, and how many partitions there are.
In the bucket, the newest copy counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from offloader.cursors.facts_codec import TopicFacts, decode_facts, encode_facts
from offloader.cursors.timed import TimedRecords
from offloader.errors import IntegrityError, ObjectNotFoundError
from offloader.metadata.layout import facts_folder
from offloader.model import TopicName
from offloader.ports.admin import Admin, TopicSchema
from offloader.ports.object_store import ObjectStore

KEPT = 3  # copies
TRIES = 3  # others may remove what was listed


def read_facts(store: ObjectStore, topic: TopicName) -> TopicFacts | None:
    """The newest; None: there are none. Raises DamagedRecordError, FormatVersionError, and what the store raises."""
    records = TimedRecords(store, facts_folder(topic))
    for left in range(TRIES - 1, -1, -1):
        times = records.times()
        if not times:
            return None
        try:
            return decode_facts(records.key(times[-1]), records.read(times[-1]))
        except ObjectNotFoundError:
            if not left:
                raise
    return None


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
        records = TimedRecords(self.store, facts_folder(facts.topic))
        times = records.times()  # also of a newest one that cannot be read
        at = max(facts.at, times[-1] + 1) if times else facts.at
        written = records.write(at, lambda time: encode_facts(self.new_token(), replace(facts, at=time)))
        records.remove(sorted({*times, written})[:-KEPT])
        return replace(facts, at=written)


def _joined(known: Iterable[TopicSchema], found: Iterable[TopicSchema]) -> tuple[TopicSchema, ...]:
    """Archived messages need what Pulsar has forgotten, too. Of a version that both have, the later look counts."""
    versions = {one.version: one for one in (*known, *found)}
    return tuple(versions[version] for version in sorted(versions))
