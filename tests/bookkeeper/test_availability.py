"""A bookie's list of entries says of each entry whether it is there, and is refused where it makes no sense."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.bookkeeper.v3 import Availability, Group, decode_availability, encode_availability
from offloader.errors import ProtocolError


@st.composite
def group_lists(draw):
    """Groups one after the other, as a bookie makes them."""
    groups, at = [], 0
    for _ in range(draw(st.integers(0, 5))):
        first = at + draw(st.integers(0, 5))
        size, steps = draw(st.integers(1, 5)), draw(st.integers(0, 4))
        period = draw(st.integers(size, size + 5)) if steps else 0
        groups.append(Group(first, first + steps * period, size, period))
        at = groups[-1].last + size
    return groups


def members(groups):
    return {begin + i for g in groups for begin in range(g.first, g.last + 1, g.period or 1) for i in range(g.size)}


@given(group_lists())
def test_it_holds_what_the_groups_say(groups):
    held = decode_availability(encode_availability(groups))
    expected = members(groups)
    assert list(held) == sorted(expected)
    assert len(held) == len(expected)
    assert {entry for entry in range(-1, max(expected, default=0) + 10) if entry in held} == expected


def test_only_entry_ids_are_in_it():
    text: object = "3"
    assert text not in Availability([Group(3, 3, 1, 0)])


def test_a_million_entries_take_no_room():
    held = Availability([Group(0, 3_000_000, 2, 3)])
    assert len(held) == 2_000_002
    assert 2_999_998 in held
    assert 2_999_999 not in held
    assert repr(held) == "Availability([Group(first=0, last=3000000, size=2, period=3)])"


@given(group_lists(), st.data())
def test_what_is_cut_off_is_refused(groups, data):
    whole = encode_availability(groups)
    with pytest.raises(ProtocolError, match="cut off"):
        decode_availability(whole[: data.draw(st.integers(0, len(whole) - 1))])


def test_a_newer_version_is_refused():
    with pytest.raises(ProtocolError, match="version 1"):
        decode_availability((1).to_bytes(4) + encode_availability([])[4:])


@pytest.mark.parametrize(
    "groups",
    [
        [Group(-1, -1, 1, 0)],
        [Group(5, 4, 1, 1)],
        [Group(5, 5, 0, 0)],
        [Group(0, 10, 3, 2)],
        [Group(0, 10, 1, 3)],
        [Group(0, 10, 1, 0)],
        [Group(0, 10, 0, 0)],
        [Group(0, 2**63 - 1, 1, 1)],
        [Group(0, 0, 5, 0), Group(4, 4, 1, 0)],
    ],
)
def test_what_makes_no_sense_is_refused(groups):
    with pytest.raises(ProtocolError):
        decode_availability(encode_availability(groups))
