"""Whatever call fails, is lost or is the last one of a process: in the end both objects are right, or none is named as
built, and whoever goes on takes what is right."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from offloader.bridge.building import BuiltLedger
from offloader.bridge.core.rounds import BridgeVerdict, UnbridgedLedger
from offloader.errors import OffloadError, OutcomeUnknownError, RetryableError, UploadGoneError
from offloader.metadata.stock_keys import data_key, index_key
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC
from tests.archive.test_deleted import delete
from tests.bridge.support import LEAST_PART, LEDGER, UUID, WORLDS, BridgeWorld, built, dying_after
from tests.examples import few
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults

DATA, INDEX = data_key(UUID, LEDGER), index_key(UUID, LEDGER)
WRITES = ("begin", "put_part", "copy_part", "commit", "put", "abort")
GAPS = [(3, 5), (27, 29)]


def world_of(*, copies: bool = True) -> BridgeWorld:
    return BridgeWorld(gaps=GAPS, bucket=MemoryStore(min_part_size=LEAST_PART, copies=copies))


def attempt(world: BridgeWorld, faults: StoreFaults) -> BuiltLedger | None:
    """A process whose stores both have these faults; None: it has failed."""
    builder = world.builder(FaultyStore(world.store, faults), FaultyStore(world.bucket, faults))
    try:
        return built(builder.build(TOPIC, world.wanted))
    except (RetryableError, OutcomeUnknownError, UploadGoneError):
        return None


def calls_of_a_build(*, copies: bool = True) -> int:
    faults = StoreFaults()
    assert attempt(world_of(copies=copies), faults) is not None
    return sum(faults.calls.values())


@pytest.mark.parametrize("copies", [True, False])
def test_killed_at_every_call_another_process_finishes_it(*, copies: bool) -> None:
    for calls in range(calls_of_a_build(copies=copies)):
        world = world_of(copies=copies)
        assert attempt(world, StoreFaults(dying_after(calls))) is None
        if world.bucket.stat(INDEX) is not None:
            assert world.bucket.stat(DATA) is not None
        world.check(world.build())


@pytest.mark.parametrize("effect", few([Effect.BEFORE, Effect.LOST, Effect.REPEATED], 2))
@pytest.mark.parametrize("copies", [True, False])
def test_every_call_fails_or_loses_its_answer_once(effect: Effect, *, copies: bool) -> None:
    """A call that failed ends the try with an error that may pass, if anything; the next one gets through."""
    for number in range(calls_of_a_build(copies=copies)):
        world = world_of(copies=copies)
        found = attempt(world, StoreFaults([StoreFault("*", effect, after=number)]))
        if found is not None:
            world.check(found)
        world.check(world.build())


@pytest.mark.explores
@pytest.mark.parametrize("seed", range(WORLDS))
def test_with_faults_at_random_it_is_built_some_time(seed: int) -> None:
    world = world_of(copies=seed % 3 > 0)
    faults = StoreFaults(seed=seed)
    faults.at_random(0.02, *(StoreFault("*", effect) for effect in (Effect.BEFORE, Effect.LOST, Effect.REPEATED)))
    found = next(found for found in (attempt(world, faults) for _ in range(100)) if found is not None)
    world.check(found)


@pytest.mark.parametrize("effect", [Effect.LOST, Effect.BEFORE])
@pytest.mark.parametrize("verb", WRITES[:-1])
def test_a_process_that_never_hears_of_a_write_does_no_harm(verb: str, effect: Effect) -> None:
    world = world_of(copies=verb != "put_part")
    for number in range(3):
        found = attempt(world, StoreFaults([StoreFault(verb, effect, times=1 << 30)]))
        if number == 0 or (verb, effect) not in (("commit", Effect.LOST), ("put", Effect.LOST)):
            assert found is None
        elif found is not None:  # what it had not heard of was there at the next look
            world.check(found)
    world.check(world.build())


@pytest.mark.explores
@pytest.mark.parametrize("seed", range(WORLDS))
def test_an_overtaken_process_beside_it_writes_the_same(seed: int) -> None:
    """It stands still at some call, the next process builds, and it goes on: into the bucket comes nothing else."""
    rng = Random(seed)
    world = world_of(copies=seed % 2 == 0)
    after = rng.randrange(calls_of_a_build(copies=seed % 2 == 0))
    found: list[BuiltLedger] = []
    faults = StoreFaults([StoreFault("*", Effect.HOOK, after=after, hook=lambda: found.append(world.build()))])
    builder = world.builder(FaultyStore(world.store, faults), FaultyStore(world.bucket, faults))
    late = built(builder.build(TOPIC, world.wanted))
    assert late.ledger == found[0].ledger
    world.check(late)


@pytest.mark.parametrize("copies", [True, False])
def test_segments_that_are_deleted_meanwhile_are_told_as_deleted_and_not_as_damage(*, copies: bool) -> None:
    told = 0
    for number in range(calls_of_a_build(copies=copies)):
        world = world_of(copies=copies)
        deletion = StoreFault("*", Effect.HOOK, after=number, hook=partial(delete, world.archive, 2))
        faults = StoreFaults([deletion])
        builder = world.builder(FaultyStore(world.store, faults), FaultyStore(world.bucket, faults))
        found = builder.build(TOPIC, world.wanted)
        if isinstance(found, BuiltLedger):
            world.check(found)
        else:
            assert isinstance(found, UnbridgedLedger)
            assert found.verdict is BridgeVerdict.DELETED
            assert world.bucket.stat(INDEX) is None
            told += 1
    assert told > 5


def test_two_processes_at_once_come_to_the_same() -> None:
    world = world_of()
    together = threading.Barrier(2)

    def work(results: list[object]) -> None:
        together.wait()
        for _ in range(10):
            try:
                results.append(built(world.builder().build(TOPIC, world.wanted)).ledger)
            except OffloadError:
                continue
            return

    found: list[object] = []
    run_both(lambda: work(found))
    assert len(found) == 2
    assert found[0] == found[1]
    world.check(world.build())


def run_both(work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
