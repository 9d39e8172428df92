"""The delay between the phases has a floor; waits grow; a share or number at once is a bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.lifecycle.deletion.timing import DeletionBounds, DeletionTiming
from tests.times import DAY_MS, HOUR_MS

ms = st.integers(0, 10 * DAY_MS)


def test_the_defaults_are_those_of_pip_186_and_a_day():
    timing = DeletionTiming()
    assert (timing.reconsume_later, timing.max_tries) == (600_000, 10)
    assert timing.effective_delay == DAY_MS


@given(ms, ms)
def test_the_delay_is_more_than_an_hour_and_twice_the_longest_compaction_whatever_is_set(delay: int, longest: int):
    effective = DeletionTiming(delay=delay, longest_compaction=longest).effective_delay
    assert effective > HOUR_MS
    assert effective >= max(delay, 2 * longest)


def test_only_a_setting_for_tests_lowers_the_floor():
    timing = DeletionTiming(delay=1000, floor=0)
    assert timing.effective_delay == 1000


@given(st.integers(-1, 1000))
def test_waits_grow_up_to_a_day(tries: int):
    timing = DeletionTiming()
    assert timing.reconsume_later <= timing.wait_after(tries) <= timing.wait_after(tries + 1) <= DAY_MS


def test_each_wait_is_twice_the_one_before():
    assert [DeletionTiming().wait_after(tries) for tries in (1, 2, 3)] == [600_000, 1_200_000, 2_400_000]


@pytest.mark.parametrize(
    ("pending", "ledgers", "why"),
    [
        (0, 0, ""),
        (25, 100, ""),
        (26, 100, "26 of 100 ledgers would go at once, more than 25 %"),
        (1, 0, "1 of 0 ledgers"),
        (500, 10_000, ""),
        (501, 10_000, "501 ledgers would go at once, more than 500"),
    ],
)
def test_more_than_a_share_or_number_at_once_is_refused(pending: int, ledgers: int, why: str):
    refusal = DeletionBounds(number=500, percent=25).refusal(pending, ledgers)
    assert refusal.startswith(why)
    assert bool(refusal) == bool(why)
