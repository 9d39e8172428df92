"""What the admin REST answers, checked where it comes in. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from offloader.errors import ProtocolError
from offloader.model import AcknowledgedRange, Place, TopicName, joined

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Guava writes two dots, or one character that looks like them.
_RANGE = re.compile(r"\((-?[0-9]{1,19}):(-?[0-9]{1,19})(?:\.\.|‥)(-?[0-9]{1,19}):(-?[0-9]{1,19})\]")
_BETWEEN = re.compile(r"[\[\],\s]*")
_PLACE = re.compile(r"(-?[0-9]{1,19}):(-?[0-9]{1,19})")


@contextmanager
def described(what: str) -> Iterator[None]:
    """Raises ProtocolError where an answer is not as it is read within."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ProtocolError(f"the broker describes {what} in a way that we do not know ({error!r})") from error


# Answers as a whole. These raise ProtocolError.


def mapping(value: object, what: str, *, or_none: bool = False) -> Mapping[str, Any]:
    """An object; with `or_none` null is an empty one."""
    if value is None and or_none:
        return {}
    if not isinstance(value, dict):
        raise _wrong(value, what, "an object")
    return value


def array(value: object, what: str) -> list[Any]:
    """A list."""
    if not isinstance(value, list):
        raise _wrong(value, what, "a list")
    return value


def texts(value: object, what: str) -> list[str]:
    """A list of strings."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _wrong(value, what, "a list of names")
    return value


def topic_names(value: object, what: str) -> list[TopicName]:
    """A list of topics' full names."""
    try:
        return [TopicName.parse(name) for name in texts(value, what)]
    except ValueError as error:
        raise ProtocolError(f"{what}: {error}") from error


def _wrong(value: object, what: str, wanted: str) -> ProtocolError:
    return ProtocolError(f"{what}: the broker answered {type(value).__name__} where {wanted} belongs")


# Parts of answers, within `described`. These raise ValueError, TypeError.


def integer(value: object) -> int:
    """Of 64 bits."""
    if type(value) is int and abs(value) < 1 << 63:
        return value
    raise ValueError(f"{value!r} is no integer of 64 bits")


def count(value: object, least: int = 0) -> int:
    """An integer of 63 bits, nothing that only looks like one."""
    if type(value) is int and least <= value < 1 << 63:
        return value
    raise ValueError(f"{value!r} is no count")


def counted(value: object) -> int:
    """The same of what brokers count wrongly for a moment: then they say -1 and less."""
    return max(integer(value), 0)


def truth(value: object) -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} is neither true nor false")


def text(value: object) -> str:
    """A string."""
    if isinstance(value, str):
        return value
    raise TypeError(f"{value!r} is no text")


def properties_of(said: Mapping[Any, Any] | None) -> tuple[tuple[str, str], ...]:
    """In order of their names."""
    return tuple(sorted((text(name), text(value)) for name, value in (said or {}).items()))


def numbers_of(said: Mapping[Any, Any] | None) -> tuple[tuple[str, int], ...]:
    """The same of properties that are integers."""
    return tuple(sorted((text(name), integer(value)) for name, value in (said or {}).items()))


def place_of(value: str) -> Place:
    """`2:0`."""
    found = _PLACE.fullmatch(value)
    if found is None:
        raise ValueError(f"{value!r} is no position")
    return int(found[1]), int(found[2])


def stored_place(said: Mapping[str, Any]) -> Place:
    """`{"ledgerId": 2, "entryId": 0}`."""
    return integer(said["ledgerId"]), integer(said["entryId"])


def acknowledged_ranges(value: str) -> tuple[AcknowledgedRange, ...]:
    """`[(2:4..2:5],(8:-1..8:3]]`."""
    if not _BETWEEN.fullmatch(_RANGE.sub("", value)):
        raise ValueError(f"{value[:100]!r} is no list of ranges")
    numbers = (tuple(map(int, found)) for found in _RANGE.findall(value))
    return joined(AcknowledgedRange((a, b), (c, d)) for a, b, c, d in numbers)


def instant(value: str) -> int:
    """Milliseconds of a date as brokers write it: ISO 8601 with the offset of their time zone."""
    at = datetime.fromisoformat(value)
    if at.tzinfo is None:
        raise ValueError(f"{value!r} does not say in which time zone")
    return (at - EPOCH) // timedelta(milliseconds=1)
