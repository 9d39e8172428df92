"""What follows from the records of a journal: pure, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from offloader.metadata.journal_codec import JournalRecord
from offloader.model import MIB, TopicName

# A snapshot replaces a log that has grown to this many records, or bytes (at least; or twice the last snapshot's).
MAX_RECORDS = 500
MIN_LOG_BYTES = MIB
# No fence is longer; what is longer in an old epoch can go without being read.
FENCE_LIMIT = 256


@dataclass(frozen=True, slots=True)
class Loaded:
    """One epoch, read. `next_slot` is its fence's slot where `fenced`, else the first free one."""

    epoch: int
    next_slot: int = 0
    fenced: bool = True
    topics: Mapping[TopicName, bytes] = field(default_factory=dict)
    taken_over_by: str = ""
    removable: tuple[int, ...] = ()

    def then(self, *records: JournalRecord) -> Loaded:
        """With more records, from `next_slot` on; only the last can be a fence."""
        topics, taken_over_by = dict(self.topics), self.taken_over_by
        said = [record for record in records if not record.fence]
        for record in said:
            if record.full:
                topics.clear()
            for topic in record.removed:
                topics.pop(topic, None)
            topics.update(record.topics)
            taken_over_by = record.taken_over_by or taken_over_by
        end = self.next_slot + len(said)
        removable = (*self.removable, *range(self.next_slot, end))
        return Loaded(self.epoch, end, len(said) < len(records), topics, taken_over_by, removable)


class HoleError(Exception):
    """Records are missing: read during a truncation, or lost."""


def fold(epoch: int, records: Sequence[tuple[int, JournalRecord]]) -> Loaded:
    """What an epoch's records add up to, from its newest snapshot on. Raises HoleError.

    Anything below that snapshot is a leftover: a record not yet removed, written again by a stalled writer, or a fence
    that met a truncation."""
    newest = max((slot for slot, record in records if record.full), default=None)
    if newest is None:
        raise HoleError(f"epoch {epoch} has no snapshot")
    leftovers = tuple(slot for slot, record in records if slot < newest and not record.fence)
    since = [(slot, record) for slot, record in records if slot >= newest]
    for (before, fence), (slot, _) in pairwise(since):
        if slot != before + 1 or fence.fence:
            raise HoleError(f"epoch {epoch}: slot {before + 1 - fence.fence} does not lead to slot {slot}")
    return Loaded(epoch, newest, removable=leftovers).then(*(record for _, record in since))


def snapshot_due(snapshot_bytes: int, log_bytes: int, log_records: int) -> bool:
    """Whether the next record is to be a snapshot, given what was written since (and with) the last one."""
    return log_records >= MAX_RECORDS or log_bytes > max(2 * snapshot_bytes, MIN_LOG_BYTES)


def outdated(before: Loaded, sizes: Iterable[tuple[tuple[int, int], int]]) -> list[tuple[int, int]]:
    """The (epoch, slot) of what a new epoch's first snapshot covers, fences left out.

    `before` is the epoch it was made from, `sizes` lists every record of the journal. Small leftovers of still older
    epochs stay: they cannot be told from fences without reading."""
    known = set(before.removable)
    return [
        (epoch, slot)
        for (epoch, slot), size in sizes
        if (epoch < before.epoch and size > FENCE_LIMIT) or (epoch == before.epoch and slot in known)
    ]
