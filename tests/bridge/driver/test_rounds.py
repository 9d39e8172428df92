"""The application makes closed ledgers readable for brokers by itself: in order, paced, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from offloader.bridge.core.rounds import BridgedLedger, BridgePhase, BridgeVerdict, UnbridgedLedger
from offloader.bridge.core.swap_steps import SwapEnd, SwapOutcome
from offloader.bridge.driver.progress import facets_of, progress_of
from offloader.bridge.driver.status import hopeless
from offloader.bridge.swapping import StaleOrFine
from offloader.config.bridging import Bridge
from offloader.errors import OvertakenError, StoreUnavailableError, VersionConflictError
from offloader.metadata import layout, requests
from offloader.metadata.catalog import Catalogs
from offloader.metadata.requests import Request, RequestKind
from offloader.model import GapKind, Position, TopicName
from offloader.offload.caught_up import CaughtUp, CaughtUpState
from offloader.offload.core.topic import Topic
from tests.bridge.driver.simulation import TOPIC, BridgedSimulation, KilledError, MemoryBuilds, MemorySwaps
from tests.offload.simulation import Simulation

MOST_LEDGERS = 25

OTHER = TopicName.parse("public/default/other")
STEPS = 14  # calls of one round by which the bridge reaches something; killing at a later one changes nothing


def started(*others: TopicName, **settings: object) -> BridgedSimulation:
    sim = BridgedSimulation(seed=1, **settings)
    for topic in (TOPIC, *others):
        sim.cluster.create(topic)
    sim.rounds(2)
    sim.cluster.add_subscription(TOPIC, "a-client")
    sim.produce(TOPIC, 70)
    return sim


def test_every_closed_ledger_is_bridged_in_order_and_the_pin_follows() -> None:
    sim = started()
    ledgers = sim.closed()
    sim.until_bridged()
    assert sim.bridged()[:3] == ledgers
    assert len(sim.bridged()) == 4, "the unload has closed the open one"
    assert len(sim.records.unloads) == 2
    sim.produce(TOPIC, 45)
    sim.until_bridged()
    assert sim.bridged() == sorted(set(sim.bridged()))
    sim.settle()
    sim.check()
    sim.close()


def test_nothing_is_let_go_of_before_brokers_read_it() -> None:
    sim = started()
    sim.records.refuses = "read priority is bookkeeper-first"
    for _ in range(20):
        sim.rounds(1, step_ms=60_000)
    assert sim.state() is not None
    assert sim.cluster.mark_delete(TOPIC)[1] == -1  # type: ignore[index]
    topic = sim.registry.topics[TOPIC]
    assert topic.catalog.end is not None
    assert "bookkeeper-first" in progress_of(topic).error
    sim.check()
    sim.records.refuses = ""
    sim.until_bridged()
    sim.check()
    sim.close()


@pytest.mark.parametrize("at", range(STEPS))
@pytest.mark.parametrize("delivers", [True, False])
def test_a_process_that_dies_anywhere_is_followed_by_one_that_goes_on(at: int, delivers: bool) -> None:
    sim = started()
    sim.records.delivers = delivers
    sim.kills_at.at = at
    try:
        for _ in range(12):
            sim.rounds(1, step_ms=30_000)
    except KilledError:
        sim.kill()
    sim.kills_at.at = -1
    sim.records.delivers = True
    sim.until_bridged()
    assert sim.bridged() == sorted(set(sim.bridged()))
    sim.check()
    sim.close()


def test_dying_again_and_again_ends_with_everything_bridged() -> None:
    sim = started()
    for at in range(40):
        sim.kills_at.at = sim.kills_at.calls + at % 7
        try:
            sim.rounds(2, step_ms=30_000)
        except KilledError:
            sim.kill()
        if at % 10 == 0:
            sim.produce(TOPIC, 15)
    sim.kills_at.at = -1
    sim.until_bridged()
    sim.check()
    sim.close()


def test_a_round_that_the_broker_does_not_deliver_is_withdrawn_and_tried_less_and_less_often() -> None:
    sim = started()
    sim.records.delivers = False
    sim.rounds(60, step_ms=60_000)
    state = sim.state()
    assert state is not None
    assert state.ledgers == 0
    assert 3 <= state.rounds <= 12
    assert sim.cluster.mark_delete(TOPIC)[1] == -1  # type: ignore[index]
    sim.check()
    sim.records.delivers = True
    sim.until_bridged()
    sim.check()
    sim.close()


@pytest.mark.parametrize("phase", list(BridgePhase))
def test_switched_off_in_the_middle_what_brokers_may_know_of_is_finished_and_the_rest_goes(phase: BridgePhase) -> None:
    sim = started()
    sim.records.delivers = phase is not BridgePhase.WITHDRAWING
    at = {BridgePhase.BUILDING: 1, BridgePhase.SWAPPING: 7, BridgePhase.WITHDRAWING: 9}[phase]
    sim.kills_at.at = at
    with pytest.raises(KilledError):
        sim.rounds(20, step_ms=30_000)
    state = sim.state()
    assert state is not None
    assert state.round is not None
    assert state.round.phase is phase
    sim.kills_at.at = -1
    sim.readable = False
    sim.kill()
    sim.rounds(10, step_ms=30_000)
    sim.settle()
    state = sim.state()
    assert state is not None
    assert state.round is None
    assert bool(sim.bridged()) is (phase is BridgePhase.SWAPPING)
    sim.check()
    sim.close()


@pytest.mark.parametrize("fails", ["before", "after", "store"])
@pytest.mark.parametrize("blocked", [True, False])
def test_what_a_dropped_round_has_built_goes_although_its_deletion_was_cut_off(fails: str, blocked: bool) -> None:
    """Its uuids stay known until nothing is left; nothing else is begun before."""
    sim = started()
    if blocked:
        sim.cluster.add_hidden(TOPIC, GapKind.ABORTED)
        sim.produce(TOPIC, 30)
    else:
        sim.kills_at.at = 2  # one ledger is built
        with pytest.raises(KilledError):
            sim.rounds(20, step_ms=30_000)
        sim.kills_at.at = -1
        sim.readable = False
        sim.kill()
    discard, tries = MemoryBuilds.discard, list[int]()

    def cut_off(builds: MemoryBuilds, bucket: str, ledgers: Iterable[BridgedLedger]) -> None:
        tries.append(0)
        if len(tries) > 2:
            discard(builds, bucket, ledgers)
            return
        if fails == "after":
            discard(builds, bucket, ledgers)
        if fails == "store":
            raise StoreUnavailableError("no answer")
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryBuilds, "discard", cut_off)
        for _ in range(20):
            try:
                sim.rounds(1, step_ms=30_000)
            except KilledError:
                state = sim.state()
                assert state is not None
                assert state.leaving is not None
                sim.kill()
    assert len(tries) > 2
    state = sim.state()
    assert state is not None
    assert state.leaving is None
    sim.check()
    sim.close()


@pytest.mark.parametrize("at", [1, 3, 7, 8])
def test_a_topic_made_anew_begins_anew_and_the_former_ones_round_goes(at: int) -> None:
    sim = started(OTHER)  # a witness: this is our cluster
    sim.kills_at.at = sim.kills_at.calls + at
    with pytest.raises(KilledError):
        sim.rounds(20, step_ms=30_000)
    sim.kills_at.at = -1
    sim.kill()
    gone = sim.records.contexts.pop(TOPIC, {})
    sim.cluster.delete(TOPIC)
    sim.records.behind.discard(TOPIC)
    sim.bucket.delete([f"{uuid}-ledger-{ledger}{end}" for ledger, uuid in gone.items() for end in ("", "-index")])
    sim.cluster.create(TOPIC)
    sim.produce(TOPIC, 50)
    sim.until_believed()
    sim.rounds(30, step_ms=30_000)
    sim.until_bridged()
    state = sim.state()
    assert state is not None
    assert state.incarnation == 1
    assert state.round is None
    sim.check(TOPIC, OTHER)
    sim.close()


def test_the_newcomer_wins_and_who_was_paused_changes_nothing() -> None:
    old = started()
    old.kills_at.at = 3
    with pytest.raises(KilledError):
        old.rounds(20, step_ms=30_000)
    topic = old.registry.topics[TOPIC]
    head = progress_of(topic).head
    assert head is not None
    steps = old.steps
    old.pins.close()
    new = BridgedSimulation(seed=2, store=old.store, former=old)
    new.until_bridged()
    before = new.state()
    from offloader.bridge.core.schedule import BridgeWork

    with pytest.raises(OvertakenError):
        steps.go_on(TOPIC, head, 0, BridgeWork.SWAP if head.state and head.state.round else BridgeWork.BUILD)
    paused = replace(steps, still_ours=lambda: None)  # it was asked before the newcomer came
    with pytest.raises(VersionConflictError):
        paused.go_on(TOPIC, head, 0, BridgeWork.BUILD)
    assert new.state() == before
    new.close()


def blocked_at(sim: BridgedSimulation, verdict: BridgeVerdict) -> int:
    """The ledger that blocks; nothing behind it is let go of."""
    sim.serve_requests()
    sim.rounds(30, step_ms=30_000)
    state, mark = sim.state(), sim.cluster.mark_delete(TOPIC)
    assert state is not None
    assert state.blocked is not None, progress_of(sim.registry.topics[TOPIC])
    assert state.blocked.verdict is verdict
    assert mark is not None
    assert state.up_to is None or mark <= state.up_to.place < (state.blocked.ledger, 0)
    if verdict is not BridgeVerdict.DAMAGED:
        sim.check()
    return state.blocked.ledger


def test_what_cannot_be_bridged_blocks_until_an_operator_lets_it_go() -> None:
    sim = started()
    sim.cluster.add_hidden(TOPIC, GapKind.ABORTED)
    sim.produce(TOPIC, 30)
    blocked = blocked_at(sim, BridgeVerdict.GAPS)
    other = ask(sim, blocked + 1)
    assert not other.ok
    assert f"ledger {blocked}" in other.message
    answer = ask(sim, blocked)
    assert answer.ok, answer.message
    sim.until_bridged()
    assert blocked not in sim.bridged()
    assert max(sim.bridged()) > blocked
    sim.check()
    sim.close()


def test_a_ledger_that_is_lost_before_its_turn_is_passed() -> None:
    sim = started()
    lost = sim.closed()[1]
    sim.records.refuses = "not yet"
    sim.rounds(10, step_ms=30_000)
    sim.cluster.lose(TOPIC, lost)
    sim.records.refuses = ""
    sim.until_bridged()
    assert lost not in sim.bridged()
    assert min(sim.bridged()) < lost < max(sim.bridged())
    sim.check()
    sim.close()


def alarms(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    return [record.message for record in caplog.records if getattr(record, "see", "") == name]


@pytest.mark.parametrize("how", ["trimmed", "kept"])
def test_a_pin_that_somebody_moves_past_what_brokers_read_is_told(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """What is still listed when its turn comes is bridged; what is gone by then is in the archive alone."""
    sim = started()
    sim.records.refuses = "not yet"
    sim.rounds(10, step_ms=30_000)
    assert not alarms(caplog, "pin-past-bridge")
    first, second, third = sim.closed()[:3]
    if how == "trimmed":
        sim.cluster.delete_subscription(TOPIC, "a-client")
    sim.cluster.move_pin(TOPIC, second, 3)
    sim.rounds(6, step_ms=30_000)
    told = alarms(caplog, "pin-past-bridge")
    assert len(told) == 1, told
    assert str(TOPIC) in told[0]
    assert not alarms(caplog, "pin-moved"), "the archive has it"
    assert (first in sim.closed()) is (how == "kept")
    sim.records.refuses = ""
    sim.until_bridged()
    assert (first in sim.bridged()) is (how == "kept")
    assert {second, third} <= set(sim.bridged())
    sim.settle()
    assert not sim.registry.topics[TOPIC].pin.alarm
    assert len(alarms(caplog, "pin-past-bridge")) == 1
    sim.check()
    sim.close()


def test_a_pin_that_has_gone_on_while_nobody_bridged_is_no_alarm(caplog: pytest.LogCaptureFixture) -> None:
    sim = BridgedSimulation(seed=4, readable=False)
    sim.cluster.create(TOPIC)
    sim.rounds(2)
    sim.cluster.add_subscription(TOPIC, "a-client")
    for readable in (False, True, False, True):
        sim.readable = readable
        sim.records.refuses = "not yet"
        sim.produce(TOPIC, 40)
        sim.rounds(10, step_ms=30_000)
    sim.kill()
    sim.records.refuses = ""
    sim.until_bridged()
    assert not alarms(caplog, "pin-past-bridge")
    sim.close()


def test_a_run_until_caught_up_ends_where_something_cannot_be_bridged() -> None:
    sim = started(urgent=True)
    sim.cluster.add_hidden(TOPIC, GapKind.ABORTED)
    sim.produce(TOPIC, 30)
    state, unfinished = caught_up(sim)
    assert state is CaughtUpState.CANNOT
    assert "cannot be bridged (gaps)" in unfinished[0]
    sim.close()


def test_a_damaged_segment_holds_up_what_is_behind_it_only_and_can_be_let_go() -> None:
    sim = started()
    sim.refusal = "not yet"
    sim.produce(TOPIC, 130)
    sim.rounds(20, step_ms=30_000)
    damaged = Catalogs(sim.store, "").load(TOPIC).segments[-1]
    key = layout.data_key(TOPIC, damaged.uuid)
    data, _ = sim.store.read(key)
    sim.store.put(key, data[:200] + bytes([data[200] ^ 1]) + data[201:])
    sim.refusal = ""
    sim.kill()
    blocked = blocked_at(sim, BridgeVerdict.DAMAGED)
    assert sim.bridged() == [each for each in sim.closed() if each < blocked]
    assert sim.bridged()
    state = sim.state()
    assert state is not None
    assert key in state.blocked.why
    sim.rounds(3, step_ms=3_600_000)
    assert sim.state() == state, "nothing is tried"
    assert ask(sim, blocked).ok
    sim.rounds(30, step_ms=30_000)
    state = sim.state()
    assert state is not None
    assert state.up_to is not None
    assert state.up_to.ledger >= blocked
    sim.store.put(key, data)
    sim.check()
    sim.close()


def test_what_is_bridged_of_a_damaged_segment_is_so_once_it_is_brought_back() -> None:
    sim = started()
    sim.records.refuses = "not yet"
    sim.rounds(10, step_ms=30_000)
    key = layout.data_key(TOPIC, Catalogs(sim.store, "").load(TOPIC).segments[0].uuid)
    data, _ = sim.store.read(key)
    sim.records.refuses = ""
    sim.kill()
    sim.store.put(key, data[:-1] + bytes([data[-1] ^ 1]))
    blocked_at(sim, BridgeVerdict.DAMAGED)
    sim.store.put(key, data)
    sim.rounds(30, step_ms=3_600_000)
    sim.until_bridged()
    assert sim.bridged()
    sim.check()
    sim.close()


def test_what_was_built_before_a_failure_is_not_read_back_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = started()
    bad, build, reads, read = sim.closed()[2], MemoryBuilds.build, list[str](), sim.bucket.read
    failing = [True]

    def built(builds: MemoryBuilds, topic: TopicName, ledger: BridgedLedger, bucket: str) -> object:
        if ledger.ledger == bad and failing:
            raise StoreUnavailableError("503")
        return build(builds, topic, ledger, bucket)

    def counted_read(key: str, *more: Any) -> object:
        reads.append(key)
        return read(key, *more)

    monkeypatch.setattr(MemoryBuilds, "build", built)
    monkeypatch.setattr(sim.bucket, "read", counted_read)
    sim.rounds(10, step_ms=30_000)
    state = sim.state()
    assert state is not None
    assert state.round is not None
    assert state.round.phase is BridgePhase.BUILDING
    assert [bool(each.size) for each in state.round.ledgers] == [True, True, False]
    before = len(reads)
    assert before
    sim.rounds(10, step_ms=600_000)
    sim.kill()
    sim.rounds(10, step_ms=600_000)
    assert len(reads) == before
    failing.clear()
    sim.until_bridged()
    sim.check()
    sim.close()


@pytest.mark.parametrize("restarted", [True, False])
def test_a_built_round_that_brokers_refuse_and_nobody_wants_is_taken_back(restarted: bool) -> None:
    sim = started(urgent=True)
    sim.records.refuses = "its brokers have no offloader"
    sim.rounds(20, step_ms=5_000)
    state = sim.state()
    assert state is not None
    assert state.round is not None
    assert state.round.phase is BridgePhase.SWAPPING
    sim.readable = False
    if restarted:
        assert caught_up(sim) == (CaughtUpState.CAUGHT_UP, [])
    else:
        sim.rounds(30, step_ms=30_000)
    state = sim.state()
    assert state is not None
    assert (state.round, state.leaving, state.ledgers) == (None, None, 0)
    assert not list(sim.bucket.list())
    sim.check()
    sim.close()


def test_a_run_until_caught_up_ends_where_what_nobody_wants_cannot_even_be_withdrawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sim = started(urgent=True)
    sim.records.refuses = "not yet"
    sim.rounds(20, step_ms=5_000)
    sim.readable = False
    no = SwapOutcome(SwapEnd.REFUSED, "the role may not unload it")
    monkeypatch.setattr(MemorySwaps, "withdraw", lambda *_: no)
    state, unfinished = caught_up(sim)
    assert state is CaughtUpState.CANNOT
    assert "may not unload" in unfinished[0]
    sim.close()


def test_no_round_is_begun_that_the_record_has_no_room_for() -> None:
    sim = started(urgent=True)
    sim.no_room = "its record has 690K: managedLedgerInfoCompressionType=ZSTD"
    state, unfinished = caught_up(sim)
    assert state is CaughtUpState.CANNOT
    assert "managedLedgerInfoCompressionType" in unfinished[0]
    assert sim.state() is None
    assert not list(sim.bucket.list())
    sim.no_room = ""
    assert caught_up(sim) == (CaughtUpState.CAUGHT_UP, [])
    sim.check()
    sim.close()


def test_a_step_that_works_is_not_held_against_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a run until it is caught up gives up in the middle of progress."""
    sim = started(urgent=True)
    build, bridge, tries = MemoryBuilds.build, MemorySwaps.bridge, list[int]()
    told = list[str]()

    def built(*what: object) -> object:
        tries.append(0)
        if len(tries) <= 5:
            raise StoreUnavailableError("503")
        return build(*what)

    def bridged(*what: object) -> object:
        told.append(hopeless(sim.registry.topics[TOPIC]))
        return bridge(*what)

    monkeypatch.setattr(MemoryBuilds, "build", built)
    monkeypatch.setattr(MemorySwaps, "bridge", bridged)
    sim.until_bridged()
    assert told
    assert not any(told)
    sim.close()


