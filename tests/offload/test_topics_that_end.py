"""Data that is gone, topics that end, pins that are moved: nothing is lost silently, and the topic goes on."""

from __future__ import annotations

import pytest

from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs
from offloader.metadata.state import Abandoned, Releasing, TopicCatalog, TopicState
from offloader.model import FailureKind, GapKind, Position, RollReason, TopicName
from offloader.offload.driver import losses
from offloader.operations.rebuild.remains import Given
from offloader.operations.rebuild.write import rebuild
from offloader.operations.verify.verify import verify
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import FaultyStore, StoreFault, StoreFaults
from tests.invariants import check_invariants
from tests.offload.simulation import Simulation
from tests.truth import truth_of_cluster

T = TopicName.parse("public/default/t")
OTHER = TopicName.parse("public/default/other")


def started(seed: int = 1, **settings: object) -> Simulation:
    sim = Simulation(seed, **settings)
    sim.cluster.create(T)
    sim.cluster.create(OTHER)
    sim.rounds(4)
    return sim


def catalog(sim: Simulation, topic: TopicName = T) -> TopicCatalog:
    return sim.context.catalogs.load(topic)


def check(sim: Simulation, *, at_rest: bool = True) -> None:
    truths = {t: truth_of_cluster(sim.cluster, t) for t in (T, OTHER)}
    check_invariants(sim.store, truths, at_rest=at_rest, paces=[sim.pace])
    sim.close()


def test_a_terminated_topic_is_sealed_at_once() -> None:
    sim = started(roll="2h")
    sim.produce(T, 30)
    sim.cluster.terminate(T)
    sim.rounds(10)
    assert catalog(sim).segments[-1].roll_reason is RollReason.TERMINATED
    check(sim)


def test_a_deleted_topic_is_sealed_at_its_last_uploaded_part_and_the_rest_is_recorded_as_lost() -> None:
    sim = started(roll="2h", max_size=10**6)
    sim.produce(T, 60, largest=3000)
    sim.rounds(3)
    assert sim.driver.state(T).open.parts
    last = max((e.ledger, e.entry) for e in sim.cluster.entries(T))
    sim.cluster.delete(T)
    sim.until_believed()
    found = catalog(sim)
    assert found.segments[-1].roll_reason is RollReason.DELETED
    loss = found.losses[-1]
    assert (loss.start.ledger, loss.start.entry) == (found.segments[-1].end.ledger, found.segments[-1].end.entry + 1)
    assert (loss.end.ledger, loss.end.entry) == last
    assert T not in sim.registry.topics
    sim.close()


def test_a_topic_created_again_is_another_incarnation_and_goes_on() -> None:
    sim = started(roll="5s", max_size=10**6)
    sim.produce(T, 60)
    sim.rounds(3)
    sim.cluster.delete(T)
    sim.cluster.create(T)
    sim.until_believed()
    sim.produce(T, 20)
    sim.settle()
    found = catalog(sim)
    assert found.claim is not None
    assert found.claim.incarnation == 1
    assert {s.end.incarnation for s in found.segments} == {0, 1}
    check(sim)


def test_a_topic_created_again_while_nobody_looked() -> None:
    sim = started(roll="5s", max_size=10**6)
    sim.produce(T, 60)
    sim.rounds(3)
    sim.pins.close()
    sim.journal.close()
    sim.cluster.delete(T)
    sim.cluster.create(T)
    sim.start()
    sim.until_believed()
    sim.produce(T, 20)
    sim.settle()
    assert catalog(sim).claim.incarnation == 1
    check(sim)


def test_unload_and_restart_do_not_change_the_incarnation() -> None:
    sim = started()
    sim.produce(T, 10)
    sim.cluster.unload(T)
    sim.kill()
    sim.rounds(4)
    sim.produce(T, 10)
    sim.settle()
    assert catalog(sim).claim.incarnation == 0
    check(sim)


