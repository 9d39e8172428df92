"""Figures as numbers for SVG: where bars and marks stand. `plots.html` draws them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

WIDTH = 1000.0  # all figures, in units of their own; they scale with the page


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of an axis: where (0 to `WIDTH`), and what it says."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A box from `x` on, `width` wide; `height` is 0 to 1. `kind` is its class in CSS, `title` what it says, `link`
    where it leads ("": nowhere)."""

    x: float
    width: float
    height: float
    kind: str
    title: str
    link: str = ""


_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_DAY = 86400


def columns(values: Sequence[float], titles: Sequence[str], kind: str = "good") -> list[Bar]:
    """A bar for each value, the highest one as high as the figure; none where there is nothing."""
    most = max(values, default=0)
    if most <= 0:
        return []
    each = WIDTH / len(values)
    return [
        Bar(number * each, each * 0.8, value / most, kind, title)
        for number, (value, title) in enumerate(zip(values, titles, strict=True))
        if value > 0
    ]


def time_ticks(begin: int, end: int, most: int = 6) -> list[Tick]:
    """Round times (UTC) between two (ms)."""
    span = (end - begin) / 1000
    if span <= 0:
        return []
    step = next((step for step in _STEPS if span / step <= most), 0)
    if not step:
        days = span / _DAY
        step = _DAY * next((n for n in (2, 5, 10, 30, 90, 180, 365, 730, 3650, 36500) if days / n <= most), 10**15)
    first = -(-begin // 1000 // step) * step
    found = []
    for second in range(int(first), end // 1000 + 1, step):
        text = _time(second, step)
        if text:
            found.append(Tick((second * 1000 - begin) / (end - begin) * WIDTH, text))
    return found


def _time(second: int, step: int) -> str:
    try:
        moment = datetime.fromtimestamp(second, UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    if step >= _DAY:
        return moment.strftime("%Y-%m-%d")
    return moment.strftime("%H:%M:%S" if step < 60 else "%H:%M") if second % _DAY else moment.strftime("%m-%d")
