"""Two phases beside stock brokers, as the product's own machine decides them, in every order of events.

Brokers load, create, list, trim and delete, and pause or are gone between any two writes of metadata; so are we. The
guarded transaction is one step here: the referee is checked and the ledger's node deleted, or nothing is done."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator

import pytest

from integration.soak import SOAK
from offloader.lifecycle.deletion.records import DeletionAnswer, DeletionProof, DeletionState
from tests.bookkeeper.model.explorer import Explored, explore
from tests.examples import few
from tests.lifecycle.model.deletion import DeletionModel
from tests.lifecycle.model.restoring import NEVER_TRIMMED, RestoredWorld, RestoringModel
from tests.lifecycle.model.world import OURS, State, World

WORLDS = [
    World(targets=(0,), on_demand=True, tries=1),
    World(owners=1, targets=(1,), on_demand=True),
    World(owners=1, services=2),
    World(owners=1, targets=(0, 1), one_scan=True, tries=1),
]
if SOAK:
    WORLDS += [
        World(targets=(0,), on_demand=True),
        World(targets=(1,), on_demand=True),
        World(targets=(2,), on_demand=True),
        World(owners=1, targets=(0, 1), one_scan=True),
        World(owners=1, services=2, on_demand=True),
        World(services=2),
        World(owners=1, targets=(0, 1, 2), on_demand=True),
        World(targets=(0, 1)),
        World(owners=3),
        World(one_scan=True),
        World(owners=1, targets=(0, 1), one_scan=True, on_demand=True),
    ]
WALKS, LENGTH = (20_000, 400) if SOAK else (400, 200)
LISTED = "ledger 0 is listed, and we deleted it"
UNDONE = "ledger 0 was undone, and we deleted it"


def named(world: World) -> str:
    """What is not as usual."""
    usual = vars(World())
    return ",".join(f"{name}={value}" for name, value in vars(world).items() if value != usual[name])


@pytest.fixture(autouse=True, scope="module")
def no_garbage() -> Iterator[None]:
    """Nothing but states is made, and all of them are kept."""
    gc.disable()
    yield
    gc.enable()


class Watched(DeletionModel):
    """Keeps what deletions came to: state, answer, proof, and whether we deleted."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.seen: set[tuple[int, bool]] = set()

    def violation(self, state: State) -> str | None:
        self.seen |= {(number, how == OURS) for number, how in zip(state.records, state.ledgers, strict=True)}
        return super().violation(state)

    @property
    def ends(self) -> set[tuple[DeletionState, DeletionAnswer | None, DeletionProof, bool]]:
        records = ((self.services.records[number], ours) for number, ours in self.seen if number >= 0)
        return {(r.state, r.answer, r.evidence.proof, ours) for r, ours in records if not r.is_in_flight}


def holds(world: World) -> tuple[Watched, Explored]:
    model = Watched(world)
    found = explore(model)
    assert found.violation is None, str(found)
    return model, found


@pytest.mark.parametrize("world", few(WORLDS, 1), ids=named)
def test_nothing_that_is_referred_to_now_or_later_is_deleted(world: World):
    """And what is called certain never is; what is told as kept or undone stays; what is told as deleted is gone."""
    model, found = holds(world)
    assert found.states > 10_000
    ends = {(state, answer) for state, answer, _, _ in model.ends}
    assert ends >= {
        (DeletionState.DELETED, DeletionAnswer.DELETED),
        (DeletionState.DELETED, DeletionAnswer.ALREADY_GONE),
        (DeletionState.UNDONE, None),
        (DeletionState.GIVEN_UP, None),
    }
    deleted = {proof for _, answer, proof, ours in model.ends if ours and answer is DeletionAnswer.DELETED}
    possible = {DeletionProof.REFEREE_ABSENT, DeletionProof.PASSED_BY} - (
        {DeletionProof.PASSED_BY} if world.targets == (2,) else set()
    )
    assert deleted == possible | ({DeletionProof.ON_DEMAND} if world.on_demand else set())
    if world.on_demand:
        assert (DeletionState.KEPT, DeletionAnswer.STILL_IN_USE) in ends


BROKEN = {
    "no second look": (World(on_demand=True, looks_again=False), LISTED),
    "a plain delete in place of the guarded transaction": (World(on_demand=True, guarded=False), LISTED),
    "many deletions after one scan, and no guard": (
        World(on_demand=True, one_scan=True, guarded=False),
        LISTED,
    ),
    "references read before ids": (World(ids_first=False), "ledger 0 was called certain, and is listed"),
    "a grace period alone": (World(on_demand=True, looks_again=False, guarded=False), LISTED),
    "records written without comparing": (World(compares=False), UNDONE),
    "a look while a request of ours is on its way": (World(waits=False), UNDONE),
    "a look while another process of ours may send one": (World(owners=1, services=2, waits=False), UNDONE),
}


@pytest.mark.parametrize(("world", "violation"), BROKEN.values(), ids=BROKEN)
def test_every_broken_variant_is_found(world: World, violation: str):
    found = explore(DeletionModel(world))
    assert found.violation == violation, str(found)


