"""What a subscription has acknowledged, as the gateway needs it: by places, and with what can never be delivered."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import Protocol

from offloader.cursors.core.cursor import CACHE_BYTES, Cursor, LedgerLength, LedgersFrom
from offloader.cursors.core.ledger_acks import MOST_MESSAGES, BatchLeft
from offloader.cursors.core.records import DELETED_ON, CursorMarker, LedgerKey, key_of
from offloader.gateway.core.events import EntryAck
from offloader.gateway.topic_entries import DeletedSegment, TopicEntries
from offloader.gateway.values import BEFORE_ALL, ServedEntries, ServedEntry
from offloader.metadata.deletions import SegmentRange, day
from offloader.model import Place, Position

Ledgers = Sequence[tuple[int, int, int]]
"""(incarnation, ledger, last entry) of each ledger that is served, in order. There may be many: calls that are made for
each acknowledgement use bisection and never go through all of them."""


class SubscriptionCursor(Protocol):
    """A DurableCursor, or the one of a reader, which nobody keeps."""

    @property
    def mark_delete(self) -> Position: ...

    @property
    def changed(self) -> bool: ...

    def acknowledge(self, key: LedgerKey, first: int, last: int) -> bool: ...

    def acknowledge_part(self, position: Position, size: int, left: int) -> bool: ...

    def acknowledge_up_to(self, position: Position) -> bool: ...

    def acknowledged_of(self, ledgers: Iterable[LedgerKey]) -> int | None: ...

    def is_acknowledged(self, position: Position) -> bool: ...

    def left_of(self, position: Position) -> BatchLeft | None: ...

    def has_none_of(self, key: LedgerKey, first: int, last: int) -> bool: ...

    def advance(self, ledgers_from: LedgersFrom) -> bool: ...

    def count_left(self, key: LedgerKey, first: int, last: int) -> int: ...

    def count_property(self, name: str, by: int) -> None: ...

    def begin_anew(self, position: Position, properties: tuple[tuple[str, int], ...] | None = None) -> None: ...

    def forget(self) -> None: ...

    def flush(self) -> None: ...


class VolatileCursor(Cursor):
    """A reader's: all of it is in memory, and goes with it. Beyond its bound the acknowledgements in the ledgers that
    were used least lately are forgotten: the reader gets these entries again where it asks for all that it has not
    acknowledged."""

    def __init__(self, marker: CursorMarker, *, most_bytes: int = CACHE_BYTES) -> None:
        super().__init__(marker, cache_bytes=most_bytes, parts_bytes=most_bytes)

    def acknowledge(self, key: LedgerKey, first: int, last: int) -> bool:
        changed = super().acknowledge(key, first, last)
        self.forget_surplus()
        return changed

    def acknowledge_part(self, position: Position, size: int, left: int) -> bool:
        changed = super().acknowledge_part(position, size, left)
        self.forget_surplus()
        return changed

    @property
    def changed(self) -> bool:
        return False

    def forget(self) -> None:
        """It is not kept in any case."""

    def flush(self) -> None:
        """There is nothing to write."""


class SubscriptionAcks:
    """One thread at a time. `ledgers`: those that are served now; acknowledgements in others are nobody's."""

    def __init__(self, cursor: SubscriptionCursor) -> None:
        self.cursor = cursor

    def apply(self, acks: Iterable[EntryAck], ledgers: Ledgers, sizes: Mapping[Place, int]) -> None:
        """Whole entries, and batches of which some messages are left. `sizes`: how many messages each of these batches
        really has. A set of messages that is larger, or of an entry that is none of them, acknowledges nothing."""
        for (ledger, entry), left in acks:
            incarnation, last = _served_ledger(ledger, ledgers) or (0, -1)
            if not 0 <= entry <= last:
                continue
            if left:
                size = sizes.get((ledger, entry), 0)
                if left.bit_length() <= size <= MOST_MESSAGES:
                    self.cursor.acknowledge_part(Position(incarnation, ledger, entry), size, left)
            else:
                self.cursor.acknowledge((incarnation, ledger), entry, entry)

    def apply_up_to(self, place: Place, left: int, ledgers: Ledgers, sizes: Mapping[Place, int]) -> None:
        """All before a place, and of its own entry all but the messages in `left`. Nothing, where that is behind the
        end: what is archived later was never delivered."""
        if ledgers and place > ledgers[-1][1:]:
            return
        before = (place[0], place[1] - 1) if left else place
        self.cursor.acknowledge_up_to(position_of(before, ledgers))
        self.apply([EntryAck(place, left)], ledgers, sizes)

    def not_acknowledged(
        self, read: ServedEntries, after: Place, ledgers: Ledgers, absent: Sequence[SegmentRange] = ()
    ) -> ServedEntries:
        """Of what was read behind a place what is still to be delivered. What nobody can get of it (markers, aborted
        transactions, gaps) counts as acknowledged, or the mark-delete position would stay before it for ever. `absent`:
        what was not served when it was read, and may be by now."""
        if read.covered is None:
            return read
        for before, next_one in _neighbours(after, read.entries, read.covered):
            if next_one != (before[0], before[1] + 1):
                for incarnation, ledger, first, last in _between(before, next_one, ledgers):
                    begin, end = Position(incarnation, ledger, first), Position(incarnation, ledger, last)
                    if not any(each.start <= end and begin <= each.end for each in absent):
                        self.cursor.acknowledge((incarnation, ledger), first, last)
        return ServedEntries(self.left_of(read.entries, ledgers), read.covered)

    def skip_what_is_deleted(self, entries: TopicEntries) -> None:
        """As of now. A refresh may come in between: what was away before it, or is after it, is not passed over."""
        absent = entries.absent_for_now()
        deleted, ledgers = entries.deleted_behind(self.cursor.mark_delete), entries.ledgers()
        self.skip_deleted(deleted, ledgers, (*absent, *entries.absent_for_now()))

    def skip_deleted(
        self, deleted: Iterable[DeletedSegment], ledgers: Ledgers, absent: Sequence[SegmentRange] = ()
    ) -> None:
        """What is deleted for good counts as acknowledged; of what was not, the cursor says how much, and of when.
        `absent`: what is not served now, and may be again."""
        for at, segment in deleted:
            incarnation, left = segment.start.incarnation, 0
            for gap in segment.gaps:  # nobody could get these
                self.cursor.acknowledge((incarnation, gap.ledger), gap.first, gap.last)
            for held in segment.ledgers:
                key = incarnation, held.ledger
                left += self.cursor.count_left(key, held.first, held.last)
                self.cursor.acknowledge(key, held.first, held.last)
            if not self._is_left_before(segment.start, ledgers, absent):
                self.cursor.acknowledge_up_to(segment.end)
            if left:
                self.cursor.count_property(f"{DELETED_ON}{day(at)[:10]}", left)

    def _is_left_before(self, start: Position, ledgers: Ledgers, absent: Iterable[SegmentRange]) -> bool:
        """Whether something is served between the mark-delete position and what was deleted, or may be again: a former
        incarnation, or ledgers that brokers have offloaded by themselves, and that no retention of ours deletes."""
        mark = self.cursor.mark_delete
        if any(each.start < start and each.end > mark for each in absent):
            return True
        before = bisect_left(ledgers, start.ledger, key=_ledger)
        return mark.incarnation != start.incarnation or (before > 0 and Position(*ledgers[before - 1]) > mark)

    def left_of(self, entries: Sequence[ServedEntry], ledgers: Ledgers) -> list[ServedEntry]:
        """What of these is not acknowledged. They are in the topic's order."""
        found = list[ServedEntry]()
        for ledger, same in _by_ledger(entries):
            incarnation, _ = _served_ledger(ledger, ledgers) or (0, -1)
            if self.cursor.has_none_of((incarnation, ledger), same[0].place[1], same[-1].place[1]):
                found += same
            else:
                found += [left for entry in same if (left := self._left(entry, incarnation)) is not None]
        return found

    def advance(self, ledgers: Ledgers, absent: Iterable[SegmentRange] = ()) -> Place:
        """The mark-delete position, moved over what is acknowledged. The last ledger may go on. `absent`: what is not
        served now, and may be again: not over that."""
        stop = min((each.start for each in absent if each.end > self.cursor.mark_delete), default=None)
        end = len(ledgers) if stop is None else bisect_right(ledgers, key_of(stop), key=_key)

        def ledgers_from(first: LedgerKey) -> Iterator[LedgerLength]:
            for number in range(bisect_left(ledgers, first, key=_key), end):
                incarnation, ledger, last = ledgers[number]
                yield LedgerLength((incarnation, ledger), last if number < len(ledgers) - 1 else None)

        self.cursor.advance(ledgers_from)
        return self.cursor.mark_delete.place

    def behind(self, ledgers: Ledgers) -> tuple[Place, int | None]:
        """The mark-delete position, and how many entries behind it are not acknowledged; None: not all is in memory.
        Those that nobody can get count until they are read over."""
        mark, entries, keys = self.cursor.mark_delete, 0, list[LedgerKey]()
        for incarnation, ledger, last in ledgers[bisect_left(ledgers, key_of(mark), key=_key) :]:
            keys.append((incarnation, ledger))
            entries += last - (mark.entry if (incarnation, ledger) == key_of(mark) else -1)
        done = self.cursor.acknowledged_of(keys)
        return mark.place, None if done is None else max(entries - done, 0)

    def _left(self, entry: ServedEntry, incarnation: int) -> ServedEntry | None:
        position = Position(incarnation, *entry.place)
        if self.cursor.is_acknowledged(position):
            return None
        batch = self.cursor.left_of(position)
        return entry if batch is None else entry.without(batch.left)


