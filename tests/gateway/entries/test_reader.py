"""A reader that stands somewhere: what it passes over, how far it says that it got, how much it gives at a time."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from offloader.archive.items import EntryRun, Missing, ReadItem
from offloader.errors import DataLostError, StoreUnavailableError
from offloader.gateway.entries.delivered import ReadRun, deliverable
from offloader.gateway.entries.missing import OnMissing, Passing
from offloader.gateway.entries.reader import TopicReader
from offloader.model import GapKind, Position
from tests.archive.messages.encoder import run_of
from tests.archive.support import TOPIC, message

BEFORE_ALL = (-1, -1)


def run(ledger: int, first: int, count: int, text: str = "x") -> EntryRun:
    return run_of([message(text)] * count, first, ledger=ledger)


def missing(first: tuple[int, int], last: tuple[int, int], why: str = "lost", **more: object) -> Missing:
    return Missing(Position(0, *first), Position(0, *last), why, **more)


def reader(*items: ReadItem | Exception, on_missing: OnMissing = OnMissing.FAIL) -> TopicReader:
    def given() -> Generator[ReadItem]:
        for item in items:
            if isinstance(item, Exception):
                raise item
            yield item

    def decoded(run: EntryRun) -> ReadRun:
        return deliverable(run, (), sticky=False)

    return TopicReader(BEFORE_ALL, given(), decoded, Passing(TOPIC, on_missing), at_begin=True, sticky=False)


def test_what_is_deleted_behind_what_is_there_is_a_loss_also_for_who_began_at_the_begin() -> None:
    deleted = [missing((n, 0), (n, 9), "deleted by a policy", deleted=True) for n in range(3)]
    reading = reader(deleted[0], deleted[1], run(2, 0, 2), deleted[2])
    assert reading.read(100, 10**6).covered == (2, 1)
    with pytest.raises(DataLostError):
        reading.read(100, 10**6)
    assert reading.is_over
    second = reader(run(2, 0, 2), deleted[2])
    assert second.read(2, 10**6).covered == (2, 1)
    with pytest.raises(DataLostError):
        second.read(1, 1)


def test_gaps_are_passed_over_and_covered() -> None:
    read = reader(missing((1, 0), (1, 4), kind=GapKind.MARKER)).read(1, 1)
    assert (list(read.entries), read.covered) == ([], (1, 4))


def test_of_a_junction_that_nothing_proves_the_entry_behind_it_is_still_to_come() -> None:
    junction = missing((1, 4), (2, 0), "unproven: nothing proves that no ledger is missing between 1 and 2")
    assert reader(junction, on_missing=OnMissing.SKIP).read(1, 1).covered == (2, -1)
    lost = missing((1, 4), (2, 0), "lost: trimmed")
    assert reader(lost, on_missing=OnMissing.SKIP).read(1, 1).covered == (2, 0)


def test_what_is_there_is_given_before_what_is_raised() -> None:
    reading = reader(run(1, 0, 1), run(1, 1, 3), StoreUnavailableError("away"))
    reading.read(1, 1)
    assert len(reading.read(100, 10**6).entries) == 3
    assert reading.is_over
    with pytest.raises(StoreUnavailableError):
        reader(StoreUnavailableError("away")).read(1, 1)


def test_small_runs_are_given_together_and_large_ones_one_by_one() -> None:
    small, large = [run(1, 2 * n, 2) for n in range(10)], [run(2, 100 * n, 100) for n in range(2)]
    reading = reader(run(0, 0, 1), *small, *large)
    assert len(reading.read(1000, 10**6).entries) == 1, "whoever begins waits for nothing else"
    sizes = [len(reading.read(1000, 10**6).entries) for _ in range(2)]
    assert sizes == [120, 100]


def test_bounds_hold_but_for_one_entry() -> None:
    size = len(message("x"))
    reading = reader(run(1, 0, 10))
    most = [(3, 10**6), (10, 2 * size), (10, 2 * size - 1), (10, 1), (10, 10**6)]
    assert [len(reading.read(*each).entries) for each in most] == [3, 2, 1, 1, 3]


def test_it_goes_on_also_behind_the_last_entry_that_it_gave() -> None:
    reading = reader(run(1, 0, 1), missing((1, 1), (1, 5), kind=GapKind.MARKER), run(1, 6, 70))
    read = reading.read(1, 1)
    assert (read.covered, reading.covered) == ((1, 0), (1, 0))
    second = reader(run_of([message("x"), b"none", b"none"], 0, ledger=1), run(1, 3, 70))
    assert second.read(1, 10**6).covered == (1, 2)
    assert second.read(1, 10**6).covered == (1, 3)
    third = reader(run_of([message("x")] * 70 + [b"none"] * 100, 0, ledger=1))
    assert third.read(70, 10**6).covered == (1, 169)
    assert [third.stands_at((1, entry)) for entry in (68, 69, 120, 169, 170)] == [False, True, True, True, False]
