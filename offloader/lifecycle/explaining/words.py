"""Explanations, and numbers as people say them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from offloader.printable import printable

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")
_TIMES = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


@dataclass(frozen=True, slots=True)
class Explanation:
    """`because`: what is so; `do`: what would change it; `unknown`: what could not be asked, and how to make it so."""

    because: tuple[str, ...]
    do: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @classmethod
    def of(cls, because: Iterable[str], do: Iterable[str] = (), unknown: Iterable[str] = ()) -> Explanation:
        """Each sentence once; names of others made fit to be printed."""
        return cls(*(tuple(dict.fromkeys(printable(one) for one in each if one)) for each in (because, do, unknown)))


def size_text(size: float) -> str:
    """`1.5 GB`."""
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 or size >= 100 else f"{size:.3g} {_UNITS[unit]}"


def span_text(seconds: float) -> str:
    """`90 minutes`, `2 days`: the largest unit that gives at least two, whole."""
    for length, name in _TIMES:
        if seconds >= 2 * length or (seconds == length and length > 1):
            count = round(seconds / length)
            return f"{count} {name}{'s' * (count != 1)}"
    return f"{seconds:g} second{'s' * (seconds != 1)}"


def moment_text(ms: int) -> str:
    """UTC; of a clock that is far off, too."""
    try:
        at = datetime.fromtimestamp(ms / 1000, UTC)
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):  # others may say any number
        return f"{ms} ms since 1970"


def share_text(part: float) -> str:
    """`20 %`."""
    return f"{100 * part:.3g} %"


def counted(number: int, what: str) -> str:
    """`1 ledger`, `2 ledgers`; of a word that ends in y, `entries`."""
    plural = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{number} {what if number == 1 else plural}"
