"""Protected subscriptions: what a broker forgot is acknowledged again, and never what somebody took back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from offloader.cursors.core.acknowledged import AcknowledgedSet, acknowledged, entries_of
from offloader.cursors.core.protection import (
    ANOTHER,
    ELSEWHERE,
    IN_USE,
    NOT_KEPT,
    OTHER_RECORD,
    TRIES,
    Action,
    Protection,
    at_stake,
    rule,
)
from offloader.model import AcknowledgedRange, EntryRange
from tests.cursors.forgetful_broker import LENGTH, LENGTHS, ForgetfulBroker


class Protector:
    """Looks, and acknowledges what is ruled."""

    def __init__(self, broker: ForgetfulBroker) -> None:
        self.broker = broker
        self.known: Protection | None = None

    def look(self):
        ruling = rule(self.known, self.broker.look())
        self.known = ruling.protection
        whole = {entry for one in ruling.whole for entry in one.ids}
        parts = {one.entry for one in ruling.parts}
        assert whole <= self.broker.truth, "an acknowledgement was invented, or a reset undone"
        assert parts <= self.broker.true_parts | self.broker.truth, "a part was invented, or a reset undone"
        if ruling.action is Action.ACKNOWLEDGE:
            self.broker.again(whole, parts)
        else:
            assert not whole
            assert not parts
        return ruling


def holes(broker: ForgetfulBroker, *entries: int, stores: bool = True) -> None:
    for entry in entries:
        broker.acknowledge(entry, stores=stores)


def protected(*entries: int) -> Protector:
    """With more holes than a record has, seen between two looks at the same record."""
    broker = ForgetfulBroker()
    holes(broker, *(entries or (1, 3, 5, 7, 9)))
    protector = Protector(broker)
    protector.look()
    assert protector.look().action is Action.REMEMBER
    return protector


def test_what_a_crash_makes_a_broker_forget_is_acknowledged_again():
    protector = protected()
    protector.broker.crash()
    assert protector.broker.acknowledged == {1, 3, 5}
    ruling = protector.look()
    assert (ruling.action, ruling.entries) == (Action.ACKNOWLEDGE, 2)
    assert ruling.whole == (EntryRange(1, 7, 8), EntryRange(1, 9, 10))
    assert protector.broker.acknowledged == {1, 3, 5, 7, 9}
    assert protector.look().action is Action.REMEMBER


def test_the_last_minute_s_acknowledgements_are_not_lost_either():
    broker = ForgetfulBroker(kept=100)
    holes(broker, 1, 3)
    holes(broker, 0, 2, 7, stores=False)
    protector = Protector(broker)
    protector.look()
    protector.look()
    broker.crash()
    assert broker.acknowledged == {1, 3}
    assert protector.look().entries == 3
    assert broker.acknowledged == {0, 1, 2, 3, 7}


def test_what_a_clean_unload_makes_a_broker_forget_is_acknowledged_again():
    protector = protected()
    protector.broker.unload()
    assert protector.broker.acknowledged == {1, 3, 5}
    assert protector.look().action is Action.ACKNOWLEDGE
    assert protector.broker.acknowledged == {1, 3, 5, 7, 9}


def test_parts_of_batches_are_acknowledged_again_after_a_clean_unload_at_the_very_first_look():
    broker = ForgetfulBroker()
    broker.acknowledge_part(4, stores=True)
    broker.unload()
    assert not broker.parts
    ruling = Protector(broker).look()
    assert [(one.entry, one.words) for one in ruling.parts] == [(4, (1,))]
    assert broker.parts == {4}


def test_one_look_protects_nothing():
    """A reset's record may stand before the reset takes effect."""
    broker = ForgetfulBroker()
    holes(broker, 1, 3, 5, 7, 9)
    protector = Protector(broker)
    protector.look()
    broker.crash()
    assert protector.look().action is Action.REMEMBER
    assert broker.acknowledged == {1, 3, 5}


def ends(protector: Protector, why: str) -> None:
    """Told at the second look: one may have come between."""
    first, second = protector.look(), protector.look()
    assert (first.action, first.why) == (Action.WAIT, why)
    assert (second.action, second.why) == (Action.END, why)


def test_a_reset_ends_the_protection():
    protector = protected()
    protector.broker.begin_reset(2)
    protector.broker.finish_reset()
    ends(protector, IN_USE)
    assert protector.broker.acknowledged == {0, 1, 2}


