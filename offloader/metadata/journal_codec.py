"""The journal's records, to and from bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError
from offloader.metadata.envelope import seal, unseal
from offloader.metadata.part_codec import parts_message, read_parts
from offloader.metadata.state import Abandoned, CloseRequest, Releasing, TopicState
from offloader.metadata.value_codec import (
    cuts_message,
    damage_of,
    gap_message,
    ledger_message,
    position_message,
    read_cuts,
    read_gaps,
    read_ledgers,
    read_position,
    read_topic,
    topic_message,
    unknown_fields,
    word,
)
from offloader.model import Failure, FailureKind, OpenSegment, RollReason, SealedFacts, SegmentStatus, Source, TopicName


@dataclass(frozen=True, slots=True)
class EncodedTopic:
    """A topic's state and its bytes."""

    state: TopicState
    data: bytes


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """What one slot of a journal says. `full`: whatever was known before is forgotten.

    Topics stay encoded: only the last state of each is ever decoded.
    """

    token: str
    topics: Mapping[TopicName, bytes] = field(default_factory=dict)
    removed: tuple[TopicName, ...] = ()
    full: bool = False
    fence: bool = False
    taken_over_by: str = ""

    def fold_into(self, topics: dict[TopicName, bytes]) -> None:
        """Make of what was known before what is known after this record."""
        if self.full:
            topics.clear()
        for topic in self.removed:
            topics.pop(topic, None)
        topics.update(self.topics)


def encode_fence(token: str) -> bytes:
    """A fence's bytes."""
    return seal(token, pb.Body(fence=pb.Fence()))


def encode_full(token: str, topics: Iterable[bytes], taken_over_by: str = "") -> bytes:
    """A record of everything."""
    entry = pb.JournalEntry(full=True, topics=topics, taken_over_by=taken_over_by)
    return seal(token, pb.Body(journal=entry))


def encode_changes(token: str, topics: Iterable[bytes], removed: Iterable[TopicName]) -> bytes:
    """A record of what has changed."""
    entry = pb.JournalEntry(topics=topics, removed=[topic_message(t) for t in removed])
    return seal(token, pb.Body(journal=entry))


def decode_journal(key: str, data: bytes) -> JournalRecord:
    """The record that `key` holds. Raises DamagedRecordError, FormatVersionError."""
    opened = unseal(key, data)
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
    message = pb.Topic(
        id=topic_message(state.topic),
        open=None if state.open is None else _open_message(state.open),
        failure=_failure_message(state.failure),
        abandoned=[pb.Abandoned(uuid=a.uuid, upload=a.upload, reason=a.reason) for a in state.abandoned],
        requests=[pb.CloseRequest(id=r.id, end=position_message(r.end)) for r in state.requests],
        releasing=state.releasing or "",
        lost_after=position_message(state.lost_after),
        let_go=state.let_go,
    )
    return EncodedTopic(state, message.SerializeToString(deterministic=True) + state.unknown_fields)


def decode_topic(key: str, data: bytes) -> EncodedTopic:
    """The opposite of `encode_topic`; `key` is named where the bytes are damaged (DamagedRecordError)."""
    with damage_of(key):
        return EncodedTopic(_read_state(pb.Topic.FromString(data)), data)


def _read_state(m: pb.Topic) -> TopicState:
    state = TopicState(
        read_topic(m.id),
        _read_failure(m.failure) if m.HasField("failure") else None,
        tuple(Abandoned(a.uuid, a.upload if a.HasField("upload") else None, a.reason) for a in m.abandoned),
        tuple(CloseRequest(r.id, read_position(r.end)) for r in m.requests),
        word(Releasing, m.releasing) if m.releasing else None,
        read_position(m.lost_after) if m.HasField("lost_after") else None,
        m.let_go,
        unknown_fields(m),
    )
    return state.opened(_read_open(m.open)) if m.HasField("open") else state


def _failure_message(failure: Failure | None) -> pb.Failure | None:
    if failure is None:
        return None
    return pb.Failure(kind=failure.kind, reason=failure.reason, attempts=failure.attempts, retry_at=failure.retry_at)


def _read_failure(m: pb.Failure) -> Failure:
    return Failure(word(FailureKind, m.kind), m.reason, m.attempts, m.retry_at)


def _open_message(segment: OpenSegment) -> pb.OpenSegment:
    return pb.OpenSegment(
        uuid=segment.uuid,
        start=position_message(segment.start),
        source=segment.source,
        cuts=cuts_message(segment.cuts),
        assigned_at=segment.assigned_at,
        status=segment.status,
        predecessor_uuid=segment.predecessor_uuid,
        predecessor_end=position_message(segment.predecessor_end),
        upload=segment.upload,
        parts=parts_message(segment.parts),
        closing_end=position_message(segment.closing_end),
        roll_reason=segment.roll_reason,
        sealed=None if segment.sealed is None else _sealed_message(segment.sealed),
        former_ledger_last=segment.former_ledger_last,
    )


def _read_open(m: pb.OpenSegment) -> OpenSegment:
    return OpenSegment(
        m.uuid,
        read_position(m.start),
        word(Source, m.source),
        read_cuts(m.cuts),
        m.assigned_at,
        word(SegmentStatus, m.status),
        m.predecessor_uuid,
        read_position(m.predecessor_end) if m.HasField("predecessor_end") else None,
        m.upload if m.HasField("upload") else None,
        read_parts(m.parts),
        read_position(m.closing_end) if m.HasField("closing_end") else None,
        word(RollReason, m.roll_reason) if m.HasField("roll_reason") else None,
        _read_sealed(m.sealed) if m.HasField("sealed") else None,
        m.former_ledger_last if m.HasField("former_ledger_last") else None,
    )


def _sealed_message(facts: SealedFacts) -> pb.SealedFacts:
    return pb.SealedFacts(
        offloaded_at=facts.offloaded_at,
        size=facts.size,
        crc32c=facts.crc32c,
        end=position_message(facts.end),
        ledgers=[ledger_message(x) for x in facts.ledgers],
        gaps=[gap_message(g) for g in facts.gaps],
    )


def _read_sealed(m: pb.SealedFacts) -> SealedFacts:
    end, ledgers, gaps = read_position(m.end), read_ledgers(m.ledgers), read_gaps(m.gaps)
    return SealedFacts(m.offloaded_at, m.size, m.crc32c, end, ledgers, gaps)
