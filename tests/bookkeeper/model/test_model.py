"""The protocol, as the product's own state machine decides it, in every order of events."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from integration.soak import SOAK
from offloader.bookkeeper.model import LedgerState
from offloader.bookkeeper.recovery import forward, replacing
from offloader.bookkeeper.recovery.decisions import EntryVerdict
from offloader.bookkeeper.recovery.forward import Candidate
from offloader.bookkeeper.recovery.machine import Fencing
from tests.bookkeeper.model.explorer import Explored, explore, walk
from tests.bookkeeper.model.ledger import LedgerModel
from tests.bookkeeper.model.world import ENTRIES, Ledger, Metadata, State, World
from tests.examples import few, few_rows

SHAPES = [
    World(2, 2, 2),
    World(2, 2, 1),
    World(3, 2, 2, crashes=0, unknown=0),
    World(3, 3, 3, crashes=0, unknown=0),
    World(4, 3, 3, crashes=0, unknown=0),
]
CHANGING = [
    World(2, 2, 2, spares=1, changes=1, crashes=0),
    World(2, 2, 2, spares=1, changes=1, clients=1),
    World(2, 2, 2, spares=1, changes=1, clients=1, crashes=0, window=2),
    World(2, 2, 1, spares=1, changes=1, clients=1),
    World(3, 3, 3, spares=1, clients=1),
    World(3, 3, 2, spares=1, clients=1, unknown=2, crashes=0),
]
REDUCED = [
    World(2, 2, 2),
    World(2, 2, 2, clients=1, crashes=0, spares=1, changes=1),
]
if SOAK:
    SHAPES += [
        World(3, 3, 3),
        World(3, 2, 2),
        World(3, 3, 1),
        World(3, 3, 2, window=2),
        World(3, 3, 2, clients=1, window=3),
        World(3, 3, 2, unknown=2, crashes=0),
        World(3, 3, 2, clients=3, unknown=0, crashes=0),
        World(4, 3, 2),
        World(4, 3, 3),
    ]
    REDUCED += [
        World(2, 2, 2, clients=1, window=2),
        World(2, 2, 1),
        World(clients=1),
        World(2, 2, 2, clients=1, spares=1, changes=1),
    ]
    CHANGING += [
        World(2, 2, 2, spares=1, changes=1),
        World(2, 2, 2, spares=1, changes=2, clients=1),
        World(2, 2, 2, spares=1, changes=1, clients=1, unknown=2),
        World(3, 3, 3, spares=1, changes=1, clients=1),
        World(3, 3, 2, spares=1, changes=1, clients=1),
        World(3, 3, 2, spares=1, clients=2, unknown=0),
    ]
WALKS = 20_000 if SOAK else 400


def named(world: World) -> str:
    """What is not as usual."""
    usual = vars(World())
    return ",".join(f"{name}={value}" for name, value in vars(world).items() if value != usual[name])


@pytest.fixture(autouse=True, scope="module")
def no_garbage() -> Iterator[None]:
    """Nothing but states is made, and all of them are kept: looking for garbage among them takes a fifth of the
    time."""
    gc.disable()
    yield
    gc.enable()


class Watched(LedgerModel):
    """Keeps what was seen of the ends that a ledger can come to: state, last entry, last acknowledged entry."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.seen: set[int] = set()

    def violation(self, state: State) -> str | None:
        self.seen.add(state[0])
        return super().violation(state)

    @property
    def ends(self) -> set[tuple[LedgerState, int, int]]:
        ledgers = [self.ledgers[number] for number in self.seen]
        return {
            (LedgerState(it.metadata.state), it.metadata.last, self._acknowledged(it.bookies, it.ensembles))
            for it in ledgers
        }


def holds(world: World) -> tuple[Watched, Explored]:
    model = Watched(world)
    found = explore(model)
    assert found.violation is None, str(found)
    return model, found


def breaks(world: World) -> Explored:
    found = explore(LedgerModel(world))
    assert found.violation is not None, str(found)
    return found


@pytest.mark.large
def test_nothing_acknowledged_is_lost_and_whoever_closes_second_adopts_the_first_end():
    model, found = holds(World())
    assert found.states > 300_000
    closed = {(last, acknowledged) for how, last, acknowledged in model.ends if how is LedgerState.CLOSED}
    assert closed == {
        (last, acknowledged) for last in (-1, 0, 1) for acknowledged in (-1, 0, 1) if acknowledged <= last
    }
    assert model.clients.gave_up


@pytest.mark.parametrize("world", few(SHAPES, 3), ids=named)
def test_other_shapes(world):
    holds(world)


