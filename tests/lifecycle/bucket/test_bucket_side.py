"""The second phase in the bucket, with the machine and the queue as the service has them: what was marked is looked at
again, and goes in order; what has changed stays; killed at any call, each object goes exactly once or is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count
from random import Random

import pytest

from integration.soak import SOAK
from offloader.errors import AccessDeniedError, FatalError, OutcomeUnknownError
from offloader.lifecycle.bucket.orphans import BucketOrphan
from offloader.lifecycle.bucket.side import BucketSide
from offloader.lifecycle.deletion.machine import (
    DeletionStep,
    DeletionTry,
    DeletionTurn,
    FailedLook,
    GoneLedger,
    ReferencedLedger,
    UnprovenLedger,
    UnreferencedLedger,
    marked,
    rule,
    tried,
    turn,
)
from offloader.lifecycle.deletion.queue import DeletionQueue, StoredDeletion
from offloader.lifecycle.deletion.records import (
    DeletionAnswer,
    DeletionState,
    DeletionSwitch,
    PendingDeleteLedgerInfo,
    object_record_name,
)
from offloader.lifecycle.deletion.timing import DeletionTiming
from offloader.metadata import layout
from offloader.metadata.catalog_codec import encode_catalog
from offloader.operations.rebuild.remains import Given
from offloader.operations.rebuild.write import rebuild
from offloader.operations.verify.verify import verify
from offloader.ports.object_store import ObjectStore
from tests.archive.support import TOPIC, Archive
from tests.examples import few
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.invariants import check_invariants
from tests.times import DAY_MS

from .support import (
    HOUR,
    StoreClock,
    a_uuid,
    archive,
    by_id,
    header,
    in_time,
    journal_opens,
    open_segment,
    scanner,
    segment_of,
)

TOO_LATE = "it took longer than a try may take"

TIMING = DeletionTiming(max_tries=1000)
SWITCH = DeletionSwitch(True, 0)
U = a_uuid(1)
DATA, INDEX, RECORD = layout.data_key(TOPIC, U), layout.index_key(TOPIC, U), layout.record_key(TOPIC, U)


def side(store: ObjectStore, clock: Callable[[], int]) -> BucketSide:
    return BucketSide(store, scanner(store, clock))


def strays(made: Archive, *uuids: str) -> None:
    """The second segment once more, under other uuids: data, index and record."""
    segment = segment_of(made, 1)
    for uuid in uuids:
        for of in (layout.data_key, layout.index_key):
            made.store.put(of(TOPIC, uuid), made.store.read(of(TOPIC, segment.uuid))[0])
        made.store.put(layout.record_key(TOPIC, uuid), encode_catalog(uuid, replace(segment, uuid=uuid)))


def mark(orphans: Iterable[BucketOrphan], now: int) -> list[PendingDeleteLedgerInfo]:
    found = (marked(orphan.record("scan"), None, now) for orphan in orphans if orphan.deletable)
    return [record for record in found if record is not None]


def marked_strays(*uuids: str) -> tuple[Archive, StoreClock, list[PendingDeleteLedgerInfo]]:
    made, clock = archive()
    strays(made, *uuids)
    clock.now += 2 * HOUR
    records = mark(scanner(made.store, clock).scan().orphans, clock.now)
    clock.now += 2 * DAY_MS
    return made, clock, records


def test_every_orphan_that_is_certain_makes_a_valid_record_with_a_name_of_its_own():
    made, _, records = marked_strays(U, a_uuid(2))
    made.store.begin(layout.data_key(TOPIC, a_uuid(3)))
    assert len(records) == 6
    assert all(record.is_valid for record in records)
    assert len({record.name for record in records}) == 6
    assert [record.thing for record in sorted(records, key=lambda each: each.name)][:3] in (
        [DATA, INDEX, RECORD],
        [of(TOPIC, a_uuid(2)) for of in (layout.data_key, layout.index_key, layout.record_key)],
    )


def test_what_is_still_an_orphan_is_deleted_as_it_was_marked():
    made, clock, records = marked_strays(U)
    bucket = side(made.store, clock)
    looks = bucket.look(records)
    assert looks.refusals == ()
    assert looks.things == sum(1 for _ in made.store.list())
    for record in sorted(records, key=lambda each: each.name):
        look = looks.looks[record.name]
        assert isinstance(look, UnreferencedLedger)
        ruling = rule(record, look, clock.now, TIMING, SWITCH)
        assert ruling.step is DeletionStep.DELETE
        assert bucket.delete(ruling.record, in_time) == (DeletionTry.DONE, "")
    assert set(bucket.look(records).looks.values()) == {GoneLedger()}
    assert scanner(made.store, clock).scan().candidates == ()
    check_invariants(made.store, {})


def test_an_index_waits_for_its_data_and_a_record_for_its_index():
    made, clock, records = marked_strays(U)
    bucket, by_key = side(made.store, clock), {record.object_key: record for record in records}
    for key, first in ((RECORD, INDEX), (INDEX, DATA)):
        assert bucket.delete(by_key[key], in_time) == (DeletionTry.REFUSED, f"{first} goes first")
    for key in (DATA, INDEX, RECORD):
        assert bucket.delete(by_key[key], in_time) == (DeletionTry.DONE, "")


def test_what_was_written_again_stays():
    made, clock, records = marked_strays(U)
    bucket = side(made.store, clock)
    data = next(record for record in records if record.object_key == DATA)
    made.store.put(DATA, made.store.read(DATA)[0])  # the same bytes: another writer's
    assert bucket.delete(data, in_time) == (DeletionTry.REFUSED, "it was written again since it was looked at")
    look = bucket.look([data]).looks[data.name]
    ended = rule(data, look, clock.now, TIMING, SWITCH).record
    assert (ended.state, ended.answer) == (DeletionState.KEPT, DeletionAnswer.DOES_NOT_MATCH)
    assert made.store.stat(DATA) is not None


def test_what_somebody_names_meanwhile_is_still_in_use():
    made, clock, records = marked_strays(U)
    journal_opens(made.store, "another", TOPIC, open_segment(U, 6, 10))
    looks = side(made.store, clock).look(records).looks
    assert {type(look) for look in looks.values()} == {ReferencedLedger}


def test_where_it_cannot_be_told_any_more_nothing_is_deleted():
    made, clock, records = marked_strays(U)
    made.store.put(layout.slot_key(TOPIC, 0, 2), b"damage")
    looks = side(made.store, clock).look(records)
    assert {type(look) for look in looks.looks.values()} == {FailedLook}
    made.store.put(layout.epoch_folder("broken", 1) + layout.slot_name(0), b"damage")
    assert "A journal cannot be read" in side(made.store, clock).look(records).refusals[0]


def test_what_has_become_suspect_is_kept():
    made, clock, records = marked_strays(U)
    data = next(record for record in records if record.object_key == DATA)
    behind = header(9, 0)
    made.store.backing.objects[DATA] = replace(made.store.backing.objects[DATA], data=behind)  # nobody can do so
    made.store.delete([INDEX, RECORD])
    assert isinstance(side(made.store, clock).look([data]).looks[data.name], UnprovenLedger)


def test_a_rebuild_between_the_look_and_the_deletion_stops_it():
    made, clock, records = marked_strays(U)
    bucket = side(made.store, clock)
    data = next(record for record in records if record.object_key == DATA)
    assert isinstance(bucket.look([data]).looks[data.name], UnreferencedLedger)
    made.store.delete([layout.slot_key(TOPIC, 0, 1)])
    tokens = count()
    rebuild(made.store, TOPIC, Given("app", clock.now), lambda: f"rebuild-{next(tokens)}")
    outcome, why = bucket.delete(data, in_time)
    assert outcome is DeletionTry.REFUSED
    assert "made anew" in why
    assert made.store.stat(DATA) is not None


def test_an_upload_is_ended_and_one_that_is_gone_is_no_failure():
    made, clock = archive()
    handle = made.store.begin(DATA)
    clock.now += 2 * HOUR
    (record,) = mark(scanner(made.store, clock).scan().orphans, clock.now)
    assert record.upload == handle
    bucket = side(made.store, clock)
    assert isinstance(bucket.look([record]).looks[record.name], UnreferencedLedger)
    assert bucket.delete(record, in_time) == (DeletionTry.DONE, "")
    assert bucket.delete(record, in_time) == (DeletionTry.DONE, "")
    assert list(made.store.list_uploads()) == []
    assert bucket.look([record]).looks[record.name] == GoneLedger()


def test_a_lost_answer_is_unknown_and_a_refusal_says_what_to_do():
    made, clock, records = marked_strays(U)
    data = next(record for record in records if record.object_key == DATA)
    denied = FaultyStore(made.store, StoreFaults([StoreFault("delete", error=lambda: AccessDeniedError("no"))]))
    outcome, why = side(denied, clock).delete(data, in_time)
    assert outcome is DeletionTry.REFUSED
    assert "docs/permissions.md" in why
    lost = FaultyStore(made.store, StoreFaults([StoreFault("delete", Effect.LOST)]))
    assert side(lost, clock).delete(data, in_time)[0] is DeletionTry.UNKNOWN
    assert side(lost, clock).delete(data, in_time) == (DeletionTry.DONE, "")


def test_after_the_time_of_a_try_nothing_is_sent():
    made, clock, records = marked_strays(U)
    data = next(record for record in records if record.object_key == DATA)
    assert side(made.store, clock).delete(data, lambda: False) == (DeletionTry.REFUSED, TOO_LATE)
    assert made.store.stat(DATA) is not None


def test_a_bucket_that_does_not_answer_is_a_refusal():
    made, clock, records = marked_strays(U)
    dead = FaultyStore(made.store, StoreFaults([StoreFault("*", times=10**6)]))
    looks = side(dead, clock).look(records)
    assert len(looks.refusals) == 1
    assert {type(look) for look in looks.looks.values()} == {FailedLook}
    with pytest.raises(FatalError):
        side(dead, clock).close(records[0])


def test_names_of_records_fit_into_keys_whatever_the_object_is_called():
    long = layout.data_key(replace(TOPIC, name="ü" * 150), U)
    for thing in (long, f"{long}-index", f"upload:{long}", "_proof/x", "a b/ü"):
        name = object_record_name(thing)
        assert len(name) < 80
        assert layout.parse_deletion_key("main", f"{layout.deletion_folder('main', name)}{layout.slot_name(0)}")


def test_a_forged_record_keeps_no_other_from_being_looked_at():
    made, clock, records = marked_strays(U)
    forged = [
        replace(records[0], object_key=key, upload=upload)
        for key, upload in (
            ("a//b", ""),
            ("../x", ""),
            ("\0", "x:y"),
            (layout.slot_key(TOPIC, 0, 1), ""),
            ("_root", ""),
        )
    ]
    data = next(record for record in records if record.object_key == DATA)
    looks = side(made.store, clock).look([*forged, data]).looks
    assert isinstance(looks[data.name], UnreferencedLedger)
    kinds = [type(looks[record.name]) for record in forged]
    assert kinds == [UnprovenLedger] * 3 + [ReferencedLedger] * 2


# Kills.

KILLS, UUIDS = (100, 300) if SOAK else (25, 20)


class KilledError(Exception):
    """The process is gone."""


def stored(queue: DeletionQueue) -> Iterator[StoredDeletion]:
    return queue.readable()


def a_round(queue: DeletionQueue, bucket: BucketSide, clock: StoreClock) -> None:
    """Of a service."""
    due = [it for it in stored(queue) if turn(it.record, clock.now, TIMING, SWITCH) is DeletionTurn.LOOK]
    looks = bucket.look([it.record for it in due])
    for it in () if looks.refusals else due:
        ruling = rule(it.record, looks.looks[it.record.name], clock.now, TIMING, SWITCH)
        written = queue.write(ruling.record, it)
        if written is not None and ruling.step is DeletionStep.DELETE:
            outcome, why = bucket.delete(written.record, in_time)
            queue.write(tried(written.record, outcome, why, clock.now, TIMING), written)
    queue.tidy()


def calls_before_the_first_deletion(made: Archive, clock: StoreClock) -> int:
    """Of a round: most kills are to be among the deletions, some before."""
    counted = StoreFaults()
    store = FaultyStore(made.store, counted)
    a_look = [it.record for it in stored(DeletionQueue(store, "memory", str))]
    due = [record for record in a_look if turn(record, clock.now, TIMING, SWITCH) is DeletionTurn.LOOK]
    side(store, clock).look(due)
    return max(counted.calls.total() - 5, 0)


@pytest.mark.parametrize("seed", few(range(3), 1))
def test_killed_at_any_call_each_object_goes_once_or_is_told(seed: int):
    rng, numbers = Random(seed), count()
    made, clock = archive()
    uuids = [a_uuid(number) for number in range(1, UUIDS + 1)]
    strays(made, *uuids)
    for uuid in rng.sample(uuids, 5):
        made.store.begin(layout.data_key(TOPIC, uuid))
    clock.now += 2 * HOUR
    queue = DeletionQueue(made.store, "memory", lambda: f"t{next(numbers)}")
    records = mark(scanner(made.store, clock).scan().orphans, clock.now)
    assert len(records) == 3 * UUIDS + 5
    for record in records:
        queue.write(record, None)
    clock.now += DAY_MS
    kept = rng.choice(uuids)
    made.store.put(layout.data_key(TOPIC, kept), b"written again")
    before = {key: made.store.read(key)[0] for key, _ in made.store.list() if not key.startswith(layout.DELETION)}
    killed = 0
    while killed < KILLS and any(it.record.is_in_flight for it in stored(queue)):
        clock.now += HOUR
        calls = calls_before_the_first_deletion(made, clock) + rng.randrange(25)
        fault = StoreFault("*", rng.choice((Effect.BEFORE, Effect.LOST)), KilledError, after=calls)
        faulty = FaultyStore(made.store, StoreFaults([fault]))
        try:
            a_round(DeletionQueue(faulty, "memory", lambda: f"t{next(numbers)}"), side(faulty, clock), clock)
        except (KilledError, OutcomeUnknownError):
            killed += 1
    assert killed > KILLS // 2
    for _ in range(12):
        clock.now += DAY_MS
        a_round(queue, side(made.store, clock), clock)
    ended = {it.record.thing: it.record for it in stored(queue)}
    assert ended.keys() == {record.thing for record in records}
    for key, record in ended.items():
        if key in (layout.data_key(TOPIC, kept), layout.index_key(TOPIC, kept), layout.record_key(TOPIC, kept)):
            continue
        assert (record.state, record.answer) == (DeletionState.DELETED, DeletionAnswer.DELETED), key
    assert ended[layout.data_key(TOPIC, kept)].answer is DeletionAnswer.DOES_NOT_MATCH
    left = {key: made.store.read(key)[0] for key, _ in made.store.list() if not key.startswith(layout.DELETION)}
    gone = {key for key in before if key not in left}
    assert gone == {key for key in ended if key in before} - {key for key in ended if kept in key}
    assert list(made.store.list_uploads()) == []
    of_the_kept = {of(TOPIC, kept) for of in (layout.data_key, layout.index_key, layout.record_key)}
    assert by_id(scanner(made.store, clock).scan()).keys() == {finding.key for finding in verify(made.store).findings}
    assert by_id(scanner(made.store, clock).scan()).keys() == of_the_kept
