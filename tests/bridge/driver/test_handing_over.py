"""A topic goes back to ledger-based offload: brokers read all of it before its pin goes, and there is a way back."""

from __future__ import annotations

import contextlib
import random

import pytest

from offloader.bridge.driver.progress import progress_of
from offloader.config.bridging import Bridge
from offloader.errors import RetryableError
from offloader.metadata import requests
from offloader.metadata.requests import Request, RequestKind, RequestOutcome
from offloader.metadata.state import Releasing
from offloader.model import Position
from tests.bridge.driver.simulation import TOPIC, BridgedSimulation, KilledError
from tests.examples import tries

BACK = (RequestKind.HAND_OVER, RequestKind.RELEASE)

STEPS = 16
WORLDS = tries("OFFLOADER_WORLDS", 3, 6)


def started(seed: int = 1) -> BridgedSimulation:
    """Not brokerReadable so far; another subscription keeps what is written."""
    sim = BridgedSimulation(seed=seed, readable=False, roll="5s")
    sim.cluster.create(TOPIC)
    sim.rounds(2)
    sim.cluster.add_subscription(TOPIC, "a-client")
    sim.produce(TOPIC, 70)
    return sim


def handler(sim: BridgedSimulation) -> None:
    sim.serve_requests()


def ask(sim: BridgedSimulation, kind: RequestKind) -> str:
    handler(sim)
    sim.clock.now += 1  # the time of asking is the order of requests
    return requests.submit(sim.store, "sim", Request(kind, TOPIC, sim.clock.now, "test"), sim.uuid)


def answer(sim: BridgedSimulation, request: str, rounds: int = 40) -> RequestOutcome:
    for _ in range(rounds):
        sim.rounds(1, step_ms=30_000)
        found = requests.outcome_of(sim.store, "sim", request)
        if found is not None:
            return found
    raise AssertionError(f"no answer: {sim.driver.state(TOPIC)} {progress_of(sim.registry.topics[TOPIC])}")


def archived_end(sim: BridgedSimulation) -> Position:
    end = sim.registry.topics[TOPIC].catalog.end
    assert end is not None
    return end


def readable_or_kept(sim: BridgedSimulation) -> None:
    """Every ledger is in BookKeeper, or brokers have its copy: none is in neither place."""
    there = {key for key, _ in sim.bucket.list()}
    listed = {span.ledger for span in sim.cluster.ledgers(TOPIC).spans}
    contexts = sim.records.contexts.get(TOPIC, {})
    for entry in sim.cluster.entries(TOPIC):
        held = f"{contexts.get(entry.ledger)}-ledger-{entry.ledger}" in there
        assert held or entry.ledger in listed, f"{entry.ledger}:{entry.entry} is nowhere that brokers read"


def test_brokers_read_all_that_is_archived_before_anybody_lets_go() -> None:
    sim = started()
    told = answer(sim, ask(sim, RequestKind.HAND_OVER))
    assert told.ok, told
    end = sim.registry.topics[TOPIC].catalog.end
    assert end is not None
    spans = sim.cluster.ledgers(TOPIC).spans
    due = [s.ledger for s in spans if s.last is not None and s.last >= 0 and (s.ledger, s.last) <= end.place]
    assert sim.bridged() == due
    assert len(due) > 2
    assert sim.cluster.mark_delete(TOPIC) is not None, "the pin stays until somebody asks for its release"
    assert answer(sim, ask(sim, RequestKind.HAND_OVER)).ok, "the same again is done already"
    assert answer(sim, ask(sim, RequestKind.RELEASE)).ok
    assert sim.cluster.mark_delete(TOPIC) is None
    readable_or_kept(sim)
    sim.close()


