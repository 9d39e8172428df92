"""What the journal holds of one topic, and (from `Claim` on) what its catalog's records add up to. Frozen, no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import NamedTuple, Self
from uuid import NAMESPACE_OID, uuid5

from offloader.errors import IntegrityError
from offloader.metadata.deletions import (
    NOTHING_REMOVED,
    Deleted,
    Deleting,
    DeletionBegun,
    DeletionRecord,
    DeletionUndone,
    PulsarTrimmed,
    Removal,
    Tombstone,
    TopicGone,
)
from offloader.model import (
    Ending,
    Failure,
    LedgerList,
    Loss,
    OpenSegment,
    Position,
    Segment,
    Taking,
    TopicName,
    Transaction,
)


@dataclass(frozen=True, slots=True)
class Abandoned:
    """An upload that must never be completed: its uuid is not used again, it is aborted when the store lets us. Where
    `uuid` is empty, only the upload is given up: its segment, which holds no entry, is offloaded."""

    uuid: str
    upload: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class CloseRequest:
    """A manual close: satisfied when the catalog's end reaches `end`."""

    id: str
    end: Position


@dataclass(frozen=True, slots=True)
class AssignedAhead:
    """A segment of a topic's history behind the open one. Its end is fixed: it is uploaded at the same time, and opened
    and committed in its turn. `failure`: its own last one."""

    segment: OpenSegment
    failure: Failure | None = None


class Releasing(StrEnum):
    """Who asked for a topic's release."""

    POLICY = "policy"  # in journals of older versions, which took `enabled: false` for a release
    REQUEST = "request"  # goes on whatever policies say


@dataclass(frozen=True, slots=True)
class TopicState:
    """What the journal holds of one topic: this without an open segment, `OpenTopic` with one.

    `releasing`: who asked to delete the subscription once everything up to its end is offloaded. `lost_after`: the
    subscription had gone, what follows this position up to the first ledger left is lost. `let_go`: a release may have
    deleted the subscription, nobody has to accept what is lost since. `ahead`: its history behind the open segment.
    `handed_over`: brokers are to read all of it, whatever its policy says, and its release waits for that.
    `passed_to`: the shard that has it next. From then on only the claim is missing; nothing is begun in it here.
    `paused_at`: since when it is paused, 0: it is not."""

    topic: TopicName
    failure: Failure | None = None
    abandoned: tuple[Abandoned, ...] = ()
    requests: tuple[CloseRequest, ...] = ()
    releasing: Releasing | None = None
    lost_after: Position | None = None
    let_go: bool = False
    ahead: tuple[AssignedAhead, ...] = ()
    handed_over: bool = False
    passed_to: str = ""
    paused_at: int = 0
    unknown_fields: bytes = b""

    @property
    def idle(self) -> bool:
        """Nothing is remembered: the topic needs no place in the journal."""
        return self == TopicState(self.topic)

    @property
    def attempts(self) -> int:
        """How often in a row it failed."""
        return 0 if self.failure is None else self.failure.attempts

    @property
    def open(self) -> OpenSegment | None:
        """The open segment; None: there is none, or no more."""
        return None

    @property
    def unfinished(self) -> tuple[OpenSegment, ...]:
        """All that is assigned and not Offloaded, the oldest first."""
        ahead = tuple(each.segment for each in self.ahead)
        return ahead if self.open is None else (self.open, *ahead)

    def failure_of(self, uuid: str) -> Failure | None:
        """Why this segment waits: its own failure, or else the topic's."""
        return next((each.failure for each in self.ahead if each.segment.uuid == uuid), self.failure)

    def opened(self, segment: OpenSegment) -> OpenTopic:
        """The topic with this segment begun."""
        return OpenTopic(**{each.name: getattr(self, each.name) for each in fields(TopicState)}, open=segment)


@dataclass(frozen=True, slots=True)
class OpenTopic(TopicState):
    """What the journal holds of a topic with an open segment."""

    open: OpenSegment = field(kw_only=True)

    def closed(self) -> TopicState:
        """The topic without its open segment."""
        return TopicState(**{each.name: getattr(self, each.name) for each in fields(TopicState)})


