"""Recovery told what bookies answer: where it closes, what it asks for, and when it gives up."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.bookkeeper.model import Fragment, LedgerState
from offloader.bookkeeper.recovery.forward import Forward, Reading
from offloader.bookkeeper.recovery.machine import (
    Aborted,
    Closing,
    Done,
    HowClosed,
    Measuring,
    Recovery,
    RecoveryRules,
    start,
    step,
)
from offloader.bookkeeper.recovery.messages import (
    Answered,
    Distrusted,
    Event,
    MetadataUnsettled,
    ReadEntry,
    ReadLast,
    WriteBack,
    WriteMetadata,
)
from tests.bookkeeper.recovery.support import NO, YES, World, aborted, closed, held, kinds, ledger, run, window


def on(**bookies: set[int]) -> dict[str, set[int]]:
    return {name: set(entries) for name, entries in bookies.items()}


# The metadata


def test_a_closed_ledger_is_left_as_it_is():
    world = World(ledger(state=LedgerState.CLOSED, last_entry=4, length=99))
    assert closed(run(world)) == (4, 99)
    assert len(world.asked) == 1


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
def test_an_ack_quorum_above_the_write_quorum_closes_nothing(state, dry):
    world = World(ledger(2, 3, (0, "abc"), state=state), silent={"a", "b", "c"})
    assert "ack quorum of 3 is larger than the write quorum of 2" in aborted(run(world, window(8, dry=dry))).reason
    assert len(world.asked) == 1
    assert world.metadata.state is state


def test_an_open_ledger_is_marked_before_anything_is_fenced():
    world = World(ledger(), on(a={0}, b={0}, c={0}))
    run(world)
    marked = kinds(world.asked, WriteMetadata)[0]
    assert (marked.metadata.state, marked.version) == (LedgerState.IN_RECOVERY, 7)
    assert world.asked.index(marked) < world.asked.index(kinds(world.asked, ReadLast)[0])


def test_a_recovery_that_somebody_began_goes_on():
    world = World(ledger(state=LedgerState.IN_RECOVERY), on(a={0}, b={0}, c={0}))
    state = run(world)
    assert closed(state) == (0, 1)
    assert [write.metadata.state for write in kinds(world.asked, WriteMetadata)] == [LedgerState.CLOSED]


def test_what_is_closed_meanwhile_is_adopted():
    def other(world: World) -> None:
        world.metadata = replace(world.metadata, state=LedgerState.CLOSED, last_entry=0, length=1)
        world.version += 1

    world = World(ledger(state=LedgerState.IN_RECOVERY), on(a={0, 1}, b={0, 1}, c={0, 1}), between=[other])
    state = run(world)
    assert closed(state) == (0, 1)
    assert state.phase.ending is HowClosed.ADOPTED


def test_a_changed_ensemble_is_asked_from_the_beginning():
    def changed(world: World) -> None:
        world.metadata = replace(world.metadata, fragments=(*world.metadata.fragments, Fragment(1, tuple("abd"))))
        world.version += 1

    world = World(ledger(), on(a={0, 1}, b={0, 1}, c={0}), between=[changed])
    assert closed(run(world)) == (1, 3)
    assert world.fenced >= {"a", "b", "d"}
    assert world.metadata.fragments[-1].ensemble == tuple("abd")


@pytest.mark.parametrize("lost", [1, 2])
def test_a_write_of_unknown_outcome_is_read_back(lost):
    world = World(ledger(), on(a={0}, b={0}, c={0}), unsettled=lost)
    assert closed(run(world)) == (0, 1)
    assert len(kinds(world.asked, WriteMetadata)) == 2


def test_metadata_that_never_comes_to_rest_ends_the_attempt():
    def touched(world: World) -> None:
        world.version += 1

    world = World(ledger(), on(a={0}), between=[touched] * 100)
    assert "changed 3 times" in aborted(run(world, RecoveryRules(rounds=3))).reason


# Fencing


def test_the_writer_is_kept_out_before_the_first_entry_is_read():
    world = World(ledger(3, 2, (0, "abcde")), {name: {0} for name in "abcde"})
    run(world, last_first=True)
    first_read = world.asked.index(kinds(world.asked, ReadEntry)[0])
    fenced = [request.bookie for request in world.asked[:first_read] if isinstance(request, ReadLast)]
    assert len(fenced) >= 4
    assert all(request.fence for request in kinds(world.asked, ReadLast))


def test_a_bookie_without_the_ledger_is_fenced_as_well_as_others():
    assert closed(run(World(ledger()))) == (-1, 0)


def test_too_few_fences_end_the_attempt_and_name_who_must_come_back():
    world = World(ledger(), on(a={0}, b={0}, c={0}), silent={"b", "c"})
    found = aborted(run(world))
    assert (found.missing.need, found.missing.bookies) == (1, ("b", "c"))
    assert world.metadata.state is LedgerState.IN_RECOVERY


def test_striping_needs_the_right_bookies_not_only_enough_of_them():
    world = World(ledger(2, 2, (0, "abcd")), silent={"c", "d"})
    found = aborted(run(world))
    assert (found.missing.need, found.missing.bookies) == (1, ("c", "d"))
    assert closed(run(World(ledger(2, 2, (0, "abcd")), silent={"b", "d"}))) == (-1, 0)


def test_a_ledger_whose_write_quorum_is_larger_than_its_ensemble_is_not_closed_on_half_of_it():
    world = World(ledger(3, 2, (0, "ab")), on(b={0}), silent={"a"})
    assert aborted(run(world)).missing.bookies == ("a",)


# Entries: those up to the answers of the article's figures

# What each of a, b, c has, who is silent, and the last entry
SCRIPTS = [
    ("nobody has anything", {}, "", -1),
    ("one has it: that is enough", {"b": {0}}, "", 0),
    ("two deny it", {}, "c", -1),
    ("one has it, the others are silent", {"a": {0}}, "c", 0),
    ("all have two entries", {"a": {0, 1}, "b": {0, 1}, "c": {0, 1}}, "", 1),
    ("one has the second one", {"a": {0, 1}, "b": {0}, "c": {0}}, "", 1),
    ("a hole: what lies behind it does not belong to it", {"a": {0, 2}, "b": {0, 2}, "c": {2}}, "", 0),
]


@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize(
    ("entries", "silent", "end"), [script[1:] for script in SCRIPTS], ids=[script[0] for script in SCRIPTS]
)
def test_scripts_of_answers(entries, silent, end, size):
    world = World(ledger(), {name: set(found) for name, found in entries.items()}, silent=set(silent))
    state = run(world, window(size))
    assert closed(state) == (end, sum(range(end + 2)))
    for entry in range(end + 1):
        assert sum(entry in found for found in world.entries.values()) >= 2


def test_enough_denials_end_it_although_somebody_who_has_it_has_not_answered_yet():
    """So does BookKeeper: an entry on one bookie was not acknowledged. Either end is right."""
    entries = on(c={0})
    assert closed(run(World(ledger(), entries))) == (-1, 0)
    assert closed(run(World(ledger(), entries), last_first=True)) == (0, 1)


def test_an_entry_that_can_be_neither_found_nor_ruled_out_ends_the_attempt():
    world = World(ledger(2, 1, (0, "ab")), on(a={0}, b={0}))
    world.damaged = {("a", 1)}
    found = aborted(run(world))
    assert found.missing.bookies == ("a",)
    assert "entry 1 " in found.reason
    assert world.metadata.state is LedgerState.IN_RECOVERY


def test_an_entry_whose_digest_is_wrong_is_not_denied():
    world = World(ledger(2, 2, (0, "ab")), on(a={0}, b={0}), damaged={("a", 0), ("b", 0)})
    assert aborted(run(world)).missing.need == 1


def test_recovery_reads_fence():
    world = World(ledger(), on(a={0}))
    run(world)
    assert all(read.fence for read in kinds(world.asked, ReadEntry))


def test_everything_found_is_written_to_its_whole_write_set():
    world = World(ledger(2, 1, (0, "abc")), on(a={0}, b={1}, c={2}))
    assert closed(run(world))[0] == 2
    written = {(write.bookie, write.entry, write.held.stored) for write in kinds(world.asked, WriteBack)}
    assert written == {(b, e, b"stored %d" % e) for e, names in enumerate(("ab", "bc", "ca")) for b in names}


def test_too_few_copies_end_the_attempt():
    world = World(ledger(), on(a={0}, b={0}, c={0}), refuse={"a", "c"})
    found = aborted(run(world))
    assert (found.missing.need, found.missing.bookies) == (1, ("a", "c"))
    assert "1 of 2" in found.reason
    assert world.metadata.state is LedgerState.IN_RECOVERY
    assert world.metadata.fragments == ledger().fragments


def test_nothing_is_written_back_before_all_entries_before_it_are_found():
    world = World(ledger(1, 1, (0, "ab")), on(a={0, 2}, b={1, 3}), lacs={})
    state, requests = start(window(4))
    todo, order = list(requests), []
    while todo and not state.over:
        request = next(
            (r for r in todo if not (isinstance(r, ReadEntry) and r.entry == 1)), todo[0]
        )  # entry 1 is answered last
        todo.remove(request)
        order.append(request)
        state, more = step(state, world.answer(request))
        todo += more
    assert closed(state)[0] == 3
    late = next(number for number, r in enumerate(order) if isinstance(r, ReadEntry) and r.entry == 1)
    assert {write.entry for write in kinds(order[:late], WriteBack)} == {0}


# Where it begins


def test_what_is_known_to_be_confirmed_is_not_read_again():
    world = World(ledger(), on(a={0, 1, 2}, b={0, 1, 2}, c={0, 1, 2}), lacs={"b": 1})
    assert closed(run(world)) == (2, 6)
    assert min(read.entry for read in kinds(world.asked, ReadEntry)) == 2


def test_fragments_before_the_last_one_are_complete():
    """Its bookies know no LAC yet: the ensemble changed after entry 4, and nothing was written since."""
    world = World(ledger(3, 2, (0, "abc"), (5, "abd")), on(a={3, 4}, b={3, 4}, c={3, 4}), lacs={"a": 2})
    assert closed(run(world)) == (4, 15)
    assert not [read for read in kinds(world.asked, ReadEntry) if read.fence and read.entry < 5]
    assert world.metadata.fragments == ledger(3, 2, (0, "abc"), (5, "abd")).fragments


def test_the_length_is_that_of_the_last_entry_even_where_none_is_recovered():
    world = World(ledger(), on(a={0, 1, 3}, b={0, 1}, c={0, 1}), lacs={"a": 1})
    assert closed(run(world)) == (1, 3)
    assert {(r.entry, r.fence) for r in kinds(world.asked, ReadEntry)} >= {(1, False), (2, True)}


def test_an_acknowledged_entry_that_is_denied_ends_the_attempt():
    """Entry 3 says that entry 2 was acknowledged, and so were all before it. Its bookie tells of it only after the
    fence has covered."""
    world = World(ledger(), on(a={0, 3}, b={0, 3}, c={0, 3}), lacs={"c": 2})
    found = aborted(run(world))
    assert "entry 1 was acknowledged" in found.reason
    assert world.metadata.state is LedgerState.IN_RECOVERY


def test_an_entry_read_ahead_can_tell_that_one_before_it_was_acknowledged():
    world = World(ledger(), on(a={1}, b={1}, c={1}))
    state, requests = start(window(2))
    todo = list(requests)
    while todo and not state.over:
        ahead = [r for r in todo if isinstance(r, ReadEntry) and r.entry == 1]
        request = (ahead or todo)[0]
        todo.remove(request)
        event = world.answer(request)
        if ahead:
            event = replace(event, held=held(1, last_confirmed=0))
        state, more = step(state, event)
        todo += more
    assert "entry 0 was acknowledged" in aborted(state).reason


# What is said late


def without_c(world: World, rules: RecoveryRules, reached: Callable[[Recovery], bool]) -> Recovery:
    """Up to where c, and who is to write something back, have not said anything yet."""
    state, requests = start(rules)
    todo = list(requests)
    while not reached(state):
        request = next(r for r in todo if getattr(r, "bookie", "") != "c" and not isinstance(r, WriteBack))
        todo.remove(request)
        state, more = step(state, world.answer(request))
        todo += more
    return state


def said_late(bookie: str, confirmed: int) -> Answered:
    return Answered(ReadLast(bookie, True), YES, held(confirmed + 1, confirmed))


def test_a_late_answer_that_the_entry_left_out_was_acknowledged_ends_it_while_entries_are_written_back():
    world = World(ledger(), on(a={0}, b={0}))
    state = without_c(
        world, RecoveryRules(), lambda state: isinstance(state.phase, Forward) and state.phase.sealed is not None
    )
    assert not step(state, said_late("c", 0))[0].over
    found = aborted(step(state, said_late("c", 1))[0])
    assert "entry 1 was acknowledged" in found.reason
    assert (found.missing.need, found.missing.bookies) == (1, ("c",))


@pytest.mark.parametrize(("kind", "dry"), [(Measuring, False), (Closing, False), (Done, True)])
def test_a_late_answer_that_the_entry_left_out_was_acknowledged_ends_it_up_to_the_last_moment(kind, dry):
    world = World(ledger(), on(a={0}, b={0}), lacs={"a": 0})
    state = without_c(world, window(8, dry=dry), lambda state: isinstance(state.phase, kind))
    assert isinstance(step(state, said_late("c", 0))[0].phase, kind)
    after, requests = step(state, said_late("c", 1))
    assert "entry 1 was acknowledged" in aborted(after).reason
    assert requests == ()


# Acknowledged entries that are denied


@pytest.mark.parametrize("confirmed", [0, 3])
def test_an_acknowledged_entry_waits_for_the_bookie_that_has_it_whoever_denies_it(confirmed):
    """0: entry 1 is read ahead, and its LAC tells of entry 0; 3: the last entry's length is asked for."""
    world = World(ledger(), on(a=set(), b=set(), c={0, 1, 2, 3}))
    event_of = world.answer
    if not confirmed:
        world = World(ledger(), on(a={1}, b=set(), c={0}))
        event_of = lambda request: telling(world.answer(request))  # noqa: E731
    state, requests = start(RecoveryRules(confirmed=confirmed or -1))
    todo = list(requests)
    while not state.over:
        last = sorted(
            todo, key=lambda r: (isinstance(r, ReadEntry) and r.entry <= confirmed, getattr(r, "bookie", "") == "c")
        )
        todo.remove(last[0])
        state, more = step(state, event_of(last[0]))
        todo += more
    assert closed(state)[0] == max(confirmed, 1)


