"""Many entries cut at a time give the bytes, the index and the figures that entries one by one give."""

from __future__ import annotations

from itertools import groupby
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.format.cutter import Consecutive, CutPart, PartCutter
from offloader.format.entry import inspect
from offloader.model import GIB, SegmentLayout

from .support import Stored, broker_metadata, checksummed, cutter, plain, small_cuts

FEW = 32


@st.composite
def runs(draw: st.DrawFn) -> list[list[Stored]]:
    """A topic's entries in order, in runs of consecutive ones: usual messages, opaque ones, long and short runs."""
    random = Random(draw(st.integers(0, 2**32)))
    ledger, entry = 7, draw(st.sampled_from([0, 5, 2**31]))
    found = []
    for length in draw(st.lists(st.one_of(st.integers(1, 5), st.integers(FEW, 3 * FEW)), min_size=1, max_size=5)):
        largest = random.choice([0, 40, 1500])
        found.append([Stored(ledger, entry + n, an_entry(random, largest)) for n in range(length)])
        step = random.choice(["follows", "gap", "ledger"])
        entry += length + (3 if step == "gap" else 0)
        if step == "ledger":
            ledger, entry = ledger + 2, 0
    return found


def an_entry(random: Random, largest: int) -> bytes:
    payload = random.randbytes(random.randint(0, largest))
    if random.random() < 0.05:
        return payload
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=random.randint(0, 2**40))
    if random.random() < 0.3:
        metadata.num_messages_in_batch = random.randint(0, 100)
    if random.random() < 0.05:
        metadata.marker_type = 21
    front = (
        broker_metadata(random.choice([None, random.randint(0, 99)]), random.choice([None, 5]))
        if random.random() < 0.5
        else b""
    )
    return front + random.choice([checksummed, plain])(metadata, payload)


def one_by_one(entries: list[Stored], working: PartCutter) -> tuple[int, list[CutPart]]:
    parts: list[CutPart] = []
    for number, s in enumerate(entries):
        if working.would_exceed_room(len(s.data), s.ledger, s.entry):
            return number, parts
        part = working.offer(s.ledger, s.entry, s.data, inspect(s.data))
        parts += [part] if part else []
    return len(entries), parts


def many_at_once(entries: list[Stored], working: PartCutter) -> tuple[int, list[CutPart]]:
    parts, taken = list[CutPart](), 0
    for (ledger, _), group in groupby(enumerate(entries), lambda pair: (pair[1].ledger, pair[1].entry - pair[0])):
        members = [s for _, s in group]
        run, done = Consecutive.of(ledger, members[0].entry, [s.data for s in members]), 0
        while done < len(run):
            count, part = working.offer_all(run, done)
            if not count:
                return taken + done, parts
            done += count
            parts += [part] if part else []
        taken += done
    return taken, parts


def essence(part: CutPart) -> tuple[object, ...]:
    return (part.number, part.offset, part.size, part.data(), part.blocks, part.ledgers, part.index, part.stats)


@given(runs(), small_cuts(), st.integers(1, 60_000) | st.just(GIB))
def test_many_at_once_and_one_by_one_give_the_same_object(
    found: list[list[Stored]], cuts: SegmentLayout, room: int
) -> None:
    entries = [s for run in found for s in run]
    expected, alike = cutter(cuts, room), cutter(cuts, room)
    taken, parts = one_by_one(entries, expected)
    assert (taken, [essence(p) for p in parts]) == (lambda n, p: (n, [essence(x) for x in p]))(
        *many_at_once(entries, alike)
    )
    last, same = expected.finish(), alike.finish()
    assert (last is None) == (same is None)
    if last is not None and same is not None:
        assert essence(last) == essence(same)


@given(st.integers(0, 2 * FEW - 1))
def test_a_damaged_entry_is_taken_like_the_others_and_counted(damaged: int) -> None:
    entries = [checksummed(MessageMetadata(publish_time=1), b"payload %d" % n) for n in range(2 * FEW)]
    entries[damaged] = entries[damaged][:-1] + b"?"
    run, working, taken = Consecutive.of(1, 0, entries), cutter(SegmentLayout()), 0
    while taken < len(run):
        taken += working.offer_all(run, taken)[0]
    part = working.finish()
    assert part is not None
    assert all(entry in part.data() for entry in entries)
    assert (part.stats.unreadable, part.stats.messages) == (1, len(entries) - 1)
