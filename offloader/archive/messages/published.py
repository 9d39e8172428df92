"""When an entry was published, in ms, as every reader compares it with a range. Pure.

It is the number in the metadata, signed as Java reads it, even if no calendar or column can hold it as a time. So of
two ranges that follow each other exactly one has a message. Only an entry that says no time is in no range.
"""

from __future__ import annotations

from collections.abc import Iterator

from offloader.archive.items import ArchivedEntry
from offloader.archive.messages.envelope import signed
from offloader.archive.read_model import EntryRun, Selection
from offloader.format.entry import EntryFacts, inspect


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
