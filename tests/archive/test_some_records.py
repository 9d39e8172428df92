"""A selection is planned from some of a topic's records as it is from all of them, whatever topic and selection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from offloader.archive.continuity import spans
from offloader.archive.object_range import ObjectRange, PlanItem
from offloader.archive.reading.plan import plan
from offloader.archive.records import LazyTopicRecords, TopicRecords
from offloader.archive.selection import Selection
from offloader.archive.snapshot import TopicSnapshot
from offloader.errors import DamagedRecordError
from offloader.metadata.catalog import Catalogs, linked
from offloader.metadata.catalog_codec import encode_catalog, standing
from offloader.metadata.layout import slot_key
from offloader.metadata.state import CatalogHead, Claim, LedgerClosed, Said, record_uuid
from offloader.model import EntryStats, LedgerRange, Loss, Part, Position, RollReason, Segment, SegmentLayout, Source
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, uuid_of

BETWEEN = 16

SIZE = 1_000  # of a part; each has two entries
Event = tuple[str, int]


@dataclass
class Topic:
    """Writes events as records, past the catalog's own check that they follow."""

    store: MemoryStore = field(default_factory=MemoryStore)
    head: CatalogHead = field(default_factory=lambda: CatalogHead(TOPIC))
    at: Position = field(default_factory=lambda: Position(0, 0, 0))
    hour: int = 0

    def write(self, events: Iterable[Event]) -> TopicRecords:
        self._claim()
        for what, count in events:
            getattr(self, f"_{what}")(count)
        return LazyTopicRecords(Catalogs(self.store, "").history(TOPIC))

    def _append(self, said: Said) -> None:
        record = linked(self.head, said)
        data = encode_catalog(record_uuid(TOPIC, record), record)
        self.store.put(slot_key(TOPIC, 0, self.head.next_slot), standing(self.head, data))
        self.head = self.head.after(record)

    def _claim(self, count: int = 1) -> None:
        for number in range(count):
            self._append(Claim(str(number), self.at.incarnation, 1, self.at, at=1))

    def _segment(self, parts: int) -> None:
        ledger, first = self.at.ledger, self.at.entry
        made = tuple(self._part(number, ledger, first + 2 * number) for number in range(parts))
        last = first + 2 * parts - 1
        held = (LedgerRange(ledger, first, last + 1, count=2 * parts, size=parts * SIZE),)
        segment = Segment(
            uuid_of(self.head.next_slot),
            self.at,
            self.at._replace(entry=last),
            1,
            2,
            parts * SIZE,
            3,
            SegmentLayout(),
            Source.BROKER,
            RollReason.SIZE,
            held,
            made,
        )
        before = self.head.last
        if before is not None:
            segment = replace(segment, predecessor_uuid=before.uuid, predecessor_end=before.end)
        self._append(segment)
        self._skipped(2 * parts)

    def _part(self, number: int, ledger: int, first: int) -> Part:
        held = (LedgerRange(ledger, first, first + 2, count=2, size=SIZE - 100),)
        self.hour += 1
        return Part(
            number + 1,
            number * SIZE,
            SIZE,
            "",
            5,
            1,
            held,
            1,
            EntryStats(2, self.hour, self.hour, self.hour, self.hour),
        )

    def _lost(self, count: int) -> None:
        self._append(Loss(self.at, self.at._replace(entry=self.at.entry + count - 1), "trimmed", "someone", at=2))
        self._skipped(count)

    def _skipped(self, count: int) -> None:
        self.at = self.at._replace(entry=self.at.entry + count)

    def _ended(self, count: int) -> None:
        if self.at.entry > 0:
            self._append(LedgerClosed(self.at.incarnation, self.at.ledger, self.at.entry - 1))
        self._left(count)

    def _left(self, count: int) -> None:
        """A ledger whose end nothing proves."""
        self.at = Position(self.at.incarnation, self.at.ledger + count, 0)

    def _created(self, count: int) -> None:
        self.at = Position(self.at.incarnation + 1, self.at.ledger + count, 0)
        self._claim()


def events(*names: str) -> st.SearchStrategy[list[Event]]:
    some = st.tuples(st.sampled_from(names), st.integers(1, 3))
    return st.lists(st.one_of(some, some, some, st.tuples(st.just("claim"), st.integers(1, BETWEEN + 2))), max_size=12)


SOUND = ("segment", "segment", "lost", "ended", "created")
TOPICS = st.one_of(events(*SOUND), events(*SOUND, "left"), events(*SOUND, "left", "skipped"))
NUMBERS = st.none() | st.integers(0, 60)


def bounds(view: TopicSnapshot, numbers: Sequence[int | None]) -> list[Position | None]:
    """Two of the topic's positions, in order: those that something begins or ends with, and what is beside them."""
    ends = [position for span in spans(view.catalog) for position in (span.start, span.end)]
    known = sorted(p._replace(entry=p.entry + more) for p in ends or [Position(0, 0, 0)] for more in (-1, 0, 1))
    start, end = (None if number is None else known[number % len(known)] for number in numbers)
    return [end, start] if start is not None and end is not None and end < start else [start, end]


def outcome(planned: Callable[[], Iterable[PlanItem]]) -> list[PlanItem] | str:
    try:
        return list(planned())
    except DamagedRecordError as error:
        return str(error)


def all_plans(records: TopicRecords, selection: Selection, step: int, back: int) -> list[list[PlanItem] | str]:
    """Of all records, of some at a time, and of those that are needed."""
    with patch("offloader.archive.records.STEP", step):
        some = outcome(lambda: records.plan(selection))
    needed = outcome(lambda: (i for view, part in records.excerpts(selection, back=back) for i in plan(view, part)))
    return [outcome(lambda: plan(records.whole, selection)), some, needed]


@given(TOPICS, NUMBERS, NUMBERS, st.sampled_from((1, 2, 3, 5)), st.integers(0, 3 * SIZE))
@example([("lost", 3), ("created", 1), ("segment", 1)], 6, None, 5, 0)  # begins with an incarnation, not with the topic
@example([("segment", 1), ("claim", BETWEEN), ("skipped", 1), ("segment", 1)], None, None, 5, 0)
@example([("segment", 1), ("claim", BETWEEN), ("left", 1), ("segment", 1)], None, None, 5, 0)
@example(
    [("segment", 1), ("ended", 1), ("segment", 1)], 5, 7, 5, 0
)  # from where nothing is to the first entry after it
def test_positions_are_planned_as_from_all_records(
    written: list[Event], first: int | None, last: int | None, step: int, back: int
) -> None:
    records = Topic().write(written)
    whole, some, needed = all_plans(records, Selection(*bounds(records.whole, (first, last))), step, back)
    assert some == whole
    assert needed == whole


@given(events(*SOUND), NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.sampled_from((1, 2, 3, 5)), st.integers(0, 3 * SIZE))
@example(
    [("segment", 2), ("claim", BETWEEN), ("segment", 2)], None, 7, 3, None, 5, 0
)  # to the first entry of a stretch
def test_times_are_planned_as_from_all_records(
    written: list[Event],
    first: int | None,
    last: int | None,
    early: int | None,
    late: int | None,
    step: int,
    back: int,
) -> None:
    records = Topic().write(written)
    start, end = bounds(records.whole, (first, last))
    selection = Selection(start, end, early, late)
    whole, some, needed = ([] if isinstance(each, str) else each for each in all_plans(records, selection, step, back))
    pieces = [item for item in whole if isinstance(item, ObjectRange)]
    assert [item for item in some if isinstance(item, ObjectRange)] == pieces
    assert [item for item in needed if isinstance(item, ObjectRange)] == pieces