def test_a_run_until_caught_up_ends_where_each_round_is_withdrawn_and_says_why() -> None:
    sim = started(urgent=True)
    sim.records.delivers = False
    state, unfinished = caught_up(sim, 200)
    assert state is CaughtUpState.CANNOT
    assert "the broker delivers nothing" in unfinished[0]
    sim.records.delivers = True
    assert caught_up(sim) == (CaughtUpState.CAUGHT_UP, []), "what an earlier run has found is not held against it"
    sim.close()


def ask(sim: Simulation, ledger: int) -> requests.RequestOutcome:
    asked = Request(RequestKind.BRIDGE_LET_GO, TOPIC, sim.clock.now, "somebody", Position(0, ledger, 0))
    request = requests.submit(sim.store, "sim", asked, sim.uuid)
    sim.rounds(4)
    outcome = requests.outcome_of(sim.store, "sim", request)
    assert outcome is not None
    return outcome


def test_a_broker_that_does_not_know_its_record_is_made_to_load_it() -> None:
    sim = started()
    sim.until_bridged()
    unloads = len(sim.records.unloads)
    for ledger in sim.cluster.state.topic(TOPIC).ledgers:
        ledger.offloaded = False
    sim.produce(TOPIC, 1)
    sim.rounds(10, step_ms=30_000)
    assert len(sim.records.unloads) > unloads
    known = {each.id for each in sim.cluster.state.topic(TOPIC).ledgers if each.offloaded}
    assert known == sim.records.contexts[TOPIC].keys() & {each.id for each in sim.cluster.state.topic(TOPIC).ledgers}
    sim.check()
    sim.close()