def test_a_reset_before_a_crash_ends_the_protection():
    protector = protected()
    protector.broker.begin_reset(0)
    protector.broker.finish_reset()
    protector.broker.crash()
    ends(protector, OTHER_RECORD)


def test_a_reset_to_where_it_stands_is_not_undone():
    """Its record is the same as the one before: only that there is one more tells of it."""
    protector = protected()
    before = protector.broker.records[-1]
    protector.broker.begin_reset(-1)
    protector.broker.finish_reset()
    assert protector.broker.records[-1] == before
    protector.broker.crash()
    ends(protector, OTHER_RECORD)


def test_a_ledger_that_is_closed_behind_a_reset_backwards_is_no_clean_unload():
    """As a writer does that cannot write any more."""
    protector = protected(0, 1, 2, 5, 7, 9, 11)
    protector.broker.begin_reset(0)
    protector.broker.finish_reset()
    protector.broker.crash()
    protector.broker.metadata -= 1
    ends(protector, OTHER_RECORD)


def test_a_reset_before_a_clean_unload_ends_the_protection():
    protector = protected()
    protector.broker.begin_reset(0)
    protector.broker.finish_reset()
    protector.broker.unload()
    ends(protector, OTHER_RECORD)


def test_who_acknowledges_before_the_look_after_a_crash_ends_the_protection():
    protector = protected()
    protector.broker.crash()
    holes(protector.broker, 11)
    ends(protector, IN_USE)


def test_a_state_that_differs_from_the_record_by_one_entry_is_left_alone():
    protector = protected()
    protector.broker.crash()
    protector.broker.entries.discard(5)
    ends(protector, ELSEWHERE)


def test_what_is_acknowledged_after_the_end_is_protected_again():
    protector = protected()
    protector.broker.begin_reset(0)
    protector.broker.finish_reset()
    ends(protector, IN_USE)
    holes(protector.broker, 2, 4, 6, 8)
    protector.look()
    protector.look()
    protector.broker.crash()
    assert protector.look().action is Action.ACKNOWLEDGE
    assert protector.broker.acknowledged == {0, 2, 4, 6, 8}


def test_another_subscription_of_the_same_name_is_another_one():
    protector = protected()
    protector.broker.make_anew()
    ruling = protector.look()
    assert (ruling.action, ruling.why) == (Action.END, ANOTHER)


def test_a_broker_that_keeps_nothing_is_not_asked_for_ever():
    protector = protected()
    protector.broker.crash()
    seen = protector.broker.look()
    rulings = []
    for _ in range(TRIES + 1):
        rulings.append(rule(protector.known, seen))
        protector.known = rulings[-1].protection
    assert [one.action for one in rulings] == [Action.ACKNOWLEDGE] * TRIES + [Action.END]
    assert rulings[-1].why == NOT_KEPT


def test_parts_are_acknowledged_again_once_a_load():
    """Brokers tell nobody whether they have them, and store them only with a whole entry."""
    broker = ForgetfulBroker()
    broker.acknowledge_part(4, stores=True)
    broker.unload()
    protector = Protector(broker)
    assert protector.look().action is Action.ACKNOWLEDGE
    assert [protector.look().action for _ in range(3)] == [Action.REMEMBER] * 3
    broker.crash()
    assert not broker.parts
    assert protector.look().action is Action.ACKNOWLEDGE
    assert broker.parts == {4}


def test_two_protectors_do_no_more_than_one():
    one = protected()
    other = Protector(one.broker)
    other.known = one.known
    one.broker.crash()
    assert one.look().action is Action.ACKNOWLEDGE
    assert other.look().action is Action.REMEMBER
    assert one.broker.acknowledged == {1, 3, 5, 7, 9}


def test_what_is_at_stake_is_what_a_crash_would_take():
    protector = protected()
    seen = protector.broker.look()
    assert at_stake(protector.known, seen.record, seen.lengths)
    few = protected(1, 3)
    seen = few.broker.look()
    assert not at_stake(few.known, seen.record, seen.lengths)


ENTRY = st.integers(0, LENGTH - 1)
STEPS = st.one_of(
    st.tuples(st.just("acknowledge"), ENTRY, st.booleans()),
    st.tuples(st.just("part"), ENTRY, st.booleans()),
    st.tuples(st.just("begin reset"), st.integers(-1, LENGTH - 1)),
    st.tuples(st.just("reset here")),
    *(
        st.tuples(st.just(name))
        for name in (
            "store",
            "switch",
            "change_properties",
            "crash",
            "unload",
            "make_anew",
            "look",
            "look",
            "look",
            "late",
            "twice",
        )
    ),
)