def telling(event: Event) -> Event:
    """Entry 1 says that entry 0 was acknowledged."""
    if isinstance(event, Answered) and isinstance(event.request, ReadEntry) and event.request.entry == 1 and event.held:
        return replace(event, held=held(1, last_confirmed=0))
    return event


def test_an_acknowledged_entry_that_nobody_gives_names_those_that_did_not_say():
    world = World(ledger(), on(c={0, 1, 2, 3}), damaged={("c", 3)})
    found = aborted(run(world, RecoveryRules(confirmed=3)))
    assert "entry 3 was acknowledged, but a, b answered" in found.reason
    assert (found.missing.need, found.missing.bookies) == (1, ("c",))
    world = World(ledger(), on(a={3}, b={3}, c={3}), damaged={("a", 3), ("b", 3), ("c", 3)})
    found = aborted(run(world, RecoveryRules(confirmed=3)))
    assert (found.reason, found.missing.need) == ("entry 3 was acknowledged but cannot be read", 1)
    assert aborted(run(World(ledger()), RecoveryRules(confirmed=3))).missing.bookies == ()


def test_what_is_known_from_elsewhere_is_not_cut_off():
    world = World(ledger(), on(a={0}))
    found = aborted(run(world, RecoveryRules(confirmed=3)))
    assert "entry 3 was acknowledged" in found.reason


