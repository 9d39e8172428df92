"""Manifests: what they say is what the records say, whoever writes them, however often, and wherever that breaks
off."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Never

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offloader.errors import DamagedRecordError, IntegrityError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.catalog_codec import encode_catalog, standing
from offloader.metadata.compaction import compact
from offloader.metadata.history import History, RecordCache
from offloader.metadata.layout import manifest_key, manifests_folder, newest_key, records_key, slot_key
from offloader.metadata.manifest import (
    FAN,
    Manifest,
    ManifestNode,
    ManifestRow,
    before_next,
    completed,
    frontier,
    leaf,
    merged,
    row_of,
)
from offloader.metadata.manifest_codec import decode_manifest, encode_manifest
from offloader.metadata.state import CatalogHead, GenerationEnded, LedgerClosed, Record, TopicCatalog
from offloader.model import EntryStats, LedgerRange, Loss, Part, Segment
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import FaultyStore, StoreFault, StoreFaults

from .support import OTHER_TOPIC, TOPIC, claim, offloaded, position

i64 = st.integers(-(2**62), 2**62)
count = st.integers(0, 2**40)
optional = st.none() | i64


def timed(segment: Segment, early: int | None, late: int | None) -> Segment:
    stats = EntryStats(1, early, late)
    part = Part(1, 0, 1, "", 0, 1, segment.ledgers, 1, stats)
    return replace(segment, parts=(part,))


def chain(number: int, seed: int = 0) -> Iterator[Record]:
    """A claim, then as many records as make a catalog of this length."""
    drawn, at = random.Random(seed), 0
    yield claim()
    for n in range(1, number):
        match drawn.randrange(8):
            case 0:
                if n < 3 * FAN:
                    yield LedgerClosed(0, 1_000 + n, n)
                else:  # each head has all closed ledgers behind its end: hundreds show no more than dozens
                    yield replace(claim(), at=n)
            case 1:
                yield Loss(position(at), position(at + 1), "trimmed", "joe", n)
                at += 2
            case _:
                yield timed(offloaded(f"u{n}", at, at + 9), 1_000 * n, 1_000 * n + 1_500)
                at += 10


def written(number: int, seed: int = 0) -> tuple[MemoryStore, CatalogHead]:
    """A log that was written without reading any of it back."""
    store = MemoryStore()
    catalogs, head = Catalogs(store, "app"), CatalogHead(TOPIC)
    for record in chain(number, seed):
        head = catalogs.append(head, record)
    return store, head


def manifests(store: MemoryStore) -> dict[str, bytes]:
    """All but the hint."""
    return {key: store.read(key)[0] for key, _ in store.list(manifests_folder(TOPIC)) if key != newest_key(TOPIC, 0)}


def everything(_: ManifestRow) -> bool:
    return True


# What they say


rows = st.builds(
    lambda placed, timed, untimed, sums: ManifestRow(placed[0], placed[1], timed[0], timed[1], untimed, *sums),
    st.just((None, None)) | st.tuples(st.builds(position, i64, i64, i64), st.builds(position, i64, i64, i64)),
    st.just((None, None)) | st.tuples(i64, i64),
    st.booleans(),
    st.tuples(*[count] * 5),
)


@given(st.lists(rows, max_size=5).map(tuple), st.integers(1, 300), st.data())
def test_a_manifest_is_read_as_it_was_written(own: tuple[ManifestRow, ...], number: int, data: st.DataObject) -> None:
    size = len(frontier(number))
    before = tuple(data.draw(rows) for _ in range(min(size, 3))) + (ManifestRow(),) * max(size - 3, 0)
    made = Manifest(
        ManifestNode(0, number), own + (ManifestRow(),) * (FAN - len(own)), tuple(range(1, FAN + 1)), before
    )
    assert decode_manifest(TOPIC, made.node, "key", encode_manifest(TOPIC, made)) == made


def test_a_manifest_of_another_topic_or_place_is_damage() -> None:
    data = encode_manifest(TOPIC, Manifest(ManifestNode(1, 3), (ManifestRow(),)))
    for topic, node in ((OTHER_TOPIC, ManifestNode(1, 3)), (TOPIC, ManifestNode(1, 4)), (TOPIC, ManifestNode(2, 3))):
        with pytest.raises(DamagedRecordError, match="key: it is not the manifest that belongs here"):
            decode_manifest(topic, node, "key", data)


@given(st.integers(0, 3 * FAN**3))
def test_the_frontier_covers_all_leaves_once_and_in_order(leaves: int) -> None:
    nodes = frontier(leaves)
    slots = [slots for node in nodes for slots in (node.slots[0], node.slots[-1])]
    assert slots[:1] == [0][: len(slots)]
    assert slots[-1:] == [leaves * FAN - 1][: len(slots)]
    assert all(after == before + 1 for before, after in zip(slots[1::2], slots[2::2], strict=False))
    assert len(nodes) < FAN * 4


def test_a_leaf_says_what_all_before_it_adds_up_to() -> None:
    """Of a tree of three levels, made as the compaction makes it."""
    drawn = random.Random(5)
    sums: list[ManifestRow] = []
    before: tuple[ManifestRow, ...] = ()
    seen: dict[ManifestNode, ManifestRow] = {}
    for number in range(FAN * FAN + 70):
        made = leaf(number, [Loss(position(number), position(number), "", "", 0)] * FAN, [1] * FAN, before)
        made = replace(made, rows=(replace(made.rows[0], size=drawn.randrange(9)), *made.rows[1:]))
        sums.append(merged(made.rows))
        seen[made.node] = sums[-1]
        seen |= {above.node: merged(above.rows) for above in completed(made)}
        before = before_next(made)
        assert [seen[node] for node in frontier(number + 1)] == list(before)
    assert sum(row.size for row in before) == sum(row.size for row in sums)
    assert {ManifestNode(2, 0), ManifestNode(1, FAN)} <= seen.keys()


def test_what_a_segment_says_no_time_of_may_have_any() -> None:
    known, unknown = timed(offloaded("a", 0, 9), 5, 7), timed(offloaded("b", 10, 19), None, None)
    assert (row_of(known).early, row_of(known).late, row_of(known).untimed) == (5, 7, False)
    assert row_of(unknown).untimed
    assert merged([row_of(known), row_of(unknown)]).untimed
    assert (row_of(timed(known, 3, 2**63 + 1)).early, row_of(timed(known, 3, 2**63 + 1)).late) == (-(2**63), 2**63 - 1)


# Reading by them


@pytest.mark.parametrize(
    "change",
    [
        lambda made: replace(made, rows=made.rows[:10]),
        lambda made: replace(made, rows=made.rows + made.rows[:1]),
        lambda made: replace(made, lengths=made.lengths[:10]),
        lambda made: replace(made, lengths=(-5, *made.lengths[1:])),
        lambda made: replace(made, lengths=(2**63 - 1,) * FAN),
    ],
)
def test_a_manifest_that_does_not_sum_up_what_it_should_is_passed_over(change: Callable[[Manifest], Manifest]) -> None:
    store, head = written(FAN + 5)
    without = [(slot.number, slot.row) for slot in History(store, head).slots(everything)]
    compact(store, head)
    key = manifest_key(TOPIC, 0, 0, 0)
    made = decode_manifest(TOPIC, ManifestNode(0, 0), key, store.read(key)[0])
    store.put(key, encode_manifest(TOPIC, change(made)))
    with pytest.raises(DamagedRecordError, match=key):
        decode_manifest(TOPIC, ManifestNode(0, 0), key, store.read(key)[0])
    history = Catalogs(store, "app").history(TOPIC)
    assert [(slot.number, slot.row) for slot in history.slots(everything)] == without
    assert history.catalog(range(head.next_slot)).segments == Catalogs(store, "app").load(TOPIC).segments


@pytest.mark.parametrize("number", [1, FAN - 1, FAN, FAN + 1, 3 * FAN + 5])
def test_a_history_is_the_same_with_manifests_and_without(number: int) -> None:
    store, head = written(number)
    whole = Catalogs(store, "app").load(TOPIC)
    without = [(slot.number, slot.row) for slot in History(store, head).slots(everything)]
    compact(store, head)
    history = Catalogs(store, "app").history(TOPIC)
    assert (history.head, history.leaves) == (head, number // FAN)
    assert [(slot.number, slot.row) for slot in history.slots(everything)] == without
    assert Catalogs(store, "app").load(TOPIC) == whole
    assert history.catalog(range(number)) == whole


def test_what_was_read_once_is_read_again_without_a_request_and_without_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, head = written(FAN + 9)
    compact(store, head)
    cache = RecordCache()
    before = list(History(store, head, cache).read(range(head.next_slot)))

    def refuse(*_: object) -> Never:
        raise AssertionError("nothing is left to read")

    monkeypatch.setattr("offloader.metadata.history.unawaited_pool", refuse)
    monkeypatch.setattr(store, "read", refuse)
    again = History(store, head, cache)
    assert list(again.read(range(head.next_slot))) == before
    assert [slot.number for slot in again.slots(everything)] == list(range(head.next_slot))


@settings(max_examples=8, deadline=None)
@given(st.integers(1, FAN + 30), st.integers(0, 9), st.data())
def test_consecutive_records_add_up_to_that_part_of_the_catalog(number: int, seed: int, data: st.DataObject) -> None:
    store, head = written(number, seed)
    compact(store, head)
    first = data.draw(st.integers(0, number - 1))
    last = data.draw(st.integers(first, number - 1))
    part = History(store, head).catalog(range(first, last + 1))
    before = TopicCatalog.empty(TOPIC).apply(*list(chain(number, seed))[:first])
    whole = before.apply(*list(chain(number, seed))[first : last + 1])
    assert part.head == head
    assert part.segments == whole.segments[len(before.segments) :]
    assert [loss.start for loss in part.losses] == [loss.start for loss in whole.losses[len(before.losses) :]]
    assert part.begins == {0: position(0)}


def test_what_is_not_wanted_is_not_read() -> None:
    store, head = written(FAN * 20 + 3)
    compact(store, head)
    faults = StoreFaults()
    history = Catalogs(FaultyStore(store, faults), "app").history(TOPIC)
    at = position(FAN * 10 * 7)
    found = [slot.number for slot in history.slots(lambda row: row.holds(at))]
    assert len(found) == 1
    assert faults.calls["read"] == 1 + 3 + 1 + 1, (
        "the hint, the records behind the last leaf, that leaf, and the one that has it"
    )


def test_a_start_asks_as_much_of_a_long_log_as_of_a_short_one() -> None:
    asked = []
    for number in (FAN + 5, 4 * FAN + 5, 16 * FAN + 5):
        store, head = written(number)
        compact(store, head)
        faults = StoreFaults()
        assert Catalogs(FaultyStore(store, faults), "app").head(TOPIC) == head
        asked.append(dict(faults.calls))
    assert asked[0] == asked[1] == asked[2] == {"read": 2, "stat": 1, "list": 1}


@pytest.mark.parametrize("hint", [None, b"", b"0", b"1", b"99999", b"-3", b"\xff" * 30])
def test_the_hint_is_only_a_hint(hint: bytes | None) -> None:
    store, head = written(5 * FAN + 9)
    compact(store, head)
    store.delete([newest_key(TOPIC, 0)])
    if hint is not None:
        store.put(newest_key(TOPIC, 0), hint)
    faults = StoreFaults()
    assert Catalogs(FaultyStore(store, faults), "app").head(TOPIC) == head
    assert sum(faults.calls.values()) < 12


def test_a_catalog_that_lost_its_end_is_not_gone_on_with_where_manifests_say_so() -> None:
    store, head = written(2 * FAN + 9)
    compact(store, head)
    store.delete([slot_key(TOPIC, 0, slot) for slot in range(2 * FAN - 4, head.next_slot)])
    catalogs = Catalogs(store, "app")
    with pytest.raises(DamagedRecordError, match=r"is missing, though .* sums up what follows it"):
        catalogs.head(TOPIC)
    ended = standing(CatalogHead(TOPIC, next_slot=2 * FAN - 4), encode_catalog("ended", GenerationEnded(1)))
    store.put(slot_key(TOPIC, 0, 2 * FAN - 4), ended)
    assert catalogs.head(TOPIC).generation == 1


# Writing them


def test_they_are_the_same_however_often_they_are_written_and_by_how_many() -> None:
    store, head = written(65 * FAN + 3)
    assert compact(store, head) == 65
    once = manifests(store)
    assert {manifest_key(TOPIC, 0, 1, 0), manifest_key(TOPIC, 0, 0, 64), records_key(TOPIC, 0, 64)} <= once.keys()
    assert compact(store, head) == 0
    assert manifests(store) == once
    again = MemoryStore()
    for key, data in ((key, store.read(key)[0]) for key, _ in store.list() if key not in once):
        again.put(key, data)
    for part in (3 * FAN, 3 * FAN + 1, 64 * FAN, head.next_slot):
        compact(again, replace(head, next_slot=part))
        compact(again, replace(head, next_slot=part // 2))  # one that is late
    assert manifests(again) == once


class CrashError(Exception):
    """Whatever ends a process."""


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=3), st.integers(0, 2 * FAN + 5))
def test_interrupted_anywhere_nothing_has_changed_and_it_can_go_on(crashes: list[int], number: int) -> None:
    store, head = written(number + 1)
    whole = Catalogs(store, "app").load(TOPIC)
    for after in crashes:
        fault = StoreFault("put", error=CrashError, after=after)
        with suppress(CrashError):
            compact(FaultyStore(store, StoreFaults([fault])), head)
        assert Catalogs(store, "app").load(TOPIC) == whole
        assert Catalogs(store, "app").head(TOPIC) == head
    compact(store, head)
    fresh = MemoryStore()
    for key, data in (
        (key, store.read(key)[0]) for key, _ in store.list() if not key.startswith(manifests_folder(TOPIC))
    ):
        fresh.put(key, data)
    compact(fresh, head)
    assert manifests(store) == manifests(fresh)


def test_a_paused_writer_finds_its_number_taken_however_much_was_summed_up_since() -> None:
    """Numbers are never free again: records that manifests hold stay where they are."""
    store, head = written(FAN - 3)
    late = Catalogs(store, "app")
    now, at = head, head.end.entry + 1
    for n in range(FAN):
        now = Catalogs(store, "app").append(now, offloaded(f"new{n}", at + 10 * n, at + 10 * n + 9))
    compact(store, now)
    with pytest.raises(IntegrityError, match="does not continue"):
        late.append(head, offloaded("late", at, at + 9))
    with pytest.raises(IntegrityError, match="does not continue"):
        late.append(head, Loss(position(at), position(at + 3), "trimmed", "joe", 1))
    assert late.append(head, offloaded("new0", at, at + 9)).next_slot == head.next_slot + 1, (
        "its own, as when it had returned"
    )
    assert Catalogs(store, "app").head(TOPIC) == now


# Damage


@pytest.mark.parametrize("garbage", [None, b"", b"garbage", b"PSOM" + bytes(60)])
@pytest.mark.parametrize(
    "which",
    [lambda: manifest_key(TOPIC, 0, 0, 1), lambda: records_key(TOPIC, 0, 1), lambda: manifest_key(TOPIC, 0, 0, 4)],
)
def test_what_is_damaged_is_passed_over(
    which: Callable[[], str], garbage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    store, head = written(5 * FAN + 1)
    whole = Catalogs(store, "app").load(TOPIC)
    compact(store, head)
    store.delete([which()])
    if garbage is not None:
        store.put(which(), garbage)
    history = History(store, head)
    assert history.catalog(range(head.next_slot)) == whole
    assert [slot.number for slot in history.slots(everything)] == list(range(head.next_slot))


def test_a_record_of_another_place_is_damage() -> None:
    store, _ = written(5)
    store.put(slot_key(TOPIC, 0, 4), store.read(slot_key(TOPIC, 0, 3))[0])
    with pytest.raises(DamagedRecordError, match=f"it is a copy of {slot_key(TOPIC, 0, 3)}"):
        Catalogs(store, "app").head(TOPIC)


def test_ledgers_of_rows() -> None:
    """Segments that span ledgers are in one row."""
    segment = replace(
        offloaded("a", 0, 9),
        ledgers=(LedgerRange(6, 0, 4, count=4, size=1, closed_with=3), LedgerRange(7, 0, 10, count=10, size=1)),
        start=position(0, 6),
    )
    assert (row_of(segment).start, row_of(segment).end, row_of(segment).entries) == (position(0, 6), position(9), 14)