@dataclass(frozen=True, slots=True)
class Claim:
    """Which application owns the topic, and of which incarnation (`created` then by Pulsar; None: unknown) the records
    after it are. `begin`: the first position that we keep. `former`: the uuid of the claim that this one replaces.
    `token`: also on the subscription that keeps the topic (empty: not known). `released_by`: where it is nobody's, who
    had it last, and alone decides what goes of it (empty: see `beside.last_owner`). `taking`: how ledgers that brokers
    have offloaded are taken over; None: like all others."""

    application: str
    incarnation: int
    created: int | None
    begin: Position
    at: int
    reason: str = ""
    former: str = ""
    token: str = ""
    released_by: str = ""
    taking: Taking | None = None


@dataclass(frozen=True, slots=True)
class LedgerClosed:
    """A ledger was closed with `last`, its last offloaded entry. `followed_by`: the ledger that Pulsar listed next;
    None: whatever is listed next follows, and the pin may pass that entry. `vouched_by`: who says that nothing is
    missing behind it, where no record proves it any more."""

    incarnation: int
    ledger: int
    last: int
    vouched_by: str = ""
    followed_by: int | None = None


@dataclass(frozen=True, slots=True)
class GenerationBegun:
    """The first record of a generation that a rebuild has made."""


@dataclass(frozen=True, slots=True)
class GenerationEnded:
    """The last record of a generation: from here on `next` is in force."""

    next: int


REBUILT = "catalog rebuild"
"""Who accepted a loss, or why there is a claim, where a rebuild has made the record."""

Said = Claim | Segment | Loss | LedgerClosed | DeletionRecord
"""What a catalog says of its topic. Each of these records also has an object of its own, beside the segments."""
Record = Said | GenerationBegun | GenerationEnded


def record_uuid(topic: TopicName, record: Said) -> str:
    """A record's own uuid. A segment has it from its assignment; any other's follows from the record before it: of
    several that are tried behind the same record, only one can have an object."""
    match record:
        case Segment():
            return record.uuid
        case Claim():
            name = f"claim after {record.former}"
        case Loss():
            # One that a rebuild made stands beside one that an application may have begun in its place.
            until = f" until {record.end}" if record.accepted_by == REBUILT else ""
            name = f"loss of {record.start.incarnation} after {record.predecessor_uuid}{until}"
        case LedgerClosed():
            before = "" if record.followed_by is None else f" before {record.followed_by}"
            name = f"end of {record.incarnation}:{record.ledger}{before}"
        case Deleting():  # written behind its slot: of several, only one stands in a log
            name = f"deletion {record.number} of {record.at}"
        case DeletionUndone():
            name = f"deletion {record.number} undone{' after it had begun' if record.begun else ''}"
        case DeletionBegun():
            name = f"deletion {record.number} begun"
        case Deleted():
            name = f"deletion {record.number} done"
        case TopicGone():
            name = f"incarnation {record.incarnation} gone at {record.at}"
        case PulsarTrimmed():
            name = f"incarnation {record.incarnation} trimmed up to {record.first}"
    return str(uuid5(NAMESPACE_OID, f"{topic} {name}"))


class NextStart(NamedTuple):
    """Where the next segment starts, and what proves that it follows: see `Segment.former_ledger_last`."""

    position: Position
    former_ledger_last: int | None = None
    former_ledger: int | None = None

    def of(self, segment: OpenSegment) -> OpenSegment:
        """The segment, begun there."""
        return replace(
            segment,
            start=self.position,
            former_ledger_last=self.former_ledger_last,
            former_ledger=self.former_ledger,
        )


class Sums(NamedTuple):
    """How much there is of a topic."""

    segments: int
    entries: int
    size: int


