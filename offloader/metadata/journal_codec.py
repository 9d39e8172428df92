"""The journal's records, to and from bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError
from offloader.metadata.envelope import unwrap, wrap
from offloader.metadata.message_codec import message_of, read_value
from offloader.metadata.state import TopicState
from offloader.metadata.value_codec import damage_of, read_topic, topic_message, unknown_fields
from offloader.model import OpenSegment, TopicName


@dataclass(frozen=True, slots=True)
class EncodedTopic:
    """A topic's state and its bytes."""

    state: TopicState
    data: bytes


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """What one slot of a journal says. `full`: whatever was known before is forgotten.

    Topics stay encoded: only the last state of each is ever decoded."""

    token: str
    topics: Mapping[TopicName, bytes] = field(default_factory=dict)
    removed: tuple[TopicName, ...] = ()
    full: bool = False
    fence: bool = False
    taken_over_by: str = ""


def encode_full(token: str, topics: Iterable[bytes], taken_over_by: str = "") -> bytes:
    """A record of everything."""
    entry = pb.JournalEntry(full=True, topics=topics, taken_over_by=taken_over_by)
    return wrap(token, pb.Body(journal=entry))


def encode_changes(token: str, topics: Iterable[bytes], removed: Iterable[TopicName]) -> bytes:
    """A record of what has changed."""
    entry = pb.JournalEntry(topics=topics, removed=[topic_message(t) for t in removed])
    return wrap(token, pb.Body(journal=entry))


def decode_journal(key: str, data: bytes) -> JournalRecord:
    """The record that `key` holds. Raises DamagedRecordError, FormatVersionError."""
    opened = unwrap(key, data)
    if opened.kind == "fence":
        return JournalRecord(opened.token, fence=True)
    if opened.kind != "journal":
        raise DamagedRecordError(f"{key}: a {opened.kind} record does not belong into a journal")
    entry = opened.body.journal
    with damage_of(key):
        topics = {read_topic(pb.Topic.FromString(data).id): data for data in entry.topics}
        removed = tuple(read_topic(t) for t in entry.removed)
    return JournalRecord(opened.token, topics, removed, entry.full, taken_over_by=entry.taken_over_by)


def encode_topic(state: TopicState) -> EncodedTopic:
    """A topic's state as bytes."""
    message = message_of(state, id=topic_message(state.topic))
    return EncodedTopic(state, message.SerializeToString(deterministic=True) + state.unknown_fields)


def decode_topic(key: str, data: bytes) -> EncodedTopic:
    """The opposite of `encode_topic`; `key` is named where the bytes are damaged (DamagedRecordError)."""
    with damage_of(key):
        m = pb.Topic.FromString(data)
        state = read_value(TopicState, m, topic=read_topic(m.id), unknown_fields=unknown_fields(m))
        return EncodedTopic(state.opened(read_value(OpenSegment, m.open)) if m.HasField("open") else state, data)
