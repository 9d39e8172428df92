"""A catalog of any length is a figure of few bars, made of few requests."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.opened import CatalogCache
from offloader.metadata.compaction import compact
from offloader.metadata.deletions import DeletedRange, DeletionReason
from offloader.metadata.history import History
from offloader.metadata.manifest import ManifestRow
from offloader.model import Position
from offloader.pages.plots import WIDTH
from offloader.ports.object_store import Stat
from offloader.storage.memory import MemoryStore
from offloader.viewer.timeline import Piece, timeline
from offloader.viewer.viewed import outline
from tests.archive.support import TOPIC, Archive, stream

RECORDS = 401


class CountingStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def read(self, key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
        self.counts["read"] += 1
        return super().read(key, offset, length)


@pytest.fixture(scope="module")
def store() -> CountingStore:
    found = CountingStore()
    archive = Archive(found)
    archive.claim()
    for number in range(RECORDS - 1):
        archive.add(stream(0, number, number))
    compact(found, archive.catalogs.head(TOPIC))
    return found


@pytest.fixture
def history(store: CountingStore) -> History:
    found = CatalogCache(store).records(TOPIC).recorded
    store.counts.clear()
    return found


def test_a_long_catalog_is_told_by_sums(store: CountingStore, history: History) -> None:
    pieces = outline(history, 0, RECORDS, most=100)
    assert len(pieces) <= 100
    assert [piece.first for piece in pieces[1:]] == [piece.after for piece in pieces[:-1]]
    assert (pieces[0].first, pieces[-1].after) == (0, RECORDS)
    assert sum(piece.row.segments for piece in pieces) == RECORDS - 1
    assert store.counts["read"] <= 30


def test_a_stretch_of_it_is_told_record_by_record(store: CountingStore, history: History) -> None:
    pieces = outline(history, 64, 128)
    assert [(piece.first, piece.after) for piece in pieces] == [(number, number + 1) for number in range(64, 128)]
    assert all(piece.record is not None for piece in pieces)
    assert store.counts["read"] <= 4


def test_nothing_is_nothing(history: History) -> None:
    assert outline(history, 5, 5) == []
    figure = timeline([], (), lambda _: "")
    assert (figure.bars, figure.ticks, figure.timed) == ((), (), False)


TIMES = st.none() | st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**40)).map(lambda t: (t[0], sum(t)))


@given(st.lists(st.tuples(TIMES, st.booleans()), max_size=40))
def test_every_bar_is_inside_the_figure_whatever_clocks_say(said: list[tuple[tuple[int, int] | None, bool]]) -> None:
    figure = timeline([piece(n, times, lost=lost) for n, (times, lost) in enumerate(said)], (), lambda _: "/x")
    assert all(bar.x >= 0 and bar.width > 0 and bar.x + bar.width <= WIDTH + 10 for bar in figure.bars)
    assert len([bar for bar in figure.bars if bar.height == 1]) == len(said)
    assert {bar.kind for bar in figure.bars} == {kind for kind, _ in figure.legend}


def test_one_clock_that_is_wrong_does_not_hide_all_others() -> None:
    hour = 3_600_000
    pieces = [piece(n, (10**12 + n * hour, 10**12 + (n + 1) * hour)) for n in range(100)]
    pieces.append(piece(100, (0, 1)))
    figure = timeline(pieces, (), lambda _: "")
    assert min(bar.width for bar in figure.bars[:99]) > WIDTH / 300


def test_a_loss_stands_between_its_neighbours_and_what_is_deleted_has_its_colour() -> None:
    pieces = [piece(0, (0, 100)), piece(1, (100, 200)), piece(2, None, lost=True), piece(3, (500, 600))]
    span = DeletedRange(Position(0, 1, 0), Position(0, 1, 0), (DeletionReason.TIME,), "old", 1, 1, 1)
    figure = timeline(pieces, (span,), lambda _: "")
    assert [bar.kind for bar in figure.bars] == ["gone", "good", "bad", "good"]
    loss = figure.bars[2]
    assert figure.bars[1].x < loss.x
    assert 0 <= figure.bars[3].x - (loss.x + loss.width) < 2


def piece(number: int, times: tuple[int, int] | None, *, lost: bool = False) -> Piece:
    at = Position(0, 1, number)
    early, late = (None, None) if times is None or lost else times
    row = ManifestRow(at, at, early, late, segments=0 if lost else 1, losses=int(lost))
    return Piece(number, number + 1, row)
