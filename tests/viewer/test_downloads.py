"""A download is bounded, and its last line says how it ended: whoever has that line has all before it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from offloader.archive.items import ArchivedEntry, Item, Missing
from offloader.archive.messages.message import Message
from offloader.errors import StoreUnavailableError
from offloader.model import Position
from offloader.viewer import downloads
from offloader.viewer.downloads import lines_of


def entries(count: int, *, fails: bool = False) -> Iterator[Item]:
    for number in range(count):
        yield ArchivedEntry(Position(0, 1, number), b"x" * 100)
    if fails:
        raise StoreUnavailableError("it does not\nanswer")


def ended(form: str, items: Iterator[Item | Message | Position], clock: float = 0) -> str:
    return b"".join(lines_of(items, form, lambda: clock)).decode().splitlines()[-1]


def test_a_whole_one_says_so() -> None:
    assert json.loads(ended("json", entries(3))) == {"end": "complete", "count": 3}
    assert ended("text", entries(0)) == "# 0: complete"


def test_one_that_fails_says_where() -> None:
    assert json.loads(ended("json", entries(3, fails=True)))["end"] == "ended early: it does not\nanswer"
    assert ended("hex", entries(3, fails=True)) == "# 3: ended early: it does not\\nanswer"


def test_one_that_fails_at_once_is_an_error() -> None:
    with pytest.raises(StoreUnavailableError):
        lines_of(entries(0, fails=True), "json", lambda: 0)


def test_a_large_one_says_from_where_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "MOST_BYTES", 500)
    said = json.loads(ended("json", entries(100)))
    assert said["end"] == f"there is more: go on from 1:{said['count']}"


def test_a_batch_is_not_cut_so_that_going_on_doubles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "MOST_BYTES", 0)
    found = (Message(Position(0, 1, entry), number, 3, b"x") for entry in range(9) for number in range(3))
    assert json.loads(ended("json", found)) == {"end": "there is more: go on from 1:1", "count": 3}


def test_one_that_finds_no_message_ends_after_its_time() -> None:
    ticks = iter(range(0, 10**6, 600))
    nothing = (Position(0, 1, entry) for entry in range(10**6))
    said = b"".join(lines_of(nothing, "json", lambda: next(ticks)))
    assert json.loads(said) == {"end": "there is more: go on from 1:6", "count": 0}


def test_it_comes_in_pieces_and_closes_what_it_reads() -> None:
    closed: list[int] = []

    def source() -> Iterator[Item]:
        try:
            yield from entries(10_000)
        finally:
            closed.append(1)

    pieces = lines_of(source(), "json", lambda: 0)
    assert len(next(pieces)) < 2 * downloads.PIECE
    pieces.close()  # type: ignore[attr-defined]
    assert closed == [1]


@pytest.mark.parametrize("form", ["text", "json", "hex"])
def test_what_is_missing_is_a_line(form: str) -> None:
    missing = Missing(Position(0, 1, 0), Position(0, 1, 5), "lost:\n\u202e")
    line, *_ = b"".join(lines_of(iter([missing]), form, lambda: 0)).decode().split("\n")
    assert line.isprintable()
    assert "1:0" in line
