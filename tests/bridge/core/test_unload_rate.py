"""No minute has more unloads than it may, whatever they are for; what fails keeps nobody else waiting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offloader.bridge.core.unload_rate import MINUTE_MS, SHARE, UnloadRate

NOW = 1_700_000_000_000
DAY = 86_400_000


@given(st.lists(st.tuples(st.integers(0, 30_000), st.booleans()), max_size=60), st.integers(1, 9))
def test_no_minute_has_more_unloads_than_it_may(steps: list[tuple[int, bool]], most: int):
    rate, now, begun = UnloadRate(most), NOW, list[tuple[int, bool]]()
    for step, again in steps:
        now += step
        if rate.take(now, again=again):
            begun.append((now, again))
    within = [[one for one in begun if at - MINUTE_MS < one[0] <= at] for at, _ in begun]
    assert all(len(them) <= most for them in within)
    assert all(sum(again for _, again in them) <= max(1, most // SHARE) for them in within)
    if steps:
        assert begun


def test_what_fails_again_and_again_leaves_others_their_part():
    rate = UnloadRate(30)
    assert sum(rate.take(NOW, again=True) for _ in range(300)) == 10
    assert sum(rate.take(NOW) for _ in range(300)) == 20
    assert not rate.take(NOW + MINUTE_MS - 1, again=True)
    assert rate.take(NOW + MINUTE_MS, again=True)


def test_a_step_counts_for_as_many_as_it_has_made():
    rate = UnloadRate(10)
    assert rate.take(NOW)
    rate.made(NOW, NOW + 5_000, 8)
    assert [rate.take(NOW + 6_000) for _ in range(3)] == [True, True, False]
    assert not rate.take(NOW + MINUTE_MS)  # not when it began counts, but when it was over
    assert rate.take(NOW + MINUTE_MS + 5_000)


def test_a_step_that_has_made_none_costs_none():
    rate = UnloadRate(1)
    for second in range(10):
        assert rate.take(NOW + second, again=True)
        rate.made(NOW + second, NOW + second, 0, again=True)
    assert rate.take(NOW + 10)


def test_a_clock_that_is_set_back_stops_no_unload_for_longer_than_a_minute():
    rate = UnloadRate(1)
    assert rate.take(NOW)
    assert not rate.take(NOW + 1)
    assert rate.take(NOW - DAY)
    assert not rate.take(NOW - DAY + MINUTE_MS - 1)
    assert rate.take(NOW - DAY + MINUTE_MS)