def is_served(place: Place, ledgers: Ledgers) -> bool:
    """Whether a ledger that is served reaches as far."""
    found = _served_ledger(place[0], ledgers)
    return found is not None and 0 <= place[1] <= found[1]


def _served_ledger(ledger: int, ledgers: Ledgers) -> tuple[int, int] | None:
    """Its incarnation and its last entry; None: it is not served."""
    number = bisect_left(ledgers, ledger, key=_ledger)
    if number < len(ledgers) and ledgers[number][1] == ledger:
        return ledgers[number][0], ledgers[number][2]
    return None


def position_of(place: Place, ledgers: Ledgers) -> Position:
    """Of the nearest ledger's incarnation where the place's own is not served."""
    if not ledgers:
        return Position(0, *place) if place != BEFORE_ALL else Position(0, 0, -1)
    if place < (ledgers[0][1], 0):
        return Position(ledgers[0][0], ledgers[0][1], -1)
    incarnation = ledgers[bisect_right(ledgers, place[0], key=_ledger) - 1][0]
    return Position(incarnation, *place)


def _neighbours(after: Place, entries: Sequence[ServedEntry], covered: Place) -> Iterator[tuple[Place, Place]]:
    """Two places each, between which something may be missing: from `after` over all entries to behind `covered`."""
    for _, same in _by_ledger(entries):
        first, last = same[0].place, same[-1].place
        is_unbroken = last[1] - first[1] == len(same) - 1
        places = [after, first] if is_unbroken else [after, *(entry.place for entry in same)]
        yield from pairwise(places)
        after = last
    yield after, (covered[0], covered[1] + 1)


