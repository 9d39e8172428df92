"""Which entries and messages are wanted; applied before values are copied. Pure.

An entry's publish time is the number in its metadata, in ms, signed as Java reads it, even if no calendar or column can
hold it as a time. So of two ranges that follow each other exactly one has a message. Only an entry that says no time is
in no range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from offloader.archive.items import ArchivedEntry, EntryRun
from offloader.archive.messages.envelope import signed
from offloader.archive.messages.message import Message
from offloader.archive.selection import Selection
from offloader.format.entry import EntryFacts, inspect


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


def publish_time(entry: bytes) -> int | None:
    """An entry's; None for one that is no message."""
    return time_said(inspect(entry))


def time_said(facts: EntryFacts) -> int | None:
    """The same of an entry that was looked into already."""
    return None if facts.publish_time is None else signed(facts.publish_time)


def published(run: EntryRun, selection: Selection) -> Iterator[ArchivedEntry]:
    """The entries that say such a publish time; without times all."""
    if not selection.is_timed:
        return run.entries()
    return (entry for entry in run.entries() if selection.covers(publish_time(entry.data)))
