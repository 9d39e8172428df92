"""When an entry was published, in ms, as every reader compares it with a range: the number that the metadata say,
signed as Java reads it.

So a message belongs to exactly one of two ranges of which one begins after the other's end, also where the number is no
time that a calendar or a column can hold. Only an entry that says none is in no range. Pure.
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
