"""Which messages are wanted; applied before values are copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from offloader.archive.messages.message import Message, Problem


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Publish times in ms, both ends included; any of the keys; all of the properties. None and empty: no condition.

    Damage that is kept as a row is always wanted: what it was cannot be known. An encrypted entry that stays closed has the key
    and the properties of its envelope.
    """

    published_from: int | None = None
    published_to: int | None = None
    keys: frozenset[bytes] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def matches(self, message: Message) -> bool:
        """Whether a message is wanted."""
        if message.problem is Problem.DAMAGED:
            return True
        time = message.publish_time
        if self.published_from is not None and (time is None or time < self.published_from):
            return False
        if self.published_to is not None and (time is None or time > self.published_to):
            return False
        if self.keys is not None and message.key not in self.keys:
            return False
        return all(message.properties.get(name) == value for name, value in self.properties.items())
