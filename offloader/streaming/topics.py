"""What the running application knows of one topic, and the planner's view of it."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

from offloader.metadata.state import TopicCatalog, TopicState
from offloader.model import LedgerList, Position, RollReason, Source, TopicName
from offloader.pulsar.api import TopicEnd, TopicInfo
from offloader.streaming import segments
from offloader.streaming.patience import Patience
from offloader.streaming.planner import Rules, TopicView

ENTRY_OVERHEAD = 12  # bytes that the object format adds to an entry


@dataclass
class Topic:
    """One topic in the running application: its catalog, what was last seen in Pulsar, and what the last slice taught.

    Changed by the driver's thread only.
    """

    name: TopicName
    rules: Rules
    catalog: TopicCatalog
    info: TopicInfo
    end: TopicEnd
    looked_at: int
    source: Source = Source.BROKER  # where what is open, or will be opened next, is read from
    look_again_at: int = 0
    ledgers_at: int = 0  # when its ledger list was last read, since it was adopted
    wanted_bytes: int = 0
    slow: int = 0
    died: bool = False
    planned_at: int = 0
    throttled_since: int = 0
    retire: RollReason | None = None
    retire_at: Position | None = None
    sealing: Future[TopicCatalog] | None = field(default=None, repr=False)
    alarm: str = ""
    unseen: str = ""  # why it could not be looked at
    trouble: str = ""  # what is wrong with this topic's catalog: it is loaded anew before anything else
    trouble_until: int = 0
    retire_asked: int = 0
    acknowledged: Position | None = None
    looks: Patience = field(default_factory=Patience)
    acknowledging: Patience = field(default_factory=Patience)
    letting_go: Patience = field(default_factory=Patience)
    accepted_loss: Position | None = None
    gone: str = ""  # why there is nothing left to read of this incarnation
    last_seen: Position | None = None
    seen_at: int = 0  # when its end was last looked at
    hidden_end: Position | None = None  # the end of a tail that no broker delivers, and that is explained
    info_before: TopicInfo | None = None  # the ledgers that were listed before the newest look
    kept: LedgerList | None = None  # the ledgers of the newest look at which nothing could be missing
    pin_released: bool = False
    tail_looked_at: int = 0
    undecided: bool = False  # an open transaction keeps the tail from being read

    @property
    def incarnation(self) -> int:
        return self.catalog.claim.incarnation if self.catalog.claim else 0

    @property
    def known_at(self) -> int:
        """When `last` was last learned: consumers' end is asked for often, the ledger's only where it is needed."""
        return self.ledgers_at if self.source.complete else self.seen_at

    @property
    def confirmed(self) -> Position | None:
        """The last entry that is stored for good, whether consumers get it or not; None: there is none in the ledgers that are listed."""
        spans = self.info.ledgers.spans
        found = [(s.ledger, s.last) for s in spans if s.last is not None and s.last >= 0][-1:]
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
        return max((p for p in (readable, self.hidden_end) if p is not None), default=None)

    def hidden_tail(self) -> tuple[Position, Position] | None:
        """What the ledger has beyond everything that a broker delivers: (first, last); None: nothing."""
        raw, last = self.confirmed, self.last
        if raw is None:
            return None
        first = self.begin() if last is None else self.info.ledgers.successor(last)
        begin = self.begin()
        if first is not None and begin is not None:
            first = max(first, begin)
        return None if first is None or first > raw else (first, raw)

    @property
    def mark_delete(self) -> Position:
        return Position(self.incarnation, *self.end.mark_delete)

    def begin(self) -> Position | None:
        """Where the next segment starts; None while the next ledger is not listed.

        A ledger that nobody wrote to is replaced when its topic is loaded again: the beginning moves on with it.
        """
        ledgers = self.info.ledgers
        begin = self.catalog.begins_at(ledgers)
        if begin is None or begin.entry > 0 or begin.ledger in ledgers:
            return begin
        following = ledgers.next_ledger(begin.ledger)
        return None if following is None else Position(begin.incarnation, following, 0)

    def view(self, state: TopicState, allowance: int | None, allowed_at: int) -> TopicView:
        """The planner's view of the topic."""
        begin = self.begin()
        start = segments.next_position(state, self.info.ledgers) if state.open else begin
        return TopicView(
            state=state,
            rules=self.rules,
            ledgers=self.info.ledgers,
            begin=begin,
            last=self.last,
            pending_bytes=pending_bytes(self.info, start, self.last),
            wanted_bytes=self.wanted_bytes,
            predecessor=self.catalog.segments[-1] if self.catalog.segments else None,
            retire=self.retire or (RollReason.TERMINATED if self.info.terminated else None),
            retire_at=self.retire_at,
            allowance=allowance,
            allowed_at=allowed_at,
            slow=self.slow,
            died=self.died,
            planned_at=self.planned_at,
        )


