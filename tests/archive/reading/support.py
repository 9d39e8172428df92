"""Topics of every kind, and what is true of each of their positions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from hypothesis import strategies as st

from offloader.archive.items import Missing, ReadItem
from offloader.archive.object_range import PlanItem
from offloader.archive.reading.range_reader import IndexCache
from offloader.archive.reading.reader import PlannedReader, ReadOptions
from offloader.archive.reading.stores import Stores
from offloader.archive.snapshot import OffloadedLedger, TopicSnapshot
from offloader.model import LedgerList, LedgerSpan, Position, SegmentLayout
from offloader.ports.object_store import ObjectStore, Stat
from tests.archive.ledgers.support import put_ledger
from tests.archive.support import Archive, gap, message, uuid_of
from tests.format.support import Stored, small_cuts

GAP, LOST = "gap", "lost"
Truth = bytes | str


@dataclass
class Topic:
    """An archived topic; `truth` has every position, in order."""

    archive: Archive = field(default_factory=Archive)
    ledgers: list[OffloadedLedger] = field(default_factory=list)
    truth: dict[Position, Truth] = field(default_factory=dict)

    @property
    def view(self) -> TopicSnapshot:
        last = {p.ledger: p.entry for p in self.truth}
        listed = LedgerList(tuple(LedgerSpan(ledger, entry) for ledger, entry in last.items()))
        return TopicSnapshot(self.archive.topic, self.archive.catalog, tuple(self.ledgers), listed)

    def between(self, start: Position | None, end: Position | None) -> dict[Position, Truth]:
        return {p: t for p, t in self.truth.items() if (start is None or p >= start) and (end is None or p <= end)}

    def offload(self, incarnation: int, ledger: int, entries: Sequence[bytes], block_size: int) -> None:
        """A whole ledger, as a stock broker does it."""
        uuid = uuid_of(1000 + ledger)
        put_ledger(self.archive.store, ledger, entries, uuid, block_size=block_size)
        start, end = Position(incarnation, ledger, 0), Position(incarnation, ledger, len(entries) - 1)
        self.ledgers.append(OffloadedLedger(start, end, uuid, sum(map(len, entries))))


def reader(store: ObjectStore, **options: object) -> PlannedReader:
    return PlannedReader(Stores.of(store), ReadOptions(**options), IndexCache())


def told(items: Iterable[ReadItem]) -> dict[Position, Truth]:
    """What reading says of each position. Asserts that it says one thing of each, in order."""
    found: dict[Position, Truth] = {}
    last = Position(-1, -1, -1)
    for item in items:
        if isinstance(item, Missing):
            assert item.start <= item.end or item.kind is None
            missing = GAP if item.kind is not None else item.damaged or LOST
            says: dict[Position, Truth] = {
                Position(item.start.incarnation, item.start.ledger, e): missing for e in _ids(item)
            }
        else:
            says = {entry.position: entry.data for entry in item.entries()}
        for position, what in says.items():
            assert position > last, f"{position} is told of after {last}"
            last = position
            found[position] = what
    return found


def _ids(item: Missing) -> range:
    last = item.end.entry if item.end.ledger == item.start.ledger else item.start.entry
    return range(item.start.entry, last + 1)


class CountingStore:
    """Counts what is read of another store."""

    def __init__(self, store: ObjectStore) -> None:
        self._read = store.read
        self.reads: list[tuple[str, int]] = []
        store.read = self.read

    def read(self, key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
        body = self._read(key, offset, length)
        self.reads.append((key, len(body[0])))
        return body


@st.composite
def topics(draw: st.DrawFn) -> Topic:
    """Two incarnations of several ledgers each: offloaded by brokers, by us, by both, with gaps and losses."""
    random = Random(draw(st.integers(0, 2**32)))
    built = Topic()
    cuts = draw(small_cuts())
    hidden = draw(st.sampled_from([0.0, 0.1, 0.5]))
    ledger = 0
    for incarnation in range(draw(st.integers(1, 2))):
        built.archive.incarnation = incarnation
        ledger = _fill(built, random, cuts, incarnation, ledger + random.randint(1, 5), hidden)
    built.truth = dict(sorted(built.truth.items()))
    return built


def _fill(built: Topic, random: Random, cuts: SegmentLayout, incarnation: int, ledger: int, hidden: float) -> int:
    ids = [ledger + 2 * n for n in range(random.randint(1, 4))]
    held = {n: _entries(random, n) for n in ids}
    places = [(n, entry) for n in ids for entry in range(len(held[n]))]
    begin = random.choice([0, 0, random.randrange(len(places))])
    last_of_brokers = places[begin - 1][0] if begin else -1
    for n in ids:
        if n <= last_of_brokers or random.random() < 0.2:
            built.offload(incarnation, n, held[n], random.choice([700, 2_000, 9_000]))
    by_brokers = {x.start.ledger for x in built.ledgers}
    for n, entry in places[:begin]:
        built.truth[Position(incarnation, n, entry)] = held[n][entry]
    built.archive.claim(*places[begin], created=incarnation)
    rest = places[begin:]
    while rest:
        count = random.randint(1, len(rest))
        mine, rest = rest[:count], rest[count:]
        if random.random() < 0.15 and mine[0][0] == mine[-1][0]:
            built.archive.lose(*(Position(incarnation, *place) for place in (mine[0], mine[-1])))
            for n, entry in mine:
                built.truth[Position(incarnation, n, entry)] = held[n][entry] if n in by_brokers else LOST
            continue
        gone = {place for place in mine if random.random() < hidden}
        present = [Stored(n, entry, held[n][entry]) for n, entry in mine if (n, entry) not in gone]
        gaps = [gap(n, entry, entry) for n, entry in mine if (n, entry) in gone]
        built.archive.add(present, gaps, closed={n: len(held[n]) - 1 for n in ids}, cuts=cuts)
        for n, entry in mine:
            built.truth[Position(incarnation, n, entry)] = GAP if (n, entry) in gone else held[n][entry]
    for n in ids:
        built.archive.closed(n, len(held[n]) - 1)
    return ids[-1]


def _entries(random: Random, ledger: int) -> list[bytes]:
    sizes = [random.choice([0, 3, 60, 200, 450]) for _ in range(random.randint(1, 25))]
    return [message(f"{ledger}:{n} ".ljust(size, "x")) for n, size in enumerate(sizes)]


def positions() -> st.SearchStrategy[Position | None]:
    return st.none() | st.builds(Position, st.integers(0, 1), st.integers(0, 25), st.integers(-1, 26))


def items_told(built: Topic, items: Iterable[PlanItem], **options: object) -> dict[Position, Truth]:
    return told(reader(built.archive.store, **options).read(items))