def test_a_broker_that_still_knows_a_withdrawn_round_is_made_to_load_its_record_and_not_believed() -> None:
    """Else its ledgers count as offloaded by brokers themselves, and the pin lets go of them."""
    sim = started()
    sim.records.delivers = False
    for _ in range(40):
        sim.rounds(1, step_ms=1_000)
        if (state := sim.state()) is not None and state.rounds and state.round is None:
            break
    withdrawn = sim.closed()[:3]
    for ledger in sim.cluster.state.topic(TOPIC).ledgers:  # a former owner answers
        ledger.offloaded = ledger.id in withdrawn
    sim.records.delivers = True
    sim.produce(TOPIC, 1)
    unloads = len(sim.records.unloads)
    sim.until_bridged()
    assert set(withdrawn) <= set(sim.bridged()), "none was passed over"
    assert len(sim.records.unloads) > unloads + 1, "one of them makes the broker load the record"
    sim.check()
    sim.close()


@pytest.mark.parametrize("said", [StaleOrFine.UNKNOWN, StaleOrFine.STALE])
def test_what_brokers_have_offloaded_is_not_passed_over_while_nobody_knows_that(said: StaleOrFine) -> None:
    sim = started()
    sim.records.refuses = "not yet"
    for ledger in sim.closed()[:2]:
        sim.cluster.offload_stock(TOPIC, ledger, "00000000-0000-4000-8000-000000000001")
        sim.records.contexts.setdefault(TOPIC, {})[ledger] = "00000000-0000-4000-8000-000000000001"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemorySwaps, "look", lambda _, __: said)
        sim.rounds(10, step_ms=30_000)
        state = sim.state()
        assert state is None or state.up_to is None
    sim.rounds(40, step_ms=30_000)
    state = sim.state()
    assert state is not None
    assert state.up_to is not None
    sim.close()