@pytest.mark.parametrize("world", few(CHANGING, 1), ids=named)
def test_ensembles_that_change_lose_nothing(world):
    """The writer's, the recoveries', and either while the other one is at it."""
    model, _ = holds(world)
    seen = [model.ledgers[number].metadata for number in model.seen]
    closed = {len(metadata.ensembles) for metadata in seen if metadata.state == LedgerState.CLOSED}
    assert closed >= {1, 2}
    if world.changes:
        assert max(closed) >= min(world.changes + 1, ENTRIES)


@pytest.mark.large
@pytest.mark.parametrize("world", few(REDUCED, 1), ids=named)
def test_what_is_left_out_leads_to_nothing_new(world):
    every, all_found = holds(World(**{**vars(world), "reduced": False}))
    model, found = holds(world)
    assert model.ends == every.ends
    assert found.states < all_found.states


BROKEN = {
    "only the reads of the last entry fence": World(clients=1, reads_fence=False),
    "neither they nor the recovery reads fence": World(clients=1, reads_fence=False, last_fences=False),
    "unknown counts as negative": World(clients=1, crashes=0, unknown_is_unknown=False),
    "unknown counts as negative where a bookie is down": World(clients=1, unknown=0, unknown_is_unknown=False),
    "nothing is written back": World(clients=1, writes_back=False),
    "metadata is written without comparing": World(unknown=0, crashes=0, compares=False),
    "a bookie that lost its disk says no such entry": World(
        clients=1, unknown=0, crashes=0, lost_disks=1, lost_disks_refuse=False
    ),
    "a bookie forgets the fence when it crashes": World(clients=1, unknown=0, fences_survive=False),
}


@pytest.mark.parametrize("world", few(BROKEN.values(), 3), ids=BROKEN)
def test_every_broken_variant_is_found(world):
    found = breaks(world)
    assert found.trace


PAIR = World(2, 2, 2, spares=1, clients=1, crashes=0)
BROKEN_FRAGMENTS = {
    "the writer changes its ensemble without comparing": (
        World(2, 2, 2, spares=1, changes=1, clients=1, unknown=0, crashes=0, writer_compares=False),
        "a client took -1 for the end, another one -1",
    ),
    "a ledger is closed with the ensembles that it had": (
        replace(PAIR, closes_with_changes=False),
        "not every entry has as many copies as the ack quorum",
    ),
    "a recovery's ensembles are written before its end": (
        replace(PAIR, clients=2, changes_last=False),
        "closed with",
    ),
    "where a bookie that crashed is replaced at once": (
        replace(PAIR, clients=2, unknown=0, crashes=1, changes_last=False),
        "closed with",
    ),
    "metadata is written without comparing": (
        World(2, 2, 2, spares=1, changes=1, clients=1, unknown=0, crashes=0, compares=False),
        "closed with",
    ),
    "only the reads of the last entry fence": (
        World(2, 2, 2, spares=1, changes=1, clients=1, reads_fence=False),
        "was acknowledged",
    ),
    "unknown counts as negative": (
        World(2, 2, 2, spares=1, changes=1, clients=1, crashes=0, unknown_is_unknown=False),
        "was acknowledged",
    ),
    "a bookie that lost its disk says no such entry": (
        World(2, 2, 2, spares=1, changes=1, clients=1, unknown=0, crashes=0, lost_disks=1, lost_disks_refuse=False),
        "was acknowledged",
    ),
}


@pytest.mark.parametrize(("world", "violation"), few_rows(BROKEN_FRAGMENTS.values(), 2), ids=BROKEN_FRAGMENTS)
def test_every_broken_variant_with_fragments_is_found(world, violation):
    assert violation in str(breaks(world).violation)


def from_the_lac_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """BookKeeper's issue 2615: reading begins behind what the last ensemble's bookies know, which may be in an earlier
    fragment."""
    monkeypatch.setattr(Fencing, "floor", property(lambda self: self.confirmed))


def asks_the_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "_asked", lambda self, entry: self.written.write_set(entry))


def counts_those_that_were_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """That an entry is on a bookie that has lost its place makes it safe."""
    real = vars(Candidate)["safe"]

    def enough(self: Candidate) -> EntryVerdict:
        return EntryVerdict.RECOVERABLE if len(self.accepted) >= self.ack_quorum else real.__get__(self)

    monkeypatch.setattr(Candidate, "safe", property(enough))


