"""Entries that no list has are copied into the archive, byte for byte, and only a whole copy counts."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offloader.archive.items import Missing
from offloader.bookkeeper.model import LedgerState
from offloader.errors import (
    BookieUnavailableError,
    EntryNotFoundError,
    FatalError,
    IntegrityError,
    LedgerNotFoundError,
    ObjectNotFoundError,
    OffloadError,
    VersionConflictError,
)
from offloader.lifecycle.bucket.names import ObjectKind
from offloader.lifecycle.ledgers.evidence import Standing
from offloader.lifecycle.rescue.objects import damage_of_rescue
from offloader.lifecycle.rescue.rescue import DoneRescue, RescueOutcome, rescue_refusal
from offloader.metadata.rescues import RescueForgotten
from offloader.model import Position
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.lifecycle.bucket.support import CERTAIN, HOUR, SUSPECT, scanner
from tests.lifecycle.deletion.cluster import DAY, KilledError
from tests.lifecycle.rescue.support import KEPT, PUBLISHED, Archive, KeptCluster, messages


def orphans_of_bucket(archive: Archive) -> dict[str, tuple[str, str]]:
    """Kind and verdict of each object that nothing names, by key."""
    archive.cluster.network.now += DAY
    scan = scanner(archive.store, lambda: archive.cluster.now_ms, grace=HOUR, cluster="memory").scan()
    return {one.id: (one.kind, one.verdict) for one in scan.candidates}


# What is copied


def test_every_entry_is_read_back_as_it_was_written():
    archive = Archive()
    done = archive.rescue()
    assert done.outcome is RescueOutcome.RESCUED
    assert len(done.record.segments) > 2
    assert archive.entries() == archive.cluster.entries
    assert [message.value.strip() for message in archive.read().messages()] == [b"value %d" % n for n in range(40)]
    assert (done.record.entries, done.record.payload) == (40, sum(map(len, archive.cluster.entries)))
    assert done.record.whole
    assert orphans_of_bucket(archive) == {}


def test_a_part_of_it_is_read_by_position_and_by_time():
    archive = Archive()
    archive.rescue()
    read = archive.read()
    assert read.name.name == "t"
    assert (read.first_position(), read.last_position()) == (Position(0, KEPT, 0), Position(0, KEPT, 39))
    assert read.seek(time=PUBLISHED + 17) == Position(0, KEPT, 17)
    assert read.peek(Position(0, KEPT, 17)).stored.entry.data == archive.cluster.entries[17]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.binary(max_size=700), min_size=1, max_size=30))
def test_entries_that_are_no_messages_of_any_size_survive(entries: list[bytes]):
    archive = Archive(KeptCluster(entries))
    archive.rescue()
    assert archive.entries() == entries
    assert archive.rescue().outcome is RescueOutcome.ALREADY


def test_memory_is_bounded_by_an_object_and_progress_tells_each_byte_twice():
    archive, heard = Archive(), list[int]()
    archive.rescue(advance=heard.append)
    assert sum(heard) == 2 * sum(map(len, archive.cluster.entries))
    sizes = [size for key, size in archive.store.list("_rescued/") if "/records/" not in key]
    assert max(sizes) < 2 * 1500


def test_an_object_that_is_gone_is_not_what_the_topics_catalog_tells_as_deleted(monkeypatch):
    """That one speaks of the topic's own segments."""
    archive = Archive()
    archive.rescue()
    monkeypatch.setattr("offloader.archive.reading.range_reader.deleted_meanwhile", lambda *_: "deleted by policy")
    lost = next(key for key in archive.all_keys() if "/records/" not in key)
    archive.store.delete([lost])
    with pytest.raises(ObjectNotFoundError, match=lost):
        archive.entries()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"standing": Standing.REFERENCED}, "in use"),
        ({"standing": Standing.FOREIGN}, "does not say in full"),
    ],
)
def test_what_somebody_uses_or_what_is_not_pulsars_is_refused(change, why):
    verdict = KeptCluster().verdict()
    assert rescue_refusal(verdict) == ""
    assert why in rescue_refusal(replace(verdict, **change))