@pytest.mark.parametrize("uploaded", [False, True])
def test_lost_data_stops_the_topic_until_somebody_accepts_it(uploaded: bool) -> None:
    sim = started(roll="2h", max_size=10**6, entries_per_ledger=10)
    sim.produce(T, 8 if not uploaded else 60, largest=3000 if uploaded else 10)
    sim.rounds(3)
    first = sim.driver.state(T).open.start
    ledgers = [s.ledger for s in sim.cluster.ledgers(T).spans]
    sim.cluster.roll(T)
    for ledger in ledgers:
        sim.cluster.lose(T, ledger)
    sim.produce(T, 5, largest=10)
    sim.rounds(12)
    failure = sim.driver.state(T).failure
    assert failure is not None
    assert failure.kind is FailureKind.DATA_LOST
    assert "accept-loss" in failure.reason
    assert bool(catalog(sim).segments) is uploaded
    topic = sim.registry.topics[T]
    losses.accept(topic, Position(0, 10**9, 0))
    sim.forget_failure(T)
    sim.settle(step_ms=300_000)
    found = catalog(sim)
    assert found.losses
    assert found.losses[0].start == (
        first if not uploaded else Position(0, found.segments[0].end.ledger, found.segments[0].end.entry + 1)
    )
    check(sim)


def test_lost_data_is_recorded_by_itself_where_the_policy_says_so() -> None:
    sim = started(roll="10s", max_size=10**6, entries_per_ledger=10, fail_on_data_loss=False)
    sim.produce(T, 8, largest=10)
    sim.rounds(2)
    ledgers = [s.ledger for s in sim.cluster.ledgers(T).spans]
    sim.cluster.roll(T)
    for ledger in ledgers:
        sim.cluster.lose(T, ledger)
    sim.produce(T, 5, largest=10)
    sim.settle()
    assert catalog(sim).losses[0].accepted_by == "failOnDataLoss: false"
    check(sim)


def test_a_pin_that_was_moved_is_an_alarm_and_the_data_that_is_left_is_offloaded() -> None:
    sim = started(roll="60s", entries_per_ledger=None)
    sim.produce(T, 20)
    ledger, entry = max((e.ledger, e.entry) for e in sim.cluster.entries(T))
    sim.cluster.move_pin(T, ledger, entry - 5)
    sim.rounds(3)
    assert "message TTL" in sim.registry.topics[T].pin.alarm
    sim.settle()
    check(sim)


def test_a_deleted_subscription_is_made_again() -> None:
    sim = started(roll="60s", entries_per_ledger=None)
    sim.produce(T, 20)
    sim.rounds(2)
    sim.cluster.delete_subscription(T)
    sim.produce(T, 20)
    sim.settle()
    check(sim)


def test_an_open_transaction_holds_back_only_its_topic_and_is_complete_afterwards() -> None:
    sim = started(roll="5s", entries_per_ledger=None)
    sim.produce(T, 10)
    pending = sim.cluster.add_pending(T, b"in a transaction")
    sim.produce(T, 10)
    sim.produce(OTHER, 10)
    sim.rounds(20)
    assert catalog(sim, OTHER).segments
    before = catalog(sim).end
    assert before is not None
    assert (before.ledger, before.entry) < pending
    sim.cluster.resolve(T, commit=True)
    sim.settle()
    check(sim)


def test_a_roll_in_which_everything_was_aborted_is_a_record_without_objects() -> None:
    sim = started(roll="5s", entries_per_ledger=None)
    sim.produce(T, 5)
    sim.settle()
    for _ in range(4):
        sim.cluster.add_hidden(T, GapKind.ABORTED)
    sim.rounds(40)
    newest = catalog(sim).segments[-1]
    assert (newest.size, newest.entries, len(newest.parts)) == (0, 0, 0)
    assert sum(g.last - g.first + 1 for g in newest.gaps) == 4
    check(sim)


def test_a_tail_of_aborted_entries_that_grows_after_a_restart_is_accounted_for_and_its_ledger_is_not_pinned() -> None:
    sim = started(roll="5s", entries_per_ledger=5)
    sim.produce(T, 3)
    sim.cluster.add_hidden(T, GapKind.ABORTED)
    sim.rounds(40)
    assert catalog(sim).segments[-1].end.entry == 3
    sim.kill()
    sim.rounds(4)
    sim.cluster.add_hidden(T, GapKind.ABORTED)
    sim.settle(rounds=40)
    assert catalog(sim).segments[-1].end.entry == 4
    assert catalog(sim).closed or catalog(sim).segments[-1].ledgers[-1].closed_with == 4
    check(sim)


