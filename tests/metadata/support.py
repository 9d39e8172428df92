"""Values for the tests of the metadata log: hypothesis strategies, realistic segments, processes over one bucket."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random

from hypothesis import strategies as st

from offloader.metadata.state import Abandoned, Claim, CloseRequest, LedgerClosed, TopicState
from offloader.model import (
    GIB,
    KIB,
    MIB,
    Cuts,
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
    SegmentStatus,
    Source,
    TopicName,
)
from offloader.part_index import IndexEntry, PartIndex

TOPIC = TopicName.parse("acme/orders/placed-partition-3")
OTHER_TOPIC = TopicName.parse("acme/orders/shipped")

i64 = st.integers(-(2**63), 2**63 - 1)
u32 = st.integers(0, 2**32 - 1)
text = st.text(st.characters(codec="utf-8"), max_size=12)
uuids = st.uuids().map(str)
topics = st.builds(TopicName, text, text, text)
positions = st.builds(Position, i64, i64, i64)
cuts = st.builds(Cuts, i64, i64, i64, i64)
gaps = st.builds(Gap, st.sampled_from(GapKind), i64, i64, i64)
ledgers = st.builds(LedgerRange, i64, i64, i64, i64, i64, st.none() | i64)
stats = st.builds(EntryStats, i64, *(st.none() | i64 for _ in range(6)))
etags = st.binary(min_size=16, max_size=16).map(bytes.hex) | text


def tuples(of: st.SearchStrategy, most: int = 3) -> st.SearchStrategy:
    return st.lists(of, max_size=most).map(tuple)


indexes = tuples(st.builds(IndexEntry, i64, i64, i64, i64), 6).map(PartIndex.of)
parts = st.builds(Part, i64, i64, i64, etags, u32, i64, tuples(ledgers), indexes, stats, tuples(gaps))
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
)
failures = st.builds(Failure, st.sampled_from(FailureKind), text, i64, i64)
abandoned = st.builds(Abandoned, uuids, st.none() | text, text)
requests = st.builds(CloseRequest, text, positions)
topic_states = st.builds(
    TopicState,
    topics,
    st.none() | open_segments,
    st.none() | failures,
    tuples(abandoned),
    tuples(requests),
    st.booleans(),
    st.none() | positions,
)
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
)
claims = st.builds(Claim, text, i64, text, positions, i64, text)
losses = st.builds(Loss, positions, positions, text, text, i64)
catalog_records = claims | segments | losses | st.builds(LedgerClosed, i64, i64, i64)


def tokens(name: str = "t") -> Callable[[], str]:
    """Fresh tokens of one process."""
    numbers = count()
    return lambda: f"{name}-{next(numbers)}"


def position(entry: int, ledger: int = 7, incarnation: int = 0) -> Position:
    return Position(incarnation, ledger, entry)


def assigned(uuid: str = "u", at: int = 1) -> OpenSegment:
    return OpenSegment(uuid, position(0), Source.BROKER, Cuts(), at)


def state(topic: TopicName = TOPIC, uuid: str = "u", at: int = 1) -> TopicState:
    """A topic with an open segment; `at` tells one version from the next."""
    return TopicState(topic, open=assigned(uuid, at))


def numbered_topic(n: int) -> TopicName:
    return TopicName("acme", "orders", f"t{n}")


def claim(application: str = "app", incarnation: int = 0) -> Claim:
    return Claim(application, incarnation, "2026-01-01", position(0, incarnation=incarnation), 5)


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
        Cuts(),
        Source.BROKER,
        RollReason.AGE,
        (LedgerRange(7, first, last, last - first + 1, 50),),
    )


def full_segment(entry_size: Callable[[Random], int], messages: Callable[[Random], int], seed: int) -> OpenSegment:
    """An open segment as it is just before it rolls at 1 GiB, with the default cuts, at about 20 MB/s."""
    rng, cut = Random(seed), Cuts()
    ledger, entry, offset, block = rng.randrange(10**6), rng.randrange(10**5), 0, 0
    clock, message = 1_750_000_000_000.0 + rng.randrange(10**9), rng.randrange(10**7)
    done: list[Part] = []
    while offset < GIB:
        begin, first, size, first_message, first_time, index, first_block = offset, entry, 0, message, int(clock), [], block
        while offset - begin < cut.part_size:
            block, used, last_indexed = block + 1, 128, -cut.index_step
            while used == 128 or used + 12 + (length := entry_size(rng)) + 4 <= cut.block_size:
                length = entry_size(rng) if used == 128 else length
                if used - last_indexed >= cut.index_step:
                    index.append(IndexEntry(ledger, entry, block, offset + used - 128))
                    last_indexed = used
                used, size, entry, message = used + 12 + length, size + length, entry + 1, message + messages(rng)
                clock += length / 20_000 * rng.uniform(0.5, 1.5)
            offset += used + 4
        ranges = (LedgerRange(ledger, first, entry - 1, entry - first, size),)
        times = (first_time, int(clock), first_time + rng.randrange(4), int(clock) + rng.randrange(4))
        told = EntryStats(message - first_message, *times, first_message, message - 1)
        etag, crc = rng.randbytes(16).hex(), rng.getrandbits(32)
        done.append(Part(len(done) + 1, begin, offset - begin, etag, crc, block - first_block, ranges, PartIndex.of(index), told))
    return OpenSegment(
        f"{rng.getrandbits(128):032x}", position(0, ledger), Source.BROKER, cut, 1, upload="u" * 120, parts=tuple(done)
    )


# (name, entry's size, messages of an entry, most bytes that a snapshot of 1,000 such segments may have)
MIXES: list[tuple[str, Callable[[Random], int], Callable[[Random], int], int]] = [
    ("batches of 100 KiB, all alike", lambda _: 100 * KIB, lambda _: 100, 10_000_000),
    ("batches of 100 KiB, +-1 %", lambda r: int(100 * KIB * r.uniform(0.99, 1.01)), lambda r: r.randrange(98, 103), 10_000_000),
    ("batches of 10 KiB, +-1 %", lambda r: int(10 * KIB * r.uniform(0.99, 1.01)), lambda _: 10, 10_000_000),
    ("unbatched 1 KiB, +-10 %", lambda r: int(KIB * r.uniform(0.9, 1.1)), lambda _: 1, 10_000_000),
    ("unbatched 1 MiB, +-10 %", lambda r: int(MIB * r.uniform(0.9, 1.1)), lambda _: 1, 10_000_000),
    # The worst: sizes that nobody could predict.
    ("exponential, mean 1 KiB", lambda r: 50 + int(r.expovariate(1 / KIB)), lambda _: 1, 15_000_000),
    ("exponential, mean 100 KiB", lambda r: 50 + int(r.expovariate(1 / (100 * KIB))), lambda _: 10, 15_000_000),
]
