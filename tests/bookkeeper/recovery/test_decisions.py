"""When an entry is kept, when it is left out, and when nobody may say."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.bookkeeper.model import Fragment, LedgerMetadata, LedgerState
from offloader.bookkeeper.recovery.decisions import (
    EntryVerdict,
    MissingBookies,
    covers,
    fence_covers,
    judge,
    judge_write_back,
    missing,
    write_sets,
)
from offloader.bookkeeper.recovery.forward import Candidate
from offloader.bookkeeper.recovery.messages import Answered, Held, ReadEntry
from tests.bookkeeper.recovery.support import NO, UNKNOWN, YES

NAMES = "abcdefg"


@st.composite
def shapes(draw) -> LedgerMetadata:
    ensemble = draw(st.integers(1, 6))
    write_quorum = draw(st.integers(1, ensemble))
    ack_quorum = draw(st.integers(1, write_quorum))
    return LedgerMetadata(ensemble, write_quorum, ack_quorum, LedgerState.OPEN, (Fragment(0, tuple(NAMES[:ensemble])),))


@given(shapes(), st.data())
def test_the_fence_covers_when_every_ack_quorum_of_every_write_quorum_has_a_fenced_bookie(shape, data):
    ensemble = shape.fragments[-1].ensemble
    fenced = data.draw(st.sets(st.sampled_from(ensemble)))
    quorums = [
        set(q) for entry in range(len(ensemble)) for q in combinations(set(shape.write_set(entry)), shape.ack_quorum)
    ]
    assert fence_covers(shape, fenced) == all(q & fenced for q in quorums)


@given(shapes(), st.data())
def test_as_many_as_the_whole_ensemble_needs_are_always_enough(shape, data):
    """(E - AQ) + 1, whichever they are; where the ensemble is the write quorum, exactly so many are needed."""
    ensemble = shape.fragments[-1].ensemble
    fenced = data.draw(st.sets(st.sampled_from(ensemble)))
    enough = len(fenced) >= shape.ensemble_size - shape.ack_quorum + 1
    assert fence_covers(shape, fenced) or not enough
    if shape.ensemble_size == shape.write_quorum:
        assert fence_covers(shape, fenced) == enough


def test_the_number_alone_does_not_tell():
    shape = LedgerMetadata(4, 2, 2, LedgerState.OPEN, (Fragment(0, tuple("abcd")),))
    assert fence_covers(shape, {"a", "c"})
    assert not fence_covers(shape, {"a", "b"})
    assert len(list(write_sets(shape))) == 4


@given(shapes(), st.data())
def test_an_entry_is_left_out_when_so_many_deny_it_that_the_others_are_no_ack_quorum(shape, data):
    write_set = shape.write_set(data.draw(st.integers(0, 10)))
    negative = data.draw(st.sets(st.sampled_from(write_set)))
    unknown = set(data.draw(st.sets(st.sampled_from(write_set)))) - negative
    verdict = judge(write_set, shape.ack_quorum, positive=(), negative=negative, unknown=unknown)
    enough = len(negative) >= shape.write_quorum - shape.ack_quorum + 1
    assert (verdict is EntryVerdict.UNRECOVERABLE) == enough
    assert enough or verdict is (EntryVerdict.ABORT if negative | unknown == set(write_set) else EntryVerdict.UNDECIDED)
    assert (
        judge(write_set, shape.ack_quorum, positive=write_set[:1], negative=negative, unknown=unknown)
        is EntryVerdict.RECOVERABLE
    )


@pytest.mark.parametrize("shape", [(3, 3, 3), (3, 3, 2), (3, 3, 1), (5, 4, 2)])
def test_unknown_never_leaves_an_entry_out(shape):
    write_set = tuple(NAMES[: shape[1]])
    assert judge(write_set, shape[2], positive=(), negative=(), unknown=write_set) is EntryVerdict.ABORT


def test_a_bookie_that_stands_twice_in_a_write_set_can_acknowledge_twice():
    """The ensemble is smaller than the write quorum: one bookie that is not heard of may be an ack quorum by itself."""
    assert not covers(("a", "b", "a"), 2, {"b"})
    assert covers(("a", "b", "a"), 2, {"a"})


def test_a_write_back_is_safe_only_on_different_bookies():
    assert judge_write_back(("a", "b", "a"), 2, accepted={"a"}, refused=set()) is EntryVerdict.UNDECIDED
    assert judge_write_back(("a", "b", "a"), 2, accepted={"a", "b"}, refused=set()) is EntryVerdict.RECOVERABLE
    assert judge_write_back(("a", "b", "c"), 2, accepted={"a"}, refused={"b", "c"}) is EntryVerdict.ABORT
    assert judge_write_back(("a",), 2, accepted={"a"}, refused=set()) is EntryVerdict.ABORT


@given(
    st.permutations([("a", 0), ("b", 1), ("c", 2)]),
    st.lists(st.sampled_from([YES, NO, UNKNOWN]), min_size=3, max_size=3),
)
def test_the_order_of_answers_does_not_matter(order, answers):
    """Up to the verdict: after a positive one, or enough negative ones, the others are not waited for."""
    candidate = Candidate(4, tuple("abc"), 2)
    verdicts = []
    for name, number in order:
        held = Held(4, 3, 10, b"x") if answers[number] is YES else None
        candidate = candidate.after(Answered(ReadEntry(name, 4, fence=True), answers[number], held))
        verdicts.append(candidate.verdict)
    decided = [verdict for verdict in verdicts if verdict is not EntryVerdict.UNDECIDED]
    possible = {EntryVerdict.RECOVERABLE} if YES in answers else set()
    possible |= {EntryVerdict.UNRECOVERABLE} if answers.count(NO) >= 2 else set()
    assert decided[0] in (possible or {EntryVerdict.ABORT})


def test_who_must_come_back_is_said_at_once_however_many_bookies_there_are():
    """Without half of 30, the fence covers nothing: less than that number is excluded, as far as it can be tried."""
    tried = []

    def suffice(back):
        tried.append(back)
        return len(back) >= 15

    found = missing([f"b{number:02}" for number in range(30)], suffice)
    assert 1 < found.need <= 15
    assert len(found.bookies) == 30
    assert len(tried) < 10_000


def test_who_must_come_back():
    assert missing("abc", lambda back: len(back) >= 2) == MissingBookies(2, ("a", "b", "c"))
    assert str(MissingBookies(2, ("a", "b", "c"))) == "at least 2 of a, b and c must come back"
    assert str(MissingBookies(1, ("a",))) == "a must come back"
    assert missing("ab", lambda back: False) == MissingBookies(2, ("a", "b"))
