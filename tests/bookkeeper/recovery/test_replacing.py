"""Where too few bookies take back what was found, others take their place, and the ledger is closed with them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offloader.bookkeeper.model import Fragment, LedgerMetadata
from offloader.bookkeeper.recovery.forward import Reading
from offloader.bookkeeper.recovery.machine import Done, RecoveryRules, start, step
from offloader.bookkeeper.recovery.messages import Answered, BookieRequest, ReadEntry, WriteBack, WriteMetadata
from offloader.bookkeeper.recovery.replacing import replaced, spares, with_others
from tests.bookkeeper.recovery.support import YES, World, aborted, closed, held, kinds, ledger, run, unanswered
from tests.bookkeeper.recovery.test_machine import on, worlds


def writable(names: str) -> RecoveryRules:
    return RecoveryRules(writable=tuple(names))


def fragments(*said: tuple[int, str]) -> tuple[Fragment, ...]:
    return tuple(Fragment(first, tuple(names)) for first, names in said)


def test_a_ledger_whose_quorums_are_one_number_is_closed_without_a_bookie_that_is_gone_for_good():
    world = World(ledger(2, 2, (0, "ab")), on(a={0, 1}), silent={"b"})
    state = run(world, writable("ac"))
    assert closed(state) == (1, 3)
    assert world.metadata.fragments == fragments((0, "ac"))
    assert world.entries["c"] == {0, 1}


def test_what_is_safe_already_stays_where_it_is():
    """b takes entry 0, and goes away then."""
    world = World(ledger(2, 2, (0, "ab")), on(a={0, 1, 2}))
    state, requests = start(writable("abc"))
    todo = list(requests)
    while not state.over:
        request = todo.pop(0)
        if isinstance(request, WriteBack) and request.entry > 0:
            world.silent = {"b"}
        state, more = step(state, world.answer(request))
        todo += more
    assert closed(state) == (2, 6)
    assert world.metadata.fragments == fragments((0, "ab"), (1, "ac"))
    assert world.entries["c"] >= {1, 2}


def test_nothing_of_the_change_is_written_before_the_ledger_is_closed():
    world = World(ledger(2, 2, (0, "ab")), on(a={0}), silent={"b"})
    run(world, writable("ac"))
    marked, end = kinds(world.asked, WriteMetadata)
    assert marked.metadata.fragments == fragments((0, "ab"))
    assert (end.metadata.fragments, end.version) == (fragments((0, "ac")), marked.version + 1)


def test_a_new_bookie_is_never_asked_what_it_has():
    """It has nothing, and would deny what the others acknowledged."""
    world = World(ledger(2, 2, (0, "ab")), on(a=set(range(30))), silent={"b"})
    assert closed(run(world, writable("ac")))[0] == 29
    assert {read.bookie for read in kinds(world.asked, ReadEntry)} == {"a", "b"}


def test_a_bookie_without_which_enough_others_have_it_keeps_its_place():
    world = World(ledger(), on(a={0}, b={0}), silent={"c"})
    assert closed(run(world, writable("abd"))) == (0, 1)
    assert world.metadata.fragments == fragments((0, "abc"))
    assert not [write for write in kinds(world.asked, WriteBack) if write.bookie == "d"]


def test_one_after_the_other_is_tried_and_none_twice():
    world = World(ledger(2, 2, (0, "ab")), on(a={0}), silent={"b"}, refuse={"c", "d"})
    assert closed(run(world, writable("cbdae"))) == (0, 1)
    assert world.metadata.fragments == fragments((0, "ae"))
    tried = [write.bookie for write in kinds(world.asked, WriteBack) if write.bookie != "a"]
    assert tried == ["b", "c", "d", "e"]


def test_a_bookie_that_failed_once_may_have_a_place_again():
    """b does not take entry 0, and c not entry 1; nobody else is there."""
    world = World(ledger(2, 2, (0, "ab")), on(a={0, 1, 2}))
    state, requests = start(RecoveryRules(Reading(window=1), writable=tuple("abc")))
    todo = list(requests)
    while not state.over:
        request = todo.pop(0)
        failing = isinstance(request, WriteBack) and (request.bookie, request.entry) in {("b", 0), ("c", 1)}
        state, more = step(state, unanswered(request) if failing else world.answer(request))
        todo += more
    assert closed(state) == (2, 6)
    assert world.metadata.fragments == fragments((0, "ac"), (1, "ab"))
    assert world.entries["b"] == {1, 2}


def test_a_bookie_that_has_a_place_again_is_not_waited_for_where_it_took_the_entry_before():
    """b takes entry 1 but not entry 0 and loses its place to c, which does not take entry 1: then both that are to hold
    that have it."""
    world = World(ledger(2, 2, (0, "ab")), on(a={0, 1}))
    state, requests = start(writable("c"))
    todo = list(requests)
    while not state.over:
        assert todo, "it waits for nothing, and for ever"
        request = todo.pop(0)
        failing = isinstance(request, WriteBack) and (request.bookie, request.entry) in {("b", 0), ("c", 1)}
        state, more = step(state, unanswered(request) if failing else world.answer(request))
        todo += more
    assert closed(state) == (1, 3)
    assert world.metadata.fragments == fragments((0, "ac"), (1, "ab"))
    assert len([write for write in kinds(world.asked, WriteBack) if (write.bookie, write.entry) == ("b", 1)]) == 1


def test_where_nobody_is_left_all_are_named_that_could_have_taken_it():
    world = World(ledger(2, 2, (0, "ab")), on(a={0}), silent={"b"}, refuse={"c"})
    found = aborted(run(world, writable("ac")))
    assert (
        "entry 0 was found, but only 1 of 2 bookies that must hold it took it, and no other bookie is left to"
        in found.reason
    )
    assert (found.missing.need, found.missing.bookies) == (1, ("b", "c"))
    assert world.metadata.fragments == fragments((0, "ab"))


def test_too_few_others_replace_as_many_as_they_are():
    world = World(ledger(3, 3, (0, "abc")), on(a={0}), refuse={"b", "c"})
    assert "only 2 of 3" in aborted(run(world, writable("abcd"))).reason
    world = World(ledger(3, 3, (0, "abc")), on(a={0}), refuse={"b", "c"})
    assert closed(run(world, writable("abcde"))) == (0, 1)
    assert world.metadata.fragments == fragments((0, "ade"))


def test_only_the_write_sets_that_a_bookie_was_in_are_written_again():
    world = World(ledger(2, 2, (0, "abcd")), on(a={0, 3}, b={0, 1}, c={1, 2}, d={2, 3}), refuse={"b"})
    assert closed(run(world, writable("e")))[0] == 3
    assert world.metadata.fragments == fragments((0, "aecd"))
    assert {write.entry for write in kinds(world.asked, WriteBack) if write.bookie == "e"} == {0, 1}


def test_what_a_bookie_took_that_was_replaced_counts_no_more():
    """b takes entry 1 but not entry 0: it loses its place, and entry 1 needs its copy elsewhere, too."""
    world = World(ledger(2, 2, (0, "ab")), on(a={0, 1}))
    state, requests = start(writable("c"))
    todo, late = list(requests), list[BookieRequest]()
    while not state.over:
        request = todo.pop(0) if todo else late.pop(0)
        event = world.answer(request)
        if isinstance(request, WriteBack) and (request.bookie, request.entry) == ("b", 0):
            event = unanswered(request)
        if isinstance(request, WriteBack) and request.bookie == "c" and todo:
            late.append(request)
            continue
        state, more = step(state, event)
        todo += more
    assert closed(state)[0] == 1
    assert world.entries["c"] == {0, 1}


def test_the_last_fragment_is_changed_and_none_before_it():
    world = World(ledger(2, 2, (0, "xy"), (4, "ab")), on(a={4, 5}, x={3}, y={3}), silent={"b"})
    assert closed(run(world, writable("cxy")))[0] == 5
    assert world.metadata.fragments == fragments((0, "xy"), (4, "ac"))


def test_where_nothing_is_written_back_nobody_is_replaced():
    world = World(ledger(2, 2, (0, "ab")), silent={"b"})
    assert closed(run(world, writable("ac"))) == (-1, 0)
    assert world.metadata.fragments == fragments((0, "ab"))


@given(worlds(), st.booleans())
def test_every_entry_that_was_recovered_is_where_the_metadata_say(case, last_first):
    world, rules = case
    before = world.metadata
    state = run(world, rules, last_first=last_first)
    if not isinstance(state.phase, Done):
        return
    after = world.metadata
    assert after.fragments[: len(before.fragments) - 1] == before.fragments[:-1]
    firsts = [fragment.first_entry for fragment in after.fragments]
    assert firsts == sorted(set(firsts))
    assert firsts[-1] <= max(after.last_entry, before.fragments[-1].first_entry)
    assert {len(fragment.ensemble) for fragment in after.fragments} == {before.ensemble_size}
    taken = {change.by for change in replaced(before, after)}
    assert taken <= set(rules.writable)
    for entry in {write.entry for write in kinds(world.asked, WriteBack)}:
        assert entry <= after.last_entry
        assert sum(entry in world.entries[name] for name in after.write_set(entry)) >= after.ack_quorum


# The change by itself


def changed(metadata: LedgerMetadata, first: int, refused: str, usable: str) -> tuple[tuple[Fragment, ...], str, str]:
    after, taken, gone = with_others(metadata, first, refused, usable)
    return after.fragments, "".join(taken), "".join(gone)


def test_others_take_places():
    before = ledger(2, 2, (0, "abc"), (5, "abd"))
    assert changed(before, 5, "bc", "ef") == (fragments((0, "abc"), (5, "aed")), "e", "b")
    assert changed(before, 7, "db", "ef") == (fragments((0, "abc"), (5, "abd"), (7, "aef")), "ef", "bd")
    assert changed(before, 7, "db", "e") == (fragments((0, "abc"), (5, "abd"), (7, "aed")), "e", "b")
    assert changed(before, 7, "db", "")[1:] == ("", "")
    assert changed(ledger(3, 2, (0, "aba")), 0, "a", "ef") == (fragments((0, "ebf")), "ef", "a")
    assert changed(ledger(3, 2, (0, "aba")), 0, "a", "e") == (fragments((0, "eba")), "e", "")
    assert spares(before, tuple("cadef")) == tuple("cef")


def test_who_took_whose_place_is_told():
    before = ledger(2, 2, (0, "ab"), (5, "ac"))
    after = ledger(2, 2, (0, "ab"), (5, "dc"), (8, "de"))
    assert [str(change) for change in replaced(before, after)] == [
        "from entry 5 on d in place of a",
        "from entry 8 on e in place of c",
    ]
    assert not list(replaced(before, before))


def test_late_answers_of_a_bookie_that_was_replaced_change_nothing():
    world = World(ledger(2, 2, (0, "ab")), on(a={0}), silent={"b"})
    state, requests = start(writable("c"))
    todo = list(requests)
    while not any(isinstance(request, WriteBack) and request.bookie == "c" for request in todo):
        state, more = step(state, world.answer(todo.pop(0)))
        todo += more
    state, more = step(state, Answered(WriteBack("b", held(0)), YES))
    assert not state.over
    assert more == ()
