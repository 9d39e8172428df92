"""What is asked of a bookie at once is what it holds, whatever the ensembles and quorums."""

from hypothesis import given
from hypothesis import strategies as st

from offloader.bookkeeper.reading.fetch import run_at, striped
from tests.bookkeeper.entries import ledger


@st.composite
def ledgers(draw):
    """Up to 4 fragments, ensembles of up to 6; an ensemble may be smaller than the write quorum (a damaged ledger)."""
    quorum = draw(st.integers(1, 4))
    firsts = [0, *sorted(draw(st.sets(st.integers(1, 40), max_size=3)))]
    bookies = [f"b{n}" for n in range(8)]
    size = draw(st.integers(1, 6))
    fragments = [(first, tuple(draw(st.permutations(bookies))[:size])) for first in firsts]
    return ledger(*fragments, quorums=(quorum, draw(st.integers(1, quorum))), last=60)


@given(ledgers(), st.integers(0, 60), st.integers(0, 20), st.integers(1, 30))
def test_each_of_its_bookies_holds_the_whole_run(metadata, entry, more, most):
    after = entry + more + 1
    run = run_at(metadata, entry, after, most)
    assert run.first == entry < run.after <= after
    assert 1 <= run.span <= most
    assert run.replicas
    assert len(set(run.replicas)) == len(run.replicas)
    for one in range(run.first, run.after):
        assert set(run.replicas) <= set(metadata.write_set(one))


@given(ledgers(), st.integers(0, 60))
def test_a_single_entry_can_be_asked_of_all_its_bookies_in_bookkeepers_order(metadata, entry):
    assert run_at(metadata, entry, 61, 1).replicas == tuple(dict.fromkeys(metadata.write_set(entry)))


@given(ledgers(), st.integers(0, 60), st.integers(1, 100))
def test_a_run_is_as_long_as_it_can_be(metadata, entry, most):
    run = run_at(metadata, entry, 61, most)
    if run.span == most or run.after == 61 or run.after in [f.first_entry for f in metadata.fragments]:
        return
    assert striped(metadata, entry)
    assert run.span == metadata.write_quorum


def test_the_bookies_of_an_ensemble_take_turns():
    metadata = ledger((0, ("a", "b", "c")), quorums=(3, 2))
    assert [run_at(metadata, entry, 100, 10).replicas[0] for entry in (0, 10, 20)] == ["a", "b", "c"]
