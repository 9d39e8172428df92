"""A round beside stock brokers, as the product's own machine decides it, in every order of events.

Brokers load, trim, offload by themselves, delete BookKeeper's copy, and are unloaded by others; answers get lost, and
changes arrive late; processes of ours are paused, end, and begin again, or are two."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from integration.soak import SOAK
from tests.bookkeeper.model.explorer import Explored, explore
from tests.bridge.model.swapping import DANGLING, UNREADABLE, SwapModel
from tests.bridge.model.world import FINISHED, SWAPPING, WITHDRAWN, State, World
from tests.examples import few_rows

WORLDS = [
    World(),
    World(honest=False, former=True),
    World(late=True),
    World(trims=True),
    World(lag=True),
    World(stock=True),
    World(terminated=True),
    World(readable=False),
    World(readable=False, lag=True),
    World(tiered_first=False),
    World(given_up=True),
    World(mixed=True, stock=True),
    World(repairs=True, readable=False, lag=True),
]
if SOAK:
    WORLDS += [
        World(given_up=True, terminated=True, processes=2, tries=1),
        World(processes=2),
        World(processes=2, tries=1, readable=False, lag=True),
        World(processes=2, tries=1, late=True, trims=True),
        World(processes=2, tries=2, terminated=True, readable=False),
        World(honest=False, former=True, late=True, lag=True),
        World(honest=False, former=True, late=True, lag=True, readable=False),
        World(trims=True, stock=True, lag=True, late=True),
        World(mixed=True, stock=True, processes=2),
        World(mixed=True, stock=True, late=True),
        World(repairs=True, readable=False, lag=True, processes=2, tries=1),
    ]
WALKS, LENGTH = (20_000, 400) if SOAK else (10, 80)
REWRITTEN = "the record was rewritten under a loaded topic"
IGNORANT = "a round is over, and the topic's broker does not know the record"
UNPROVEN = "a round was finished that brokers cannot read"


def named(world: World) -> str:
    """What is not as usual."""
    usual = vars(World())
    return ",".join(f"{name}={value}" for name, value in vars(world).items() if value != usual[name])


class Collecting(SwapModel):
    """Keeps what is found by who comes after all others."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.ends: set[int] = set()
        self.left: set[State] = set()

    def violation(self, state: State) -> str | None:
        self.ends.add(state.phase)
        self.left.add(self.processes.left_alone(state))
        return super().violation(state)


@pytest.mark.parametrize("world", WORLDS, ids=named)
def test_whatever_happens_each_entry_stays_readable_and_left_alone_each_round_ends(world: World) -> None:
    """No context names an object that is not there, no entry is in no place that the record leads to, and when a round
    is over the topic's broker knows the record. And from every state there is a way to an end that nobody can bar."""
    model = Collecting(world)
    found = explore(model)
    assert found.violation is None, str(found)
    assert (FINISHED in model.ends) == (world.readable and world.tiered_first)
    for state in model.left:
        end = model.processes.alone(state)
        assert SwapModel.violation(model, end) is None
        stuck = (
            end.record.gone and not world.readable and not world.repairs
        )  # BookKeeper's copy is gone: it is tried again for ever
        assert end.phase in (FINISHED, WITHDRAWN) or stuck or not world.tiered_first, (state, end)
        assert not end.leaving


