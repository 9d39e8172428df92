"""`check_invariants` finds every kind of violation, and nothing in what is as it must be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.archive.findings import FindingKind
from offloader.metadata import layout
from offloader.metadata.journal import Journal
from offloader.metadata.state import OpenTopic
from offloader.model import GapKind, OpenSegment, Position, SegmentLayout, Source
from tests.archive.support import TOPIC, Archive, gap, stream, uuid_of
from tests.fakes.cluster import MemoryCluster
from tests.format.support import Stored
from tests.invariants import HARMLESS, PaceLog, check_invariants
from tests.truth import TrueEntry, Truth, TruthCollector, sha256, truth_of_cluster

ENTRIES = stream(1, 0, 20) + stream(2, 0, 9) + stream(2, 12, 15)
HIDDEN = TrueEntry(None, frozenset({GapKind.ABORTED}))


def archive(entries: list[Stored] = ENTRIES) -> Archive:
    built = Archive()
    built.claim(1, 0)
    built.add([e for e in entries if e.ledger == 1], closed={1: 20})
    built.add([e for e in entries if e.ledger == 2], [gap(2, 10, 11)])
    return built


def truth(**changes: object) -> Truth:
    entries = {(e.ledger, e.entry): TrueEntry(sha256(e.data)) for e in ENTRIES} | {(2, 10): HIDDEN, (2, 11): HIDDEN}
    return replace(Truth(dict(sorted(entries.items())), (2, 14)), **changes)


def with_entry(place: tuple[int, int], entry: TrueEntry) -> Truth:
    return truth(entries={**truth().entries, place: entry})


def violations(built: Archive, what: Truth, **options: object) -> str:
    with pytest.raises(AssertionError) as caught:
        check_invariants(built.store, {TOPIC: what}, **options)
    return str(caught.value)


def test_nothing_is_found_where_everything_holds() -> None:
    check_invariants(archive().store, {TOPIC: truth()}, at_rest=True)


def test_1_an_entry_that_is_nowhere() -> None:
    assert "1: 1:21 is in no segment, gap or loss" in violations(archive(), with_entry((1, 21), TrueEntry("x")))


def test_1_other_bytes() -> None:
    assert "1: 1:5 is not archived byte for byte" in violations(
        archive(), with_entry((1, 5), TrueEntry(sha256(b"other")))
    )


def test_1_a_gap_that_is_none() -> None:
    text = violations(archive(), with_entry((2, 10), TrueEntry(sha256(b"delivered"))))
    assert "1: 2:10 is recorded as aborted, which it is not" in text


def test_1_an_entry_that_was_never_written() -> None:
    known = dict(truth().entries)
    del known[1, 7]
    assert "1: 1:7 is archived, but was never written" in violations(archive(), truth(entries=known))
    check_invariants(archive().store, {TOPIC: truth(entries=known, complete=False)})


def test_1_what_was_lost_before_the_claim_does_not_matter_but_after_it_does() -> None:
    built = Archive()
    built.claim(1, 3)
    built.add(stream(1, 5, 20), closed={1: 20})
    entries = {(e.ledger, e.entry): TrueEntry(sha256(e.data)) for e in stream(1, 0, 20)}
    text = violations(built, Truth(entries))
    assert "1:3..4 is in no record" in text
    assert "1:2" not in text


def test_1_a_recorded_loss_accounts_for_its_entries() -> None:
    built = Archive()
    built.claim(1, 0)
    built.add(stream(1, 0, 10))
    built.lose(Position(0, 1, 11), Position(0, 2, -1))
    built.add([e for e in ENTRIES if e.ledger == 2], [gap(2, 10, 11)])
    check_invariants(built.store, {TOPIC: truth()}, at_rest=True)


def test_2_a_damaged_object() -> None:
    built = archive()
    key = layout.data_key(TOPIC, built.catalog.segments[0].uuid)
    data, stat = built.store.read(key)
    built.store.put(key, data[:300] + b"?" + data[301:], meta=stat.meta)
    assert "2: damaged-part" in violations(built, truth())


def test_3_a_pin_past_the_end() -> None:
    later = with_entry((2, 16), TrueEntry(sha256(b"later")))
    check_invariants(archive().store, {TOPIC: later})
    text = violations(archive(), replace(later, mark_delete=(2, 16)))
    assert "3: the pin is acknowledged up to 2:16, past 2:16, which is not offloaded" in text
    assert "past 2:16" in violations(archive(), replace(later, mark_delete=(3, -1)))


def test_3_a_pin_before_anything_is_offloaded() -> None:
    built = Archive()
    built.claim(1, 0)
    check_invariants(built.store, {TOPIC: truth(mark_delete=(1, -1))})
    assert "past 1:0, which is not offloaded" in violations(built, truth(mark_delete=(1, 0)))


@pytest.mark.parametrize(
    ("mark", "holds"), [((2, 15), True), ((3, -1), True), ((2, 14), True), ((2, 13), False), ((1, 20), False)]
)
def test_3_at_rest_the_pin_is_at_the_end_or_one_short(mark, holds) -> None:
    if holds:
        check_invariants(archive().store, {TOPIC: truth(mark_delete=mark)}, at_rest=True)
    else:
        assert "3: at rest the pin stands at" in violations(archive(), truth(mark_delete=mark), at_rest=True)


def test_3_at_rest_the_pin_is_at_the_end_of_a_ledger_that_it_need_not_hold() -> None:
    built = archive()
    built.closed(2, 15)
    check_invariants(built.store, {TOPIC: truth(mark_delete=(2, 15))}, at_rest=True)
    assert "1 entries before 2:15" in violations(built, truth(mark_delete=(2, 14)), at_rest=True)


def test_at_rest_everything_delivered_is_offloaded() -> None:
    later = with_entry((2, 16), TrueEntry(sha256(b"later")))
    assert "at rest: 1 entries from 2:16 on are not offloaded" in violations(archive(), later, at_rest=True)
    check_invariants(archive().store, {TOPIC: with_entry((2, 16), HIDDEN)}, at_rest=True)


def test_4_two_applications_with_an_open_segment_of_one_topic() -> None:
    built = archive()
    for number, application in enumerate(["app", "another"]):
        segment = OpenSegment(uuid_of(60 + number), Position(0, 2, 16), Source.BROKER, SegmentLayout(), 1)
        with Journal.open(built.store, application, built.token) as journal:
            journal.record([OpenTopic(TOPIC, open=segment)])
    text = violations(built, truth(), at_rest=True)
    assert "4: persistent://public/default/orders: 2 segments are open" in text
    assert "at rest: persistent://public/default/orders: segment" in text


def test_5_a_stray_object_unless_it_is_allowed() -> None:
    built = archive()
    built.store.put(layout.data_key(TOPIC, uuid_of(70)), b"x")
    assert "5: stray-object" in violations(built, truth())
    check_invariants(built.store, {TOPIC: truth()}, allowed=HARMLESS | {FindingKind.STRAY_OBJECT})


def test_6_a_batch_that_took_too_long() -> None:
    fast, slow = PaceLog(5_000), PaceLog(5_000)
    for took, pace in ((10, fast), (5_000, fast), (6_000, slow)):
        pace.batch(took)
    check_invariants(archive().store, {TOPIC: truth()}, paces=[fast])
    assert "6: a batch took 6000 ms of 5000" in violations(archive(), truth(), paces=[fast, slow])


def test_6_a_failing_topic_that_is_planned_too_early() -> None:
    patient, hasty = PaceLog(1, {TOPIC: 1_000}), PaceLog(1)
    patient.planned(TOPIC, 1_000)
    patient.planned(TOPIC, 1_001)
    assert patient.retries == 1
    hasty.failed(TOPIC, 2_000)
    hasty.planned(TOPIC, 1_990)
    check_invariants(archive().store, {TOPIC: truth()}, paces=[patient])
    assert f"6: {TOPIC} was planned 10 ms before its back-off was over" in violations(
        archive(), truth(), paces=[patient, hasty]
    )


def test_7_segments_that_do_not_provably_follow() -> None:
    built = Archive()
    built.claim(1, 0)
    built.add(stream(1, 0, 20))
    built.add([e for e in ENTRIES if e.ledger == 2], [gap(2, 10, 11)])
    assert "7: unproven-end" in violations(built, truth())


def test_the_truth_of_a_real_topic_is_read_from_it() -> None:
    cluster = MemoryCluster(entries_per_ledger=3)
    cluster.create(TOPIC)
    cluster.add_subscription(TOPIC, "keeper")
    collector = TruthCollector(cluster.source, cluster.admin, TOPIC)
    for number in range(7):
        cluster.produce(TOPIC, b"%d" % number)
    assert collector.read(0.0) == 7
    cluster.add_hidden(TOPIC, GapKind.MARKER)
    cluster.produce(TOPIC, b"last")
    cluster.add_hidden(TOPIC, GapKind.MARKER)
    assert collector.read(0.0) == 10
    found, known = collector.truth(None).entries, truth_of_cluster(cluster, TOPIC).entries
    assert found.keys() == known.keys()
    delivered = {place for place, entry in known.items() if not entry.gaps}
    assert {p for p, e in found.items() if not e.gaps} == delivered
    assert all(found[p] == known[p] for p in delivered)