@dataclass(frozen=True, slots=True)
class NewestSegment:
    """What a writer needs of the last segment. `assigned_at`: when it was begun; 0: an earlier release did not keep
    it."""

    uuid: str
    start: Position
    end: Position
    size: int
    crc32c: int
    assigned_at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class CatalogHead:
    """What a topic's catalog adds up to, of one size however long the catalog is: all that a writer needs, and where
    readers begin.

    `begin`: where the present incarnation's first claim begins. `end`: its last position accounted for, None before its
    first record. `closed`: the recorded ends of that ledger and of later ones. `last`: the segment or loss that the
    next one follows. `segments`, `entries`, `size` (bytes) are sums, of what went, too. `continued_in`: the one in
    force instead. `removal`: see `removed`. `claimed_at`: when the present incarnation was first claimed, which Pulsar
    confirmed; 0: not known."""

    topic: TopicName
    claim: Claim | None = None
    begin: Position | None = None
    end: Position | None = None
    newest: NewestSegment | None = None
    closed: tuple[LedgerClosed, ...] = ()
    next_slot: int = 0
    segments: int = 0
    entries: int = 0
    size: int = 0
    last: Ending | None = None
    generation: int = 0
    continued_in: int | None = None
    removal: Removal | None = None
    claimed_at: int = field(default=0, compare=False)

    @property
    def incarnation(self) -> int:
        """The present one; 0 also for a topic that was never claimed."""
        return 0 if self.claim is None else self.claim.incarnation

    @property
    def removed(self) -> Removal:
        """What deletions have taken."""
        return self.removal or NOTHING_REMOVED

    @property
    def kept(self) -> Sums:
        """What is offloaded and not deleted."""
        gone = self.removed.ranges
        return Sums(
            self.segments - sum(each.segments for each in gone),
            self.entries - sum(each.entries for each in gone),
            self.size - sum(each.size for each in gone),
        )

    def closed_with(self, incarnation: int, ledger: int) -> int | None:
        """The last entry that a ledger is recorded to have been closed with: the end's ledger, or a later one."""
        return next((c.last for c in self.closed if (c.incarnation, c.ledger) == (incarnation, ledger)), None)

    @property
    def closing(self) -> LedgerClosed | None:
        """What is recorded of the ledger of the end: that it ended there, and what follows it."""
        return next((c for c in self.closed if (c.incarnation, c.ledger, c.last) == self.end), None)

    @property
    def accounted(self) -> Position | None:
        """The last position that is done with: the end, else the one before the claim's begin."""
        if self.end is not None or self.claim is None:
            return self.end
        return self.claim.begin.previous_entry

    def is_of(self, created: int, ledgers: LedgerList) -> bool:
        """Whether a topic created then, with these ledgers, is the catalog's incarnation. Where no record has the
        creation time, several ledgers must have their recorded ends."""
        claim = self.claim
        if claim is None:
            return True
        if claim.created is not None:
            return created == claim.created
        return ledgers.has_ends((c.ledger, c.last) for c in self.closed if c.incarnation == claim.incarnation)

    def may_be_of(self, created: int, ledgers: LedgerList) -> bool:
        """Whether nothing proves that it is another one. Restored metadata have the ledgers and another creation time;
        so has a rebuilt cluster, which gives the same ledger ids once more."""
        unknown = self.claim is None or self.claim.created is None
        return unknown or self.is_of(created, ledgers) or self.has_ledger_in(ledgers)

    def has_ledger_in(self, ledgers: LedgerList) -> bool:
        """Whether a topic's list has a ledger id that we know of it. That alone does not prove that it is the same."""
        claim, newest = self.claim, self.newest
        if claim is None:
            return False
        ours = [claim.begin, self.end, *((newest.start, newest.end) if newest is not None else ())]
        return any(p.ledger in ledgers for p in ours if p is not None and p.incarnation == claim.incarnation)

    @property
    def last_seen(self) -> int:
        """The last time at which these records show that Pulsar had the topic; 0: they do not say."""
        return max(self.claimed_at, 0 if self.newest is None else self.newest.assigned_at)

    @property
    def witnesses_since(self) -> int | None:
        """When this topic was claimed: a cluster that has it is the one that had any topic that was seen later. None:
        nothing says when it was created (metadata stores such as etcd do not)."""
        if self.claim is None or not self.claim.created:
            return None
        return self.claimed_at or self.claim.at

    def next_start(self, ledgers: LedgerList) -> NextStart | None:
        """Where the next segment starts; None while nothing proves what follows. Pulsar replaces a ledger that nobody
        wrote to: what would begin there begins with the next one."""
        after = self.accounted
        if after is None:
            return None
        if after.ledger in ledgers:
            position = ledgers.successor(after)
            if position is None:
                return None
            if position.ledger == after.ledger:
                return NextStart(position)
            return NextStart(position, ledgers.closed_with(after.ledger), after.ledger)
        following = ledgers.next_ledger(after.ledger)
        if following is None or not self.is_settled(ledgers):
            return None
        return NextStart(Position(after.incarnation, following, 0), after.entry, after.ledger)

    def is_settled(self, ledgers: LedgerList) -> bool:
        """Whether we know what follows also without the ledger of the end in the list."""
        if self.end is None:  # where it was claimed, nobody had written yet
            return self.claim is not None and self.claim.begin.entry == 0
        closing = self.closing
        return closing is not None and (closing.followed_by is None or closing.followed_by in ledgers)

    def check_follows(self, record: Segment | Loss) -> None:
        """Raises IntegrityError unless a record has a position, and provably starts after what is accounted for."""
        before, start = self.accounted, record.start
        if record.end < start:
            raise IntegrityError(f"{self.topic}: a record from {start} to {record.end} contains no position")
        if before is None or start.incarnation != before.incarnation or start <= before:
            return  # refused by `after`, with better words
        if start == before.next_entry:
            return
        ended = None
        if isinstance(record, Segment) and record.former_ledger in (None, before.ledger):
            ended = record.former_ledger_last
        if ended is None:
            ended = self.closed_with(*before[:2])
        if start.ledger > before.ledger and start.entry == 0 and ended == before.entry:
            return
        raise IntegrityError(
            f"{self.topic}: nothing proves that what starts at {start} follows on {before}: it would leave a hole"
        )

    def is_behind(self, position: Position) -> bool:
        """Whether a position lies in what is accounted for, or in a former incarnation."""
        if self.claim is not None and position.incarnation < self.claim.incarnation:
            return True
        return self.end is not None and position <= self.end

    def after(self, record: Record) -> CatalogHead:
        """The head with the record of the next slot. Raises IntegrityError where it does not continue the catalog."""
        if self.continued_in is not None:
            raise IntegrityError(
                f"{self.topic}: a {type(record).__name__} stands behind the end of generation {self.generation}"
            )
        following = replace(self, next_slot=self.next_slot + 1)
        match record:
            case Claim():
                removal = None if self.removal is None else self.removal.claimed(record.incarnation, record.at)
                following = replace(following, claim=record, removal=removal)
                same = self.claim is not None and self.claim.incarnation == record.incarnation
                if self.claim is None or not same or self.claim.created != record.created:
                    following = replace(following, claimed_at=0 if record.reason == REBUILT else record.at)
                return following if same else replace(following, begin=record.begin, end=None)
            case Segment():
                self._check_continues(record.start, f"segment {record.uuid}")
                return replace(
                    following,
                    end=record.end,
                    newest=NewestSegment(
                        record.uuid, record.start, record.end, record.size, record.crc32c, record.assigned_at
                    ),
                    closed=_closed_from(record.end, self.closed),
                    segments=self.segments + 1,
                    entries=self.entries + record.entries,
                    size=self.size + record.size,
                    last=Ending(record.uuid, record.end),
                    removal=self._removal_behind(record),
                )
            case Loss():
                self._check_continues(record.start, "a loss")
                last = Ending(record_uuid(self.topic, record), record.end)
                return replace(
                    following,
                    end=record.end,
                    closed=_closed_from(record.end, self.closed),
                    last=last,
                    removal=self._removal_behind(record),
                )
            case LedgerClosed():
                kept = (c for c in self.closed if (c.incarnation, c.ledger) != (record.incarnation, record.ledger))
                return replace(following, closed=_closed_from(self.end, (*kept, record)))
            case GenerationBegun():
                return following
            case GenerationEnded():
                if record.next <= self.generation:
                    raise IntegrityError(f"{self.topic}: generation {self.generation} would go on in {record.next}")
                return replace(following, continued_in=record.next)
            case _:
                return replace(following, removal=self._removal_after(record))

    def _removal_behind(self, record: Segment | Loss) -> Removal | None:
        removal = None if self.removal is None else self.removal.continued(record.end)
        return (removal or NOTHING_REMOVED).buried(record) if isinstance(record, Tombstone) else removal

    def _removal_after(self, record: DeletionRecord) -> Removal:
        if self.claim is None:
            raise IntegrityError(f"{self.topic}: a {type(record).__name__} stands before any claim")
        last = self.last.end if self.last is not None else None
        for each in record.ranges if isinstance(record, Deleting) else ():
            if last is None or each.end > last:
                raise IntegrityError(f"{self.topic}: a deletion up to {each.end}, where the catalog ends with {last}")
        if isinstance(record, TopicGone) and (record.incarnation, record.at) < (self.claim.incarnation, self.claim.at):
            return self.removed  # the topic is back
        try:
            removal = self.removed.after(record)
            return removal if last is None else removal.continued(last)
        except IntegrityError as error:
            raise IntegrityError(f"{self.topic}: {error}") from error

    def _check_continues(self, start: Position, what: str) -> None:
        if self.claim is None:
            raise IntegrityError(f"{self.topic}: {what} stands before any claim")
        if start.incarnation != self.claim.incarnation or (self.end is not None and start <= self.end):
            raise IntegrityError(f"{self.topic}: {what} starts at {start}, which does not continue {self.end}")


