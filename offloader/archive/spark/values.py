"""Option values as people write them: positions, times, topics, switches. Pure; ValueError says what to write."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from offloader.json_text import parse_json
from offloader.model import Position, TopicName


@dataclass(frozen=True, slots=True)
class Positions:
    """`LEDGER:ENTRY` for the only topic, or one for each of several. Ledger ids tell the incarnations."""

    only: Position | None = None
    each: tuple[tuple[TopicName, Position], ...] = ()

    def of(self, topic: TopicName) -> Position | None:
        return self.only if self.only is not None else dict(self.each).get(topic)


NOWHERE = Positions()


def parse_positions(text: str) -> Positions:
    """`12:345`, or JSON `{"persistent://public/default/orders": "12:345"}`."""
    if not text.lstrip().startswith("{"):
        return Positions(only=Position.parse(text.strip()))
    try:
        said = parse_json(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from error
    if not all(isinstance(position, str) for position in said.values()):
        raise ValueError('write each position as text: {"persistent://tenant/namespace/topic": "LEDGER:ENTRY"}')
    return Positions(each=tuple((TopicName.parse(topic), Position.parse(position)) for topic, position in said.items()))


def parse_publish_time(text: str) -> int:
    """Milliseconds since the epoch, or ISO 8601 (UTC where it names no zone)."""
    if re.fullmatch(r"[0-9]+", text.strip()):
        return int(text)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError(
            f"{text!r} is not a time; write milliseconds since the epoch, or 2026-11-21T14:00:00Z"
        ) from error
    return in_ms(moment)


def in_ms(moment: datetime) -> int:
    """Milliseconds since the epoch, rounded down; UTC where it names no zone."""
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = zoned - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def parse_topics(text: str) -> tuple[TopicName, ...]:
    """Names with commas between them."""
    return tuple(TopicName.parse(name) for name in parse_names(text))


def parse_names(text: str) -> tuple[str, ...]:
    """Words with commas between them, each once."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError("it names nothing")
    return names


def parse_files(text: str) -> tuple[tuple[str, str], ...]:
    """`name=/path,other=/path`."""
    pairs = [pair.partition("=") for pair in parse_names(text)]
    if not all(name.strip() and path.strip() for name, _, path in pairs):
        raise ValueError(f"{text!r} does not name files; write NAME=/path, with commas between several")
    return tuple((name.strip(), path.strip()) for name, _, path in pairs)


def parse_namespace(text: str) -> str:
    """`tenant/namespace`."""
    if not re.fullmatch(r"[^/\s]+/[^/\s]+", text.strip()):
        raise ValueError(f"{text!r} is not a namespace; write tenant/namespace")
    return text.strip()


def parse_pattern(text: str) -> str:
    """A regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from error
    return text


def parse_switch(text: str) -> bool:
    """`true` or `false`."""
    return parse_choice(text, ("true", "false")) == "true"


def parse_choice(text: str, choices: Iterable[str]) -> str:
    """One of several words, in any case."""
    word = text.strip().lower()
    if word not in choices:
        raise ValueError(f"{text!r} is none of {', '.join(choices)}")
    return word
