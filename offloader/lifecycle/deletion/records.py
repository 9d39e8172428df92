"""What is recorded of one deletion, from its mark to its end, and its bytes. Pure, no I/O.

Names are those of PIP-186, where it has them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256

from offloader._proto import metadata_pb2 as pb
from offloader.bookkeeper.nodes import Acl, AclEntry
from offloader.lifecycle.topics.cursors.saved import SavedCursor, read_saved, saved_message
from offloader.metadata.envelope import unwrap_kind, wrap
from offloader.metadata.layout import INDEX, KeyKind, data_key, parse_topic_key
from offloader.metadata.message_codec import add_messages, message_of, read_value
from offloader.metadata.record_codec import RecordCodec, codec_of
from offloader.metadata.value_codec import damage_of, unknown_fields

UUID = re.compile(r"[0-9a-f-]{1,36}")  # others may say anything, and it becomes a part of a key


class LedgerType(StrEnum):
    """Where the ledger's data are. One that is in both places has two records."""

    LEDGER = "LEDGER"  # in BookKeeper
    OFFLOAD_LEDGER = "OFFLOAD_LEDGER"  # in a bucket
    OBJECT = "OBJECT"  # no ledger: an object of the archive, or an upload
    MANAGED_LEDGER = "MANAGED_LEDGER"  # no ledger: the nodes of a left-over managed ledger, which refer to some
    SUBSCRIPTION = "SUBSCRIPTION"  # no ledger: a durable subscription of a topic

    @property
    def many(self) -> str:
        """What goes on that side, for people."""
        return _MANY[self]


_MANY = {
    LedgerType.LEDGER: "ledgers",
    LedgerType.OFFLOAD_LEDGER: "objects of Pulsar's own offloader",
    LedgerType.OBJECT: "objects",
    LedgerType.MANAGED_LEDGER: "left-over managed ledgers",
    LedgerType.SUBSCRIPTION: "subscriptions",
}


class LedgerComponent(StrEnum):
    """Whose ledger it is. PIP-186 has the first three, and forgets the others."""

    MANAGED_LEDGER = "MANAGED_LEDGER"
    MANAGED_CURSOR = "MANAGED_CURSOR"
    SCHEMA_STORAGE = "SCHEMA_STORAGE"
    COMPACTED_VIEW = "COMPACTED_VIEW"
    DELAYED_INDEX = "DELAYED_INDEX"
    PENDING_ACKS = "PENDING_ACKS"  # a subscription's, with its managed ledger
    ARCHIVE = "ARCHIVE"  # what the offloader itself has written
    SUBSCRIPTION = "SUBSCRIPTION"  # a subscription itself, which its broker deletes with its cursor


PIP_TYPES = (LedgerType.LEDGER, LedgerType.OFFLOAD_LEDGER)
"""Those that PIP-186 has, and that are ledgers."""

_COMPONENT_OF = {
    LedgerType.OBJECT: LedgerComponent.ARCHIVE,
    LedgerType.MANAGED_LEDGER: LedgerComponent.PENDING_ACKS,
    LedgerType.SUBSCRIPTION: LedgerComponent.SUBSCRIPTION,
}


_WAVES = {KeyKind.DATA: 0, KeyKind.INDEX: 1, KeyKind.RECORD: 2}


class DeletionState(StrEnum):
    """`MARKED`, `DELETING`, `UNDOING` and `GIVEN_UP` are pending; the others are ends."""

    MARKED = "marked"  # first phase: nothing else has changed
    DELETING = "deleting"  # a try of the second phase may be on its way
    DELETED = "deleted"
    KEPT = "kept"  # ended without a deletion; its answer says why
    UNDOING = "undoing"  # it may be there again, not yet as it was: the undo is repeated
    UNDONE = "undone"
    GIVEN_UP = "given up"  # after the last try: an operator retries or drops it