def test_what_somebody_took_out_of_the_record_is_put_in_again() -> None:
    sim = started()
    sim.until_bridged()
    bridged = sim.bridged()
    sim.records.take(TOPIC, bridged[0])
    sim.records.unload(TOPIC)
    sim.produce(TOPIC, 1)
    sim.rounds(10, step_ms=30_000)
    assert bridged[0] in sim.records.contexts[TOPIC]
    sim.check()
    sim.close()


@pytest.mark.parametrize("urgent", [True, False])
def test_the_last_ledger_of_a_terminated_topic_is_left_out_and_all_is_done(urgent: bool) -> None:
    sim = started(urgent=urgent)
    sim.cluster.terminate(TOPIC)
    last = sim.closed()[-1]
    sim.rounds(40, step_ms=60_000)
    assert sim.bridged() == sim.closed()[:-1]
    assert len(sim.records.unloads) == 1
    state = sim.state()
    assert state is not None
    assert (state.rounds, state.blocked) == (1, None)
    assert sim.bridging.is_done(sim.registry.topics[TOPIC], sim.registry.topics[TOPIC].catalog.end)
    assert sim.cluster.mark_delete(TOPIC) < (last, 0)  # type: ignore[operator]
    if urgent:
        assert caught_up(sim) == (CaughtUpState.CAUGHT_UP, [])
    sim.check()
    sim.close()


