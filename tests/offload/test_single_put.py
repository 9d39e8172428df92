"""A segment of one part is one conditional PUT: however often and late it is tried, there is one object, and what is
left of an attempt that no segment waits for is an orphan that the scan names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from offloader.archive.findings import FindingKind
from offloader.errors import OutcomeUnknownError
from offloader.lifecycle.bucket.scan import BucketScanner
from offloader.lifecycle.candidates import OrphanVerdict
from offloader.metadata.layout import data_key
from offloader.metadata.root import open_root
from offloader.metadata.state import CloseRequest, OpenTopic, TopicState
from offloader.model import (
    SINGLE_PUT,
    FailureKind,
    GapKind,
    Lane,
    Position,
    Receipt,
    RollReason,
    SegmentStatus,
    Slice,
    SliceStop,
    Source,
    TopicName,
)
from offloader.offload.core import segments
from offloader.offload.worker.slice_worker import died
from offloader.storage.forwarding import ForwardingStore
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.invariants import HARMLESS, check_invariants
from tests.offload.simulation import Simulation
from tests.offload.test_stores_that_fail import parts_ends
from tests.truth import truth_of_cluster

T = TopicName.parse("public/default/t")
WITNESS = TopicName.parse("public/default/witness")
HOUR_MS = 3_600_000


class WatchedStore(ForwardingStore):
    """Which calls concerned data objects."""

    def __init__(self, store: MemoryStore | FaultyStore) -> None:
        super().__init__(store)
        self.calls: list[str] = []

    def _call(self, verb, key, work):
        if parts_ends(key):
            self.calls.append(verb)
        return super()._call(verb, key, work)


def small(store: MemoryStore | FaultyStore | None = None, **settings: object) -> Simulation:
    """A topic with a few entries that are not offloaded."""
    watched = WatchedStore(store or MemoryStore())
    sim = Simulation(1, store=watched, entries_per_ledger=None, **settings)
    open_root(sim.store, sim.cluster.name, sim.uuid)
    sim.cluster.create(T)
    sim.cluster.create(WITNESS)
    sim.rounds(4)
    sim.produce(T, 4, largest=200)
    return sim


def planned(sim: Simulation) -> Slice:
    """The topic's slice, once it is planned; it is not run."""
    for _ in range(30):
        for plan in sim.plans.newest.values():
            for work in plan.slices:
                assert work.id.upload == SINGLE_PUT
                return work
        sim.clock.now += 10_000
        sim.round()
    raise AssertionError(f"nothing is planned: {sim.driver.state(T)}")


def open_topic(sim: Simulation) -> OpenTopic:
    state = sim.driver.state(T)
    assert isinstance(state, OpenTopic)
    return state


def deliver(sim: Simulation, *receipts: Receipt) -> None:
    """These are the batch's."""
    sim.plans.newest.pop(Lane.FAST, None)
    sim.driver.deliver(Lane.FAST, list(receipts))
    sim.driver._take_receipts()


def data_objects(sim: Simulation) -> set[str]:
    return {key for key, _ in sim.store.list() if parts_ends(key)}


def committed(sim: Simulation) -> list[str]:
    return [data_key(T, segment.uuid) for segment in sim.context.catalogs.load(T).segments if segment.parts]


def check(sim: Simulation, *orphans: str) -> None:
    """Everything is offloaded once, and these data objects, no others, are orphans for certain."""
    sim.settle()
    assert data_objects(sim) == {*committed(sim), *orphans}
    found = BucketScanner(sim.store, sim.clock, sim.uuid, 0).scan().orphans
    assert {o.key: o.ruling.verdict for o in found if parts_ends(o.key)} == dict.fromkeys(
        orphans, OrphanVerdict.CERTAIN
    )
    allowed = HARMLESS | {FindingKind.STRAY_OBJECT} if orphans else HARMLESS
    check_invariants(sim.store, {T: truth_of_cluster(sim.cluster, T)}, at_rest=True, allowed=allowed, paces=[sim.pace])
    sim.close()


def test_nothing_is_begun_and_nothing_is_completed() -> None:
    sim = small()
    sim.settle()
    assert sim.store.calls == ["put", "read"], "the object, and its index entries, which the seal reads back"
    assert not list(sim.store.list_uploads())
    check(sim)


def test_a_segment_of_gaps_alone_has_no_object_and_nothing_to_abort() -> None:
    sim = small(roll="30s")
    sim.settle()
    sim.store.calls.clear()
    for _ in range(4):
        sim.cluster.add_hidden(T, GapKind.ABORTED)
    seen: list[TopicState] = []
    for _ in range(200):
        sim.rounds(1)
        seen.append(sim.driver.state(T))
    assert sim.context.catalogs.load(T).segments[-1].size == 0
    assert SINGLE_PUT in {state.open.upload for state in seen if state.open is not None}
    assert not any(state.abandoned for state in seen)
    assert not sim.store.calls
    check(sim)