class DeletionAnswer(StrEnum):
    """What came of it. All but `DELETED` are successes too: nothing is left to do."""

    DELETED = "deleted"
    ALREADY_GONE = "already gone"
    STILL_IN_USE = "still in use"
    DOES_NOT_MATCH = "does not match"
    INVALID = "invalid"
    HOLDS_DATA = "holds data"  # entries that no list has: kept, and told
    DROPPED = "dropped"  # an operator did so, after it was given up
    REQUESTED = "requested"  # by others, and it may hold data of a topic that is absent: an operator confirms it


class DeletionProof(StrEnum):
    """Why nothing can refer to the ledger. Each is guarded in its own way: `GuardKind`."""

    PASSED_BY = "passed by"  # its referee names a greater id
    REFEREE_ABSENT = "referee absent"
    BOOKKEEPER_DELETED = "bookkeeper deleted"  # listed as such; the offloaded copy verifies
    ON_DEMAND = "on demand"  # suspect only: an operator asked for it
    CONFIRMED = "confirmed"  # the metadata will never prove it: an operator named it, and it is empty or rescued
    UNUSED = "unused"  # a subscription: no consumer, and nothing was acknowledged or moved between two looks


class GuardKind(StrEnum):
    """What the transaction that deletes does with the referee."""

    CHECK = "check"  # its version is the one that was read
    PROVE_ABSENCE = "prove absence"  # create it, and delete it
    REWRITE = "rewrite"  # its own bytes, at the version that was read: whoever holds that version has lost it


_GUARDS = {
    DeletionProof.PASSED_BY: GuardKind.CHECK,
    DeletionProof.REFEREE_ABSENT: GuardKind.PROVE_ABSENCE,
    DeletionProof.BOOKKEEPER_DELETED: GuardKind.CHECK,
    DeletionProof.ON_DEMAND: GuardKind.REWRITE,
    DeletionProof.UNUSED: GuardKind.CHECK,
}


@dataclass(frozen=True, slots=True)
class LedgerNode:
    """A ledger's metadata as ZooKeeper has them. `ctime` in ms, by ZooKeeper's clock.

    `acl`: who may do what with the node; none: not known. It is kept for an undo, and never compared: how much of it is
    seen depends on who asks. Of an object: its etag, its size,
    and when it was written, by the store's clock. `below`: the nodes below it that go with it, by name."""

    data: bytes = field(repr=False)  # it may hold a password
    version: int
    ctime: int
    acl: Acl = field(default=(), compare=False)
    below: tuple[tuple[str, LedgerNode], ...] = ()

    @property
    def acl_is_hidden(self) -> bool:
        """ZooKeeper shows digests only to those who may administer a node. What was hidden cannot be put back, and with
        it nobody could use the node."""
        nodes = self, *(node for _, node in self.below)
        return any(one.scheme == "digest" and one.identity.endswith(":x") for node in nodes for one in node.acl)


@dataclass(frozen=True, slots=True)
class DeletionEvidence:
    """`referee`: the path of the node that would refer to the ledger. `says`: the chain of evidence, for people.

    `facts`: all facts that prove it, without what may change while they stay true."""

    proof: DeletionProof
    referee: str
    referee_version: int | None = None  # None: there is no such node
    says: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()

    @property
    def guard(self) -> GuardKind:
        """How a deletion because of it is guarded."""
        if self.proof is DeletionProof.CONFIRMED:
            return GuardKind.PROVE_ABSENCE if self.referee_version is None else GuardKind.CHECK
        return _GUARDS[self.proof]

    @property
    def is_complete(self) -> bool:
        """Whether it can be guarded: the version of a referee that is there, and of no other."""
        absent = self.proof in (DeletionProof.REFEREE_ABSENT, DeletionProof.UNUSED)
        either = self.proof is DeletionProof.CONFIRMED
        return bool(self.referee) and (either or absent == (self.referee_version is None))

    @property
    def is_by_operator(self) -> bool:
        """Whether an operator's request takes the place of a proof."""
        return self.proof in (DeletionProof.ON_DEMAND, DeletionProof.CONFIRMED)

    def is_same(self, other: DeletionEvidence) -> bool:
        """The same facts, the same proof by the same node. Its version, and other ids that it names, may have changed
        since."""
        return (self.proof, self.referee, self.facts) == (other.proof, other.referee, other.facts)


