"""A ledger's entries come complete, in order and sound, as long as one bookie has each; and within the bound of
bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.bookkeeper.model import DigestType
from offloader.bookkeeper.reading import LedgerReader, Slowness
from offloader.errors import (
    AccessDeniedError,
    BookieUnavailableError,
    EntryNotFoundError,
    IntegrityError,
    LedgerNotFoundError,
)
from offloader.model import KIB, MIB, EntryRange
from offloader.ports.entry_source import RawEntry
from tests.bookkeeper.entries import LEDGER, ledger, payload
from tests.bookkeeper.scripted import Behaviour, Damaged, Gone, NoBatches, Says, ScriptedBookies, Short, Silent
from tests.bookkeeper.test_runs import ledgers

BATCHES = 2
SINGLES = 500

NEVER = 10_000.0  # seconds: for tests in which nothing may depend on time


def reader(bookies, metadata, first=0, last=9, *, max_bytes=16 * MIB, speculate_after=NEVER, **more):
    return LedgerReader(
        bookies,
        EntryRange.closed(LEDGER, first, last),
        metadata,
        max_bytes=max_bytes,
        speculate_after=speculate_after,
        **more,
    )


def read_all(one):
    """Everything, and whether it came in order."""
    found: list[RawEntry] = []
    while not one.finished:
        entries = one.read(0)
        assert entries, f"nothing after {len(found)} entries"
        found += entries
    assert one.read(0) == []
    return [tuple(entry) for entry in found]


def expected(first, last, sizes):
    return [(LEDGER, entry, payload(entry, sizes[entry])) for entry in range(first, last + 1)]


behaviours = st.sampled_from(
    [
        Behaviour,
        Behaviour,
        Gone,
        Short,
        Damaged,
        NoBatches,
        *(lambda s=s: Says(s) for s in (402, 403, 501, 502, 505, 599)),
    ]
)


@given(ledgers(), st.data())
def test_everything_is_read_as_long_as_one_bookie_has_it(metadata, data):
    names = sorted({name for f in metadata.fragments for name in f.ensemble})
    made = {name: data.draw(behaviours, label=name)() for name in names}
    sizes = data.draw(st.lists(st.integers(8, 3000), min_size=61, max_size=61))
    holes = data.draw(st.sets(st.tuples(st.sampled_from(names), st.integers(0, 60)), max_size=20))
    first = data.draw(st.integers(0, 60))
    last = data.draw(st.integers(first, 60))
    for entry in range(61):  # one sound copy of each
        keeper = data.draw(st.sampled_from(metadata.write_set(entry)))
        holes.discard((keeper, entry))
        if type(made[keeper]) not in (Behaviour, Short, NoBatches):
            made[keeper] = Short()
    bookies = ScriptedBookies(metadata, sizes, batches=data.draw(st.booleans()), behaviours=made, holes=holes)
    one = reader(bookies, metadata, first, last, max_bytes=data.draw(st.sampled_from([1, 5000, 20_000, MIB])))
    assert read_all(one) == expected(first, last, sizes)


@pytest.mark.parametrize("kind", DigestType)
@pytest.mark.parametrize("batches", [True, False])
def test_all_kinds_of_digests_are_read(kind, batches):
    metadata = ledger((0, ("a", "b")), quorums=(2, 2), last=9, digest=kind, password=b"secret")
    assert read_all(reader(ScriptedBookies(metadata, [50] * 10, batches=batches), metadata)) == expected(
        0, 9, [50] * 10
    )


@pytest.mark.parametrize("batches", [True, False])
def test_a_damaged_copy_is_replaced_by_a_sound_one(batches):
    metadata = ledger((0, ("a", "b")), quorums=(2, 2), last=9)
    bookies = ScriptedBookies(metadata, [50] * 10, batches=batches, behaviours={"a": Damaged()})
    assert read_all(reader(bookies, metadata)) == expected(0, 9, [50] * 10)


@pytest.mark.parametrize("batches", [True, False])
def test_damage_without_a_sound_copy_is_told(batches):
    metadata = ledger((0, ("a", "b")), quorums=(2, 2), last=9)
    bookies = ScriptedBookies(metadata, [50] * 10, batches=batches, behaviours={"a": Damaged(), "b": Damaged()})
    one = reader(bookies, metadata)
    for _ in range(2):
        with pytest.raises(
            IntegrityError, match=r"entry 15:0: no bookie gave it \(a: entry 15:0: its digest does not match"
        ):
            one.read(0)


@pytest.mark.parametrize("batches", [True, False])
def test_what_comes_before_a_missing_entry_is_returned_first(batches):
    metadata = ledger((0, ("a", "b", "c")), quorums=(3, 2), last=9)
    bookies = ScriptedBookies(metadata, [50] * 10, batches=batches, holes=[(b, 6) for b in "abc"])
    one, found = reader(bookies, metadata), []
    while one.position < 6:
        found += one.read(0)
    assert [tuple(entry) for entry in found] == expected(0, 5, [50] * 6)
    with pytest.raises(EntryNotFoundError, match="entry 15:6: its bookies do not have it"):
        one.read(0)


@pytest.mark.parametrize("batches", [True, False])
@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ({"a": Says(402), "b": Says(402), "c": Says(402)}, LedgerNotFoundError),
        ({"a": Says(402), "b": Says(403), "c": Says(402)}, EntryNotFoundError),
        ({"a": Says(402), "b": Says(403), "c": Gone()}, BookieUnavailableError),
        ({"a": Says(403), "b": Gone(), "c": Gone()}, BookieUnavailableError),
        ({"a": Says(502), "b": Says(502), "c": Says(502)}, AccessDeniedError),
    ],
)
def test_what_cannot_be_read_is_judged_by_all_that_was_said(answers, error, batches):
    metadata = ledger((0, ("a", "b", "c")), quorums=(3, 2), last=9)
    with pytest.raises(error, match=r"entry 15:0: .*a: .*b: .*c: "):
        reader(ScriptedBookies(metadata, [50] * 10, batches=batches, behaviours=answers), metadata).read(0)


def test_batches_are_as_large_as_they_may_be_and_two_are_under_way():
    metadata = ledger((0, ("a",)), last=4999, average=100)
    bookies = ScriptedBookies(metadata, [100] * 5000, behaviours={"a": Silent()})
    one = reader(bookies, metadata, 0, 4999)
    assert one.read(0) == []
    assert [(call.first, call.entries) for call in bookies.calls] == [(0, 1000), (1000, 1000)]
    assert len(bookies.calls) == BATCHES
    bookies.release()
    assert len(one.read(0)) == 2000


def test_batches_end_at_a_fragment():
    metadata = ledger((0, ("a",)), (7, ("b",)), last=19)
    bookies = ScriptedBookies(metadata, [100] * 20)
    assert read_all(reader(bookies, metadata, 0, 19)) == expected(0, 19, [100] * 20)
    assert [(call.bookie, call.first, call.entries) for call in bookies.calls] == [("a", 0, 7), ("b", 7, 13)]


def test_a_striped_ledger_is_read_in_runs_of_the_write_quorum():
    metadata = ledger((0, ("a", "b", "c")), quorums=(2, 2), last=5)
    bookies = ScriptedBookies(metadata, [100] * 6)
    assert read_all(reader(bookies, metadata, 0, 5)) == expected(0, 5, [100] * 6)
    calls = [(call.bookie, call.first, call.entries) for call in bookies.calls]
    assert calls == [("b", 0, 2), ("a", 2, 2), ("c", 4, 2)]


def test_without_batches_many_single_entries_are_under_way():
    metadata = ledger((0, ("a",)), last=4999)
    bookies = ScriptedBookies(metadata, [100] * 5000, batches=False, behaviours={"a": Silent()})
    one = reader(bookies, metadata, 0, 4999)
    one.read(0)
    assert len(bookies.calls) == SINGLES


def test_bookies_that_do_not_know_batches_are_read_entry_by_entry():
    metadata = ledger((0, ("a", "b")), quorums=(2, 2), last=2999)
    bookies = ScriptedBookies(metadata, [100] * 3000, behaviours={"a": NoBatches(), "b": NoBatches()})
    assert read_all(reader(bookies, metadata, 0, 2999)) == expected(0, 2999, [100] * 3000)
    assert sum(call.batch for call in bookies.calls) <= 2 * (BATCHES + 1)


def test_an_overloaded_bookie_is_asked_for_less_at_once():
    metadata = ledger((0, ("a",)), last=999)
    bookies = ScriptedBookies(metadata, [100] * 1000, batches=False, behaviours={"a": Silent()})
    one = reader(bookies, metadata, 0, 999)
    one.read(0)
    bookies.release(Says(506, times=SINGLES - 10))
    found = one.read(0)
    while bookies.pending:
        assert len(bookies.pending) < SINGLES // 2
        bookies.release()
        found += one.read(0)
    assert [tuple(entry) for entry in found] == expected(0, 999, [100] * 1000)


def test_a_bookie_that_has_too_many_even_for_one_has_failed():
    metadata = ledger((0, ("a",)), last=9)
    with pytest.raises(BookieUnavailableError, match="status 506"):
        reader(ScriptedBookies(metadata, [100] * 10, behaviours={"a": Says(506)}), metadata).read(0)


# The bound of bytes


@given(
    st.lists(st.sampled_from([10, 100, 3000, 20_000]), min_size=50, max_size=50),
    st.booleans(),
    st.integers(1, 60_000),
    st.booleans(),
)
def test_it_holds_no_more_than_it_may(sizes, batches, max_bytes, closed):
    metadata = ledger((0, ("a",)), last=49 if closed else None, average=10)
    bookies = ScriptedBookies(metadata, sizes, batches=batches, behaviours={"a": Silent()})
    one, found = reader(bookies, metadata, 0, 49, max_bytes=max_bytes), []
    while not one.finished:
        found += one.read(0)
        bookies.release()
        first = sizes[one.position] + 36 if not one.finished else 0
        assert one._budget.held <= max_bytes + (first if first > max_bytes // 3 else 0)
    assert [tuple(entry) for entry in found] == expected(0, 49, sizes)
    assert one._budget.held == one._budget._expected == 0


def test_it_does_not_read_ahead_of_a_slow_caller_without_bound():
    metadata = ledger((0, ("a",)), last=999, average=10 * KIB)
    bookies = ScriptedBookies(metadata, [10 * KIB] * 1000)
    one = reader(bookies, metadata, 0, 999, max_bytes=MIB)
    assert sum(len(entry.data) for entry in one.read(0)) <= MIB
    assert sum(call.entries for call in bookies.calls) * 10 * KIB <= 3 * MIB


# Time


def test_nothing_comes_in_time():
    metadata = ledger((0, ("a",)), last=9)
    one = reader(ScriptedBookies(metadata, [100] * 10, behaviours={"a": Silent()}), metadata)
    assert one.read(0) == one.read(0.01) == []


@pytest.mark.parametrize("batches", [True, False])
def test_a_slow_bookies_entries_are_asked_of_another(batches):
    metadata = ledger((0, ("a", "b")), quorums=(2, 2), last=9)
    bookies = ScriptedBookies(metadata, [100] * 10, batches=batches, behaviours={"a": Silent()})
    one, found = reader(bookies, metadata, speculate_after=0.02), []
    while not one.finished:
        found += one.read(10)
    assert [tuple(entry) for entry in found] == expected(0, 9, [100] * 10)
    assert all(future.cancelled() for _, future in bookies.pending)
    silent = [call for call in bookies.calls if call.bookie == "a"]
    assert len(silent) <= 5  # not asked first again


def test_a_slow_bookie_is_waited_for_where_there_is_no_other():
    metadata = ledger((0, ("a",)), last=9)
    bookies = ScriptedBookies(metadata, [100] * 10, behaviours={"a": Silent()})
    one = reader(bookies, metadata, speculate_after=0.01)
    assert one.read(0.05) == []
    assert len(bookies.calls) == 1
    bookies.release()
    assert len(one.read(0)) == 10


def test_the_first_answer_counts_and_the_second_is_dropped():
    metadata = ledger((0, ("a", "b")), quorums=(2, 2), last=9)
    bookies = ScriptedBookies(metadata, [100] * 10, behaviours={"a": Silent(), "b": Silent()})
    one = reader(bookies, metadata, speculate_after=0.01)
    while {call.bookie for call in bookies.calls} != {"a", "b"}:
        assert one.read(0.05) == []
    bookies.release()
    assert [tuple(entry) for entry in one.read(0)] == expected(0, 9, [100] * 10)
    assert one.finished
    assert one._budget.held == 0


def test_readers_may_share_what_they_know_of_slow_bookies():
    metadata = ledger((0, ("a", "b")), quorums=(2, 2), last=9)
    shared = Slowness()
    bookies = ScriptedBookies(metadata, [100] * 10, behaviours={"a": Gone()})
    for _ in range(2):
        read_all(reader(bookies, metadata, slowness=shared))
    assert [call.bookie for call in bookies.calls] == ["a", "b", "b"]


def test_a_bookie_is_slow_only_for_a_while():
    now = [0.0]
    slowness = Slowness(10, lambda: now[0])
    slowness.note("a")
    assert slowness.quickest(["a", "b"]) == "b"
    now[0] = 5.0
    slowness.note("b")
    assert slowness.quickest(["b", "a"]) == "a"
    now[0] = 11.0
    assert slowness.quickest(["b", "a"]) == "a"
    now[0] = 15.0
    assert slowness.quickest(["b", "a"]) == "b"
    assert slowness.quickest([]) is None


def test_closing_gives_everything_up():
    metadata = ledger((0, ("a",)), last=9)
    bookies = ScriptedBookies(metadata, [100] * 10, behaviours={"a": Silent()})
    one = reader(bookies, metadata)
    one.read(0)
    one.close()
    one.close()
    assert all(future.cancelled() for _, future in bookies.pending)
    bookies.release()


def test_a_mistake_is_not_swallowed():
    class Broken(Behaviour):
        def __call__(self, call, result):
            return None

    metadata = ledger((0, ("a",)), last=9)
    bookies = ScriptedBookies(metadata, [100] * 10, behaviours={"a": Broken()})
    one = reader(bookies, metadata)
    one.read(0)
    bookies.pending[0][1].set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        one.read(0)
