"""Whatever moves the pin, and whatever is trimmed then: nothing that was written is passed over in silence, and nothing
is called lost that is known to be there."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.metadata.state import Claim, LedgerClosed, NextStart, TopicCatalog, TopicState
from offloader.model import (
    LedgerList,
    LedgerRange,
    LedgerSpan,
    Loss,
    Position,
    RollReason,
    Segment,
    SegmentLayout,
    Source,
    TopicName,
)
from offloader.offload.core import evidence
from offloader.offload.core.evidence import Lost, TopicListing

T = TopicName.parse("public/default/t")
OPEN = TopicState(T)


def position(ledger: int, entry: int) -> Position:
    return Position(0, ledger, entry)


def claimed(ledger: int = 5, token: str = "") -> TopicCatalog:
    return TopicCatalog.empty(T).apply(Claim("app", 0, 1, position(ledger, 0), 1, token=token))


def offloaded(catalog: TopicCatalog, start: NextStart, last: int) -> TopicCatalog:
    first = start.position
    segment = Segment(
        f"u{catalog.next_slot}", first, first._replace(entry=last), 1, 2, 10, 3, SegmentLayout(),
        Source.BROKER, RollReason.AGE,
        (LedgerRange(first.ledger, first.entry, last + 1, count=last - first.entry + 1, size=10),),
        former_ledger_last=start.former_ledger_last,
        former_ledger=start.former_ledger,
    )  # fmt: skip
    catalog.head.check_follows(segment)
    return catalog.apply(segment)


@dataclass
class World:
    """A topic's ledgers (entries by id, the last one open), its pin, and an offloader that looks now and then.
    Everything is trimmed as soon as it may be; the broker puts a pin whose ledger is gone before the first one that is
    left."""

    hold: bool
    ledgers: dict[int, int]
    mark: Position
    catalog: TopicCatalog
    written: set[tuple[int, int]]
    state: TopicState = OPEN
    awaited: Position | None = None
    pins: int = 1  # how many there were
    tells: bool = True  # the brokers say which one there is

    def roll(self) -> None:
        self.ledgers[max(self.ledgers) + 2] = 0
        self.trim()

    def reload(self) -> None:
        """An empty last ledger is replaced."""
        last = max(self.ledgers)
        if self.ledgers[last] == 0:
            del self.ledgers[last]
            self.ledgers[last + 3] = 0
        self.trim()

    def trim(self) -> None:
        for ledger in sorted(self.ledgers)[:-1]:
            if (ledger, self.ledgers[ledger] - 1) <= self.mark[1:]:
                del self.ledgers[ledger]
        first = min(self.ledgers)
        if self.mark.ledger < first:
            self.mark = position(first, -1)

    def write(self, count: int) -> None:
        last = max(self.ledgers)
        self.written |= {(last, self.ledgers[last] + i) for i in range(count)}
        self.ledgers[last] += count

    def move(self) -> None:
        """TTL, skip_all, a reset: past all that there is."""
        held = [x for x in self.ledgers if self.ledgers[x]]
        if held:
            self.mark = max(self.mark, position(held[-1], self.ledgers[held[-1]] - 1))
        self.trim()

    def remake(self) -> None:
        """The pin is deleted, all that may be is trimmed, and somebody makes another one."""
        self.mark = position(max(self.ledgers) + 1, -1)
        self.trim()
        self.mark = position(min(self.ledgers), -1)
        self.pins += 1

    @property
    def list(self) -> LedgerList:
        last = max(self.ledgers)
        return LedgerList(tuple(LedgerSpan(x, None if x == last else n - 1) for x, n in self.ledgers.items()))

    @property
    def confirmed(self) -> Position | None:
        held = [x for x in self.ledgers if self.ledgers[x]]
        return position(held[-1], self.ledgers[held[-1]] - 1) if held else None

    def look(self) -> None:
        """What the offloader does with what it sees: record, take losses as they are, offload one ledger's worth,
        acknowledge."""
        ledgers, after = self.list, self.catalog.head.accounted
        end = self.catalog.end
        if end is not None and end.entry >= 0 and ledgers.closed_with(end.ledger) == end.entry:
            closed = LedgerClosed(*end, followed_by=ledgers.following(end.ledger) if self.hold else None)
            if closed != self.catalog.head.closing:
                self.catalog = self.catalog.apply(closed)
        listed = TopicListing(ledgers, self.mark, self.awaited, f"pin-{self.pins}" if self.tells else None)
        if evidence.doubtful(self.catalog.head, listed):
            self.state = TopicState(T, lost_after=after)
        elif evidence.remade(self.catalog.head, listed):
            self.catalog = self.catalog.apply(Claim("app", 0, 1, position(5, 0), 1, token=listed.token))
        lost = evidence.lost(self.state, self.catalog.head, ledgers, self.confirmed)
        if lost is not None:
            self.take(lost)
        start = self.catalog.head.next_start(ledgers)
        if start is not None and self.ledgers.get(start.position.ledger, 0) > start.position.entry:
            self.catalog = offloaded(self.catalog, start, self.ledgers[start.position.ledger] - 1)
        target = evidence.pin_target(self.catalog.head)
        if target is not None and target > self.mark and target.ledger in self.ledgers:
            self.mark = target
            self.trim()

    def take(self, lost: Lost) -> None:
        self.catalog = self.catalog.apply(Loss(lost.first, lost.last, "gone", "test", 1))
        self.state = OPEN

    def missing(self) -> set[tuple[int, int]]:
        """Written, before the end of what is accounted for, and in no record."""
        end = self.catalog.end
        if end is None:
            return set()
        spans: list[Segment | Loss] = [*self.catalog.segments, *self.catalog.losses]
        return {
            place for place in self.written
            if place <= end[1:] and not any(s.start[1:] <= place <= s.end[1:] for s in spans)
        }  # fmt: skip


steps = st.lists(st.sampled_from(["write", "write one", "roll", "look", "look", "reload", "move"]), max_size=40)


def run(world: World, todo: list[str]) -> None:
    for step in todo:
        match step:
            case "write":
                world.write(3)
            case "write one":
                world.write(1)
            case _:
                getattr(world, step)()


def world(hold: bool = True, token: str = "") -> World:
    return World(hold, {5: 0}, position(5, -1), claimed(token=token), set())


@given(steps)
def test_a_hole_is_never_silent_once_something_is_offloaded(todo):
    there = world()
    there.write(1)
    there.look()
    run(there, [*todo, "write", "look", "look", "look"])
    assert there.missing() == set()


def test_nor_is_one_that_follows_a_loss():
    there = world()
    run(there, ["write", "look", "write", "roll", "move", "look"])
    (first,) = there.catalog.losses
    run(there, ["write", "move", "roll", "look", "write", "look", "look"])
    assert there.catalog.losses[1].start == first.end._replace(entry=0)
    assert there.missing() == set()


@given(st.lists(st.sampled_from(["reload", "look"]), max_size=40))
def test_behind_a_loss_nothing_more_is_lost_where_nobody_writes(todo):
    there = world()
    run(there, ["write", "look", "write", "roll", "move", "look", *todo])
    assert len(there.catalog.losses) == 1


@given(st.lists(st.sampled_from(["write", "write one", "roll", "look", "look", "reload", "remake"]), max_size=40))
def test_nor_is_one_before_that_where_the_pin_that_was_claimed_is_known(todo):
    there = world(token="pin-1")
    run(there, [*todo, "write", "look", "look", "look"])
    assert there.missing() == set()


@given(st.lists(st.sampled_from(["look", "reload"]), max_size=10))
def test_a_pin_that_is_made_anew_while_its_ledger_is_there_has_lost_nothing(todo):
    there = world(token="pin-1")
    run(there, ["remake", "look", *todo, "write", "look", "look"])
    assert not there.catalog.losses
    assert there.missing() == set()


@pytest.mark.parametrize("step", ["remake", "reload"])
def test_where_brokers_do_not_tell_one_pin_from_another_nothing_is_called_lost_for_that(step):
    for there in (world(token="pin-1"), world()):
        there.tells = False
        run(there, ["reload", step, "look", "reload", "look", "write", "look"])
        assert not there.catalog.losses


@given(steps.map(lambda todo: [step for step in todo if step != "move"]), st.booleans(), st.sampled_from(["", "pin-1"]))
def test_nothing_is_lost_where_nobody_moves_the_pin(todo, hold, token):
    there = world(hold, token)
    run(there, [*todo, "look", "look", "look"])
    assert not there.catalog.losses
    assert not evidence.pin_moved(there.catalog.head, TopicListing(there.list, there.mark))
    assert there.missing() == set()


def test_what_the_setting_gives_up():
    """With `pinHoldsLastEntry: false` a ledger that came and went while nobody looked is missed. That is why it is not
    the default."""
    there = world(hold=False)
    run(there, ["write", "look", "roll", "look", "look", "write", "roll", "move", "write", "look", "look"])
    assert there.missing()


def test_the_pin_is_acknowledged_up_to_the_entry_before_the_last_one():
    catalog = offloaded(claimed(), NextStart(position(5, 0)), 9)
    assert evidence.pin_target(catalog.head) == position(5, 8)
    assert evidence.pin_target(offloaded(claimed(), NextStart(position(5, 0)), 0).head) == position(5, -1)
    assert evidence.pin_target(catalog.apply(LedgerClosed(0, 5, 9, followed_by=7)).head) == position(5, 8)
    assert evidence.pin_target(catalog.apply(LedgerClosed(0, 5, 9)).head) == position(5, 9)


def test_a_ledger_that_was_listed_next_is_no_loss_though_the_pin_was_moved_past_the_one_before():
    catalog = offloaded(claimed(), NextStart(position(5, 0)), 9).apply(LedgerClosed(0, 5, 9, followed_by=7)).head
    left = LedgerList((LedgerSpan(7, None),))
    assert evidence.pin_moved(catalog, TopicListing(left, position(7, -1)))
    assert not evidence.doubtful(catalog, TopicListing(left, position(7, -1)))
    assert evidence.lost(OPEN, catalog, left, None) is None
    assert catalog.next_start(left) == NextStart(position(7, 0), 9, 5)
    beyond = LedgerList((LedgerSpan(8, None),))
    assert evidence.lost(OPEN, catalog, beyond, None) == Lost(position(5, 10), position(8, -1))