@dataclass(frozen=True, slots=True)
class DeletionOffloadContext:
    """Which copy of an OFFLOAD_LEDGER."""

    uuid: str
    driver_name: str = ""
    driver_metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PendingDeleteLedgerInfo:
    """One deletion. Times are ms, by our clock; but `marked_at` by the clock of what it is in, ZooKeeper's or the
    store's; `noted_at`: the same moment by ours (0: not known). `marked_by`: a scan, a command, the system topic.

    `in_doubt`: a try was begun, and nobody knows what came of it. `switch`: the number of the one that was set when it
    was marked. `subscription`: the state of a SUBSCRIPTION at the last look that counted, which an undo brings back."""

    ledger_id: int
    ledger_type: LedgerType
    ledger_component: LedgerComponent
    topic_name: str
    node: LedgerNode
    evidence: DeletionEvidence
    state: DeletionState
    marked_at: int
    marked_by: str = ""
    tries: int = 0
    next_at: int = 0
    closing: bool = False
    answer: DeletionAnswer | None = None
    reason: str = ""
    ended_at: int = 0
    cursor_name: str = ""
    schema_id: str = ""
    offload_context: DeletionOffloadContext | None = None
    object_key: str = ""
    upload: str = ""
    in_doubt: bool = False
    switch: int = 0
    noted_at: int = 0
    subscription: SavedCursor | None = None
    unknown_fields: bytes = b""

    @property
    def name(self) -> str:
        """What it is kept by: one record a ledger and place, whoever marks it. Of an object: its key's digest."""
        if self.ledger_type is LedgerType.OBJECT:
            return object_record_name(self.upload or self.object_key)
        if self.ledger_type is LedgerType.MANAGED_LEDGER:
            return leftover_record_name(self.topic_name)
        if self.ledger_type is LedgerType.SUBSCRIPTION:
            return subscription_record_name(self.topic_name, self.cursor_name)
        context = self.offload_context
        part = INDEX if self.object_key.endswith(INDEX) else ""
        return f"{self.ledger_type}-{self.ledger_id:020d}" + (f"-{context.uuid}{part}" if context else "")

    @property
    def wave(self) -> int:
        """Of a segment, or of a copy, the data object goes first, then its index, then the record beside them: of what
        goes in one round, these wait for each other."""
        parsed = None if self.upload else parse_topic_key(self.object_key)
        if parsed is None:
            return int(self.object_key.endswith(INDEX))
        return _WAVES.get(parsed.kind, 0)

    @property
    def thing(self) -> str:
        """What it is about, for people."""
        if self.ledger_type is LedgerType.MANAGED_LEDGER:
            return f"managed ledger {self.topic_name}"
        if self.ledger_type is LedgerType.SUBSCRIPTION:
            return f"subscription {self.cursor_name} of {self.topic_name}"
        return self.upload or self.object_key or f"ledger {self.ledger_id}"

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is done about it."""
        return self.state in (DeletionState.DELETED, DeletionState.KEPT, DeletionState.UNDONE)

    @property
    def was_spared(self) -> bool:
        """Whether it is marked only by its name: an operator wanted it to stay, it holds data, or only others have
        asked for its deletion."""
        only_by_name = (DeletionAnswer.DROPPED, DeletionAnswer.REQUESTED)
        return self.state is DeletionState.UNDONE or self.answer in only_by_name or self.is_memory

    @property
    def is_memory(self) -> bool:
        """Whether it is the only thing that knows that the ledger holds data: with the next trim its list looks as if
        it had been trimmed, too."""
        return self.answer is DeletionAnswer.HOLDS_DATA

    @property
    def stays(self) -> bool:
        """As long as the ledger is there: else the next mark of all that is certain would take it."""
        return self.was_spared and self.ledger_type is LedgerType.LEDGER

    @property
    def is_in_flight(self) -> bool:
        """Whether the second phase is still to come, or is on its way."""
        return self.state in (DeletionState.MARKED, DeletionState.DELETING)

    @property
    def is_valid(self) -> bool:
        """Whether it says all that a deletion needs."""
        own = _COMPONENT_OF.get(self.ledger_type)
        if self.ledger_component is not own and (own or self.ledger_component in _COMPONENT_OF.values()):
            return False
        if self.ledger_type is LedgerType.MANAGED_LEDGER:
            absent = self.evidence.proof is DeletionProof.REFEREE_ABSENT
            return bool(self.topic_name) and absent and self.evidence.is_complete
        if self.ledger_type is LedgerType.SUBSCRIPTION:
            return bool(self.topic_name and self.cursor_name) and self.subscription is not None
        if self.ledger_type is LedgerType.OBJECT:
            return bool(self.object_key and self.node.data) and self.evidence.is_complete
        context = self.offload_context
        in_bucket = self.ledger_type is LedgerType.OFFLOAD_LEDGER
        placed = bool(UUID.fullmatch(context.uuid)) if context else not in_bucket
        return self.ledger_id >= 0 and placed and in_bucket == (context is not None) and self.evidence.is_complete


def ledger_record_name(ledger: int) -> str:
    """The name of the record of a ledger in BookKeeper."""
    return f"{LedgerType.LEDGER}-{ledger:020d}"


def leftover_record_name(managed_ledger: str) -> str:
    """The name of the record of a left-over managed ledger."""
    return f"{LedgerType.MANAGED_LEDGER}-{_digest(managed_ledger)}"


def subscription_record_name(topic: str, subscription: str) -> str:
    """The name of the record of a topic's subscription."""
    return f"{LedgerType.SUBSCRIPTION}-{_digest(f'{topic} {subscription}')}"