def test_what_is_open_is_closed_first_and_what_is_empty_is_left():
    verdict = KeptCluster().verdict()
    still_open = replace(verdict, ledger=replace(verdict.ledger, state=LedgerState.OPEN, last_entry=None))
    assert "offloader ledgers close 7" in rescue_refusal(still_open)
    assert rescue_refusal(replace(verdict, ledger=replace(verdict.ledger, last_entry=-1))) == "it has no entries"


def test_a_ledger_that_was_made_again_since_it_was_judged_is_not_copied():
    archive = Archive()
    verdict = archive.cluster.verdict()
    made_again = replace(verdict, ledger=replace(verdict.ledger, created_ms=1))
    archive.cluster.verdict = lambda ledger=KEPT: made_again
    with pytest.raises(VersionConflictError):
        archive.rescue()
    assert archive.all_keys() == []


def test_metadata_that_promise_more_bytes_than_there_are_make_no_copy():
    archive = Archive()
    metadata = archive.cluster.metadata.read(KEPT).metadata
    archive.cluster.metadata.cluster.put_ledger(KEPT, replace(metadata, length=metadata.length + 1))
    with pytest.raises(IntegrityError, match="its metadata say"):
        archive.rescue()
    assert archive.rescues().rescued(KEPT) is None


# What no bookie gives


def test_entries_that_are_gone_are_an_error_unless_somebody_says_otherwise():
    archive = Archive()
    archive.cluster.lose(5)
    with pytest.raises(EntryNotFoundError):
        archive.rescue()
    assert archive.rescues().rescued(KEPT) is None


@pytest.mark.parametrize("lost", [(0,), (39,), (5,), (5, 6, 7, 20), (0, 1, 38, 39)])
def test_what_is_gone_is_recorded_and_the_rest_is_copied(lost, caplog):
    archive = Archive()
    archive.cluster.lose(*lost)
    done = archive.rescue(with_losses=True)
    assert not done.record.whole
    gone = {n for one in done.record.losses for n in range(one.start.entry, one.end.entry + 1)}
    assert gone == set(lost)
    assert archive.entries() == [each for n, each in enumerate(archive.cluster.entries) if n not in lost]
    with caplog.at_level(logging.WARNING):
        missing = [one for one in archive.read().items() if isinstance(one, Missing)]
    assert {n for one in missing for n in one.entries.ids} == set(lost)
    assert all("tester" in one.why for one in missing)


def test_a_bookie_that_is_away_is_waited_for_and_no_loss():
    archive = Archive()
    for bookie in list(archive.cluster.bookies)[:2]:
        archive.cluster.bookies[bookie].up = False
    with pytest.raises(BookieUnavailableError):
        archive.rescue(with_losses=True)


def test_what_only_bookies_have_that_are_gone_for_good_is_a_loss_once_somebody_says_so():
    archive = Archive()
    cluster = archive.cluster
    gone = list(cluster.metadata_of(KEPT).fragments[0].ensemble)[:2]
    for bookie in gone:
        cluster.goes_for_good(bookie)
    lost = cluster.only_on(KEPT, *gone)
    assert 0 < len(lost) < 40
    for said in ([], gone[:1]):  # what the other one may have is waited for
        with pytest.raises(BookieUnavailableError):
            archive.rescue(with_losses=True, gone=said)
    with pytest.raises(EntryNotFoundError):
        archive.rescue(gone=gone)
    record = archive.rescue(with_losses=True, gone=gone).record
    assert {n for one in record.losses for n in range(one.start.entry, one.end.entry + 1)} == lost
    assert all(f"{bookie} is gone for good, says tester" in one.reason for one in record.losses for bookie in gone)
    assert archive.entries() == [each for n, each in enumerate(cluster.entries) if n not in lost]


def test_one_that_is_gone_is_no_loss_where_others_have_its_entries():
    archive = Archive()
    gone = archive.cluster.metadata_of(KEPT).fragments[0].ensemble[0]
    archive.cluster.goes_for_good(gone)
    assert archive.rescue(with_losses=True, gone=[gone]).record.whole