def released(sim: BridgedSimulation, request: str) -> None:
    """The pin went, and only once brokers read every closed ledger up to where the archive ends."""
    assert answer(sim, request).ok
    assert sim.cluster.mark_delete(TOPIC) is None
    end = sim.context.catalogs.head(TOPIC).end
    assert end is not None
    spans = sim.cluster.ledgers(TOPIC).spans
    due = {s.ledger for s in spans if s.last is not None and s.last >= 0 and (s.ledger, s.last) <= end.place}
    assert due <= set(sim.records.contexts.get(TOPIC, {}))
    assert not sim.records.behind
    readable_or_kept(sim)


def test_time_between_the_steps_costs_nothing() -> None:
    """A topic that was handed over goes on being offloaded and bridged, also by the next process."""
    sim = started()
    assert answer(sim, ask(sim, RequestKind.HAND_OVER)).ok
    before = archived_end(sim)
    assert before is not None
    for killed in (False, True):
        sim.produce(TOPIC, 40)
        if killed:
            sim.kill()
        sim.until_bridged()
    after = sim.registry.topics[TOPIC].catalog.end
    assert after is not None
    assert after.ledger > before.ledger
    sim.produce(TOPIC, 40)
    released(sim, ask(sim, RequestKind.RELEASE))
    end = sim.context.catalogs.head(TOPIC).end
    assert end is not None
    assert end > after, "up to its end"
    sim.close()


def test_what_nothing_enables_any_more_goes_on_until_that_is_undone() -> None:
    sim = started()
    assert answer(sim, ask(sim, RequestKind.HAND_OVER)).ok
    before = archived_end(sim)
    sim.enabled = False
    sim.kill()
    sim.rounds(5)
    sim.produce(TOPIC, 40)
    sim.until_bridged()
    assert archived_end(sim) > before
    told = answer(sim, ask(sim, RequestKind.HAND_OVER_UNDO))
    assert (told.ok, "enable it in the configuration" in told.message) == (False, True)
    sim.rounds(5, step_ms=60_000)
    assert sim.registry.topics[TOPIC].retirement is not None
    assert sim.cluster.mark_delete(TOPIC) is not None
    sim.close()


def test_nobody_hurries_once_a_request_has_its_answer() -> None:
    """Each round costs an unload: while nobody waits, the interval counts as for any other topic."""
    sim = started()
    sim.bridge = Bridge.model_validate({"minInterval": "1d"})
    sim.kill()
    assert answer(sim, ask(sim, RequestKind.HAND_OVER)).ok
    unloads = len(sim.records.unloads)
    for _ in range(5):
        sim.produce(TOPIC, 20)
        sim.rounds(2, step_ms=60_000)
    assert len(sim.records.unloads) == unloads
    released(sim, ask(sim, RequestKind.RELEASE))
    sim.close()


def test_what_is_written_meanwhile_does_not_hold_up_the_answer() -> None:
    sim = started()
    request = ask(sim, RequestKind.HAND_OVER)
    for _ in range(40):
        sim.produce(TOPIC, 15)
        sim.rounds(1, step_ms=30_000)
        found = requests.outcome_of(sim.store, "sim", request)
        if found is not None:
            break
    assert found is not None
    assert found.ok
    assert sim.driver.state(TOPIC).requests == ()
    sim.close()


def test_it_can_be_undone_until_the_pin_goes() -> None:
    sim = started()
    assert answer(sim, ask(sim, RequestKind.HAND_OVER)).ok
    ask(sim, RequestKind.RELEASE)
    sim.rounds(1)
    assert sim.driver.state(TOPIC).releasing is Releasing.REQUEST
    assert answer(sim, ask(sim, RequestKind.HAND_OVER_UNDO)).ok
    assert sim.driver.state(TOPIC).idle
    sim.produce(TOPIC, 40)
    sim.settle()
    assert sim.cluster.mark_delete(TOPIC) is not None
    sim.check()
    sim.close()