def test_an_empty_ledger_is_closed_as_empty():
    assert closed(run(World(ledger()))) == (-1, 0)


# Bookies that are not believed


def test_a_bookie_that_is_not_believed_cannot_deny():
    world = World(ledger(), silent={"c"})
    assert closed(run(world)) == (-1, 0)
    world = World(ledger(), silent={"c"})
    assert aborted(run(world, RecoveryRules(distrusted=frozenset("a")))).missing.bookies == ("a", "c")


def test_what_a_bookie_that_is_not_believed_has_counts():
    world = World(ledger(2, 2, (0, "ab")), on(a={0}))
    assert closed(run(world, RecoveryRules(distrusted=frozenset("a")))) == (0, 1)


def test_a_bookie_that_lost_its_disk_meanwhile_makes_it_begin_anew():
    world = World(ledger(2, 1, (0, "ab")))
    state, requests = start(RecoveryRules())
    todo = list(requests)
    while not isinstance(todo[0], WriteMetadata) or not todo[0].metadata.closed:
        state, more = step(state, world.answer(todo.pop(0)))
        todo += more
    state, more = step(state, Distrusted(frozenset("b")))
    todo = list(more)
    while todo and not state.over:
        state, more = step(state, world.answer(todo.pop(0)))
        todo += more
    assert aborted(state).missing.bookies == ("b",)