def run(broker: ForgetfulBroker, protectors: list[Protector], step, who: int) -> None:
    match step:
        case "acknowledge", entry, stores:
            broker.acknowledge(entry, stores=stores)
        case "part", entry, stores:
            broker.acknowledge_part(entry, stores=stores)
        case "begin reset", mark:
            broker.begin_reset(mark)
        case ("look",):
            look(broker, protectors[who])
        case ("twice",):
            look(broker, protectors[0])
            look(broker, protectors[1])
        case ("late",):  # what one of them knew is all that it still knows
            protectors[1].known = protectors[0].known
        case (name,):
            alone(broker, name)


def alone(broker: ForgetfulBroker, name: str) -> None:
    quiet = broker.resetting is None
    if name == "reset here":
        broker.begin_reset(broker.mark)
        broker.finish_reset()
    elif name == "store" and quiet and not broker.fresh:
        broker.store()
    elif name == "switch" and quiet:
        broker.switch_ledger()
    elif name in ("crash", "unload", "make_anew", "change_properties"):
        getattr(broker, name)()


def look(broker: ForgetfulBroker, protector: Protector) -> None:
    """A reset that has its record takes effect before the look after the next one."""
    was_on_its_way = broker.resetting is not None
    protector.look()
    if was_on_its_way:
        broker.finish_reset()


@settings(max_examples=600, deadline=None)
@given(st.lists(st.tuples(STEPS, st.integers(0, 1)), max_size=40), st.integers(1, 5), st.integers(0, 4))
def test_nothing_is_invented_and_no_reset_undone_whatever_happens(steps, kept, in_node):
    broker = ForgetfulBroker(kept=kept, in_node=in_node)
    protectors = [Protector(broker), Protector(broker)]
    for step, who in steps:
        run(broker, protectors, step, who)


@settings(max_examples=300, deadline=None)
@given(
    ENTRY,
    st.lists(st.tuples(ENTRY, st.booleans()), max_size=15),
    st.tuples(st.integers(1, 5), st.integers(0, 5)).map(lambda two: (max(two), min(two))),
    st.sampled_from(["crash", "unload"]),
)
def test_whatever_was_acknowledged_at_rest_is_there_after_a_crash_or_an_unload(first, acks, bounds, what):
    broker = ForgetfulBroker(*bounds)
    broker.acknowledge(first, stores=True)
    for entry, stores in acks:
        broker.acknowledge(entry, stores=stores)
    protector = Protector(broker)
    protector.look()
    protector.look()
    before = broker.acknowledged
    run(broker, [protector], (what,), 0)
    protector.look()
    assert broker.acknowledged == before == broker.truth


RUNS = st.lists(st.tuples(st.integers(1, 3), st.integers(-1, 9), st.integers(0, 9)), max_size=8)


@given(RUNS, RUNS, st.integers(1, 3), st.integers(-1, 9))
def test_sets_of_entries_are_what_they_say(some, others, ledger, entry):
    lengths = ((1, 10), (2, 8), (3, None))

    def of(runs, mark):
        ranges = [AcknowledgedRange((one, after), (one, last)) for one, after, last in runs if after < last]
        counted = {(one, n) for (one, after), (_, last) in ranges for n in range(after + 1, last + 1)}
        counted |= {(one, n) for one in (1, 2, 3) for n in range(10) if (one, n) <= mark}
        exact = {(one, n) for one, n in counted if n < (dict(lengths)[one] or 10)}
        return acknowledged(mark, ranges, lengths), exact

    def dictionary(entries):
        return {(one.ledger, n) for one in entries_of(entries) for n in one.ids}

    one, one_exact = of(some, (ledger, entry))
    other, other_exact = of(others, (1, -1))
    assert dictionary(one.without(other, lengths)) == one_exact - other_exact
    assert dictionary(other.without(one, lengths)) == other_exact - one_exact
    assert one.is_same(one, lengths)


def test_a_position_is_the_same_however_it_is_written():
    assert AcknowledgedSet((1, LENGTH - 1)).is_same(AcknowledgedSet((1, 3), {1: (1 << LENGTH) - 16}), LENGTHS)
    assert AcknowledgedSet((2, -1)).is_same(AcknowledgedSet((1, 9)), ((1, 10), (2, None)))
