"""Keys as names of HDFS: nothing is lost, and HDFS's order of signed bytes is that of keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import FatalError
from offloader.storage.rules import may_be_listed
from offloader.storage.webhdfs import before, key_of, path_of, written

PIECES = st.text(st.sampled_from("ab-.~é日🙂 "), min_size=1, max_size=4).filter(lambda piece: piece not in (".", ".."))
KEYS = st.lists(PIECES, min_size=1, max_size=3).map("/".join)


def signed(text: str) -> list[int]:
    """As HDFS compares names."""
    return [byte - 256 if byte > 127 else byte for byte in text.encode()]


@given(KEYS)
def test_a_key_comes_back_from_its_path(key: str) -> None:
    assert key_of(path_of(key)) == key


@given(PIECES, PIECES)
def test_names_are_in_the_order_of_keys(one: str, other: str) -> None:
    assert (one < other) == (signed(path_of(one)) < signed(path_of(other)))


@given(KEYS, st.text(st.sampled_from("ab-.~é日/"), max_size=5))
def test_the_beginning_of_a_key_is_that_of_its_path(key: str, beginning: str) -> None:
    assert key.startswith(beginning) == written(key).startswith(written(beginning))


@given(PIECES, st.booleans(), st.sampled_from(["", "a/", "a-/b/"]), KEYS | st.just(""), KEYS | st.just(""))
def test_what_comes_before_the_beginning_of_a_listing_is_none_of_it(
    name: str, is_folder: bool, folder: str, prefix: str, after: str
) -> None:
    path = written(folder + name) + ("/" if is_folder else "")
    begin = max(before(folder, written(prefix)), before(folder, written(after)))
    if signed(written(name)) <= signed(begin) and begin:
        assert not may_be_listed(path, written(prefix), written(after))


def test_a_listing_from_a_number_on_begins_right_before_it() -> None:
    assert before("a/", "a/00000041") == "0000004"
    assert before("a/", "a/b-c") == ""
    assert before("a/", "b/c") == ""


@pytest.mark.parametrize("text", ["\x7f", "\x7f00", "\x7f00d800", "\x7f110000", "\x7f000041", "é"])
def test_what_nobody_of_us_has_written_stays_as_it_is(text: str) -> None:
    assert key_of(text) == text


@pytest.mark.parametrize("key", ["a:b", "a\x7f000041", "a//b"])
def test_a_key_that_hdfs_cannot_hold_is_refused(key: str) -> None:
    with pytest.raises(FatalError):
        path_of(key)