def test_entries_that_nothing_explains_fail_the_topic_and_name_the_positions() -> None:
    sim = started(roll="5s", entries_per_ledger=None)
    sim.produce(T, 5)
    ledger, entry = sim.cluster.add_withheld(T)
    sim.produce(T, 5)
    sim.produce(OTHER, 5)
    sim.rounds(20)
    failure = sim.driver.state(T).failure
    assert failure is not None
    assert f"{ledger}:{entry}" in failure.reason
    assert "bookkeeper" in failure.reason
    assert catalog(sim, OTHER).segments
    sim.close()


@pytest.mark.parametrize("running", [True, False])
def test_a_subscription_deleted_and_its_data_trimmed_is_a_recorded_loss_never_a_silent_hole(running: bool) -> None:
    sim = started(roll="5s", entries_per_ledger=5, fail_on_data_loss=False)
    sim.produce(T, 10)
    sim.cluster.roll(T)
    sim.settle()
    sim.produce(T, 3)
    sim.cluster.roll(T)
    sim.produce(T, 2)
    if running:
        sim.round()
    else:
        sim.pins.close()
        sim.journal.close()
    sim.cluster.delete_subscription(T)
    for _ in range(4):
        sim.produce(T, 5)
        sim.cluster.roll(T)
    if not running:
        sim.start()
        sim.rounds(5)
    sim.produce(T, 5)
    sim.settle()
    assert catalog(sim).losses
    check(sim)


@pytest.mark.parametrize("uploaded", [False, True])
def test_a_topic_created_again_with_data_before_it_is_looked_at_never_mixes_incarnations(uploaded: bool) -> None:
    sim = started(roll="2h", max_size=10**6)
    sim.produce(T, 60 if uploaded else 3, largest=3000 if uploaded else 10)
    sim.rounds(3)
    sim.pins.close()
    sim.journal.close()
    sim.cluster.delete(T)
    sim.cluster.create(T)
    sim.cluster.add_subscription(T, "somebody")
    sim.produce(T, 45)
    sim.start()
    sim.rounds(6)
    sim.settle(step_ms=300_000)
    assert catalog(sim).claim.incarnation == 1
    check(sim)


def test_a_topic_deleted_soon_after_a_restart_has_its_tail_recorded_as_lost() -> None:
    sim = started(roll="5s", entries_per_ledger=None)
    sim.produce(T, 20)
    sim.settle()
    sim.produce(T, 5)
    last = max((e.ledger, e.entry) for e in sim.cluster.entries(T))
    sim.kill()
    sim.rounds(3)
    sim.cluster.delete(T)
    sim.until_believed()
    found = catalog(sim)
    assert (found.end.ledger, found.end.entry) == last
    sim.close()


def test_one_entry_seen_then_deleted_and_created_again() -> None:
    sim = started(roll="2h")
    sim.produce(T, 1)
    sim.rounds(3)
    sim.cluster.delete(T)
    sim.rounds(4)
    sim.cluster.create(T)
    sim.rounds(6)
    sim.produce(T, 3)
    sim.settle(step_ms=300_000)
    check(sim)


def test_more_hidden_entries_than_one_slice_may_look_up_are_classified_in_the_end() -> None:
    sim = started(roll="5s", entries_per_ledger=None)
    sim.produce(T, 2)
    for _ in range(2_500):
        sim.cluster.add_hidden(T, GapKind.ABORTED)
    sim.produce(T, 2)
    sim.settle(step_ms=60_000)
    check(sim)


def test_a_damaged_catalog_of_a_disabled_topic_does_not_keep_the_others_from_being_offloaded() -> None:
    sim = started(roll="5s")
    sim.produce(OTHER, 5)
    sim.settle()
    sim.pins.close()
    sim.journal.close()
    sim.store.put("public/other-namespace/x/_catalog/" + "0" * 20, b"damaged")
    sim.start()
    sim.produce(OTHER, 5)
    sim.settle()
    assert sim.registry.topics
    sim.close()


