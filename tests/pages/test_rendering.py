"""Whatever is shown stays text: no element, no direction of reading, no line of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from offloader.pages import plots
from offloader.pages.rendering import (
    FILES,
    Renderer,
    bytes_text,
    duration_text,
    static_file,
    text_block,
    time_text,
    url,
)
from offloader.printable import printable
from tests.pages.calling import Page

EVIL = "<script>alert(1)</script>\"'&\x1b[2J\u202e\r\n\x00"


@given(st.text() | st.just(EVIL))
def test_a_text_is_shown_as_text_whatever_it_says(text: str) -> None:
    page = Page(Renderer().render("problem.html", status=_Status(), text=text).decode())
    plain = Page(Renderer().render("problem.html", status=_Status(), text="x").decode())
    assert page.elements == plain.elements
    assert page.texts == [printable(text) if part == "x" else part for part in plain.texts] or not text


@given(st.text() | st.binary())
def test_a_block_keeps_its_lines_and_tabs_and_nothing_else_that_moves(text: str | bytes) -> None:
    shown = text_block(text)
    assert all(part.isprintable() for line in shown.split("\n") for part in line.split("\t"))
    ends = "\n" if isinstance(text, str) else b"\n"
    assert shown.count("\n") == text.count(ends)


def test_a_backslash_and_a_letter_are_no_tab() -> None:
    assert text_block("a\\tb\tc\nd") == "a\\tb\tc\nd"


def test_a_value_that_nobody_gave_is_a_defect() -> None:
    with pytest.raises(UndefinedError):
        Renderer().render("problem.html", status=_Status())


@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.text(), max_size=3))
def test_an_address_is_ascii_and_printable(query: dict[str, str]) -> None:
    found = url("/x", **query)
    assert found.isascii()
    assert found.isprintable()
    assert not set(found) & set("<>\"' ")


def test_what_people_read() -> None:
    assert [bytes_text(n) for n in (0, 1023, 1024, 1536, 200 * 2**20, 2**50)] == [
        *("0 B", "1023 B", "1.0 KiB", "1.5 KiB", "200 MiB", "1.0 PiB")
    ]
    assert [duration_text(ms) for ms in (0, 61_000, 90_061_000)] == ["0 s", "1 min 1 s", "1 d 1 h"]
    assert time_text(None) == "\N{EN DASH}"
    assert time_text(0) == '<time datetime="1970-01-01T00:00:00.000Z">1970-01-01 00:00:00</time>'
    assert time_text(10**30) == str(10**30)


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_there_and_name_no_other_site(name: str) -> None:
    text = static_file(name).decode().replace("http://www.w3.org/2000/svg", "")
    assert "//" not in text.replace("// ", "")
    assert "url(" not in text


@given(st.integers(0, 4 * 10**12), st.integers(0, 4 * 10**12))
def test_an_axis_has_few_round_times_inside_the_figure(begin: int, end: int) -> None:
    ticks = plots.time_ticks(begin, end)
    assert len(ticks) <= 7
    assert all(0 <= tick.at <= plots.WIDTH for tick in ticks)
    assert [tick.at for tick in ticks] == sorted({tick.at for tick in ticks})


def test_columns_are_as_high_as_their_values() -> None:
    bars = plots.columns([1, 0, 4], ["a", "b", "c"])
    assert [(bar.title, bar.height) for bar in bars] == [("a", 0.25), ("c", 1)]
    assert plots.columns([0, 0], ["a", "b"]) == []


class _Status:
    phrase = "Not Found"
