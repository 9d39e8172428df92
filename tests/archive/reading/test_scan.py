"""Fetches and what is found in them, whatever their sizes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.items import EntryRun
from offloader.archive.object_range import Run
from offloader.archive.reading.scan import BrokenEntry, Scanner
from offloader.archive.reading.sparse_index import SparseIndex, decode_sparse_index, fetches
from offloader.model import SegmentLayout
from tests.archive.ledgers.support import objects
from tests.format.support import (
    Stored,
    cut_all,
    fixture,
    sealed,
    sha256,
    small_cuts,
    streams,
    v1_one_block,
    v1_tiny_blocks,
)

read_sizes = st.integers(128, 3_000)


def runs_of(entries: list[Stored]) -> list[Run]:
    runs: list[Run] = []
    for e in entries:
        if runs and (runs[-1].ledger, runs[-1].after) == (e.ledger, e.entry):
            runs[-1] = Run.closed(e.ledger, runs[-1].first, e.entry)
        else:
            runs.append(Run.closed(e.ledger, e.entry, e.entry))
    return runs


def scanned(points: SparseIndex, data: bytes, runs: list[Run], read_size: int) -> list[Stored]:
    scanner = Scanner(points, 0)
    found = []
    for fetch in fetches(points, runs, read_size):
        for item in scanner.scan(fetch, data[fetch.begin : fetch.end]):
            assert isinstance(item, EntryRun), item
            found += [Stored(e.position.ledger, e.position.entry, e.data) for e in item.entries()]
    return found


@given(streams(), small_cuts(), read_sizes)
def test_all_entries_whatever_the_sizes(stream: list[Stored], cuts: SegmentLayout, read_size: int) -> None:
    made = sealed(cut_all(stream, cuts))
    points = decode_sparse_index(made.index, None)
    assert scanned(points, made.data, runs_of(stream), read_size) == stream


@given(st.lists(st.binary(max_size=700), min_size=1, max_size=30), st.sampled_from([900, 3_000, 50_000]), read_sizes)
def test_blocks_of_brokers_whatever_the_sizes(entries: list[bytes], block_size: int, read_size: int) -> None:
    data, index = objects(5, entries, block_size=block_size)
    points = decode_sparse_index(index, 5)
    found = scanned(points, data, [Run.closed(5, 0, len(entries) - 1)], read_size)
    assert found == [Stored(5, n, entry) for n, entry in enumerate(entries)]


@given(streams(), small_cuts(), read_sizes, st.data())
def test_fetches_cover_what_is_wanted_and_little_more(
    stream: list[Stored], cuts: SegmentLayout, read_size: int, data: st.DataObject
) -> None:
    made = sealed(cut_all(stream, cuts))
    points = decode_sparse_index(made.index, None)
    kept = data.draw(st.sets(st.integers(0, len(stream) - 1), min_size=1, max_size=4))
    wanted = runs_of([stream[n] for n in sorted(kept)])
    planned = list(fetches(points, wanted, read_size))
    assert all(f.end - f.begin <= read_size for f in planned)
    assert all(a.end <= b.begin for a, b in pairwise(planned))
    found = scanned(points, made.data, wanted, read_size)
    assert [s for s in stream if s in found] == found
    assert all(stream[n] in found for n in kept)
    starts = sorted({points.begin(n) for n in range(len(points) + 1)})
    for fetch in planned:
        number = points.at(points.ledgers[fetch.first], points.entries[fetch.first])
        assert number == fetch.first
        assert fetch.continues or fetch.begin in starts


@given(streams(), small_cuts(), read_sizes, st.data())
def test_any_changed_byte_is_a_fault_or_in_an_entrys_bytes(
    stream: list[Stored], cuts: SegmentLayout, read_size: int, data: st.DataObject
) -> None:
    made = sealed(cut_all(stream, cuts))
    points = decode_sparse_index(made.index, None)
    at = data.draw(st.integers(0, len(made.data) - 1))
    changed = made.data[:at] + bytes([made.data[at] ^ data.draw(st.integers(1, 255))]) + made.data[at + 1 :]
    scanner = Scanner(points, 0)
    found, faults = [], []
    for fetch in fetches(points, runs_of(stream), read_size):
        for item in scanner.scan(fetch, changed[fetch.begin : fetch.end]):
            if isinstance(item, BrokenEntry):
                faults.append(item)
            else:
                found += [(e.position.ledger, e.position.entry, len(e.data)) for e in item.entries()]
    told = [(s.ledger, s.entry, len(s.data)) for s in stream]
    right = [each for each in found if each in told]
    assert right == [each for each in told if each in found]
    assert len(found) - len(right) <= 1  # the entry whose length was changed: what follows it shows that
    assert faults or found == told
    assert all(fault.why.startswith("offset ") for fault in faults)


def test_fixtures_that_pulsar_wrote() -> None:
    for made, ledger in ((v1_one_block(), 7), (v1_tiny_blocks(), 9)):
        points = decode_sparse_index(made.index, ledger)
        for read_size in (128, 1_000, 4_096, 1 << 22):
            found = scanned(points, made.data, [Run.closed(ledger, 0, len(made.entries) - 1)], read_size)
            assert [(s.entry, sha256(s.data)) for s in found] == made.entries
    made = fixture("v2_one_ledger_one_block", "44444444-4444-4444-4444-444444444444")
    found = scanned(decode_sparse_index(made.index, None), made.data, [Run.closed(20, 0, 64)], 1 << 16)
    assert [(s.entry, sha256(s.data)) for s in found] == made.entries