def offloaded_up_to_a_closed_ledger(fail: bool, *, hold: bool = True) -> Simulation:
    """Two full ledgers are offloaded; the topic waits in an empty one. The pin keeps the last full one, unless that is
    given up."""
    sim = started(fail_on_data_loss=fail, pin_holds_last_entry=hold)
    sim.produce(T, 40)
    sim.settle()
    sim.rounds(5)
    sim.cluster.check_retention(T)
    sim.rounds(5)
    assert (catalog(sim).end.ledger in sim.cluster.admin.topic_info(T).ledgers) is hold
    return sim


def all_expires_while_nothing_runs(sim: Simulation) -> None:
    """Something is written, the pin is moved past it and it is trimmed; then a new process starts."""
    sim.pins.close()
    sim.produce(T, 60)
    last = sim.cluster.entries(T)[-1]
    sim.cluster.move_pin(T, last.ledger, last.entry)
    assert last.ledger not in sim.cluster.admin.topic_info(T).ledgers
    sim.kill()


def accept(sim: Simulation) -> None:
    assert sim.driver.state(T).failure.kind is FailureKind.DATA_LOST
    assert not catalog(sim).losses
    losses.accept(sim.registry.topics[T], Position(0, 10**9, 0))
    sim.forget_failure(T)


@pytest.mark.parametrize("down", [True, False])
@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("hold", [True, False])
def test_a_pin_moved_past_ledgers_that_were_then_trimmed_is_a_recorded_loss(down: bool, fail: bool, hold: bool) -> None:
    sim = offloaded_up_to_a_closed_ledger(fail, hold=hold)
    end = catalog(sim).end
    if down:
        sim.pins.close()
    sim.produce(T, 70)
    sim.cluster.move_pin(T, sim.cluster.entries(T)[-1].ledger, 2)
    if down:
        sim.kill()
    sim.rounds(10)
    if fail:
        accept(sim)
    sim.produce(T, 30)
    sim.settle(step_ms=300_000)
    (loss,) = catalog(sim).losses
    assert loss.start == Position(0, end.ledger, end.entry + 1)
    check(sim)


def test_a_pin_moved_past_everything_so_that_only_an_empty_ledger_is_left_is_a_recorded_loss() -> None:
    sim = offloaded_up_to_a_closed_ledger(True)
    all_expires_while_nothing_runs(sim)
    sim.rounds(10)
    assert sim.registry.topics[T].pin.alarm
    accept(sim)
    sim.produce(T, 30)
    sim.settle(step_ms=300_000)
    assert len(catalog(sim).losses) == 1
    check(sim)


@pytest.mark.parametrize("fail", [True, False])
def test_an_empty_ledger_that_is_replaced_after_a_loss_extends_it_and_waits_for_nobody(fail: bool) -> None:
    """Nobody knows whether somebody had written to it."""
    sim = offloaded_up_to_a_closed_ledger(fail)
    all_expires_while_nothing_runs(sim)
    sim.rounds(4)
    if fail:
        accept(sim)
        sim.rounds(2)
    (loss,) = catalog(sim).losses
    sim.cluster.unload(T)
    sim.kill()
    sim.rounds(4)
    assert loss.end.ledger not in sim.registry.topics[T].info.ledgers
    sim.produce(T, 30)
    sim.settle()
    before, more = catalog(sim).losses
    assert before == loss
    assert more.start == loss.end._replace(entry=0)
    assert more.accepted_by == "the loss before it"
    check(sim)


@pytest.mark.parametrize("hidden", [True, False])
def test_an_idle_topic_behind_a_loss_loses_nothing_more_however_often_it_is_unloaded(hidden: bool) -> None:
    """Its catalog does not grow. What is written at last, also where no broker delivers it, is offloaded."""
    sim = offloaded_up_to_a_closed_ledger(True)
    all_expires_while_nothing_runs(sim)
    sim.rounds(4)
    accept(sim)
    sim.rounds(2)
    slots = catalog(sim).next_slot
    for number in range(5):
        sim.cluster.unload(T)
        if number == 2:
            sim.kill()
        sim.rounds(4, step_ms=60_000)
        assert sim.driver.state(T).failure is None
    assert catalog(sim).next_slot == slots
    if hidden:
        sim.cluster.add_hidden(T, GapKind.MARKER)
        sim.kill()  # consumers' end tells nothing of it, a start asks for the ledgers
    else:
        sim.produce(T, 30)
    sim.rounds(10, step_ms=60_000)
    sim.settle()
    assert len(catalog(sim).losses) == 2
    assert len(catalog(sim).segments) > 1
    check(sim)