# A dry run


def test_a_dry_run_comes_to_the_same_and_touches_nothing():
    before = ledger()
    world = World(before, on(a={0, 1}, b={0}, c={0}), lacs={"a": 0})
    state = run(world, window(8, dry=True))
    assert closed(state) == (1, 3)
    assert state.phase.ending is HowClosed.WOULD_CLOSE
    assert not world.fenced
    assert not kinds(world.asked, WriteMetadata)
    assert all(write.dry for write in kinds(world.asked, WriteBack))
    assert world.metadata is before
    assert world.entries == on(a={0, 1}, b={0}, c={0})


@pytest.mark.parametrize("silent", ["b", "bc", "abc"])
def test_a_dry_run_promises_nothing_that_bookies_would_not_take(silent):
    """Entry 1 is found, but with all three to hold it, it could not be written back."""
    world = World(ledger(3, 3), on(a={0, 1}, b={0}, c={0}), silent=set(silent))
    found = aborted(run(world, window(8, dry=True)))
    assert found.missing.bookies == tuple(silent)
    world = World(ledger(3, 3), on(a={0, 1}, b={0}, c={0}), refuse=set(silent))
    found = aborted(run(world, window(8, dry=True)))
    assert f"only {3 - len(silent)} of 3 bookies that must hold it would take it" in found.reason
    assert found.missing.bookies == tuple(silent)


