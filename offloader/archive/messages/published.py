"""When an entry was published, in ms, as every reader compares it with a range: the number that the metadata say, signed as Java reads it.

So a message belongs to exactly one of two ranges of which one begins after the other's end, also where the number is no time that a
calendar or a column can hold. Only an entry that says none is in no range. Pure.
"""

from __future__ import annotations

from offloader.archive.messages.envelope import signed
from offloader.errors import DamagedObjectError
from offloader.format.entry import EntryFacts, inspect
from offloader.model import EntryStats

_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


def publish_time(entry: bytes) -> int | None:
    """An entry's; None for an opaque one."""
    try:
        return time_said(inspect(entry))
    except DamagedObjectError:  # its frame is one that nothing promises: an opaque entry, too
        return None


def time_said(facts: EntryFacts) -> int | None:
    """The same of an entry that was looked into already."""
    return None if facts.publish_time is None else signed(facts.publish_time)


def bounds(stats: EntryStats) -> tuple[int, int] | None:
    """No entry is outside these; None where none says a time. Records have the least and the greatest as unsigned numbers."""
    least, greatest = stats.min_publish_time, stats.max_publish_time
    if least is None or greatest is None:
        return None
    if least <= _GREATEST < greatest:  # some are below 0, some are not: nothing tells how far
        return _LEAST, _GREATEST
    return signed(least), signed(greatest)