def test_what_was_written_after_a_loss_and_trimmed_is_lost_too() -> None:
    sim = offloaded_up_to_a_closed_ledger(False)
    for _ in range(2):
        all_expires_while_nothing_runs(sim)
        sim.rounds(4)
    sim.produce(T, 30)
    sim.settle()
    assert len(catalog(sim).losses) == 2
    check(sim)


def test_a_pin_moved_within_ledgers_that_are_all_there_is_an_alarm_and_no_loss() -> None:
    sim = offloaded_up_to_a_closed_ledger(True)
    entry = sim.cluster.produce(T, b"one")
    sim.produce(T, 10)
    sim.cluster.move_pin(T, *entry)
    sim.rounds(2)
    assert sim.registry.topics[T].pin.alarm
    sim.settle()
    assert not catalog(sim).losses
    check(sim)


@pytest.mark.parametrize("down", [True, False])
def test_a_subscription_deleted_before_the_first_segment_and_its_data_trimmed_is_a_recorded_loss(down: bool) -> None:
    sim = started(fail_on_data_loss=False)
    begin = catalog(sim).claim.begin
    if down:
        sim.pins.close()
    sim.cluster.add_pending(T, b"in a transaction")
    sim.cluster.resolve(T, commit=True)
    sim.produce(T, 68)
    sim.cluster.delete_subscription(T)
    if down:
        sim.kill()
    sim.rounds(4)
    sim.produce(T, 30)
    sim.settle()
    assert [loss.start for loss in catalog(sim).losses] == [begin]
    check(sim)


def started_with_aborts_that_fail(times: int) -> Simulation:
    faults = StoreFaults()
    sim = started(roll="10m", max_size=10**7, store=FaultyStore(MemoryStore(), faults))
    faults.add(StoreFault("abort", times=times))
    return sim


def test_the_upload_of_a_deleted_topic_is_ended_before_the_topic_is_forgotten() -> None:
    sim = started_with_aborts_that_fail(3)
    sim.produce(T, 40)
    while not sim.plans.newest:
        sim.clock.now += 1_000
        sim.round()
    assert list(sim.store.list_uploads())
    sim.cluster.delete(T)
    sim.rounds(40, step_ms=6_000)
    assert T not in sim.registry.topics
    assert T not in sim.journal.topics
    assert not list(sim.store.list_uploads())
    sim.close()


def test_the_abandoned_upload_of_a_released_topic_is_ended_before_the_topic_is_let_go() -> None:
    sim = started_with_aborts_that_fail(3)
    upload = sim.store.begin("some/key")
    sim.journal.record(
        [TopicState(T, releasing=Releasing.REQUEST, abandoned=(Abandoned(sim.uuid(), upload, "a test"),))]
    )
    sim.rounds(20, step_ms=6_000)
    assert T not in sim.registry.topics
    assert not list(sim.store.list_uploads())
    sim.close()


@pytest.mark.parametrize("uploaded", [False, True])
def test_a_topic_deleted_while_nothing_ran_is_sealed_at_its_last_uploaded_part_and_forgotten(uploaded: bool) -> None:
    sim = started(roll="2h", max_size=10**6)
    sim.produce(T, 60 if uploaded else 3, largest=3000 if uploaded else 10)
    sim.rounds(3)
    segment = sim.driver.state(T).open
    assert bool(segment.parts) is uploaded
    sim.pins.close()
    sim.cluster.delete(T)
    sim.kill()
    sim.until_believed()
    sim.rounds(8)
    found = catalog(sim)
    assert found.end == (segment.covered if uploaded else segment.start)
    assert bool(found.segments) is uploaded
    assert bool(found.losses) is not uploaded
    assert T not in sim.registry.topics
    assert T not in sim.registry.refused
    assert T not in sim.journal.topics
    assert not list(sim.store.list_uploads())
    sim.close()


