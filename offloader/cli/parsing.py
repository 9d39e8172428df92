"""Arguments that are more than text: topics, positions, times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from offloader.config.units import parse_size, parse_time
from offloader.model import Position, TopicName

Callback = Callable[[click.Context, click.Parameter, Any], Any]
C = TypeVar("C", bound=Callable[..., Any])


def with_options(command: C, *options: Callable[[C], C]) -> C:
    """The command with these options, which its help lists in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def parsed(parse: Callable[[str], object]) -> Callback:
    """A parameter's callback that parses its text, or each of its texts; a ValueError becomes a usage error."""

    def convert(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, tuple):
            return tuple(convert(ctx, param, one) for one in value)
        try:
            return parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from error

    return convert


def parse_subscription(text: str) -> str:
    """A subscription's name. Raises ValueError where no key can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{text!r} is no subscription's name; it is not UTF-8") from None
    return text


def parse_pair(text: str) -> tuple[str, str]:
    """`NAME=VALUE`. Raises ValueError."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"{text!r} has no name; write NAME=VALUE")
    return name, value


def positive_size(refusal: str) -> Callback:
    """A size in bytes. `refusal`: why it must not be 0, and what to write."""

    def parse(text: str) -> int:
        size = parse_size(text)
        if size == 0:
            raise ValueError(refusal)
        return size

    return parsed(parse)


class Scope(NamedTuple):
    """A topic, with its partitions, or a namespace."""

    namespace: str
    topic: TopicName | None = None


def parse_scope(text: str) -> Scope:
    """`tenant/namespace`, or a topic's name. Raises ValueError."""
    pieces = text.split("/")
    if len(pieces) == 2 and all(pieces):
        return Scope(text)
    topic = TopicName.parse(text)
    return Scope(topic.namespace, topic)


TOPIC = parsed(TopicName.parse)
SCOPE = parsed(parse_scope)
SUBSCRIPTION = parsed(parse_subscription)
POSITION = parsed(Position.parse)
TIME = parsed(lambda text: parse_time(text, 1000))  # ms; a plain number is seconds
