"""Types of arguments: topics, positions, times."""

from __future__ import annotations

import click

from offloader.config.units import parse_time
from offloader.model import Position, TopicName

class TopicType(click.ParamType):
    """`persistent://tenant/namespace/name`, or short."""

    name = "topic"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> TopicName:
        """See `TopicName.parse`."""
        if isinstance(value, TopicName):
            return value
        try:
            return TopicName.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class PositionType(click.ParamType):
    """`LEDGER:ENTRY`."""

    name = "ledger:entry"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Position:
        """See `Position.parse`."""
        if isinstance(value, Position):
            return value
        try:
            return Position.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class TimeType(click.ParamType):
    """`10s`, `5m`; a plain number is seconds. Becomes milliseconds."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See `parse_time`."""
        try:
            return parse_time(value, 1000)
        except ValueError as error:
            self.fail(str(error), param, ctx)


TOPIC = TopicType()
POSITION = PositionType()
TIME = TimeType()
