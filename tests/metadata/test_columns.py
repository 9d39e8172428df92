import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.metadata.columns import pack, unpack

values = st.integers() | st.integers(-3, 3) | st.integers(2**18, 2**18 + 1000)


@given(st.lists(values, max_size=300).filter(any))
def test_a_column_gives_its_values_back(column: list[int]):
    assert unpack(pack(column)) == column


@given(st.integers(0, 500))
def test_a_column_of_zeros_takes_no_room(length: int):
    assert pack([0] * length) == b""


@given(values.filter(bool), st.integers(1, 500))
def test_a_constant_column_takes_the_room_of_one_value(value: int, length: int):
    assert len(pack([value] * length)) <= len(pack([value])) + 3


def test_a_column_takes_what_its_range_needs():
    column = [262144 + (i * 7919) % 1000 for i in range(1280)]
    assert len(pack(column)) < 1280 * 10 / 8 + 20  # 1,000 values: ten bits


@given(st.lists(values, min_size=1, max_size=300).filter(any), st.data())
def test_a_column_that_is_cut_short_is_not_taken_for_another(column: list[int], data: st.DataObject):
    whole = pack(column)
    short = whole[: data.draw(st.integers(1, len(whole) - 1))]
    with suppress(ValueError, zlib.error):
        assert unpack(short) != column


def test_an_unknown_kind_of_column_is_refused():
    with pytest.raises(ValueError, match="unknown kind of column 9"):
        unpack(b"\x09\x01")