@pytest.mark.parametrize("registered", [True, False])
def test_a_bookie_that_may_come_back_is_not_gone_whatever_somebody_says(registered):
    archive = Archive()
    bookie = archive.cluster.metadata_of(KEPT).fragments[0].ensemble[0]
    if registered:
        archive.cluster.metadata.cluster.delete_cookie(bookie)
    else:
        archive.cluster.bookies[bookie].up = False
    with pytest.raises(FatalError, match="is registered" if registered else "has a cookie"):
        archive.rescue(with_losses=True, gone=[bookie])


def test_a_bookie_that_comes_back_meanwhile_was_not_gone():
    archive = Archive()
    gone = archive.cluster.metadata_of(KEPT).fragments[0].ensemble[:2]
    for bookie in gone:
        archive.cluster.goes_for_good(bookie)

    def back(_bytes: int) -> None:
        archive.cluster.bookies[gone[0]].up = True

    with pytest.raises(FatalError, match="is registered"):
        archive.rescue(with_losses=True, gone=gone, advance=back)
    assert archive.rescues().rescued(KEPT) is None


def test_a_deletion_that_comes_between_is_no_loss():
    archive = Archive()
    archive.cluster.lose(*range(20, 40))

    def deleted(_bytes: int) -> None:
        if KEPT in archive.cluster.ledger_ids():
            archive.cluster.metadata.cluster.delete_ledger(KEPT)

    with pytest.raises(LedgerNotFoundError, match="deleted while it was copied"):
        archive.rescue(with_losses=True, advance=deleted)
    assert archive.rescues().rescued(KEPT) is None


def test_nothing_that_can_be_read_is_no_rescue():
    archive = Archive(KeptCluster(messages(3)))
    archive.cluster.lose(0, 1, 2)
    with pytest.raises(IntegrityError, match="none of its entries"):
        archive.rescue(with_losses=True)


def test_a_later_rescue_replaces_one_with_losses_only_by_more():
    archive = Archive()
    lost = archive.cluster.lose(5, 6)
    archive.rescue(with_losses=True)
    assert archive.rescue(with_losses=True).outcome is RescueOutcome.NO_BETTER
    assert len(archive.entries()) == 38
    archive.cluster.bring_back(lost)
    assert archive.rescue().outcome is RescueOutcome.RESCUED
    assert archive.entries() == archive.cluster.entries
    assert set(orphans_of_bucket(archive).values()) == {(ObjectKind.ENDED_RESCUE, CERTAIN)}


# What an earlier rescue has may be the only copy


def made_again(archive: Archive) -> None:
    """By an undo, or from a backup: the same metadata, another time."""
    metadata = archive.cluster.metadata.read(KEPT).metadata
    archive.cluster.metadata.cluster.delete_ledger(KEPT)
    archive.cluster.network.now += 1
    archive.cluster.metadata.cluster.put_ledger(KEPT, metadata)


def test_a_later_rescue_has_what_the_earlier_one_had():
    archive = Archive()
    lost = archive.cluster.lose(5, 6)
    archive.rescue(with_losses=True)
    archive.cluster.bring_back(lost)
    archive.cluster.lose(20, 39)
    done = archive.rescue()
    assert (done.outcome, done.record.whole) == (RescueOutcome.RESCUED, True)
    assert archive.entries() == archive.cluster.entries


@given(
    before=st.sets(st.integers(0, 39), max_size=39),
    now=st.sets(st.integers(0, 39), max_size=39),
    damaged=st.sets(st.integers(0, 20), max_size=4),
)
@settings(max_examples=50, deadline=None)
def test_nothing_that_anybody_has_is_lost_by_a_rescue(before, now, damaged):
    archive = Archive()
    lost = archive.cluster.lose(*before)
    first = archive.rescue(with_losses=True).record
    archive.cluster.bring_back(lost)
    archive.cluster.lose(*now)
    sound = set(range(40)) - before
    for number in damaged:
        if number < len(first.segments):
            segment = first.segments[number]
            archive.store.put(archive.rescues().folder(KEPT, 0) + segment.uuid, b"damage")
            sound -= set(range(segment.start.entry, segment.end.entry + 1))
    everything = sound | (set(range(40)) - now)
    try:
        archive.rescue(with_losses=True)
    except IntegrityError:  # nothing is left at all: the record that tells what was there stays
        assert not everything
        return
    assert archive.entries() == [each for n, each in enumerate(archive.cluster.entries) if n in everything]