def taken_out(sim: BridgedSimulation) -> tuple[int, str]:
    """Somebody has taken a ledger's context out of the record; and that ledger, and its object."""
    sim.until_bridged()
    first = sim.bridged()[0]
    uuid = sim.records.contexts[TOPIC][first]
    sim.records.take(TOPIC, first)
    sim.records.unload(TOPIC)
    return first, f"{uuid}-ledger-{first}"


def test_an_object_that_is_gone_is_built_again_where_a_ledger_is_repaired() -> None:
    sim = started()
    first, key = taken_out(sim)
    whole = sim.bucket.read(key)[0]
    sim.bucket.delete([key])
    sim.produce(TOPIC, 1)
    sim.rounds(10, step_ms=30_000)
    assert first in sim.records.contexts[TOPIC]
    assert sim.bucket.read(key)[0] == whole
    assert sim.bridged() == sorted(set(sim.bridged())), "it counts once"
    sim.check()
    sim.close()


def test_what_cannot_be_repaired_is_told_and_bothers_nobody_all_the_time(caplog: pytest.LogCaptureFixture) -> None:
    sim = started()
    first, key = taken_out(sim)
    sim.bucket.delete([key])
    with pytest.MonkeyPatch.context() as patch:
        gone = UnbridgedLedger(first, 0, BridgeVerdict.DELETED, "its segments are gone")
        patch.setattr(MemoryBuilds, "build", lambda *_: gone)
        sim.produce(TOPIC, 1)
        sim.rounds(40, step_ms=30_000)
    told = [line for line in alarms(caplog, "bridge-broken") if "cannot be made readable again" in line]
    assert len(told) == 1
    assert "is not there, and cannot be built again: its segments are gone" in told[0]
    assert first not in sim.records.contexts[TOPIC]
    sim.close()