@st.composite
def worlds(draw) -> tuple[World, RecoveryRules]:
    """Whatever bookies have and do, with others that can take their place, or cannot."""
    write_quorum, ack_quorum = draw(st.sampled_from([(3, 2), (2, 2), (2, 1), (3, 3)]))
    ensemble = "abcd"[: draw(st.integers(write_quorum, 4))]
    earlier = draw(st.sampled_from([(), ((0, "abcd"[::-1][: len(ensemble)]),)]))
    metadata = ledger(write_quorum, ack_quorum, *earlier, (2 * len(earlier), ensemble))
    everybody = "abcdefg"
    entries = {name: draw(st.sets(st.integers(0, 5))) for name in everybody}
    few = st.sets(st.sampled_from(everybody), max_size=3)
    damaged = draw(st.sets(st.tuples(st.sampled_from(everybody), st.integers(0, 5)), max_size=2))
    lacs = {name: draw(st.integers(-1, max(entries[name]) - 1)) for name in everybody if entries[name]}
    world = World(metadata, entries, lacs, draw(few), damaged, draw(few))
    writable = tuple(draw(st.permutations(everybody)))[: draw(st.integers(0, 7))]
    return world, RecoveryRules(Reading(draw(st.integers(1, 4))), draw(few), writable=writable)


@given(worlds(), st.booleans())
def test_a_dry_run_says_what_closing_comes_to_on_the_same_answers(case, last_first):
    """The same end with the same ensembles, or the same reason for none and the same bookies that must come back."""
    world, rules = case
    dry = run(deepcopy(world), replace(rules, reading=rules.reading._replace(dry=True)), last_first=last_first).phase
    real = run(world, rules, last_first=last_first).phase
    if isinstance(dry, Done) and isinstance(real, Done):
        assert dry.metadata == real.metadata == world.metadata
        assert (dry.ending, real.ending) == (HowClosed.WOULD_CLOSE, HowClosed.CLOSED)
    else:
        assert isinstance(dry, Aborted)
        assert isinstance(real, Aborted)
        assert (dry.reason.replace("would take", "took"), dry.missing) == (real.reason, real.missing)


# Whatever comes


def test_what_comes_too_late_changes_nothing():
    world = World(ledger(), on(a={0}, b={0}, c={0}))
    state = run(world)
    for request in world.asked:
        if isinstance(request, ReadLast | ReadEntry | WriteBack):
            assert step(state, Answered(request, NO)) == (state, ())
    assert step(state, MetadataUnsettled()) == (state, ())


@given(st.data())
def test_whatever_bookies_answer_nothing_is_lost_that_an_ack_quorum_holds(data):
    write_quorum, ack_quorum = data.draw(st.sampled_from([(3, 2), (3, 3), (2, 2), (3, 1), (2, 1)]))
    ensemble = "abcd"[: data.draw(st.integers(write_quorum, 4))]
    metadata = ledger(write_quorum, ack_quorum, (0, ensemble))
    last = data.draw(st.integers(-1, 4))
    entries: dict[str, set[int]] = {name: set() for name in ensemble}
    for entry in range(last + 1):
        for name in data.draw(st.permutations(sorted(set(metadata.write_set(entry)))))[:ack_quorum]:
            entries[name].add(entry)
    for name in ensemble:  # and what was never acknowledged
        entries[name] |= {
            e for e in data.draw(st.sets(st.integers(last + 1, last + 3))) if name in metadata.write_set(e)
        }
    silent = data.draw(st.sets(st.sampled_from(ensemble), max_size=2))
    state = run(
        World(metadata, entries, silent=silent),
        window(data.draw(st.integers(1, 4))),
        last_first=data.draw(st.booleans()),
    )
    assert isinstance(state.phase, Aborted) or closed(state)[0] >= last
