"""What the archive keeps of a topic, read from its catalog: rows of all kept records, records only as they are asked
for. With it, who waits for what is kept, and whether a message that is kept begins before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from offloader.cursors.stored import subscription_marks
from offloader.errors import DamagedObjectError, ObjectNotFoundError
from offloader.format.blocks import entries, read_blocks
from offloader.format.entry import message_metadata
from offloader.lifecycle.retention.plan import Holding, KeptSegment, due
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.metadata.deletions import DeletedRange, PulsarTrimmed, range_of
from offloader.metadata.history import History, Slot
from offloader.metadata.layout import data_key
from offloader.metadata.manifest import ManifestRow
from offloader.model import MIB, Loss, Position, Segment, TopicName
from offloader.ports.object_store import ObjectStore

STEP = 64  # records that are read at a time
LOOK_BACK = 64 * MIB


class SegmentsOf:
    """The segments of these slots, each time anew, a few records at a time."""

    def __init__(self, history: History, slots: list[int]) -> None:
        self._history = history
        self._slots = slots

    def __iter__(self) -> Iterator[KeptSegment]:
        return (kept(segment) for segment in self.records())

    def records(self) -> Iterator[Segment]:
        """As the catalog has them."""
        for begin in range(0, len(self._slots), STEP):
            for written in self._history.read(self._slots[begin : begin + STEP]):
                if isinstance(written.record, Segment):
                    yield written.record


def holdings(
    history: History, gone_since: int | None, deleted: tuple[DeletedRange, ...], *, released_goes: bool = False
) -> list[Holding]:
    """Of each incarnation of which something is kept, the oldest first. `gone_since`: when Pulsar had no such topic any
    more; None: as far as is known it is there. `deleted`: what is not kept. `released_goes`: nothing is protected of a
    topic that nobody has claimed."""
    by_incarnation: dict[int, list[Slot]] = {}
    for slot in history.slots(lambda row: _is_kept(row, deleted)):
        if slot.row.start is not None:
            by_incarnation.setdefault(slot.row.start.incarnation, []).append(slot)
    claim = history.head.claim
    present = claim.incarnation if claim is not None else -1
    free = released_goes and claim is not None and not claim.application
    found = []
    for incarnation, slots in sorted(by_incarnation.items()):
        if any(slot.row.segments for slot in slots):
            over = gone_since if incarnation == present else _over(history, by_incarnation, incarnation)
            found.append(_holding(history, incarnation, slots, over, goes_on=incarnation == present and not free))
    return found


def kept_behind(history: History, end: Position) -> Iterator[Segment]:
    """The segments of an incarnation behind this position."""
    slots = history.slots(
        lambda row: (
            row.segments > 0
            and row.start is not None
            and row.end is not None
            and row.end > end
            and row.start.incarnation <= end.incarnation
        )
    )
    return SegmentsOf(history, [slot.number for slot in slots]).records()


def _is_kept(row: ManifestRow, deleted: tuple[DeletedRange, ...]) -> bool:
    if row.start is None or row.end is None:
        return False
    found = range_of(deleted, row.end)
    return found is None or row.start < found.start


def _over(history: History, by_incarnation: dict[int, list[Slot]], incarnation: int) -> int:
    """When a former incarnation was over, at the latest: something is recorded of a later one."""
    later = next((slots for each, slots in sorted(by_incarnation.items()) if each > incarnation), None)
    if later is not None:
        record = next(history.read([later[0].number])).record
        if isinstance(record, Segment):
            return record.assigned_at
        if isinstance(record, Loss):
            return record.at
    return history.head.claim.at if history.head.claim is not None else 0


def _holding(history: History, incarnation: int, slots: list[Slot], over: int | None, *, goes_on: bool) -> Holding:
    newest = history.head.newest
    segments = [slot for slot in slots if slot.row.segments]
    first = slots[0].row.start
    return Holding(
        incarnation,
        Position(incarnation, 0, 0) if first is None else first,
        SegmentsOf(history, [slot.number for slot in segments]),
        sum(slot.row.size for slot in segments),
        over,
        protected=newest.uuid if goes_on and over is None and newest is not None else "",
        closed=over is not None,
        trailing=slots[-1] is not segments[-1],
    )


def kept(segment: Segment) -> KeptSegment:
    """What a decision needs of it."""
    stats = [part.stats for part in segment.parts]
    bounds = [each.publish_bounds for each in stats]
    lates = [each[1] for each in bounds if each is not None]
    brokers = [each.max_broker_time for each in stats if each.max_broker_time is not None]
    return KeptSegment(
        segment.uuid,
        segment.start,
        segment.end,
        segment.size,
        segment.entries,
        segment.offloaded_at,
        max((*lates, *brokers), default=None),
        max(lates) if lates and len(lates) == len(bounds) else None,
        tuple(held.ledger for held in segment.ledgers),
    )


def with_waiting(
    store: ObjectStore,
    topic: TopicName,
    known: Sequence[Holding],
    policy: RetentionPolicy,
    now: int,
    trimmed: PulsarTrimmed | None,
) -> list[Holding]:
    """With the gateway's subscriptions that have not acknowledged everything. They are read only where something would
    go without them: a topic of which nothing is due costs nothing."""
    if not policy.keep_unacknowledged or all(due(each, policy, now, trimmed) is None for each in known):
        return list(known)
    waiting = tuple(subscription_marks(store, topic))
    return [replace(each, waiting=waiting) for each in known]


def begins_before(store: ObjectStore, topic: TopicName, kept: Iterable[Segment]) -> bool:
    """Whether any chunked message in the first bytes of these segments has its first chunk before them: chunks may lie
    64 MiB apart. Reads as far as readers look back; what cannot be read counts as if it had. Raises what the store
    raises."""
    begun: set[tuple[str, str]] = set()
    left = LOOK_BACK
    for segment in kept:
        for part in segment.parts:
            if left <= 0:
                return False
            left -= part.size
            try:
                data, _ = store.read(data_key(topic, segment.uuid), part.offset, part.size)
                if any(_continues(entry.data, begun) for block in read_blocks(data) for entry in entries(block)):
                    return True
            except (DamagedObjectError, ObjectNotFoundError):
                return True
    return False


def _continues(entry: bytes, begun: set[tuple[str, str]]) -> bool:
    """Whether an entry is a later chunk of a message whose first one was not seen."""
    metadata = message_metadata(entry)
    if metadata is None or metadata.num_chunks_from_msg < 2:
        return False
    key = metadata.producer_name, metadata.uuid
    if metadata.chunk_id == 0:
        begun.add(key)
    return metadata.chunk_id > 0 and key not in begun