def source_of(state: TopicState, rules: Rules) -> Source:
    """Where the open segment's entries are read from, or where those of the next one will be."""
    return rules.source if state.open is None else state.open.source


def pending_bytes(info: TopicInfo, start: Position | None, last: Position | None) -> int:
    """Object bytes that `start`..`last` would take, estimated from the ledgers' average entry."""
    if start is None or last is None or last < start:
        return 0
    total = 0
    for ledger, (entries, size) in info.sizes.items():
        if ledger < start.ledger or ledger > last.ledger or entries <= 0:
            continue
        first = start.entry if ledger == start.ledger else 0
        end = last.entry if ledger == last.ledger else entries - 1
        count = max(end - first + 1, 0)
        total += count * size // entries + count * ENTRY_OVERHEAD
    return max(total, 1)


def lost_range(state: TopicState, catalog: TopicCatalog, ledgers: LedgerList) -> tuple[Position, Position] | None:
    """What was there and is gone before it was offloaded: (first lost, -1 of the first ledger that is left).

    An open segment's data was seen, so its ledger must be listed. Without one, only what follows the catalog's end can be missed, and
    only when that ledger is not known to have ended there. (A ledger that nobody wrote to is replaced when a topic is loaded
    again: that is no loss.)
    """
    if state.open is not None:
        covered = state.open.covered
        first = state.open.start if covered is None else _entry_after(covered)
    elif state.lost_after is not None:
        first = _entry_after(state.lost_after)
    elif catalog.end is not None and catalog.end.entry >= 0 and not _end_recorded(catalog, catalog.end):
        first = _entry_after(catalog.end)
    else:
        return None
    following = ledgers.next_ledger(first.ledger)
    if first.ledger in ledgers or following is None:
        return None
    return first, Position(first.incarnation, following, -1)


def accounted(catalog: TopicCatalog) -> Position | None:
    """The last position that nobody needs any more: the catalog's end or, before its first record, what lies before the claim's begin."""
    if catalog.end is not None or catalog.claim is None:
        return catalog.end
    return catalog.claim.begin._replace(entry=catalog.claim.begin.entry - 1)


def _entry_after(position: Position) -> Position:
    return Position(position.incarnation, position.ledger, position.entry + 1)


def acknowledgeable(catalog: TopicCatalog, end: Position, ledgers: LedgerList) -> Position | None:
    """How far the pin may be acknowledged once `end` is offloaded.

    All of it, but where `end` is the last entry seen of a ledger whose end is not recorded, only up to the entry before: Pulsar then cannot
    trim a ledger whose end nobody has recorded.
    """
    if _end_recorded(catalog, end) or _more_entries_seen(end, ledgers):
        return end
    return Position(end.incarnation, end.ledger, end.entry - 1) if end.entry > 0 else _last_of_former_ledger(catalog, end)


def _last_of_former_ledger(catalog: TopicCatalog, end: Position) -> Position | None:
    newest = catalog.segments[-1] if catalog.segments else None
    if newest is None or newest.end.incarnation != end.incarnation:
        return None
    former = [r for r in newest.ledgers if r.ledger < end.ledger]
    return Position(end.incarnation, former[-1].ledger, former[-1].last) if former else newest.predecessor_end


def _end_recorded(catalog: TopicCatalog, end: Position) -> bool:
    if (end.incarnation, end.ledger) in catalog.closed:
        return True
    return any(
        r.ledger == end.ledger and r.closed_with is not None for s in catalog.segments[-1:] for r in s.ledgers if s.end == end
    )


def _more_entries_seen(end: Position, ledgers: LedgerList) -> bool:
    last = ledgers.closed_with(end.ledger)
    return last is not None and last > end.entry


def normalised(position: Position, ledgers: LedgerList) -> Position:
    """A mark-delete as the broker may write it: a closed ledger's last entry is -1 of the next ledger."""
    last = ledgers.closed_with(position.ledger)
    ended = position.ledger not in ledgers or (last is not None and position.entry >= last)
    following = ledgers.next_ledger(position.ledger) if ended else None
    return position if following is None else Position(position.incarnation, following, -1)
