"""What subscriptions hold back, against a broker that drops ledgers one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offloader.lifecycle.topics.cursors.held import CursorHold, HeldLedger, held_back
from offloader.model import AcknowledgedRange, joined
from offloader.state.subscription import CursorState


@st.composite
def topics(draw):
    ids = sorted(draw(st.sets(st.integers(0, 20), min_size=1, max_size=6)))
    counts = [draw(st.integers(0, 5)) for _ in ids]
    ledgers = [HeldLedger(i, n, 10 * n) for i, n in zip(ids, counts, strict=True)]
    if draw(st.booleans()):
        ledgers[-1] = HeldLedger(ids[-1], None, None)
    places = st.tuples(st.integers(0, 21), st.integers(-1, 5))
    states = {}
    for name in "abc"[: draw(st.integers(1, 3))]:
        pairs = [sorted((draw(places), draw(places))) for _ in range(draw(st.integers(0, 3)))]
        states[name] = CursorState(draw(places), joined(AcknowledgedRange(*pair) for pair in pairs))
    return ledgers, states


def needed(ledger, state):
    """Whether a broker keeps a ledger for a subscription: it has an entry to come, or may still get one."""
    if ledger.entries is None:
        return True
    mark = state.mark_delete
    return any((ledger.ledger, n) > mark for n in range(ledger.entries)) or (
        ledger.entries == 0 and ledger.ledger > mark[0]
    )


def kept_by(ledgers, states):
    """Oldest first, until a ledger that somebody needs; the last one never goes."""
    for number, ledger in enumerate(ledgers[:-1]):
        if any(needed(ledger, state) for state in states.values()):
            return ledgers[number:]
    return ledgers[-1:]


def size(ledgers):
    return sum(ledger.size or 0 for ledger in ledgers)


@given(topics())
def test_held_bytes_are_what_a_broker_would_keep(topic):
    ledgers, states = topic
    found = held_back(ledgers, states)
    for name, state in states.items():
        kept = kept_by(ledgers, {name: state})
        assert found[name].size == size(kept)
        assert found[name].uncounted == any(one.size is None for one in kept)
        others = {one: each for one, each in states.items() if one != name}
        without = size(kept_by(ledgers, others)) if others else size(ledgers[-1:])
        assert found[name].alone == size(kept_by(ledgers, states)) - without


@given(topics())
def test_the_backlog_is_every_entry_that_nobody_acknowledged(topic):
    ledgers, states = topic
    found = held_back(ledgers, states)
    for name, state in states.items():
        left = [
            (ledger.ledger, n)
            for ledger in ledgers
            for n in range(ledger.entries or 0)
            if (ledger.ledger, n) > state.mark_delete
            and not any(after < (ledger.ledger, n) <= last for after, last in state.ranges)
        ]
        assert (found[name].entries, found[name].backlog) == (len(left), 10 * len(left))


def test_what_is_acknowledged_beyond_the_mark_delete_frees_nothing():
    ledgers = [HeldLedger(1, 10, 1000), HeldLedger(2, 10, 2000), HeldLedger(3, None, None)]
    state = CursorState((1, -1), (AcknowledgedRange((1, 0), (2, 9)),))
    assert held_back(ledgers, {"a": state}) == {"a": CursorHold(3000, 3000, 1, 100, uncounted=True)}


def test_a_mark_delete_in_a_ledger_that_is_gone_begins_with_the_next_one():
    ledgers = [HeldLedger(5, 10, 1000), HeldLedger(6, 10, 1000)]
    assert held_back(ledgers, {"a": CursorState((3, 7)), "b": CursorState((5, 9))}) == {
        "a": CursorHold(2000, 1000, 20, 2000, uncounted=False),
        "b": CursorHold(1000, 0, 10, 1000, uncounted=False),
    }


def test_a_topic_without_ledgers_holds_nothing():
    assert held_back([], {"a": CursorState((3, 7))})["a"].size == 0
