"""Which incarnation an object is of, where the claim that said it is lost."""

from __future__ import annotations

import pytest

from offloader.model import Position
from tests.archive.rebuilding.lost import back, gone, keys, missing, places
from tests.archive.rebuilding.support import proposed, written
from tests.archive.support import Archive, stream


def twice() -> Archive:
    """Created again; the second incarnation's segments share ledgers."""
    archive = Archive()
    archive.claim(10)
    archive.add(stream(10, 0, 9), closed={10: 9})
    archive.incarnation = 1
    archive.claim(20, created="later")
    archive.add(stream(20, 0, 4))
    archive.add(stream(20, 5, 9))
    archive.add(stream(20, 10, 14) + stream(22, 0, 4), closed={20: 14})
    archive.add(stream(22, 5, 9))
    return archive


@pytest.mark.parametrize("kept", [[0, 1, 6], [0, 1, 3]], ids=["what followed", "what came before"])
def test_objects_that_share_a_ledger_are_of_one_incarnation(kept: list[int]) -> None:
    archive = twice()
    gone(archive, [slot for slot in range(7) if slot not in kept], [])
    proposal = written(archive)
    assert not any("incarnation" in note.message for note in proposal.notes)
    assert [s.start for s in archive.catalog.segments if s.start.incarnation] == [
        Position(1, *place) for place in ((20, 0), (20, 5), (20, 10), (22, 5))
    ]
    assert proposed(archive).new == []


def test_no_loss_covers_what_is_read_of_a_ledger_whose_claim_is_lost() -> None:
    archive = twice()
    held = gone(archive, [2, 3, 4, 5], keys(2))
    written(archive)
    assert places(archive) == {(10, e) for e in range(10)} | {(20, e) for e in range(5, 15)} | {(22, e) for e in range(10)}
    assert missing(archive) == [((10, 10), (20, 4))]
    back(archive, held)
    written(archive)
    assert len(places(archive)) == 35
    assert missing(archive) == []