def test_a_segment_whose_upload_has_begun_is_completed_by_it() -> None:
    """As an earlier build, or a larger estimate, has left it."""
    sim = small()
    work = planned(sim)
    upload = sim.store.begin(data_key(T, work.id.uuid))
    state = open_topic(sim)
    sim.journal.record([replace(state, open=replace(state.open, upload=upload))])
    sim.kill()
    sim.settle()
    assert committed(sim) == [data_key(T, work.id.uuid)]
    assert sim.store.calls == ["begin", "put_part", "commit", "read"]
    check(sim)


def test_its_end_is_journaled_before_it_is_written() -> None:
    sim = small()
    planned(sim)
    journaled = sim.journal.topics[T].open
    assert (journaled.upload, journaled.closing_end) == (SINGLE_PUT, planned(sim).bound)
    assert not data_objects(sim)
    check(sim)


def test_two_attempts_at_a_slice_write_one_object() -> None:
    sim = small()
    work = planned(sim)
    first, second = sim.run(work), sim.run(work)
    assert first.parts == second.parts
    deliver(sim, first, second)
    assert sim.driver.state(T).open is None or sim.driver.state(T).open.status is SegmentStatus.SEALING
    check(sim)


def test_an_attempt_that_comes_an_hour_late_changes_nothing() -> None:
    sim = small()
    work = planned(sim)
    sim.settle()
    before = {key: sim.store.stat(key).etag for key in data_objects(sim)}
    sim.clock.now += HOUR_MS
    deliver(sim, sim.run(work))
    assert {key: sim.store.stat(key).etag for key in data_objects(sim)} == before
    check(sim)


@pytest.mark.parametrize("effect", [Effect.BEFORE, Effect.LOST, Effect.REPEATED])
def test_an_attempt_whose_answer_is_lost_is_repeated_under_the_same_uuid(effect: Effect) -> None:
    faults = StoreFaults([StoreFault("put", effect, key=parts_ends)])
    sim = small(FaultyStore(MemoryStore(), faults))
    work = planned(sim)
    receipt = sim.run(work)
    assert receipt.finished is (effect is Effect.REPEATED)
    deliver(sim, receipt)
    sim.settle()
    assert committed(sim) == [data_key(T, work.id.uuid)]
    check(sim)


def test_a_worker_that_may_write_and_not_read_does_not_hold_up_its_segment() -> None:
    """The object is there, and no attempt learns whose it is: the range is uploaded in parts in the end."""
    faults = StoreFaults()
    sim = small(FaultyStore(MemoryStore(), faults))
    work = planned(sim)
    assert sim.run(work).finished
    faults.add(StoreFault("put", key=parts_ends, times=10**6, error=lambda: OutcomeUnknownError("403")))
    deliver(sim, died(work))
    sim.settle()
    assert data_key(T, work.id.uuid) not in committed(sim)
    check(sim, data_key(T, work.id.uuid))


def test_an_object_whose_receipt_is_lost_with_the_process_is_the_segment_s() -> None:
    """A crash between the PUT and the journal."""
    sim = small()
    work = planned(sim)
    assert sim.run(work).finished
    sim.kill()
    sim.settle()
    assert committed(sim) == [data_key(T, work.id.uuid)]
    check(sim)


def test_a_segment_that_is_journaled_and_not_committed_is_committed_by_the_next_process() -> None:
    sim = small()
    work = planned(sim)
    receipt = sim.run(work)
    sim.plans.newest.clear()
    sim.journal.record([sealing(sim, receipt)])
    sim.kill()
    sim.store.calls.clear()
    sim.settle()
    assert committed(sim) == [data_key(T, work.id.uuid)]
    assert sim.store.calls == ["read"]
    check(sim)


def sealing(sim: Simulation, receipt: Receipt) -> OpenTopic:
    state = segments.received(sim.driver.state(T), receipt, sim.clock.now, 0.5)
    return segments.complete(state, receipt.gaps, sim.registry.topics[T].info.ledgers, sim.clock.now)


def test_a_process_that_was_overtaken_and_the_next_one_write_one_object() -> None:
    sim = small()
    work = planned(sim)
    sim.pins.close()  # the newcomer's subscription is the one that counts
    heir = Simulation(2, store=sim.store, entries_per_ledger=None, cluster_of=sim)
    heir.rounds(4)
    late = sim.run(work)
    assert late.finished
    heir.settle()
    assert committed(heir) == [data_key(T, work.id.uuid)]
    assert sim.run(work).parts == late.parts
    check(heir)


def given_up(sim: Simulation) -> None:
    """The segment is begun anew under another uuid after the task of its slice was lost, as with another source."""
    deliver(sim, died(planned(sim)))
    state = sim.driver.state(T)
    sim.journal.record([segments.begun_anew(state, sim.uuid(), Source.BROKER, "begun anew by the test")])


