"""Values for the tests of the metadata log: hypothesis strategies, realistic segments, processes over one bucket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import count
from random import Random
from typing import Any, Self

import numpy as np
from hypothesis import strategies as st
from numpy.random import Generator
from numpy.typing import NDArray

from offloader.format.index import part_index_size
from offloader.metadata.state import (
    Abandoned,
    AssignedAhead,
    Claim,
    CloseRequest,
    LedgerClosed,
    OpenTopic,
    Releasing,
    TopicState,
)
from offloader.model import (
    GIB,
    KIB,
    MIB,
    EntryStats,
    Failure,
    FailureKind,
    Gap,
    GapKind,
    LedgerRange,
    Loss,
    OpenSegment,
    Part,
    Position,
    RollReason,
    SealedFacts,
    Segment,
    SegmentLayout,
    SegmentStatus,
    Source,
    TopicName,
)

Draw = Callable[[Generator, int], NDArray[Any]]  # so many random numbers

TOPIC = TopicName.parse("acme/orders/placed-partition-3")
OTHER_TOPIC = TopicName.parse("acme/orders/shipped")

i64 = st.integers(-(2**63), 2**63 - 1)
u32 = st.integers(0, 2**32 - 1)
text = st.text(st.characters(codec="utf-8"), max_size=12)
uuids = st.uuids().map(str)
topics = st.builds(TopicName, text, text, text)
positions = st.builds(Position, i64, i64, i64)
cuts = st.builds(SegmentLayout, i64, i64, i64, i64)
behind = i64.map(lambda last: last + 1)
gaps = st.builds(Gap, i64, i64, behind, kind=st.sampled_from(GapKind))
ledgers = st.builds(LedgerRange, i64, i64, behind, count=i64, size=i64, closed_with=st.none() | i64)
u64 = st.integers(0, (1 << 64) - 1)
transactions = st.lists(st.tuples(u64, u64), max_size=3).map(tuple)
stats = st.builds(
    EntryStats, i64, *(st.none() | u64 for _ in range(6)), aborted=transactions, unreadable=st.integers(0, 2**40)
)
etags = st.binary(min_size=16, max_size=16).map(bytes.hex) | text


def tuples(of: st.SearchStrategy, most: int = 3) -> st.SearchStrategy:
    return st.lists(of, max_size=most).map(tuple)


parts = st.builds(Part, i64, i64, i64, etags, u32, i64, tuples(ledgers), i64, stats, tuples(gaps))
sealed_facts = st.builds(SealedFacts, i64, i64, u32, positions, tuples(ledgers), tuples(gaps))
open_segments = st.builds(
    OpenSegment,
    uuids,
    positions,
    st.sampled_from(Source),
    cuts,
    i64,
    st.sampled_from(SegmentStatus),
    st.just("") | uuids,
    st.none() | positions,
    st.none() | text,
    tuples(parts),
    st.none() | positions,
    st.none() | st.sampled_from(RollReason),
    st.none() | sealed_facts,
    st.none() | i64,
)
failures = st.builds(Failure, st.sampled_from(FailureKind), text, i64, i64)
abandoned = st.builds(Abandoned, uuids, st.none() | text, text)
requests = st.builds(CloseRequest, text, positions)
idle_states = st.builds(
    TopicState,
    topics,
    st.none() | failures,
    tuples(abandoned),
    tuples(requests),
    st.none() | st.sampled_from(Releasing),
    st.none() | positions,
    ahead=tuples(st.builds(AssignedAhead, open_segments, st.none() | failures)),
)
topic_states = idle_states | st.builds(TopicState.opened, idle_states, open_segments)
segments = st.builds(
    Segment,
    uuids,
    positions,
    positions,
    i64,
    i64,
    i64,
    u32,
    cuts,
    st.sampled_from(Source),
    st.sampled_from(RollReason),
    tuples(ledgers),
    tuples(parts),
    tuples(gaps),
    st.just("") | uuids,
    st.none() | positions,
    text,
    tuples(st.tuples(text, text)),
    tuples(i64),
    st.none() | i64,
)
claims = st.builds(Claim, text, i64, st.none() | i64, positions, i64, text, text)
losses = st.builds(
    Loss, positions, positions, text, text, i64, st.booleans(), st.just("") | uuids, st.none() | positions
)
catalog_records = claims | segments | losses | st.builds(LedgerClosed, i64, i64, i64, st.text(max_size=5))


def tokens(name: str = "t") -> Callable[[], str]:
    """Fresh tokens of one process."""
    numbers = count()
    return lambda: f"{name}-{next(numbers)}"


def position(entry: int, ledger: int = 7, incarnation: int = 0) -> Position:
    return Position(incarnation, ledger, entry)


def assigned(uuid: str = "u", at: int = 1) -> OpenSegment:
    return OpenSegment(uuid, position(0), Source.BROKER, SegmentLayout(), at)


def state(topic: TopicName = TOPIC, uuid: str = "u", at: int = 1) -> TopicState:
    """A topic with an open segment; `at` tells one version from the next."""
    return OpenTopic(topic, open=assigned(uuid, at))


def numbered_topic(n: int) -> TopicName:
    return TopicName("acme", "orders", f"t{n}")


def claim(application: str = "app", incarnation: int = 0) -> Claim:
    return Claim(application, incarnation, 1_767_225_600_000, position(0, incarnation=incarnation), 5)


def offloaded(uuid: str, first: int, last: int, incarnation: int = 0) -> Segment:
    """A small Offloaded segment of ledger 7."""
    return Segment(
        uuid,
        position(first, incarnation=incarnation),
        position(last, incarnation=incarnation),
        1,
        2,
        100,
        3,
        SegmentLayout(),
        Source.BROKER,
        RollReason.AGE,
        (LedgerRange(7, first, last + 1, count=last - first + 1, size=50),),
    )


@cache
def full_segment(sizes: Draw, messages: Draw, seed: int) -> OpenSegment:
    """An open segment as it is just before it rolls at 1 GiB, with the default cuts, at about 20 MB/s."""
    cut, random = SegmentLayout(), Random(seed)
    drawn = _Drawn.of(np.random.default_rng(seed), sizes, messages)
    ledger, first_entry, first_message = random.randrange(10**6), random.randrange(10**5), random.randrange(10**7)
    clock = 1_750_000_000_000 + random.randrange(10**9)
    entry, offset, block = 0, 0, 0
    done: list[Part] = []
    while offset < GIB:
        begin, first, indexed, first_block = offset, entry, 0, block
        while offset - begin < cut.part_size:
            block, base = block + 1, drawn.start(entry)
            after = drawn.after(entry, base + cut.block_size - 132)
            while entry < after:
                indexed += 1
                entry = min(drawn.reaching(drawn.start(entry) + cut.index_step), after)
            offset += 128 + drawn.start(after) - base + 4
        offset += part_index_size(indexed)
        size = drawn.start(entry) - drawn.start(first) - 12 * (entry - first)
        ranges = (LedgerRange(ledger, first_entry + first, first_entry + entry, count=entry - first, size=size),)
        seen, said = (first_message + int(drawn.messages[n - 1]) if n else first_message for n in (first, entry))
        since, until = (clock + int(drawn.times[n - 1]) if n else clock for n in (first, entry))
        times = (since, until, since + random.randrange(4), until + random.randrange(4))
        told = EntryStats(said - seen, *times, seen, said - 1)
        etag, crc = random.randbytes(16).hex(), random.getrandbits(32)
        done.append(Part(len(done) + 1, begin, offset - begin, etag, crc, block - first_block, ranges, indexed, told))
    return OpenSegment(
        f"{random.getrandbits(128):032x}",
        position(0, ledger),
        Source.BROKER,
        cut,
        1,
        upload="u" * 120,
        parts=tuple(done),
    )


@dataclass(frozen=True)
class _Drawn:
    """Entries of 1 GiB and a little more, summed up to each of them: bytes with their headers, messages, ms."""

    ends: NDArray[np.int64]
    messages: NDArray[np.int64]
    times: NDArray[np.float64]

    @classmethod
    def of(cls, rng: Generator, sizes: Draw, messages: Draw) -> Self:
        count = int(1.1 * GIB / np.mean(sizes(rng, 1000))) + 100
        lengths = np.asarray(sizes(rng, count), np.int64)
        times = np.cumsum(lengths / 20_000 * rng.uniform(0.5, 1.5, count))
        return cls(np.cumsum(lengths + 12), np.cumsum(np.asarray(messages(rng, count), np.int64)), times)

    def start(self, entry: int) -> int:
        return int(self.ends[entry - 1]) if entry else 0

    def after(self, entry: int, end: int) -> int:
        """The first entry that does not end by `end`; one at least does."""
        return max(entry + 1, int(np.searchsorted(self.ends, end, "right")))

    def reaching(self, start: int) -> int:
        """The first entry that starts there or later."""
        return int(np.searchsorted(self.ends, start, "left")) + 1


# (name, entries' sizes, their messages, most bytes that a snapshot of 1,000 such segments may have)
MIXES: list[tuple[str, Draw, Draw, int]] = [
    ("batches of 100 KiB, all alike", lambda _, n: np.full(n, 100 * KIB), lambda _, n: np.full(n, 100), 6_000_000),
    (
        "batches of 100 KiB, +-1 %",
        lambda r, n: 100 * KIB * r.uniform(0.99, 1.01, n),
        lambda r, n: r.integers(98, 103, n),
        6_000_000,
    ),
    (
        "batches of 10 KiB, +-1 %",
        lambda r, n: 10 * KIB * r.uniform(0.99, 1.01, n),
        lambda _, n: np.full(n, 10),
        6_000_000,
    ),
    ("unbatched 1 KiB, +-10 %", lambda r, n: KIB * r.uniform(0.9, 1.1, n), lambda _, n: np.ones(n), 6_000_000),
    ("unbatched 1 MiB, +-10 %", lambda r, n: MIB * r.uniform(0.9, 1.1, n), lambda _, n: np.ones(n), 6_000_000),
    # The worst: sizes that nobody could predict.
    ("exponential, mean 1 KiB", lambda r, n: 50 + r.exponential(KIB, n), lambda _, n: np.ones(n), 6_000_000),
    (
        "exponential, mean 100 KiB",
        lambda r, n: 50 + r.exponential(100 * KIB, n),
        lambda _, n: np.full(n, 10),
        6_000_000,
    ),
]