def test_a_segment_of_gaps_alone_is_no_abandoned_one_while_its_upload_cannot_be_ended() -> None:
    faults = StoreFaults()
    sim = started(roll="30s", max_size=10**7, store=FaultyStore(MemoryStore(), faults))
    for _ in range(3):
        sim.cluster.produce(T, bytes(6_000))  # by their size the next ones are more than a part
    sim.rounds(60)
    faults.add(StoreFault("abort", times=10_000))
    before = len(catalog(sim).segments)
    for _ in range(8):
        sim.cluster.add_hidden(T, GapKind.ABORTED)
    sim.rounds(200)
    found = catalog(sim)
    assert (before, len(found.segments), found.segments[-1].size) == (1, 2, 0)
    upload = next(iter(sim.store.list_uploads())).upload
    assert [(each.uuid, each.upload) for each in sim.driver.state(T).abandoned] == [("", upload)]
    assert not [finding for finding in verify(sim.store).findings if finding.topic == T]
    plain = sim.store.store if isinstance(sim.store, FaultyStore) else sim.store
    sim.close()
    plain.delete([key for key, _ in plain.list(layout.generations_folder(T))])
    rebuild(plain, T, Given("sim", sim.clock.now), iter(map(str, range(100))).__next__)
    assert Catalogs(plain, "app").load(T).segments == found.segments


def test_a_catalog_that_has_lost_its_end_is_not_gone_on_with_where_the_journal_knows_more() -> None:
    sim = started(roll="2h", max_size=3_000)
    while len(catalog(sim).segments) < 3:
        sim.produce(T, 5)
        sim.rounds(2)
    while sim.driver.state(T).open is None:
        sim.produce(T, 1)
        sim.rounds(1)
    before = catalog(sim)
    sim.kill()
    slot = before.next_slot - 1
    kept = {key: sim.store.read(key)[0] for key in (layout.slot_key(T, 0, slot), layout.slot_key(T, 0, slot - 1))}
    sim.store.delete(kept)
    sim.start()
    sim.rounds(20)
    assert T not in sim.registry.topics
    assert catalog(sim).next_slot == slot - 1
    for key, data in kept.items():
        sim.store.put(key, data)
    sim.rounds(200)
    assert T in sim.registry.topics
    assert catalog(sim).segments[: len(before.segments)] == before.segments
    sim.close()


def test_a_process_that_never_lives_for_a_minute_takes_no_topic_for_deleted() -> None:
    """Looks are not journaled: each start begins anew, and until one lasts nothing of the topic is given up."""
    sim = started(roll="2h", max_size=10**6)
    sim.produce(T, 60)
    sim.rounds(3)
    segment = sim.driver.state(T).open
    assert segment is not None
    assert segment.parts
    sim.cluster.delete(T)
    for _ in range(6):
        sim.kill()
        sim.rounds(4, step_ms=10_000)
        kept = sim.journal.topics[T].open
        assert kept is not None
        assert (kept.uuid, kept.closing_end) == (segment.uuid, None)
        assert not catalog(sim).losses
    sim.until_believed()
    sim.rounds(5, step_ms=11_000)
    assert T not in sim.journal.topics
    assert [s.uuid for s in catalog(sim).segments] == [segment.uuid]
    check(sim, at_rest=False)


def test_what_was_seen_behind_a_loss_and_is_gone_is_a_loss_though_nothing_more_is_written() -> None:
    sim = started(roll="10s", max_size=10**8, entries_per_ledger=20, enabled=False, fail_on_data_loss=False)
    properties = sim.cluster.namespace("public/default").properties
    properties["offloader.enabled"] = "true"
    sim.rounds(4)
    sim.produce(T, 40)
    sim.cluster.produce(OTHER, b"x")
    sim.settle()
    all_expires_while_nothing_runs(sim)
    sim.rounds(8)
    (loss,) = catalog(sim).losses
    del properties["offloader.enabled"]  # paused: no segment is opened
    sim.rounds(5)
    sim.produce(T, 10)
    sim.rounds(10, step_ms=10_000)
    last = sim.cluster.entries(T)[-1]
    sim.cluster.move_pin(T, last.ledger, last.entry)
    sim.cluster.unload(T)
    sim.cluster.check_retention(T)
    sim.rounds(10, step_ms=60_000)
    assert catalog(sim).losses[0] == loss
    assert catalog(sim).losses[-1].end.ledger > last.ledger
