"""Sizes and times mean what people who know Pulsar and Spark mean by them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.config.units import format_size, format_time, parse_size, parse_time

SIZES = {"T": 1024**4, "G": 1024**3, "M": 1024**2, "K": 1024}
TIMES = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}

LARGEST = 2**63 - 1

NUMBERS = st.integers(min_value=0, max_value=LARGEST)
SMALL = st.integers(min_value=0, max_value=10**6)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10", 10),
        (10, 10),
        ("64M", 64 << 20),
        ("64m", 64 << 20),
        ("64MB", 64 << 20),
        ("64MiB", 64 << 20),
        ("64 M", 64 << 20),
        ("512K", 512 << 10),
        ("1G", 1 << 30),
        ("2T", 2 << 40),
        ("100B", 100),
        ("0", 0),
    ],
)
def test_sizes(text, size) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("100m", 6_000_000),
        ("3h", 10_800_000),
        ("2d", 172_800_000),
        ("5w", 3_024_000_000),
        ("0s", 0),
    ],
)
def test_times(text, ms) -> None:
    assert parse_time(text) == ms


def test_a_plain_number_is_in_the_unit_that_the_name_says() -> None:
    assert parse_size(512, unit=1 << 20) == 512 << 20
    assert parse_size("512", unit=1 << 20) == 512 << 20
    assert parse_size("512K", unit=1 << 20) == 512 << 10
    assert parse_size("512B", unit=1 << 20) == 512
    assert parse_time(10, unit_ms=60_000) == 600_000
    assert parse_time("10s", unit_ms=60_000) == 10_000


def test_a_plain_number_without_a_unit_in_the_name_is_no_time() -> None:
    with pytest.raises(ValueError, match=r"5 has no unit; write for example 5s or 5m"):
        parse_time(5)


@pytest.mark.parametrize(
    "value", ["", "M", "-1", -1, "1.5G", 1.5, True, None, [], {}, "10X", "1e3", "1 0M", "\uff11M", "64Mb s", "0x10"]
)
def test_what_is_no_size(value) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(value)


@pytest.mark.parametrize("value", ["", "s", "-1s", -1, "1.5h", 1.5, True, None, "10M", "10S", "10y", "1m30s"])
def test_what_is_no_time(value) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_time(value, unit_ms=1)


def test_what_does_not_fit_64_bits_is_refused() -> None:
    assert parse_size(LARGEST) == LARGEST
    with pytest.raises(ValueError, match="too large"):
        parse_size("8388608T")
    with pytest.raises(ValueError, match="too large"):
        parse_time(LARGEST, unit_ms=1000)


@given(NUMBERS)
def test_a_formatted_size_is_read_back_exactly(size) -> None:
    assert parse_size(format_size(size)) == size


@given(NUMBERS)
def test_a_formatted_time_is_read_back_exactly(ms) -> None:
    assert parse_time(format_time(ms)) == ms


@given(SMALL, st.sampled_from(sorted(SIZES)), st.sampled_from(["", "B", "iB"]))
def test_a_suffix_multiplies(number, suffix, tail) -> None:
    assert (
        parse_size(f"{number}{suffix}{tail}") == number * SIZES[suffix] == parse_size(f"{number}{suffix}{tail}".lower())
    )


@given(SMALL, st.sampled_from(sorted(TIMES)))
def test_a_time_suffix_multiplies(number, suffix) -> None:
    assert parse_time(f"{number}{suffix}") == number * TIMES[suffix]


@given(st.text())
def test_any_text_is_a_size_or_refused_in_one_line(text) -> None:
    try:
        size, said = parse_size(text), "nothing"
    except ValueError as error:
        size, said = 0, str(error)
    assert size >= 0
    assert len(said.splitlines()) == 1