BROKEN = {
    "the record is set without an unload": (World(unloads=False), REWRITTEN),
    "the version is read after the unload": (World(reads_first=False), REWRITTEN),
    "no unload after a doubt, and nobody asks what the broker knows": (
        World(doubts=False, checks=False, honest=False),
        IGNORANT,
    ),
    "nobody asks what the broker of a terminated topic knows": (World(checks=False, terminated=True), IGNORANT),
    "we delete BookKeeper's copy": (World(keeps_bookkeeper=False, readable=False), UNREADABLE),
    "a proof that may read BookKeeper": (World(tiered_first=False, asks=False, readable=False), UNPROVEN),
    "objects are withdrawn before contexts": (World(contexts_first=False, readable=False), DANGLING),
    "a withdrawal that sets nothing where there is nothing to take out": (
        World(fences=False, given_up=True, terminated=True, processes=2, tries=1),
        IGNORANT,
    ),
    "what comes later goes before that is recorded": (
        World(records_first=False, mixed=True, stock=True, terminated=True, processes=2, tries=1),
        DANGLING,
    ),
    "what comes later goes without being withdrawn": (
        World(fences_rest=False, mixed=True, stock=True, terminated=True, processes=2, tries=1),
        IGNORANT,
    ),
    "a repair that is not proven stays": (World(withdraws=False, repairs=True, readable=False), UNPROVEN),
}


@pytest.mark.parametrize(("world", "violation"), few_rows(BROKEN.values(), 4), ids=BROKEN)
def test_every_broken_variant_is_found(world: World, violation: str) -> None:
    found = explore(SwapModel(world))
    assert found.violation == violation, str(found)


@pytest.mark.parametrize("world", [World(lag=True), World(trims=True)], ids=named)
def test_objects_that_somebody_deletes_while_a_round_is_swapped_are_built_again(world: World) -> None:
    model = Collecting(world)
    explore(model)
    for state in model.left:
        end = model.processes.alone(state._replace(objects=state.objects and state.phase != SWAPPING))
        assert SwapModel.violation(model, end) is None
        assert end.phase in (FINISHED, WITHDRAWN)


def test_two_wrong_answers_at_once_may_hide_a_stale_broker_of_a_terminated_topic_and_lose_nothing() -> None:
    """Its loads leave no trace in the record. Where in one withdrawal an unload is said to be done that was not, and
    then a former owner answers in place of the owner, the round is over too early: reads fail until the topic is loaded
    the next time, from BookKeeper."""
    model = SwapModel(World(honest=False, former=True, terminated=True, readable=False))
    found = explore(model)
    assert found.violation == IGNORANT
    assert "unloads nothing" in [name[0] for name in found.trace]
    for one in (replace(model.world, former=False), replace(model.world, honest=True)):
        assert explore(SwapModel(one)).violation is None

    class Lost(SwapModel):
        """Says nothing of who knows what."""

        def violation(self, state: State) -> str | None:
            return super().violation(state._replace(broken=""))

    assert explore(Lost(model.world)).violation is None


def test_a_topic_that_is_not_loaded_before_it_is_unloaded_is_never_bridged() -> None:
    """Its unload loads it, which changes the record: every set is refused."""
    for wakes in (True, False):
        model = SwapModel(World(wakes=wakes))
        assert (model.processes.alone(model.initial()[0]).phase == FINISHED) == wakes


def walk(model: SwapModel, rng: random.Random) -> Explored:
    """So many steps at random, to a violation at most."""
    found, state = Explored(), model.initial()[0]
    for _ in range(LENGTH):
        name, state = rng.choice(list(model.actions(state)))
        found.trace.append(name)
        found.violation = model.violation(state)
        if found.violation is not None:
            break
    found.trace.append(state)
    return found


WIDE = World(
    processes=3,
    trims=True,
    stock=True,
    lag=True,
    honest=False,
    former=True,
    late=True,
    readable=False,
    tries=8,
    given_up=True,
)


@pytest.mark.parametrize("readable", [True, False])
def test_walks_with_more_of_everything_and_each_round_ends(readable: bool) -> None:
    model = SwapModel(World(**(vars(WIDE) | {"readable": readable})))
    rng = random.Random(None if SOAK else 5)
    for _ in range(WALKS):
        found = walk(model, rng)
        assert found.violation is None, str(found)
        end = model.processes.alone(found.trace[-1])
        assert end.phase in (FINISHED, WITHDRAWN) or end.record.gone
        assert model.violation(end) is None