def _closed_from(end: Position | None, closed: Iterable[LedgerClosed]) -> tuple[LedgerClosed, ...]:
    """Those that matter for what follows `end`."""
    return tuple(c for c in closed if end is None or (c.incarnation, c.ledger) >= end[:2])


@dataclass(frozen=True, slots=True)
class TopicCatalog:
    """The list of a topic's segments and losses: the fold of its catalog's records, as far back as they were read.

    `closed`: the last entry of each ledger that is recorded as closed, by (incarnation, ledger). `begins`: where each
    incarnation's first claim begins. `follows`: the last segment or loss before those that were read."""

    head: CatalogHead
    segments: tuple[Segment, ...] = ()
    losses: tuple[Loss, ...] = ()
    closed: dict[tuple[int, int], int] = field(default_factory=dict)
    begins: dict[int, Position] = field(default_factory=dict)
    follows: Ending | None = None

    @classmethod
    def empty(cls, topic: TopicName) -> Self:
        """Of a topic without records."""
        return cls(CatalogHead(topic))

    @classmethod
    def after(cls, head: CatalogHead) -> Self:
        """Of what follows a head: records may be added."""
        begins = {} if head.claim is None or head.begin is None else {head.claim.incarnation: head.begin}
        closed = {(each.incarnation, each.ledger): each.last for each in head.closed}
        return cls(head, closed=closed, begins=begins, follows=head.last)

    @property
    def topic(self) -> TopicName:
        return self.head.topic

    @property
    def claim(self) -> Claim | None:
        return self.head.claim

    @property
    def end(self) -> Position | None:
        """The last position accounted for in the present incarnation; None before its first record."""
        return self.head.end

    @property
    def next_slot(self) -> int:
        return self.head.next_slot

    @property
    def aborted(self) -> frozenset[Transaction]:
        """The transactions whose abort markers are in segments that were copied complete; their entries are, too."""
        return frozenset(t for segment in self.segments for part in segment.parts for t in part.stats.aborted)

    def apply(self, *records: Record) -> TopicCatalog:
        """The catalog with more records. Raises IntegrityError where one does not continue it."""
        fold = CatalogFold(self)
        for record in records:
            fold.add(record)
        return fold.catalog()


