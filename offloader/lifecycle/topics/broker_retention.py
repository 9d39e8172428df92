"""What brokers keep of acknowledged data, and who says so: topic, namespace, broker, in this order. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from offloader.errors import ProtocolError
from offloader.model import MIB

MINUTE_MS = 60_000
TIME, SIZE = "retentionTimeInMinutes", "retentionSizeInMB"
DEFAULT_TIME, DEFAULT_SIZE = "defaultRetentionTimeInMinutes", "defaultRetentionSizeInMB"


class RetentionLevel(StrEnum):
    """Who says it."""

    TOPIC = "topic"
    NAMESPACE = "namespace"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class BrokerRetention:
    """Pulsar's form: what is older than `minutes`, or more than `megabytes` in all, is not kept. -1: no limit.

    `level`: of the policy that counts. Of a topic that was asked about as a whole, `TOPIC` stands for all three.
    """

    minutes: int
    megabytes: int
    level: RetentionLevel

    @property
    def time_ms(self) -> int | None:
        """None: no age is too old."""
        return self.minutes * MINUTE_MS if self.minutes >= 0 else None

    @property
    def size(self) -> int | None:
        """None: no size is too much."""
        return self.megabytes * MIB if self.megabytes >= 0 else None

    @property
    def for_ever(self) -> bool:
        return self.minutes < 0 and self.megabytes < 0

    def __str__(self) -> str:
        time = "any age" if self.minutes < 0 else f"{self.minutes} min"
        size = "any size" if self.megabytes < 0 else f"{self.megabytes} MB"
        return f"{time}, {size} ({self.level})"


def read_retention(answer: object, level: RetentionLevel) -> BrokerRetention | None:
    """Of a broker's JSON; None where nothing is set. Raises ProtocolError."""
    if answer is None:
        return None
    if isinstance(answer, Mapping):
        minutes, megabytes = answer.get(TIME), answer.get(SIZE)
        if type(minutes) is int and type(megabytes) is int:
            return BrokerRetention(minutes, megabytes, level)
    raise ProtocolError(f"a {level}'s retention: the broker answered what is none")


def default_retention(configuration: Mapping[str, str]) -> BrokerRetention:
    """Of a broker's configuration as it runs, dynamic changes included. Raises ProtocolError."""
    try:
        minutes, megabytes = int(configuration[DEFAULT_TIME]), int(configuration[DEFAULT_SIZE])
    except (KeyError, ValueError) as error:
        raise ProtocolError(f"the brokers' configuration does not say what they keep by default ({error})") from error
    return BrokerRetention(minutes, megabytes, RetentionLevel.BROKER)