def test_a_repair_that_brokers_do_not_deliver_is_taken_back_and_its_objects_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """BookKeeper has it, and clients read it there; other records name the object."""
    sim = started()
    first, key = taken_out(sim)
    sim.records.delivers = False
    sim.produce(TOPIC, 1)
    sim.rounds(40, step_ms=60_000)
    assert len(alarms(caplog, "bridge-broken")) == 1
    state = sim.state()
    assert state is not None
    assert state.round is None or not state.round.repairs
    assert first not in sim.records.contexts[TOPIC]
    assert sim.bucket.stat(key) is not None
    sim.records.delivers = True
    sim.rounds(40, step_ms=60_000)
    assert first in sim.records.contexts[TOPIC]
    sim.check()
    sim.close()


@pytest.mark.parametrize("has_it", [True, False])
def test_where_nobody_wants_brokers_to_read_it_only_what_bookkeeper_lacks_is_put_in_again(has_it: bool) -> None:
    """Somebody has taken it back by hand."""
    sim = started()
    first, _ = taken_out(sim)
    sim.readable = False
    sim.kill()
    if not has_it:
        sim.cluster.vanish(TOPIC, first)
    sim.rounds(10, step_ms=30_000)
    assert (first in sim.records.contexts[TOPIC]) is not has_it
    sim.close()


