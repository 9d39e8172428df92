"""Which messages are wanted; applied before values are copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from offloader.archive.messages.message import Message


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Publish times in ms, both ends included; any of the keys; all of the properties. None and empty: no condition.

    Damage that is kept as a row is wanted unless it is known not to be: keys and properties of a damaged batch are
    unknown, and of bytes that are no message so is the time. An encrypted entry that stays closed has the key and the
    properties of its envelope.
    """

    published_from: int | None = None
    published_to: int | None = None
    keys: frozenset[bytes] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def matches(self, message: Message) -> bool:
        """Whether a message is wanted."""
        if message.publish_time is not None and not self.covers(message.publish_time):
            return False
        if message.unknown:
            return True
        if self.keys is not None and message.key not in self.keys:
            return False
        return all(message.properties.get(name) == value for name, value in self.properties.items())

    def covers(self, time: int) -> bool:
        """Whether messages of this publish time are wanted."""
        early, late = self.published_from, self.published_to
        return (early is None or time >= early) and (late is None or time <= late)