@pytest.mark.parametrize("late", [False, True])
def test_an_object_of_a_uuid_that_was_given_up_is_an_orphan(*, late: bool) -> None:
    """Also where the worker was paused for so long that no journal knows of the uuid any more."""
    sim = small()
    work = planned(sim)
    if not late:
        assert sim.run(work).finished
    given_up(sim)
    sim.settle()
    sim.clock.now += HOUR_MS
    sim.rounds(3)
    assert not sim.driver.state(T).abandoned
    if late:
        assert sim.run(work).finished
    assert data_key(T, work.id.uuid) not in committed(sim)
    check(sim, data_key(T, work.id.uuid))


def test_an_object_with_other_bytes_is_not_replaced_and_the_segment_gets_another_uuid() -> None:
    """An attempt that was cut otherwise was faster: what a broker delivers may have changed on its way."""
    sim = small()
    work = planned(sim)
    assert sim.run(replace(work, cuts=replace(work.cuts, index_step=100))).finished
    there = sim.store.read(data_key(T, work.id.uuid))[0]
    receipt = sim.run(work)
    assert (receipt.failure_kind, receipt.finished) == (FailureKind.UPLOAD_GONE, False)
    deliver(sim, receipt)
    sim.settle()
    assert sim.store.read(data_key(T, work.id.uuid))[0] == there
    assert data_key(T, work.id.uuid) not in committed(sim)
    assert {"begin", "commit"} < set(sim.store.calls), "a range whose single PUT has failed is uploaded in parts"
    check(sim, data_key(T, work.id.uuid))


def test_a_segment_whose_object_is_gone_before_its_seal_is_read_again() -> None:
    sim = small()
    work = planned(sim)
    receipt = sim.run(work)
    sim.store.delete([data_key(T, work.id.uuid)])
    deliver(sim, receipt)
    sim.settle()
    assert data_key(T, work.id.uuid) not in committed(sim)
    check(sim)


def test_an_object_of_another_size_is_not_committed() -> None:
    sim = small()
    work = planned(sim)
    key, receipt = data_key(T, work.id.uuid), sim.run(work)
    data, stat = sim.store.read(key)
    sim.store.put(key, data + b"x", meta=stat.meta)
    deliver(sim, receipt)
    sim.rounds(5)
    assert not committed(sim)
    assert f"{key} has {len(data) + 1} bytes, its parts have {len(data)}" in sim.driver.state(T).failure.reason
    sim.store.put(key, data, meta=stat.meta)
    check(sim)


def larger_than_estimated(sim: Simulation) -> Slice:
    """A slice that was planned by sizes that were told before the entries that it will meet."""
    work = planned(sim)
    sim.plans.newest.clear()
    sim.produce(T, 12, largest=3000)
    sim.cluster.produce(T, b"x" * sim.part)
    end = sim.cluster.entries(T)[-1]
    bound, state = Position(0, end.ledger, end.entry), open_topic(sim)
    sim.journal.record([replace(state, open=replace(state.open, closing_end=bound))])
    return replace(work, bound=bound)


def test_a_segment_that_is_larger_than_estimated_is_uploaded_in_parts() -> None:
    sim = small()
    work = larger_than_estimated(sim)
    receipt = sim.run(work)
    assert (receipt.stop, receipt.parts) == (SliceStop.LARGER, ())
    assert not data_objects(sim)
    deliver(sim, receipt)
    assert sim.driver.state(T).open.uuid != work.id.uuid
    assert sim.driver.state(T).failure is None, "an estimate is no failure"
    sim.settle()
    assert {"begin", "put_part", "commit"} < set(sim.store.calls)
    check(sim)


def topic_deleted(sim: Simulation) -> None:
    sim.cluster.delete(T)
    sim.until_believed()


def paused(sim: Simulation) -> None:
    sim.enabled = False
    sim.kill()
    sim.rounds(3)


@pytest.mark.parametrize("ends", [topic_deleted, paused])
def test_a_topic_that_ends_while_its_slice_is_under_way_leaves_one_orphan(
    ends: Callable[[Simulation], None],
) -> None:
    sim = small()
    work = planned(sim)
    assert sim.run(work).finished
    deliver(sim, died(work))
    ends(sim)
    sim.rounds(10, 10_000)
    assert not committed(sim)
    assert data_objects(sim) == {data_key(T, work.id.uuid)}
    (found,) = [o for o in BucketScanner(sim.store, sim.clock, sim.uuid, 0).scan().orphans if parts_ends(o.key)]
    assert found.ruling.verdict is OrphanVerdict.SUSPECT, "it may be the only copy"
    sim.close()


def test_a_close_that_an_operator_requests_takes_one_put() -> None:
    sim = small(roll="10h")
    sim.rounds(2)
    state = sim.driver.state(T)
    assert state.open is not None
    assert state.open.upload is None
    last = sim.cluster.entries(T)[-1]
    request = CloseRequest("r", Position(0, last.ledger, last.entry))
    sim.journal.record([replace(state, requests=(request,))])
    sim.rounds(4)
    assert sim.context.catalogs.load(T).segments[0].roll_reason is RollReason.REQUEST
    assert sim.store.calls == ["put", "read"]
    check(sim)