@pytest.mark.parametrize("at", range(5))
def test_a_process_that_dies_in_a_repair_is_followed_by_one_that_ends_it(at: int) -> None:
    sim = started()
    first, _ = taken_out(sim)
    sim.produce(TOPIC, 1)
    sim.kills_at.at = sim.kills_at.calls + at
    try:
        sim.rounds(10, step_ms=30_000)
    except KilledError:
        sim.kill()
    sim.kills_at.at = -1
    sim.until_bridged()
    sim.rounds(4, step_ms=30_000)
    assert first in sim.records.contexts[TOPIC]
    state = sim.state()
    assert state is not None
    assert state.ledgers == len(sim.bridged()) == len(set(sim.bridged()))
    sim.check()
    sim.close()


def test_a_look_at_bridged_objects_that_failed_is_made_again_at_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the oldest ledgers of a long topic would never be looked at where the store fails now and then."""
    sim = started()
    sim.produce(TOPIC, 600, 100)
    sim.until_bridged()
    looked, broken = list[int](), MemorySwaps.broken
    tries = iter(range(10_000))

    def fails_often(swaps: MemorySwaps, topic: TopicName, bucket: str, ledgers: Iterable[BridgedLedger]) -> object:
        if next(tries) % 4:
            raise StoreUnavailableError("503")
        listed = list(ledgers)
        looked.extend(one.ledger for one in listed)
        return broken(swaps, topic, bucket, listed)

    monkeypatch.setattr(MemorySwaps, "broken", fails_often)
    sim.rounds(120, step_ms=60_000)
    assert set(looked) == set(sim.bridged())
    sim.close()


@pytest.mark.parametrize("end", ["", "-index"])
def test_bridged_objects_that_are_gone_are_found_before_anybody_reads(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    sim = started()
    sim.produce(TOPIC, 300, 100)
    sim.until_bridged()
    sim.rounds(70, step_ms=60_000)
    assert not alarms(caplog, "bridge-broken")
    gone, off_the_list, wrong = sim.bridged()[2], sim.bridged()[0], sim.bridged()[5]
    contexts = sim.records.contexts[TOPIC]
    sim.bucket.delete([f"{contexts[gone]}-ledger-{gone}{end}"])
    sim.bucket.put(f"{contexts[wrong]}-ledger-{wrong}", b"short")
    sim.cluster.lose(TOPIC, off_the_list)
    sim.bucket.delete([f"{contexts[off_the_list]}-ledger-{off_the_list}"])
    asked, stat = [], sim.bucket.stat
    sim.bucket.stat = lambda key: (asked.append(sim.clock.now), stat(key))[1]  # type: ignore[func-returns-value]
    sim.rounds(180, step_ms=60_000)
    told = alarms(caplog, "bridge-broken")
    assert 1 <= len(told) <= 2 * 4, "once or twice in a turn, and a turn an hour"
    named = {int(one) for line in told for one in line.split("cannot read: ")[1].split(";")[0].split(", ")}
    assert named == {gone, wrong}
    assert max(asked.count(at) for at in set(asked)) <= 2 * (MOST_LEDGERS + 2)
    assert len(asked) <= 4 * 2 * (len(sim.bridged()) + 2)
    sim.close()


def test_interval_and_hours_are_kept_and_until_caught_up_waits_for_neither() -> None:
    settings = Bridge.model_validate({"minInterval": "1h", "maxInterval": "1h"})
    sim = started(bridge=settings)
    sim.rounds(20, step_ms=30_000)
    assert len(sim.records.unloads) == 1
    sim.produce(TOPIC, 45)
    sim.rounds(100, step_ms=30_000)
    assert len(sim.records.unloads) == 1
    sim.rounds(60, step_ms=60_000)
    assert len(sim.records.unloads) == 2
    sim.close()
    night = started(
        bridge=Bridge.model_validate({"minInterval": "0s", "maxInterval": "0s", "quietHours": "01:00-02:00"})
    )
    night.rounds(20, step_ms=30_000)  # the clock begins at 22:13
    assert not night.records.unloads
    night.rounds(60, step_ms=240_000)
    assert night.records.unloads
    night.close()
    hurried = started(bridge=settings, urgent=True)
    hurried.until_bridged()
    assert len(hurried.records.unloads) == 2
    hurried.close()


def test_a_round_makes_no_other_one_due_for_what_its_own_unload_has_closed() -> None:
    """A message each five minutes, and a roll-over by the broker once in two days: an unload a day, not one an hour."""
    sim = started(entries_per_ledger=2000, bridge=Bridge.model_validate({"minInterval": "1h"}))
    for five_minutes in range(48 * 12):
        sim.produce(TOPIC, 1)
        sim.rounds(1, step_ms=300_000)
        if five_minutes == 12:
            sim.cluster.roll(TOPIC)
    assert 2 <= len(sim.records.unloads) <= 4
    sim.check()
    sim.close()


def caught_up(sim: BridgedSimulation, rounds: int = 80) -> tuple[CaughtUpState, list[str]]:
    sim.kill()
    sim.registry._until_caught_up = True
    watch = CaughtUp(sim.driver, sim.clock.now, None)
    state = CaughtUpState.NOT_YET
    for _ in range(rounds):
        sim.rounds(1, step_ms=10_000)
        state = watch.look(sim.clock.now)
        if state is not CaughtUpState.NOT_YET:
            break
    return state, watch.unfinished()


def test_caught_up_is_who_is_bridged_to_the_end_that_it_had() -> None:
    sim = started(urgent=True)
    state, unfinished = caught_up(sim)
    assert (state, unfinished) == (CaughtUpState.CAUGHT_UP, [])
    assert sim.closed() == [] or set(sim.closed()) <= set(sim.bridged())
    assert len(sim.records.unloads) == 2
    sim.check()
    sim.close()


def test_a_run_that_cannot_be_caught_up_says_why() -> None:
    sim = started(urgent=True)
    sim.records.refuses = "autoSkipNonRecoverableData=true"
    state, unfinished = caught_up(sim)
    assert state is CaughtUpState.CANNOT
    assert "autoSkipNonRecoverableData=true" in unfinished[0]
    sim.close()


def test_no_more_unloads_a_minute_and_no_more_topics_at_once_than_set() -> None:
    settings = Bridge.model_validate({"minInterval": "0s", "maxInterval": "0s", "unloadsAMinute": 3, "topicsAtOnce": 2})
    sim = BridgedSimulation(seed=3, bridge=settings)
    topics = [TopicName.parse(f"public/default/t{number}") for number in range(12)]
    for topic in topics:
        sim.cluster.create(topic)
    sim.rounds(2)
    for topic in topics:
        sim.produce(topic, 25, 100)
    most, look = [0], sim.bridging.look

    def looked(topics: Mapping[TopicName, Topic]) -> None:
        look(topics)
        states = (facets_of(topic).state for topic in sim.registry.topics.values())
        most.append(sum(state is not None and state.round is not None for state in states))

    sim.bridging.look = looked
    sim.until_bridged(rounds=400, step_ms=5_000)
    assert max(most) <= 2
    times = [at for _, at in sim.records.unloads]
    assert len(times) >= 12
    assert all(sum(at - 60_000 < other <= at for other in times) <= 3 for at in times)
    sim.check(*topics)
    sim.close()


def test_topics_that_are_stuck_neither_use_up_the_unloads_nor_the_places_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("offloader.bridge.driver.progress.LAST_RETRY_MS", 20_000)
    settings = Bridge.model_validate({"minInterval": "0s", "maxInterval": "0s", "unloadsAMinute": 3, "topicsAtOnce": 2})
    sim = BridgedSimulation(seed=3, bridge=settings)
    stuck = [TopicName.parse(f"public/default/stuck{number}") for number in range(5)]
    for topic in (*stuck, TOPIC):
        sim.cluster.create(topic)
    sim.records.stuck = frozenset(stuck)
    sim.rounds(2)
    for topic in stuck:
        sim.produce(topic, 25, 100)
    sim.rounds(30, step_ms=10_000)
    sim.produce(TOPIC, 70, 100)
    sim.rounds(25, step_ms=10_000)
    assert len(sim.bridged(TOPIC)) >= 3
    times = [at for _, at in sim.records.unloads]
    assert all(sum(at - 60_000 < other <= at for other in times) <= 3 for at in times)
    assert set(stuck) <= {topic for topic, _ in sim.records.unloads}, "none of them is forgotten"
    sim.records.stuck = frozenset()
    sim.until_bridged(rounds=400, step_ms=10_000)
    sim.check(*stuck, TOPIC)
    sim.close()


@pytest.mark.parametrize("broken", ["pin", "unload"])
def test_the_checks_see_what_is_broken(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = started()
    if broken == "pin":
        monkeypatch.setattr("offloader.bridge.driver.feature.limit_of", lambda _: None)
        sim.records.refuses = "no"
    else:
        forgetful: Callable[[TopicName], None] = lambda _: None  # noqa: E731
        monkeypatch.setattr(sim.records, "unload", forgetful)
    sim.rounds(20, step_ms=60_000)
    with pytest.raises(AssertionError, match=r"is not bridged|was rewritten"):
        sim.check()
    sim.close()