def object_record_name(thing: str) -> str:
    """The name of the record of an object's key, or of an upload's handle. A segment's data object comes before its
    index and its record, so that whoever goes through the records in their order deletes them so."""
    parsed = parse_topic_key(thing)
    if parsed is None or not parsed.uuid:
        return f"{LedgerType.OBJECT}-{_digest(thing)}"
    return f"{LedgerType.OBJECT}-{_digest(data_key(parsed.topic, parsed.uuid))}-{parsed.kind.value}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:40]


@dataclass(frozen=True, slots=True)
class DeletionSwitch:
    """Whether deletion was switched on, and when. Off with records pending: they stay. `number`: how often it was set,
    which no clock can make wrong; 0: never."""

    on: bool
    at: int
    number: int = 0


def _encode(token: str, info: PendingDeleteLedgerInfo) -> bytes:
    message = message_of(info)
    message.MergeFromString(info.unknown_fields)
    return wrap(token, pb.Body(deletion=message))


def _decode(key: str, data: bytes) -> PendingDeleteLedgerInfo:
    message = unwrap_kind(key, data, "deletion").body.deletion
    with damage_of(key):
        return read_value(PendingDeleteLedgerInfo, message, unknown_fields=unknown_fields(message))


DELETION = RecordCodec(_encode, _decode)
SWITCH = codec_of({"deletion_switch": DeletionSwitch})

add_messages(
    {
        DeletionEvidence: pb.DeletionEvidence,
        DeletionOffloadContext: pb.DeletionOffloadContext,
        DeletionSwitch: pb.DeletionSwitch,
        LedgerNode: pb.LedgerNode,
        PendingDeleteLedgerInfo: pb.PendingDeleteLedgerInfo,
    },
    {
        AclEntry: (
            lambda entry: pb.NodePermission(**entry._asdict()),
            lambda m: AclEntry(m.permissions, m.scheme, m.identity),
        ),
        SavedCursor: (saved_message, read_saved),
        tuple[str, LedgerNode]: (
            lambda below: pb.NodeBelow(name=below[0], node=message_of(below[1])),
            lambda m: (m.name, read_value(LedgerNode, m.node)),
        ),
    },
)