def test_to_streaming_takes_a_topic_back_that_was_handed_over() -> None:
    sim = started()
    assert answer(sim, ask(sim, RequestKind.HAND_OVER)).ok
    back = ask(sim, RequestKind.RELEASE)
    sim.rounds(1)
    assert answer(sim, ask(sim, RequestKind.MIGRATE_COPY)).ok
    assert not answer(sim, back).ok
    assert not sim.driver.state(TOPIC).handed_over
    before = archived_end(sim)
    sim.produce(TOPIC, 50)
    sim.settle()
    assert archived_end(sim) > before
    assert sim.cluster.mark_delete(TOPIC) is not None
    sim.close()


@pytest.mark.parametrize("kind", [RequestKind.MIGRATE_COPY, RequestKind.HAND_OVER_UNDO, RequestKind.HAND_OVER])
def test_a_topic_that_somebody_lets_go_of_without_its_brokers_is_not_said_to_be_kept(kind: RequestKind) -> None:
    """A plain release is not what was handed over: nobody may believe that it is taken back, or waits for brokers."""
    sim = started()
    ask(sim, RequestKind.RELEASE)
    sim.rounds(1)
    assert sim.driver.state(TOPIC).releasing is Releasing.REQUEST
    told = answer(sim, ask(sim, kind))
    assert (told.ok, "being released" in told.message) == (False, True)
    sim.close()


@pytest.mark.parametrize("kind", [RequestKind.MIGRATE_COPY, RequestKind.HAND_OVER])
def test_a_topic_that_is_not_enabled_is_refused(kind: RequestKind) -> None:
    """It is paused: nobody offloads what follows, whichever way it goes."""
    sim = started()
    sim.enabled = False
    sim.kill()
    told = answer(sim, ask(sim, kind))
    assert (told.ok, "enable it in the configuration" in told.message) == (False, True)
    assert not sim.driver.state(TOPIC).handed_over
    sim.close()


def test_the_same_again_after_the_release_says_so() -> None:
    sim = started()
    assert answer(sim, ask(sim, RequestKind.HAND_OVER)).ok
    released(sim, ask(sim, RequestKind.RELEASE))
    for kind in (RequestKind.HAND_OVER, RequestKind.RELEASE):
        told = answer(sim, ask(sim, kind))
        assert (told.ok, "is released" in told.message) == (True, True)
    assert answer(sim, ask(sim, RequestKind.MIGRATE_COPY)).ok, "whoever asks for a topic again gets it"
    assert sim.cluster.mark_delete(TOPIC) is not None
    sim.close()


def test_what_a_later_request_takes_back_no_process_goes_on_with() -> None:
    """The store gets the older answers first: the next process finds no request that is over."""
    sim = started()
    asked = [ask(sim, kind) for kind in (RequestKind.HAND_OVER, RequestKind.HAND_OVER_UNDO)]
    for _ in range(6):
        sim.rounds(1, step_ms=1_000)
        over, undone = (requests.outcome_of(sim.store, "sim", each) for each in asked)
        assert undone is None or over is not None
        sim.kill()
        handler(sim)
    assert over is not None
    assert undone is not None
    assert (over.ok, undone.ok) == (False, True)
    assert not sim.driver.state(TOPIC).handed_over
    sim.close()


def test_a_topic_is_handed_over_again_after_an_undo_in_the_same_look() -> None:
    sim = started()
    kinds = [RequestKind.HAND_OVER, RequestKind.HAND_OVER_UNDO, RequestKind.HAND_OVER]
    *_, last = [ask(sim, kind) for kind in kinds]
    assert answer(sim, last).ok
    assert sim.driver.state(TOPIC).handed_over
    assert sim.bridged()
    sim.close()


def test_what_brokers_cannot_read_is_said_and_the_pin_stays() -> None:
    sim = started()
    sim.records.refuses = "read priority is bookkeeper-first"
    told = answer(sim, ask(sim, RequestKind.HAND_OVER))
    assert not told.ok
    assert "bookkeeper-first" in told.message
    assert sim.driver.state(TOPIC).handed_over
    told = answer(sim, ask(sim, RequestKind.RELEASE))
    assert not told.ok
    assert "bookkeeper-first" in told.message
    assert sim.driver.state(TOPIC).releasing is None, "it goes on being offloaded"
    before = archived_end(sim)
    sim.produce(TOPIC, 30)
    sim.rounds(20, step_ms=600_000)
    assert archived_end(sim) > before
    assert sim.cluster.mark_delete(TOPIC) is not None
    sim.records.refuses = ""
    sim.rounds(5, step_ms=600_000)
    assert answer(sim, ask(sim, RequestKind.HAND_OVER)).ok
    sim.close()


