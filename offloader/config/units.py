"""Sizes and times as people write them: `64M`, `10m`. Sizes become bytes, times milliseconds."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from offloader.model import GIB, KIB, MIB

SIZES = {"T": 1024 * GIB, "G": GIB, "M": MIB, "K": KIB}
TIMES = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
LARGEST = 2**63 - 1
LONGEST_WAIT = TIMES["w"]  # sockets and selectors refuse to wait for 2**31 ms
LONGEST_DELAY = 36_500 * TIMES["d"]  # what is due then still has a date

_SIZE = re.compile(r"([0-9]+) ?(?:([KMGT])(?:i?B)?|B)?", re.IGNORECASE)
_TIME = re.compile(r"([0-9]+) ?(ms|[smhdw])?")


def parse_size(value: object, unit: int = 1) -> int:
    """Bytes of `64M`, `1G`, `512KiB`, or of a plain number of `unit` bytes. K, M, G and T are powers of 1024, as in
    Pulsar and Spark. Raises ValueError."""
    match = _SIZE.fullmatch(_digits(value))
    if match is None:
        raise ValueError(f"{value!r} is not a size; write a whole number with K, M, G or T, for example 64M")
    number, suffix = match.groups()
    plain = str(match.group()).isdigit()
    return _bounded(int(number) * (unit if plain else SIZES.get((suffix or "").upper(), 1)), value)


def parse_time(value: object, unit_ms: int | None = None) -> int:
    """Milliseconds of `500ms`, `10s`, `100m`, `3h`, `2d`, `5w`, or of a plain number of `unit_ms`. Raises
    ValueError."""
    match = _TIME.fullmatch(_digits(value))
    if match is None:
        raise ValueError(f"{value!r} is not a time; write a whole number with ms, s, m, h, d or w, for example 10m")
    number, suffix = match.groups()
    factor = TIMES[suffix] if suffix else unit_ms
    if factor is None:
        raise ValueError(f"{value!r} has no unit; write for example {number}s or {number}m")
    return _bounded(int(number) * factor, value)


def format_size(size: int) -> str:
    """The shortest exact spelling, `8M` or `1000`; `parse_size` reads it back."""
    return _format(size, SIZES, "")


def format_time(ms: int) -> str:
    """The shortest exact spelling, `10m`; `parse_time` reads it back."""
    return _format(ms, TIMES, "s")


def _format(number: int, units: dict[str, int], zero: str) -> str:
    if number == 0:
        return f"0{zero}"
    suffix, factor = next(((s, f) for s, f in units.items() if number % f == 0), ("", 1))
    return f"{number // factor}{suffix}"


def _digits(value: object) -> str:
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value).strip()
    return ""


def _bounded(number: int, value: object) -> int:
    if number > LARGEST:
        raise ValueError(f"{value!r} is too large")
    return number


@dataclass(frozen=True, slots=True)
class UnitKind:
    """Marks a field's type for messages and for the documentation."""

    name: str
    format: Callable[[int], str]


SIZE = UnitKind("size", format_size)
TIME = UnitKind("time", format_time)


def at_least(least: int, kind: UnitKind) -> AfterValidator:
    """Refuses smaller values in the words of their unit."""

    def check(value: int | None) -> int | None:
        if value is not None and value < least:
            raise ValueError(f"{kind.format(value)} is too small; the least is {kind.format(least)}")
        return value

    return AfterValidator(check)


def _short_enough(ms: int, most: int) -> int:
    if ms > most:
        raise ValueError(f"{format_time(ms)} is too large; the most is {format_time(most)}")
    return ms


Size = Annotated[int, BeforeValidator(parse_size), SIZE]
Time = Annotated[int, BeforeValidator(parse_time), TIME]
TimeInSeconds = Annotated[int, BeforeValidator(partial(parse_time, unit_ms=1000)), TIME]
Wait = Annotated[Time, AfterValidator(partial(_short_enough, most=LONGEST_WAIT))]
Delay = Annotated[Time, AfterValidator(partial(_short_enough, most=LONGEST_DELAY))]