def test_the_whole_copy_of_a_ledger_that_was_made_again_is_not_replaced_by_less():
    archive = Archive()
    first = archive.rescue().record
    made_again(archive)
    archive.cluster.lose(5, 6)
    with pytest.raises(FatalError, match="orphans forget 7"):
        archive.rescue(with_losses=True)
    assert archive.rescues().rescued(KEPT) == first
    assert archive.entries() == archive.cluster.entries


def test_the_whole_copy_of_a_ledger_that_was_made_again_is_replaced_by_the_same():
    archive = Archive()
    first = archive.rescue().record
    made_again(archive)
    done = archive.rescue()
    assert (done.outcome, done.record.sha256) == (RescueOutcome.RESCUED, first.sha256)
    assert done.record.created > first.created
    assert archive.entries() == archive.cluster.entries


@pytest.mark.parametrize("others", [messages(12), [b"x" + each[1:] for each in messages(40)]])
def test_another_ledger_that_has_its_id_does_not_replace_it(others):
    """The counter of ids was lost, or restored: its ids are used again."""
    archive = Archive()
    first = archive.rescue().record
    entries = archive.cluster.entries
    archive.cluster.metadata.cluster.delete_ledger(KEPT)
    for bookie in archive.cluster.bookies.values():
        bookie.memory.ledgers.pop(KEPT, None)
    archive.cluster.network.now += 1
    archive.cluster.with_entries(KEPT, "t", others)
    with pytest.raises(FatalError, match="another ledger that had this id"):
        archive.rescue()
    assert archive.rescues().rescued(KEPT) == first
    assert archive.entries() == entries
    assert CERTAIN not in {verdict for _, verdict in orphans_of_bucket(archive).values()}
    archive.rescues().write(KEPT, 1, RescueForgotten(1, "me"), archive.uuid)
    assert archive.rescue().outcome is RescueOutcome.RESCUED
    assert archive.entries() == others


# Whatever happens on the way


def calls_of_a_rescue() -> int:
    faults = StoreFaults()
    archive = Archive()
    archive.rescue(store=FaultyStore(archive.store, faults))
    return sum(faults.calls.values())


def killed() -> None:
    raise KilledError


@pytest.mark.parametrize("before", [True, False])
def test_a_rescue_that_is_killed_at_any_call_counts_whole_or_not_at_all_and_is_begun_anew(before):
    for number in range(calls_of_a_rescue()):
        archive = Archive()
        dying = {"hook": killed} if before else {"effect": Effect.HOOK, "then": killed}
        faults = StoreFaults([StoreFault("*", after=number, **dying)])
        with pytest.raises(KilledError):
            archive.rescue(store=FaultyStore(archive.store, faults))
        if archive.rescues().rescued(KEPT) is not None:
            assert archive.entries() == archive.cluster.entries
        assert {verdict for _, verdict in orphans_of_bucket(archive).values()} <= {SUSPECT}
        assert archive.rescue().outcome in (RescueOutcome.RESCUED, RescueOutcome.ALREADY)
        assert archive.entries() == archive.cluster.entries
        left = orphans_of_bucket(archive)
        assert set(left.values()) <= {(ObjectKind.ENDED_RESCUE, CERTAIN)}
        archive.store.delete(left)
        assert archive.entries() == archive.cluster.entries


@pytest.mark.parametrize("effect", [Effect.LOST, Effect.REPEATED])
def test_answers_that_are_lost_and_writes_that_come_twice_change_nothing(effect):
    for number in range(calls_of_a_rescue()):
        archive = Archive()
        faults = StoreFaults([StoreFault("put", effect, after=number)])
        assert archive.rescue(store=FaultyStore(archive.store, faults)).outcome is RescueOutcome.RESCUED
        assert archive.entries() == archive.cluster.entries
        assert orphans_of_bucket(archive) == {}


def test_a_store_that_fails_leaves_nothing_that_counts():
    for number in range(calls_of_a_rescue()):
        archive = Archive()
        with pytest.raises(OffloadError):
            archive.rescue(store=FaultyStore(archive.store, StoreFaults([StoreFault("*", after=number)])))
        assert archive.rescues().rescued(KEPT) is None