def test_a_broker_that_was_paused_across_a_plain_deletion_lists_what_is_gone():
    """The race of the reference: the shortest way there is the one that was measured."""
    found = explore(DeletionModel(BROKEN["a plain delete in place of the guarded transaction"][0]))
    names = [name[0] for name in found.trace]
    assert names[:4] == ["creates the topic", "takes", "makes", "scans"]
    assert names.index("rules") < names.index("lists") < names.index("deletes")


class Listed(DeletionModel):
    """Says nothing of what is called certain."""

    def violation(self, state: State) -> str | None:
        return super().violation(state._replace(certain=0))


@pytest.mark.large
@pytest.mark.parametrize("guarded", [True, False])
def test_a_write_meant_for_a_former_topic_of_the_name_is_no_proof_s_concern_as_it_is_known(*, guarded: bool):
    """ZooKeeper's versions begin again where a topic is deleted and created again: a broker that was paused all the
    while, with a write of its first days, may meet just its version. Nobody's compare-and-set sees that, neither
    Pulsar's nor ours: what it writes replaces the list of the new topic, too. Only the delay stands before it."""
    found = explore(Listed(World(restarts=True, guarded=guarded)))
    assert found.violation == LISTED
    names = [name[0] for name in found.trace]
    assert names.index("deletes the topic") < len(names) - 1
    assert names.count("creates the topic") == 2


RESTORED = {
    "into a node that is made anew": RestoredWorld(owners=1, targets=(1,), tries=1),
    "into the node, and somebody looks before a broker does": RestoredWorld(
        owners=1, targets=(1,), tries=1, anew=False, remembers=True
    ),
}


@pytest.mark.large
@pytest.mark.parametrize("world", few([*RESTORED.values()], 1), ids=RESTORED)
def test_entries_that_nobody_trimmed_are_never_deleted_after_a_restore(world: RestoredWorld):
    found = explore(RestoringModel(world))
    assert found.violation is None, str(found)
    assert found.states > 1_000


@pytest.mark.large
@pytest.mark.parametrize("world", [RestoredWorld(owners=1, targets=(1,), ages=False)])
def test_a_scan_that_knows_no_ages_deletes_what_a_restore_took_off_the_list(world: RestoredWorld):
    assert explore(RestoringModel(world)).violation == NEVER_TRIMMED


@pytest.mark.large
def test_what_was_restored_into_its_node_and_trimmed_since_is_known_by_nothing_else_than_a_look_before():
    """So the page says: after a restore look first, and mark nothing else that was not looked at."""
    found = explore(RestoringModel(RestoredWorld(owners=1, targets=(1,), anew=False)))
    assert found.violation == NEVER_TRIMMED
    names = [name[0] for name in found.trace]
    assert names.index("restores") < names.index("trims") < names.index("marks")


def random_walk(model: DeletionModel, rng: random.Random, length: int) -> tuple[list[object], State]:
    """One walk of so many steps. Ends with AssertionError at a violation."""
    state, trace = model.initial()[0], list[object]()
    for _ in range(length):
        name, state = rng.choice(list(model.actions(state)))
        trace.append(name)
        violation = model.violation(state)
        assert violation is None, f"{violation}: {trace}"
    return trace, state


WIDE = World(ledgers=5, owners=3, services=2, targets=(0, 1, 2, 3, 4), on_demand=True, tries=3)


@pytest.mark.large
def test_walks_with_more_of_everything_and_each_marked_one_ends():
    """Left alone at last, we end what is marked: deleted once, or told."""
    model = DeletionModel(WIDE)
    rng = random.Random(None if SOAK else 5)
    ours = ended = 0
    for _ in range(WALKS):
        _, state = random_walk(model, rng, LENGTH)
        end = model.services.alone(state)
        assert model.violation(end) is None
        assert all(not model.services.records[number].is_in_flight for number in end.records if number >= 0)
        ended += sum(number >= 0 for number in end.records)
        ours += end.ledgers.count(OURS)
    assert ended > ours > WALKS / 5


@pytest.mark.large
def test_walks_find_what_is_broken():
    model = DeletionModel(World(on_demand=True, guarded=False))
    rng = random.Random(5)

    def walks() -> None:
        for _ in range(3000):
            random_walk(model, rng, 60)

    with pytest.raises(AssertionError, match="is listed, and we deleted it"):
        walks()


class Collecting(DeletionModel):
    """Keeps the states."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.states: list[State] = []

    def violation(self, state: State) -> str | None:
        self.states.append(state)
        return super().violation(state)


def test_from_every_state_what_is_marked_ends_if_we_are_left_alone():
    model = Collecting(World(owners=1))
    assert explore(model).violation is None
    records = model.services.records
    for state in list(model.states):
        end = model.services.alone(state)
        assert all(not records[number].is_in_flight for number in end.records if number >= 0)
        assert model.violation(end) is None
