"""A broker's own object becomes a segment's: parts of whole blocks, and an index by which each entry is found."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import DamagedObjectError, FatalError
from offloader.format import v1_parts
from offloader.format.blocks import entries, read_blocks, read_entries
from offloader.format.entry import inspect
from offloader.format.index import decode_index, index_of_segment
from offloader.format.many import StatsBuilder
from offloader.format.strict import account
from offloader.format.v1_parts import ExaminedLedger, examine
from offloader.model import V1, LedgerRange, SegmentLayout

from .stock import write_blocks
from .support import Fixture, cut_all, sealed, sha256, small_cuts, streams, v1_one_block, v1_tiny_blocks

CUTS = SegmentLayout(part_size=4000, block_size=4096, index_step=300, version=V1)


def index_of(found: ExaminedLedger, ledger: int, size: int) -> bytes:
    held = LedgerRange(ledger, 0, found.last + 1, count=found.last + 1, size=found.payload, closed_with=found.last)
    return index_of_segment(found.index, [held], size, 5)


@pytest.mark.parametrize(("fixture", "ledger"), [(v1_one_block(), 7), (v1_tiny_blocks(), 9)], ids=["one block", "tiny"])
def test_what_pulsar_wrote(fixture: Fixture, ledger):
    found = examine([fixture.data], len(fixture.data), ledger, CUTS)
    assert found.last + 1 == len(fixture.entries)
    for place in found.index:
        first = next(read_entries(memoryview(fixture.data)[place.offset + 128 :], 0, place.entry))
        assert (first.entry, sha256(first.data)) == fixture.entries[place.entry]
    account(fixture.data, decode_index(index_of(found, ledger, len(fixture.data))), own=True, v1_ledger=ledger)


@given(st.integers(0, 2**32), st.integers(160, 3000), st.integers(1, 60), small_cuts())
def test_every_byte_and_entry_is_in_one_part(seed, block_size, count, cuts):
    random = Random(seed)
    bodies = [random.randbytes(random.choice([0, 1, 5, block_size - 140])) for _ in range(count)]
    data, cuts = b"".join(write_blocks(bodies, block_size)), replace(cuts, version=V1)
    pieces = [data[at : at + 97] for at in range(0, len(data), 97)]
    found = examine(pieces, len(data), 3, cuts)
    assert found == examine([data], len(data), 3, cuts)
    assert (found.last, found.payload) == (count - 1, sum(map(len, bodies)))
    assert [p.number for p in found.parts] == list(range(1, len(found.parts) + 1))
    assert all(
        a.offset + a.size == b.offset and a.ledgers[0].after == b.ledgers[0].first for a, b in pairwise(found.parts)
    )
    assert found.parts[-1].offset + found.parts[-1].size == len(data)
    for part in found.parts:
        held = data[part.offset : part.offset + part.size]
        stored = [e for block in read_blocks(held, part.offset) for e in entries(block)]
        stats = StatsBuilder()
        for one in stored:
            stats.add(inspect(one.data))
        assert part.crc32c == crc32c.crc32c(held)
        assert [e.data for e in stored] == [bodies[n] for n in part.ledgers[0].ids]
        assert part.stats == stats.build()
        assert part.blocks == 1 or part.size <= cuts.part_size
    account(data, decode_index(index_of(found, 3, len(data))), own=True, v1_ledger=3)


@given(st.data())
def test_no_changed_frame_is_taken(data):
    """Entries' own bytes are proven by the parts' checksums later; headers, ids and padding are proven here."""
    whole = v1_tiny_blocks().data
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = examine([bytes(changed)], len(whole), 9, CUTS)
    except DamagedObjectError:
        return
    sound = examine([whole], len(whole), 9, CUTS)
    assert (found.last, found.payload) == (sound.last, sound.payload)
    assert [p.crc32c for p in found.parts] != [p.crc32c for p in sound.parts]


@given(st.integers(0, len(v1_tiny_blocks().data) - 1))
def test_no_object_that_is_cut_short_looks_whole(size):
    whole = v1_tiny_blocks().data
    try:
        found = examine([whole[:size]], size, 9, CUTS)
    except DamagedObjectError:
        return
    assert found.last < examine([whole], len(whole), 9, CUTS).last


def test_a_block_that_no_reader_could_hold_is_refused(monkeypatch):
    monkeypatch.setattr(v1_parts, "LARGEST_BLOCK", 1535)
    with pytest.raises(FatalError, match="--rewrite"):
        examine([v1_tiny_blocks().data], len(v1_tiny_blocks().data), 9, CUTS)


@given(streams(max_entries=5), small_cuts())
def test_a_streaming_object_is_no_broker_s(stream, cuts):
    data = sealed(cut_all(stream, cuts)).data
    with pytest.raises(DamagedObjectError, match="streaming block"):
        examine([data], len(data), stream[0].ledger, cuts)