def rescued_too(archive: Archive, outcomes: list[DoneRescue]) -> None:
    outcomes.append(archive.rescue())


def test_of_two_at_once_one_counts_and_the_others_objects_are_orphans():
    for number in range(calls_of_a_rescue()):
        archive, others = Archive(), list[DoneRescue]()
        fault = StoreFault("*", Effect.HOOK, after=number, hook=partial(rescued_too, archive, others))
        done = archive.rescue(store=FaultyStore(archive.store, StoreFaults([fault])))
        assert [one.outcome for one in others] == [RescueOutcome.RESCUED] or not others
        assert done.outcome in (RescueOutcome.OVERTAKEN, RescueOutcome.ALREADY, RescueOutcome.RESCUED)
        assert done.record == archive.rescues().rescued(KEPT)
        assert archive.entries() == archive.cluster.entries
        left = orphans_of_bucket(archive)
        assert set(left.values()) <= {(ObjectKind.ENDED_RESCUE, CERTAIN)}
        archive.store.delete(left)
        assert archive.entries() == archive.cluster.entries


def test_a_rescue_that_was_paused_does_not_end_what_was_forgotten():
    archive = Archive()

    def forget() -> None:
        newest = archive.rescues().newest(KEPT)
        assert archive.rescues().write(KEPT, newest.slot + 1, RescueForgotten(1, "me"), archive.uuid)

    fault = StoreFault("put", Effect.HOOK, key=lambda key: "/records/" in key, hook=forget)
    done = archive.rescue(store=FaultyStore(archive.store, StoreFaults([fault])))
    assert (done.outcome, done.record) == (RescueOutcome.OVERTAKEN, None)
    left = orphans_of_bucket(archive)
    assert set(left.values()) == {(ObjectKind.ENDED_RESCUE, CERTAIN)}
    assert set(left) == {key for key in archive.all_keys() if "/records/" not in key}
    archive.store.delete(left)
    assert archive.rescue().outcome is RescueOutcome.RESCUED
    assert archive.entries() == archive.cluster.entries


def test_a_ledger_that_is_listed_meanwhile_loses_nothing():
    archive = Archive()
    archive.rescue(advance=lambda _: archive.cluster.list_ledgers("t", 3, KEPT, 9))
    assert archive.cluster.verdict().standing is Standing.REFERENCED
    assert archive.entries() == archive.cluster.entries


# What lies in the bucket may be damage


def test_each_byte_that_changes_is_noticed_and_a_rescue_copies_anew():
    archive = Archive(KeptCluster(messages(6)))
    record = archive.rescue().record
    folder = archive.rescues().folder(KEPT, 0)
    for key in [key for key in archive.all_keys() if "/records/" not in key]:
        whole = archive.store.read(key)[0]
        for at in range(len(whole)):
            archive.store.put(key, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            assert damage_of_rescue(archive.store, folder, record), (key, at)
        for other in (whole[:-1], whole + b"x", b""):
            archive.store.put(key, other)
            assert damage_of_rescue(archive.store, folder, record)
        archive.store.delete([key])
        assert damage_of_rescue(archive.store, folder, record)
        archive.store.put(key, whole)
    assert damage_of_rescue(archive.store, folder, record) == ""
    archive.store.delete([key])
    again = archive.rescue()
    assert (again.outcome, bool(again.damage)) == (RescueOutcome.RESCUED, True)
    assert archive.entries() == archive.cluster.entries


def test_a_damaged_record_makes_nothing_certain_and_stops_a_rescue():
    archive = Archive()
    archive.rescue()
    (record,) = (key for key in archive.all_keys() if "/records/" in key)
    archive.store.put(record, b"junk")
    assert {verdict for _, verdict in orphans_of_bucket(archive).values()} == {SUSPECT}
    with pytest.raises(IntegrityError):
        archive.rescue()


def test_another_clusters_rescues_are_foreign():
    archive = Archive()
    archive.rescue()
    key = next(key for key in archive.all_keys() if "/records/" not in key)
    archive.store.put(key.replace("/memory/", "/other/"), b"x")
    assert orphans_of_bucket(archive) == {}