class CatalogFold:
    """Adds records to a catalog, each in constant time. Whoever skips unreadable records sets `head`."""

    def __init__(self, catalog: TopicCatalog) -> None:
        self.head = catalog.head
        self._segments = list(catalog.segments)
        self._uuids = {s.uuid for s in catalog.segments}
        self._losses = list(catalog.losses)
        self._closed = dict(catalog.closed)
        self._begins = dict(catalog.begins)
        self._follows = catalog.follows

    def catalog(self) -> TopicCatalog:
        """What the records add up to."""
        segments, losses = tuple(self._segments), tuple(self._losses)
        return TopicCatalog(self.head, segments, losses, dict(self._closed), dict(self._begins), self._follows)

    def add(self, record: Record) -> None:
        """Take the next slot's record; IntegrityError, and no change, where it does not continue the others."""
        if isinstance(record, Segment) and record.uuid in self._uuids:
            raise IntegrityError(f"{self.head.topic}: segment {record.uuid} is in the catalog already")
        before, self.head = self.head, self.head.after(record)
        match record:
            case Claim():
                self._begins.setdefault(record.incarnation, record.begin)
            case Segment():
                if record.former_ledger_last is not None and before.end is not None:
                    self._closed[before.end[:2]] = record.former_ledger_last
                self._segments.append(record)
                self._uuids.add(record.uuid)
            case Loss():
                self._losses.append(record)
            case LedgerClosed():
                self._closed[record.incarnation, record.ledger] = record.last


@dataclass(frozen=True, slots=True)
class Root:
    """What `_root` says: which root this is and whose topics it holds. `bookkeeper`: BookKeeper's instance id, another
    one in a cluster that was rebuilt under the same name; empty: not known."""

    uuid: str
    cluster: str
    bookkeeper: str = ""
