"""What somebody wants to read of a topic, and how people write its bounds: a position or a publish time. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass

from offloader.archive.spark.values import parse_publish_time
from offloader.errors import ConfigError
from offloader.model import Position

Bound = Position | int

# A number below this (in 1973, as milliseconds) is rather seconds, or the beginning of a position.
LEAST_TIME = 10**11


@dataclass(frozen=True, slots=True)
class Selection:
    """What to read of a topic. All bounds are included; None: no bound.

    `start` and `end` are positions, `published_from` and `published_to` publish times in ms since 1970, by producers'
    clocks: they select messages wherever these lie. A plan of a selection leaves out only what certainly holds no such
    message.

    >>> Selection(Position(0, 12, 345), published_to=1_795_269_900_000).is_timed
    True
    """

    start: Position | None = None
    end: Position | None = None
    published_from: int | None = None
    published_to: int | None = None

    @property
    def is_timed(self) -> bool:
        """Whether it asks for publish times."""
        return self.published_from is not None or self.published_to is not None

    def covers(self, time: int | None) -> bool:
        """Whether what was published at a time (ms; None: it does not say) is within its times."""
        return time is not None and self.meets(time, time)

    def meets(self, early: int, late: int) -> bool:
        """Whether something published between two times (ms, both included) may be within its times."""
        return (self.published_from is None or late >= self.published_from) and (
            self.published_to is None or early <= self.published_to
        )


EVERYTHING = Selection()


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