def from_the_fragments_first_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of entries that are safe where they are it is said that they are on the new bookie."""
    real = replacing.with_others
    monkeypatch.setattr(
        forward, "with_others", lambda metadata, _, *more: real(metadata, metadata.fragments[-1].first_entry, *more)
    )


def sends_nothing_to_the_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are put into the ensemble, and taken to have all that the old ones took."""
    monkeypatch.setattr(
        Candidate,
        "safe",
        property(lambda self: EntryVerdict.RECOVERABLE if self.accepted or self.refused else EntryVerdict.UNDECIDED),
    )


MISTAKES = {
    from_the_lac_alone: replace(PAIR, changes=1),
    asks_the_new_ones: PAIR,
    counts_those_that_were_replaced: replace(PAIR, window=2),
    from_the_fragments_first_entry: PAIR,
    sends_nothing_to_the_new_ones: PAIR,
}


@pytest.mark.parametrize(
    ("mistake", "world"), few_rows(MISTAKES.items(), 1), ids=[mistake.__name__ for mistake in MISTAKES]
)
def test_every_mistake_in_changing_ensembles_is_found(mistake, world, monkeypatch):
    holds(world)
    mistake(monkeypatch)
    assert breaks(world).trace


@pytest.mark.large
def test_a_recovery_that_begins_at_the_lac_alone_makes_an_invalid_ensemble_as_it_is_known_to(monkeypatch):
    from_the_lac_alone(monkeypatch)
    assert breaks(MISTAKES[from_the_lac_alone]).violation in {
        "the fragments begin at [0, 0]",
        "the fragments begin at [0, 1, 0]",
    }


def test_without_fencing_recovery_reads_an_entry_is_lost_as_it_is_known_to_be():
    """BookKeeper's issue 2614: the entry reaches a bookie that was not fenced after that bookie denied it."""
    found = breaks(BROKEN["only the reads of the last entry fence"])
    assert found.violation == "closed with -1, but 0 was acknowledged"
    denied = [(name[2], name[3]) for name in found.trace if name[1:2] == ("ReadEntry",)]
    added = [name[1:] for name in found.trace if name[0] == "add"]
    assert added[-1] in denied
    assert found.trace.index(("add", *added[-1])) > found.trace.index((0, "ReadEntry", *added[-1]))


@pytest.mark.large
def test_fencing_only_with_the_recovery_reads_would_do():
    """What the reads of the last entry fence only stops the writer earlier."""
    holds(World(clients=1, unknown=0, last_fences=False))


def test_a_bookie_that_lost_its_disk_and_refuses_to_answer_loses_nothing():
    holds(World(clients=1, unknown=0, crashes=0, lost_disks=1, lost_disks_refuse=True))


@pytest.mark.parametrize("shape", few([(4, 3, 3), (4, 3, 2), (3, 3, 2)], 1), ids=str)
def test_walks_with_more_faults(shape):
    world = World(shape[0], shape[1], shape[2], clients=3, window=2, unknown=4, crashes=1, reduced=False)
    model = LedgerModel(world)
    rng = random.Random(5 if not SOAK else None)
    closed = 0
    for _ in range(WALKS):
        found = walk(model, rng)
        assert found.violation is None, str(found)
        closed += any(name[1:3] == ("writes", "CLOSED") for name in found.trace)
    assert closed > WALKS / 50  # mostly the writer is first


def test_walks_find_what_is_broken():
    model = LedgerModel(World(4, 3, 3, clients=2, unknown=4, unknown_is_unknown=False, reduced=False))
    rng = random.Random(5)
    assert any(walk(model, rng).violation for _ in range(3000))


def test_symmetric_states_are_one():
    model = LedgerModel(World())
    number, *clients = model.initial()[0]
    first = model.ledgers[number]

    def canonical(ledger: Ledger) -> State:
        return model.canonical((model.ledgers.number(ledger), *clients))

    assert {canonical(first.holding(bookie, 1)) for bookie in range(3)} == {canonical(first.holding(0, 1))}
    assert canonical(first.holding(0, 1)) != canonical(first)
    assert first.metadata == Metadata(0, LedgerState.OPEN, -1, ((0, (0, 1, 2)),))


class Standing(LedgerModel):
    """Goes on from the state that stands for others, and not from the one that was reached."""

    def actions(self, state: State) -> Iterator[tuple[Any, State]]:
        return ((name, self.canonical(after)) for name, after in super().actions(state))


def test_a_state_that_stands_for_others_leads_to_what_they_lead_to():
    world = replace(PAIR, changes=1, unknown=0, reduced=False)
    assert str(explore(Standing(world))) == str(explore(LedgerModel(world)))
