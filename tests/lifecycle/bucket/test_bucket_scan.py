"""What a scan of the bucket says of each object that nothing names, and of none that something names."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from offloader.errors import ConfigError, IntegrityError
from offloader.lifecycle.bucket import scan as scanning
from offloader.lifecycle.bucket.names import KeyStanding, ObjectKind
from offloader.lifecycle.bucket.orphans import ObjectScan, sums
from offloader.lifecycle.bucket.reading import read_names
from offloader.lifecycle.bucket.scan import BucketScanner
from offloader.lifecycle.deletion.records import DeletionProof
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs
from offloader.metadata.catalog_codec import encode_catalog
from offloader.metadata.journal import Journal
from offloader.metadata.journals import Journals
from offloader.metadata.state import Abandoned, LedgerClosed, TopicState, record_uuid
from offloader.model import Position
from offloader.operations.rebuild.remains import Given
from offloader.operations.rebuild.write import rebuild
from offloader.storage.memory import MemoryStore
from tests.archive.ledgers.support import messages
from tests.archive.support import TOPIC, Archive, stream
from tests.archive.test_deleted import delete
from tests.format.stock import write_blocks

from .support import (
    CERTAIN,
    HOUR,
    SUSPECT,
    StoreClock,
    a_uuid,
    archive,
    by_id,
    header,
    journal_opens,
    open_segment,
    scanner,
    segment_of,
)

U = a_uuid(1)
DATA, INDEX, RECORD = layout.data_key(TOPIC, U), layout.index_key(TOPIC, U), layout.record_key(TOPIC, U)


def test_nothing_of_a_whole_archive_is_an_orphan():
    made, clock = archive()
    scan = scanner(made.store, clock).scan()
    assert scan.candidates == ()
    assert scan.refusals == ()
    assert scan.counts[KeyStanding.NAMED] == sum(1 for _ in made.store.list())
    assert scan.sizes[KeyStanding.NAMED] == sum(size for _, size in made.store.list())


def test_what_is_left_over_of_a_deleted_segment_is_certain_and_its_tombstone_is_named():
    made, clock = archive()
    first = made.catalog.segments[0].uuid
    delete(made, 1)
    left = {layout.data_key(TOPIC, first), layout.index_key(TOPIC, first)}
    for key in left:
        made.store.put(key, b"restored by somebody")
    clock.now += 3 * HOUR
    scan = scanner(made.store, clock).scan()
    assert {one.id: (one.kind, one.verdict) for one in scan.candidates} == dict.fromkeys(
        left, ("deleted-object", CERTAIN)
    )
    assert made.store.stat(layout.record_key(TOPIC, first)) is not None
    assert scan.orphans[0].evidence.proof is DeletionProof.PASSED_BY


def test_a_copy_of_what_brokers_had_offloaded_is_none_for_certain_as_it_does_not_say_of_which_ledger():
    made, clock = archive()
    made.store.put(DATA, b"".join(write_blocks(messages(5, 20), 512)))
    clock.now += 3 * HOUR
    (found,) = scanner(made.store, clock).scan().candidates
    assert (found.id, found.verdict) == (DATA, SUSPECT)
    assert "nothing says of which" in " ".join(found.evidence)


def test_without_a_tombstone_beside_it_nothing_is_left_over_of_a_deletion():
    made, clock = archive()
    first = made.catalog.segments[0]
    delete(made, 1)
    made.store.put(layout.data_key(TOPIC, first.uuid), b"whose record says that it is there")
    made.store.put(layout.record_key(TOPIC, first.uuid), encode_catalog(first.uuid, first))
    clock.now += 3 * HOUR
    [found] = scanner(made.store, clock).scan().candidates
    assert (found.kind, found.verdict) == ("deleted-object", SUSPECT)
    assert "it may be the only copy" in found.evidence[-1]


def test_what_deletion_keeps_in_the_bucket_is_ours():
    made, clock = archive()
    cluster = "memory"
    keys = [
        layout.archive_deletion_key(cluster, TOPIC),
        layout.archive_hold_key(cluster, TOPIC),
        layout.deletion_secret_key(cluster),
        f"{layout.cursor_folder(cluster, TOPIC, 'sub')}records/{layout.slot_name(0)}",
        f"{layout.cursor_folder(cluster, TOPIC, 'sub')}saved/{layout.slot_name(0)}",
        layout.deletion_switch_folder(cluster) + layout.slot_name(0),
    ]
    for key in keys:
        made.store.put(key, b"ours")
    foreign = layout.deletion_secret_key("another")
    made.store.put(foreign, b"of another cluster")
    clock.now += 3 * HOUR
    scan = scanner(made.store, clock).scan()
    assert scan.candidates == ()
    assert scan.counts[KeyStanding.FOREIGN] == 1


def test_an_object_whose_entries_a_segment_has_can_never_be_committed_and_is_certain():
    made, clock = archive()
    segment = segment_of(made, 1)
    for of, key in ((layout.data_key, DATA), (layout.index_key, INDEX)):
        made.store.put(key, made.store.read(of(TOPIC, segment.uuid))[0])
    made.store.put(RECORD, encode_catalog(U, replace(segment, uuid=U)))
    clock.now += HOUR
    found = by_id(scanner(made.store, clock).scan())
    assert {key: (each.kind, each.verdict, each.kept) for key, each in found.items()} == {
        DATA: ("data-object", CERTAIN, False),
        INDEX: ("index-object", CERTAIN, False),
        RECORD: ("record", CERTAIN, False),
    }
    assert found[DATA].evidence == (
        "No catalog and no journal names it.",
        f"It begins with 5:10, which segment {segment.uuid} has: nothing can commit it any more.",
    )


def test_what_begins_behind_the_end_may_be_committed_by_a_paused_process_until_something_passes_it():
    made, clock = archive()
    paused = Catalogs(made.store, "app")
    head = paused.head(TOPIC)
    segment, data, index = made.made(stream(6, 10, 19), [], {}, segment_of(made, 0).cuts)
    segment = replace(segment, uuid=U)
    made.store.put(DATA, data)
    made.store.put(INDEX, index)
    clock.now += 1000 * HOUR  # no time proves that nobody is paused
    found = by_id(scanner(made.store, clock).scan())
    assert {each.verdict for each in found.values()} == {SUSPECT}
    assert "a process that was paused may still commit it" in found[DATA].evidence[-1]
    made.add(stream(6, 10, 12))
    assert {each.verdict for each in by_id(scanner(made.store, clock).scan()).values()} == {CERTAIN}
    with pytest.raises(IntegrityError):
        paused.append(head, segment)


def test_a_paused_process_that_goes_on_finds_all_that_was_suspect():
    made, clock = archive()
    paused = Catalogs(made.store, "app")
    head = paused.head(TOPIC)
    segment, data, index = made.made(stream(6, 10, 19), [], {}, segment_of(made, 0).cuts)
    made.store.put(layout.data_key(TOPIC, segment.uuid), data)
    made.store.put(layout.index_key(TOPIC, segment.uuid), index)
    clock.now += 1000 * HOUR
    assert not any(each.deletable for each in scanner(made.store, clock).scan().orphans)
    paused.append(head, segment)
    assert scanner(made.store, clock).scan().candidates == ()


def test_what_may_be_the_only_copy_of_something_stays():
    made, clock = archive()
    made.lose(Position(0, 6, 10), Position(0, 6, 19))
    made.add(stream(6, 20, 25))
    cases = {1: (6, 12), 2: (6, 5), 3: (4, 7)}  # is lost; reaches into what is lost; before all that is archived
    for number, (ledger, entry) in cases.items():
        made.store.put(layout.data_key(TOPIC, a_uuid(number)), header(ledger, entry))
    clock.now += HOUR
    found = by_id(scanner(made.store, clock).scan())
    assert {each.kept for each in found.values()} == {True}
    assert {each.verdict for each in found.values()} == {SUSPECT}
    assert len(found) == 3


def test_where_its_record_says_that_it_ends_before_what_is_lost_it_is_certain():
    made, clock = archive()
    made.lose(Position(0, 6, 10), Position(0, 6, 19))
    segment = segment_of(made, 2)
    made.store.put(DATA, made.store.read(layout.data_key(TOPIC, segment.uuid))[0])
    made.store.put(RECORD, encode_catalog(U, replace(segment, uuid=U)))
    clock.now += HOUR
    assert {each.verdict for each in by_id(scanner(made.store, clock).scan()).values()} == {CERTAIN}


def test_what_a_journal_has_open_is_named_whoever_it_is():
    made, clock = archive()
    handle = made.store.begin(DATA)
    made.store.put(INDEX, b"index")
    journal_opens(made.store, "another", TOPIC, open_segment(U, 6, 10, handle))
    clock.now += HOUR
    assert scanner(made.store, clock).scan().candidates == ()


def test_an_upload_that_has_just_begun_is_known_by_its_uuid_and_another_one_of_it_is_not():
    made, clock = archive()
    handle = made.store.begin(DATA)
    journal_opens(made.store, "another", TOPIC, open_segment(U, 6, 10))
    clock.now += HOUR
    assert scanner(made.store, clock).scan().candidates == ()
    other = made.store.begin(DATA)
    journal_opens(made.store, "another", TOPIC, open_segment(U, 6, 10, other))
    clock.now += HOUR
    found = by_id(scanner(made.store, clock).scan())
    assert {key: (each.kind, each.verdict) for key, each in found.items()} == {handle: ("upload", CERTAIN)}


def test_what_a_journal_has_abandoned_is_told_so():
    made, clock = archive()
    with Journal.open(made.store, "app", made.token) as journal:
        journal.record([TopicState(TOPIC, abandoned=(Abandoned(U, None, "its part was rejected"),))])
    made.store.put(DATA, header(5, 3))
    clock.now += HOUR
    found = by_id(scanner(made.store, clock).scan())[DATA]
    assert (found.kind, found.verdict) == ("abandoned-object", CERTAIN)
    assert "its part was rejected" in found.evidence[0]


def test_nothing_is_certain_while_a_journal_cannot_be_read():
    made, clock = archive()
    made.store.put(DATA, b"junk")
    made.store.put(layout.epoch_folder("broken", 1) + layout.slot_name(0), b"damage")
    clock.now += HOUR
    scan = scanner(made.store, clock).scan()
    found = by_id(scan)[DATA]
    assert found.verdict is SUSPECT
    assert "A journal cannot be read, which may name it" in found.evidence[-1]
    assert len(scan.refusals) == 1


def test_nothing_of_a_topic_is_certain_while_its_catalog_cannot_be_read():
    made, clock = archive()
    made.store.put(DATA, b"junk")
    made.store.put(layout.slot_key(TOPIC, 0, 2), b"damage")
    clock.now += HOUR
    found = by_id(scanner(made.store, clock).scan())
    assert found.keys() >= {DATA}
    assert {each.verdict for each in found.values()} == {SUSPECT}


def test_a_topic_without_a_catalog_has_lost_it_perhaps():
    made, clock = archive()
    made.store.delete([key for key, _ in made.store.list(layout.generations_folder(TOPIC))])
    clock.now += HOUR
    found = by_id(scanner(made.store, clock).scan())
    assert {each.verdict for each in found.values()} == {SUSPECT}
    assert len(found) == 3 * 3 + 2  # data, index, record; the records of the claim and of the ledger's end


def test_what_is_young_is_not_certain_whatever_else_is_known():
    made, clock = archive()
    made.store.put(DATA, b"junk")
    made.store.put(layout.proof_key("start"), b"first")  # of a start that is under way
    clock.now += HOUR - 1
    assert {each.verdict for each in scanner(made.store, clock).scan().candidates} == {SUSPECT}
    clock.now += 1
    assert {each.verdict for each in scanner(made.store, clock).scan().candidates} == {CERTAIN}


def test_ages_are_by_the_stores_clock_and_what_is_from_the_future_is_not_certain():
    made, clock = archive()
    made.store.put(DATA, b"junk")
    ours = StoreClock(clock.now + 100 * HOUR)  # we are ahead: for us it is old
    clock.now += HOUR // 2
    assert by_id(scanner(made.store, ours).scan())[DATA].verdict is SUSPECT
    clock.now -= 2 * HOUR  # the store's clock was set back
    assert "clock was set back" in by_id(scanner(made.store, ours).scan())[DATA].evidence[-1]


def test_a_root_of_another_cluster_or_of_none_is_nothing_of_ours():
    made, clock = archive()
    made.store.put(DATA, b"junk")
    clock.now += HOUR
    scan = scanner(made.store, clock, cluster="elsewhere").scan()
    assert [each.verdict for each in scan.candidates] == [SUSPECT]
    assert "not of elsewhere" in scan.refusals[0]
    made.store.delete([layout.ROOT])
    with pytest.raises(ConfigError):
        scanner(made.store, clock).scan()


def test_generations_that_are_not_in_force_keep_their_numbers_taken():
    made, clock = archive()
    made.store.put(layout.slot_key(TOPIC, 9, 1), b"of a rebuild")
    made.store.put(DATA, b"junk")
    clock.now += HOUR
    found = by_id(scanner(made.store, clock).scan())
    assert found[layout.catalog_folder(TOPIC, 9)].kind == "unopened-generation"
    assert found[layout.catalog_folder(TOPIC, 9)].kept
    assert found[DATA].verdict is SUSPECT  # the rebuild may name it
    assert "rebuild" in found[DATA].evidence[-1]


def test_a_record_of_no_entries_is_finished_by_whoever_says_the_same():
    made, clock = archive()
    ended = LedgerClosed(0, 6, 9)
    key = layout.record_key(TOPIC, record_uuid(TOPIC, ended))
    made.store.put(key, encode_catalog(record_uuid(TOPIC, ended), ended))
    clock.now += HOUR
    found = by_id(scanner(made.store, clock).scan())
    assert (found[key].verdict, found[key].kept) == (SUSPECT, True)


def test_shares_of_any_size_say_the_same():
    made, clock = archive()
    for number, topic in enumerate(("a", "b", "c")):
        other = Archive(made.store, replace(TOPIC, name=topic))
        other.claim(ledger=number)
        other.add(stream(number, 0, 5))
        made.store.put(layout.data_key(other.topic, a_uuid(number)), b"junk")
    clock.now += HOUR
    whole = scanner(made.store, clock).scan()
    assert len(whole.candidates) == 3
    for keys in (1, 2, 5, 13):
        assert scanner(made.store, clock, keys_together=keys).scan() == whole


def test_sums_are_by_kind_verdict_and_age():
    made, clock = archive()
    made.store.put(DATA, b"junk!")
    clock.now += 48 * HOUR
    made.store.put(INDEX, b"young")
    made.store.put(layout.data_key(TOPIC, a_uuid(2)), header(7, 0))
    scan = scanner(made.store, clock).scan()
    told = [(each.kind, each.verdict, each.days, each.number, each.size) for each in sums(scan.candidates, scan.now_ms)]
    assert told == [
        ("data-object", SUSPECT, "under 1 day", 1, 200),
        ("data-object", CERTAIN, "1 to 7 days", 1, 5),
        ("index-object", SUSPECT, "under 1 day", 1, 5),
    ]


# Variants that must be caught: what is right in the product, left out on purpose.


class IgnoresAJournal(BucketScanner):
    def journals(self) -> Journals:
        found = super().journals()
        return replace(found, states={name: held for name, held in found.states.items() if name != "another"})


class NamesBeforeKeys(BucketScanner):
    """Reads what names objects, then lets the application go on, then lists."""

    between = staticmethod(lambda: None)

    def scan(self) -> ObjectScan:
        self._kept = super().journals()
        type(self).between()
        return super().scan()

    def journals(self) -> Journals:
        return self._kept


def test_a_scan_that_ignores_a_journal_is_caught():
    made, clock = archive()
    made.store.put(DATA, header(6, 10))
    journal_opens(made.store, "another", TOPIC, open_segment(U, 6, 10))
    clock.now += HOUR
    assert scanner(made.store, clock).scan().candidates == ()
    assert DATA in by_id(scanner(made.store, clock, kind=IgnoresAJournal).scan())


def test_a_scan_that_reads_names_before_keys_is_caught(monkeypatch: pytest.MonkeyPatch):
    made, clock = archive()

    def goes_on() -> None:
        made.add(stream(6, 10, 19))

    broken = scanner(made.store, clock, kind=NamesBeforeKeys)
    monkeypatch.setattr(NamesBeforeKeys, "between", staticmethod(goes_on))
    known = read_names(made.store, TOPIC)
    with monkeypatch.context() as patched:
        patched.setattr(scanning, "read_names", lambda *_: known)
        found = by_id(broken.scan())
    assert {each.kind for each in found.values()} >= {ObjectKind.DATA, ObjectKind.INDEX, ObjectKind.RECORD}
    assert scanner(made.store, clock).scan().candidates == ()


def test_a_scan_without_a_grace_is_caught():
    made, clock = archive()
    made.store.put(layout.proof_key("start"), b"first")
    assert not any(each.deletable for each in scanner(made.store, clock).scan().orphans)
    assert any(each.deletable for each in scanner(made.store, clock, grace=0).scan().orphans)


def test_an_empty_store_is_no_archive():
    with pytest.raises(ConfigError):
        scanner(MemoryStore(), StoreClock()).scan()


def test_the_numbers_of_an_old_generation_are_fences_so_they_are_never_deleted():
    made, clock = archive()
    paused = Catalogs(made.store, "app")
    head = paused.head(TOPIC)
    segment, data, index = made.made(stream(6, 10, 12), [], {}, segment_of(made, 0).cuts)
    made.store.put(layout.data_key(TOPIC, segment.uuid), data)
    made.store.put(layout.index_key(TOPIC, segment.uuid), index)
    made.store.delete([layout.slot_key(TOPIC, 0, 1)])
    tokens = count()
    rebuild(made.store, TOPIC, Given("app", clock.now), lambda: f"rebuild-{next(tokens)}")
    clock.now += 1000 * HOUR
    scan = scanner(made.store, clock).scan()
    old = by_id(scan)[layout.catalog_folder(TOPIC, 0)]
    assert (old.kind, old.verdict, old.kept) == ("old-generation", SUSPECT, True)
    made.store.delete([each.key for each in scan.orphans if each.deletable])
    # Were they gone, this would be committed into a catalog that nobody reads.
    assert paused.append(head, segment).generation == paused.head(TOPIC).generation
    assert segment.uuid in {each.uuid for each in made.catalog.segments}
