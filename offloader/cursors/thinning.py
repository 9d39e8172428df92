"""Which copies of a topic's subscriptions are kept. Pure.

Of the last day all, of the 31 days before it the last one of each hour, of ten years the last one of each day. Time
counts back from the newest copy, which always stays: no clock can take a history away, and a topic at rest keeps its
own. Hours and days are those of UTC."""

from __future__ import annotations

from collections.abc import Iterable

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ALL_MS = DAY_MS
HOURLY_MS = 32 * DAY_MS
DAILY_MS = 3_653 * DAY_MS  # ten years


def removable(times: Iterable[int]) -> list[int]:
    """The times, in ms, of copies that nobody needs any more, in order. What was kept before and is removed now would
    be removed however often this was done in between."""
    known = sorted(set(times))
    if not known:
        return []
    newest = known[-1]
    hours = {time // HOUR_MS: time for time in known}  # the last of each
    days = {time // DAY_MS: time for time in known}
    return [time for time in known if not _is_kept(time, newest, hours, days)]


def _is_kept(time: int, newest: int, hours: dict[int, int], days: dict[int, int]) -> bool:
    age = newest - time
    if age < ALL_MS:
        return True
    if age < HOURLY_MS:
        return hours[time // HOUR_MS] == time
    return age < DAILY_MS and days[time // DAY_MS] == time
