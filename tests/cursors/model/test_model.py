"""Every order of what owners of one subscription do: nothing that was told to be durable is ever forgotten, nothing is
acknowledged that nobody did, and whoever comes later can go on."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator

import pytest

from offloader.cursors import log as log_module
from offloader.cursors.core import cursor as cursor_module
from offloader.cursors.core.records import PieceRecord
from offloader.cursors.durable import DurableCursor
from offloader.cursors.log import CursorLog
from offloader.errors import OutcomeUnknownError
from offloader.metadata.log import NumberedLog
from tests.bookkeeper.model.explorer import explore
from tests.cursors.model.owners import Thing
from tests.cursors.model.world import World
from tests.examples import few

Place = tuple[int, int]  # epoch and slot

OPEN: Thing = None
A, B, C, D, E = ((1, 1),), ((2, 1),), ((1, 3),), ((2, 3),), ((1, 5),)
BOTH = ((1, 1), (2, 1))
FULL = os.environ.get("OFFLOADER_SOAK") == "1"

TWO: list[list[Thing]] = [[OPEN, A, B], [OPEN, C, D]]
SHORT: list[list[Thing]] = [[OPEN, A], [OPEN, B], [OPEN, D]]
THREE: list[list[Thing]] = [[OPEN, A], [OPEN, B, C], [OPEN, D]]
LATE: list[list[Thing]] = [[OPEN, A], [OPEN, B, C, E], [OPEN, D]]
LEDGERS: list[list[Thing]] = [[OPEN, BOTH, C], [OPEN, D]]
WORLDS: dict[str, tuple[list[list[Thing]], int]] = {
    "two owners, a fault": (TWO, 1),
    "two owners, two faults": (TWO, 2),
    "one owner, three faults": ([[OPEN, A, B, C, D, E]], 3),
    "records of a ledger each, a fault": (LEDGERS, 1),
    "three owners": (SHORT, 0),
}
LARGER: dict[str, tuple[list[list[Thing]], int]] = {
    "three owners, a fault": (SHORT, 1),
    "three owners, one writes twice": (THREE, 0),
    "three owners, one writes three times": (LATE, 0),
    "records of a ledger each, two faults": (LEDGERS, 2),
}


@pytest.fixture(autouse=True)
def small_records(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A ledger each, and a marker names one more: all that larger ones do is done."""
    monkeypatch.setattr(cursor_module, "RECORD_BYTES", 1)
    monkeypatch.setattr(cursor_module, "MOST_NAMED", 1)
    monkeypatch.setattr(log_module, "REMOVED_AT_ONCE", 1)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("looked_at", few([log_module.LOOKED_AT, 1], 1))
@pytest.mark.parametrize("name", [*WORLDS, *(LARGER if FULL else ())])
def test_nothing_is_forgotten_and_nothing_invented(name: str, looked_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where an owner that begins sees only the newest place of a log that is longer."""
    monkeypatch.setattr(log_module, "LOOKED_AT", looked_at)
    things, faults = (WORLDS | LARGER)[name]
    found = explore(World(things, faults), 10_000_000)
    assert found.violation is None, found


class FencesGo(CursorLog):
    """Compaction removes the fences, too."""

    def _removable(self, places: Iterable[Place]) -> Iterator[Place]:
        return iter(places)


class NoFence(CursorLog):
    """The next epoch begins without one."""

    def _is_fence(self, place: Place) -> bool:
        return True


class DamagedFencesGo(CursorLog):
    """What is damaged counts as a record."""

    def _is_record(self, place: Place) -> bool:
        return True


class NoSecondLook(CursorLog):
    """Whoever was paused before its epoch began does not look whether that has gone on."""

    def _places(self) -> Iterator[Place]:
        found = super()._places()
        return (place for place in found if place <= (self._epoch, 0)) if self._epoch else found


class OverOthers(CursorLog):
    """Records are written over what is there."""

    def _log(self, epoch: int) -> NumberedLog:
        found = super()._log(epoch)

        def append(slot: int, data: bytes) -> None:
            self._store.put(found.key(slot), data)

        found.append = append
        return found


class RemovesFirst(CursorLog):
    """What the next marker will not name goes before that stands."""

    def append(self, record: PieceRecord) -> None:
        self._remove_all_but(record.marker.records)
        super().append(record)


class RemovesWhatIsNamed(CursorLog):
    """Only the newest record is kept, and not what it names."""

    def _remove_all_but(self, needed: frozenset[Place]) -> None:
        super()._remove_all_but(frozenset({max(needed)}) if needed else needed)


class LostIsDone(CursorLog):
    """A write whose answer was lost counts as done."""

    def append(self, record: PieceRecord) -> None:
        try:
            super().append(record)
        except OutcomeUnknownError:
            self._tried = None
            self._next_slot += 1


class LostIsFailed(CursorLog):
    """A write whose answer was lost counts as failed: what may stand is removed, and it is written anew."""

    def append(self, record: PieceRecord) -> None:
        try:
            super().append(record)
        except OutcomeUnknownError:
            self._tried = None
            self._store.delete([self._key((self._epoch, self._next_slot))])
            raise


class MarkerFirst(DurableCursor):
    """The marker of all pieces is in the first record, and the pieces follow."""

    def _write_pending(self) -> None:
        for number, record in enumerate(self._pending):
            if record.marker != self._pending[-1].marker:
                self._pending[number] = PieceRecord(self._pending[-1].marker, record.inline)
        super()._write_pending()


LOGS: dict[str, tuple[type[CursorLog], list[list[Thing]], int]] = {
    "fences go": (FencesGo, THREE, 0),
    "damaged fences go": (DamagedFencesGo, SHORT, 1),
    "no fence": (NoFence, TWO, 0),
    "no second look": (NoSecondLook, THREE, 0),
    "over others": (OverOthers, TWO, 0),
    "removes first": (RemovesFirst, TWO, 1),
    "removes what is named": (RemovesWhatIsNamed, TWO, 0),
    "lost is done": (LostIsDone, TWO, 1),
    "lost is failed": (LostIsFailed, TWO, 1),
}


@pytest.mark.parametrize("name", few(LOGS, 3))
def test_a_broken_log_is_found(name: str) -> None:
    log, things, faults = LOGS[name]
    assert explore(World(things, faults, log=log), 10_000_000).violation


def test_a_marker_that_is_written_before_its_pieces_is_found() -> None:
    assert explore(World(LEDGERS, 1, cursor=MarkerFirst), 10_000_000).violation
