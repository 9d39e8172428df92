"""Where reading begins and ends, as people write it: a position or a publish time. Pure."""

from __future__ import annotations

import re

from offloader.archive.selection import Selection
from offloader.archive.spark.values import parse_publish_time
from offloader.errors import ConfigError
from offloader.model import Position

Bound = Position | int

# A number below this (in 1973, as milliseconds) is rather seconds, or the beginning of a position.
LEAST_TIME = 10**11


def parse_bound(text: str) -> Bound:
    """A position, or a time in ms. Raises ValueError."""
    if re.fullmatch(r"[0-9]+:(-1|[0-9]+)", text):
        return Position.parse(text)
    try:
        time = parse_publish_time(text)
    except ValueError:
        time = None
    if time is None or (time < LEAST_TIME and text.strip().isdecimal()):
        raise ValueError(
            f"{text!r} is neither a position nor a time; write LEDGER:ENTRY, for example 12:345, or a publish time as "
            "2026-11-21T14:00:00Z or in ms since 1970"
        )
    return time


def selected(start: Bound | None, end: Bound | None) -> Selection:
    """What lies between two positions or publish times (ms). Raises ConfigError where the end comes first."""
    positions = isinstance(start, Position) and isinstance(end, Position) and end < start
    times = isinstance(start, int) and isinstance(end, int) and end < start
    if positions or times:
        raise ConfigError("the range ends before it begins; exchange its two bounds")
    return Selection(
        start if isinstance(start, Position) else None,
        end if isinstance(end, Position) else None,
        start if isinstance(start, int) else None,
        end if isinstance(end, int) else None,
    )
