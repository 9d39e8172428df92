"""What the running application knows of one topic. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from offloader.metadata.state import CatalogHead, NextStart, TopicState
from offloader.model import LedgerList, Position, RollReason, Source, Taking, TopicName
from offloader.offload.core import facets, segments
from offloader.offload.core.changes import TopicChanges
from offloader.offload.core.evidence import Being, TopicListing
from offloader.offload.core.facets import TopicRules
from offloader.ports.admin import TopicInfo
from offloader.ports.pins import TopicEnd

Value = TypeVar("Value")


@dataclass(slots=True)
class Topic:
    """One topic, in frozen facets. Their owners (`facets.OWNERS`) replace them, in the driver's thread."""

    name: TopicName
    rules: TopicRules
    committed: facets.Committed
    observed: facets.Observed
    source: Source = Source.BROKER  # where what is open, or will be opened next, is read from
    poll: facets.Poll = field(default_factory=facets.Poll)
    tail: facets.HiddenTail = field(default_factory=facets.HiddenTail)
    learnt: facets.Learnt = field(default_factory=facets.Learnt)
    planned: facets.Planned = field(default_factory=facets.Planned)
    times: facets.PublishTimes = field(default_factory=facets.PublishTimes)
    retirement: facets.Retirement | None = None
    release: facets.Release = field(default_factory=facets.Release)
    pin: facets.PinState = field(default_factory=facets.PinState)
    losses: facets.LossState = field(default_factory=facets.LossState)
    features: Mapping[type, object] = field(default_factory=dict)  # what each remembers of it, by the value's type
    inquiry: facets.Inquiry | None = None  # it does not, or did not, answer as the one that we know
    rest: facets.Rest | None = None  # nothing is known of it that it would have to be looked at for
    changes: TopicChanges | None = None  # hears of each facet that is replaced, once the topic is adopted

    def __setattr__(self, name: str, value: object) -> None:
        """Replace a facet. The one place that notes it: one that differs ends the rest, and each step looks at the
        topic; one that is equal only says how polling goes on."""
        before = getattr(self, name, None)  # None while the topic is constructed
        object.__setattr__(self, name, value)
        if name not in facets.OWNERS or name in ("rest", "changes") or value is before:
            return
        changes = getattr(self, "changes", None)
        if value != before:
            object.__setattr__(self, "rest", None)
            if changes is not None:
                changes.mark([self.name])
        elif changes is not None:
            changes.mark_polled(self.name)

    @property
    def info(self) -> TopicInfo:
        return self.observed.info

    @property
    def ledgers(self) -> LedgerList:
        return self.observed.info.ledgers

    @property
    def end(self) -> TopicEnd:
        return self.observed.end

    @property
    def catalog(self) -> CatalogHead:
        return self.committed.catalog

    @property
    def retire(self) -> RollReason | None:
        """Why the topic is offloaded up to an end and no other segment is opened; None: it goes on."""
        return self.retirement.reason if self.retirement else RollReason.TERMINATED if self.info.terminated else None

    @property
    def retire_at(self) -> Position | None:
        return self.retirement.at if self.retirement else None

    @property
    def paused(self) -> bool:
        """Whether it is ours, and no policy enables it: its subscription stays, and nothing more is read."""
        return self.retirement is not None and self.retirement.reason is RollReason.DISABLED

    @property
    def incarnation(self) -> int:
        return self.catalog.incarnation

    def of_feature(self, kind: type[Value]) -> Value:
        """What a feature remembers of the topic; nothing yet: a new value. From any thread."""
        value = self.features.get(kind)
        return value if isinstance(value, kind) else kind()

    def rests(self, state: TopicState | None, now: int) -> bool:
        """Whether nothing would be decided on it now either. `state`: the journal's, if it has one."""
        return self.rest is not None and now < self.rest.ends_at and self.rest.state == state

    @property
    def in_question(self) -> bool:
        """Whether it may be gone."""
        return self.inquiry is not None and self.inquiry.found is Being.UNKNOWN

    @property
    def gone(self) -> Being | None:
        """Why there is nothing left to read of this incarnation; None: there is."""
        proven = self.inquiry is not None and self.inquiry.found in (Being.DELETED, Being.ANOTHER)
        return self.inquiry.found if self.inquiry and proven else None

    @property
    def readable(self) -> bool:
        """Whether there is anything to decide: it is there, and its catalog is sound."""
        return not (self.gone or self.in_question or self.committed.catalog_error)

    @property
    def known_at(self) -> int:
        """When `last` was last learned: consumers' end is asked for often, the ledger's only where it is needed."""
        return self.observed.listed_at if self.source.complete else self.observed.seen_at

    @property
    def confirmed(self) -> Position | None:
        """The last entry that is stored for good, whether consumers get it or not; None: no listed ledger has one."""
        spans = self.ledgers.spans
        newest = self.ledgers.newest_closed()
        found = [] if newest is None else [newest]
        last = self.info.last_confirmed
        if last is not None and spans and last[0] <= spans[-1].ledger:  # beyond: the list is older than the end
            found.append(last)
        return Position(self.incarnation, *max(found)) if found else None

    @property
    def last(self) -> Position | None:
        """The last position that can be accounted for: readable, or explained; from bookies all that is confirmed."""
        if self.source is Source.BOOKKEEPER:
            return self.confirmed
        readable = None if self.end.last is None else Position(self.incarnation, *self.end.last)
        return max((p for p in (readable, self.tail.end) if p is not None), default=None)

    def hidden_tail(self) -> tuple[Position, Position] | None:
        """What the ledger has beyond everything that a broker delivers: (first, last); None: nothing."""
        raw, last = self.confirmed, self.last
        if raw is None:
            return None
        first = self.begin() if last is None else self.ledgers.successor(last)
        begin = self.begin()
        if first is not None and begin is not None:
            first = max(first, begin)
        return None if first is None or first > raw else (first, raw)

    @property
    def copies(self) -> frozenset[int]:
        """The ledgers that brokers have offloaded and that become segments as they are."""
        claim, info = self.catalog.claim, self.info
        if claim is None or claim.taking is not Taking.COPY:
            return frozenset()
        return info.copyable

    @property
    def mark_delete(self) -> Position:
        return Position(self.incarnation, *self.end.mark_delete)

    def begin(self) -> Position | None:
        """Where the next segment starts; None while nothing proves what follows the catalog's end."""
        start = self.next_start
        return None if start is None else start.position

    @property
    def next_start(self) -> NextStart | None:
        """The same, with the proof that it follows."""
        return self.catalog.next_start(self.ledgers)

    @property
    def listed(self) -> TopicListing:
        """What Pulsar's list has of it."""
        return TopicListing(self.ledgers, self.mark_delete, self.losses.awaited, self.info.token)

    def _next(self, state: TopicState) -> Position | None:
        return segments.next_position(state.open, self.ledgers) if state.open else self.begin()

    def pending(self, state: TopicState) -> int:
        """An estimate of what lies after the last uploaded position."""
        return self.info.sums.object_bytes(self._next(state), self.last)


def source_of(state: TopicState, rules: TopicRules) -> Source:
    """Where the open segment's entries are read from, or where those of the next one will be."""
    return rules.source if state.open is None else state.open.source