def _by_ledger(entries: Sequence[ServedEntry]) -> Iterator[tuple[int, Sequence[ServedEntry]]]:
    """Entries in the topic's order, those of each ledger together."""
    begin = 0
    while begin < len(entries):
        ledger = entries[begin].place[0]
        end = bisect_left(entries, (ledger + 1, -1), begin, key=_place)
        yield ledger, entries[begin:end]
        begin = end


_place = attrgetter("place")
_ledger = itemgetter(1)
_key = itemgetter(0, 1)


def _between(before: Place, after: Place, ledgers: Ledgers) -> Iterable[tuple[int, int, int, int]]:
    """(incarnation, ledger, first, last) of what lies between two places, without both."""
    begin = bisect_left(ledgers, before[0], key=_ledger)
    for incarnation, ledger, end in ledgers[begin : bisect_right(ledgers, after[0], key=_ledger)]:
        first = before[1] + 1 if ledger == before[0] else 0
        last = min(end, after[1] - 1) if ledger == after[0] else end
        if first <= last:
            yield incarnation, ledger, first, last


BLOCK = 256  # entries whose sizes are kept together: 4 bytes each
MOST_BLOCKS = 256  # of a topic: about 350 kB
_MOST = (1 << 32) - 1


class BatchSizes:
    """How many messages the entries of a topic have that were read lately: what a client says of that is not believed.
    Where there are too many, those of the ledgers' parts that were used least lately are forgotten."""

    def __init__(self, most_blocks: int = MOST_BLOCKS) -> None:
        self._blocks: OrderedDict[Place, array[int]] = OrderedDict()  # by ledger and number; in each 0: not known
        self._most_blocks = most_blocks

    def remember(self, entries: Iterable[ServedEntry]) -> None:
        """Entries that were read."""
        for entry in entries:
            ledger, number = entry.place
            key = ledger, number // BLOCK
            block = self._blocks.get(key)
            if block is None:
                block = self._blocks[key] = array("I", bytes(4 * BLOCK))
                if len(self._blocks) > self._most_blocks:
                    self._blocks.popitem(last=False)
            block[number % BLOCK] = min(entry.messages, _MOST)

    def find(self, place: Place) -> int | None:
        """None: it is not known."""
        key = place[0], place[1] // BLOCK
        block = self._blocks.get(key)
        if block is None:
            return None
        self._blocks.move_to_end(key)
        return block[place[1] % BLOCK] or None
