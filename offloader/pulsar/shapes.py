"""What a peer's JSON must be: looked at where it comes in, so that a wrong one is that peer's fault and nobody's surprise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offloader.errors import ProtocolError
from offloader.model import TopicName


def mapping(value: object, what: str, *, or_none: bool = False) -> Mapping[str, Any]:
    """An object; with `or_none` nothing stands for an empty one. Raises ProtocolError."""
    if value is None and or_none:
        return {}
    if not isinstance(value, dict):
        raise _wrong(value, what, "an object")
    return value


def texts(value: object, what: str) -> list[str]:
    """A list of strings. Raises ProtocolError."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _wrong(value, what, "a list of names")
    return value


def topic_names(value: object, what: str) -> list[TopicName]:
    """A list of topics' full names. Raises ProtocolError."""
    try:
        return [TopicName.parse(name) for name in texts(value, what)]
    except ValueError as error:
        raise ProtocolError(f"{what}: {error}") from error


def _wrong(value: object, what: str, wanted: str) -> ProtocolError:
    return ProtocolError(f"{what}: the broker answered {type(value).__name__} where {wanted} belongs")