@pytest.mark.parametrize("at", range(STEPS))
def test_nobody_lets_go_of_a_topic_whose_bridge_log_is_not_known(at: int) -> None:
    """Its record may have been rewritten, and its topic still to be unloaded: nobody else would ever do that."""
    sim = started()
    ask(sim, RequestKind.HAND_OVER)
    sim.kills_at.at = at
    with contextlib.suppress(KilledError):
        sim.rounds(12, step_ms=30_000)
    sim.kills_at.at = -1
    sim.kill()

    def silent(_: object) -> None:
        raise RetryableError("the store does not give the bridge log")

    steps = sim.steps
    load = steps.load
    object.__setattr__(steps, "load", silent)
    request = ask(sim, RequestKind.RELEASE)
    sim.rounds(10, step_ms=30_000)
    assert sim.cluster.mark_delete(TOPIC) is not None
    object.__setattr__(steps, "load", load)
    sim.rounds(2, step_ms=600_000)
    if (found := requests.outcome_of(sim.store, "sim", request)) is not None and not found.ok:
        request = ask(sim, RequestKind.RELEASE)  # it had been in vain for too long
    released(sim, request)
    sim.close()


@pytest.mark.parametrize("at", range(STEPS))
def test_a_process_that_dies_anywhere_is_followed_by_one_that_goes_on(at: int) -> None:
    sim = started()
    request = ask(sim, RequestKind.HAND_OVER)
    sim.kills_at.at = at
    try:
        sim.rounds(12, step_ms=30_000)
    except KilledError:
        sim.kill()
        handler(sim)
    sim.kills_at.at = -1
    assert sim.cluster.mark_delete(TOPIC) is not None
    assert answer(sim, request).ok
    released(sim, ask(sim, RequestKind.RELEASE))
    sim.close()


@pytest.mark.explores
@pytest.mark.parametrize("seed", range(WORLDS))
def test_there_and_back_in_any_order(seed: int) -> None:
    """Whatever is asked for, whenever processes end: no entry is nowhere, and no pin goes before brokers read all."""
    rng = random.Random(seed)
    sim = started(seed)
    handler(sim)
    kinds = [*BACK, *BACK, RequestKind.HAND_OVER_UNDO, RequestKind.MIGRATE_COPY, RequestKind.CLOSE]
    for _ in range(40):
        event = rng.random()
        handed = sim.driver.state(TOPIC).handed_over
        if event < 0.15:
            kind = rng.choice(kinds)
            if kind is not RequestKind.RELEASE or handed:
                end = sim.registry.topics[TOPIC].last if kind is RequestKind.CLOSE else None
                requests.submit(sim.store, "sim", Request(kind, TOPIC, sim.clock.now, "test", end), sim.uuid)
        elif event < 0.3:
            sim.produce(TOPIC, rng.randrange(20))
        elif event < 0.4:
            sim.kill()
            handler(sim)
        sim.rounds(1, step_ms=rng.choice([1_000, 30_000, 600_000]))
        readable_or_kept(sim)
        if TOPIC not in sim.registry.topics:
            break
        ids = {id_ for id_, _ in requests.pending(sim.store, "sim", sim.clock.now)}
        assert {each.id for each in sim.driver.state(TOPIC).requests} <= ids, "nobody closes for what is answered"
    assert answer(sim, ask(sim, RequestKind.HAND_OVER)).ok
    released(sim, ask(sim, RequestKind.RELEASE))
    sim.close()
