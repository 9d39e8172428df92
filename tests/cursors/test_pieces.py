"""A ledger's acknowledgements against a plain set, and their bytes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.cursors.core.ledger_acks import MOST_MESSAGES, BatchLeft, LedgerAcks, acks_of
from offloader.cursors.core.piece_codec import decode_piece, encode_piece
from offloader.errors import DamagedRecordError

LEDGER_COST = 500
MOST_ENTRIES = 512 * 1024**2
BITS = 2
RUNS = 1

ENTRIES = st.integers(0, 300) | st.integers(49_000, 50_000)
RANGES = st.tuples(ENTRIES, st.integers(0, 70)).map(lambda found: (found[0], found[0] + found[1]))
PARTS = st.tuples(ENTRIES, st.integers(1, 130), st.randoms(use_true_random=False))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("range"), RANGES),
        st.tuples(st.just("part"), PARTS),
        st.tuples(st.just("drop"), ENTRIES),
    ),
    max_size=40,
)


class Model:
    """The same, as slowly as it is plain."""

    def __init__(self) -> None:
        self.entries: set[int] = set()
        self.batches: dict[int, BatchLeft] = {}

    def acknowledge(self, first: int, last: int) -> None:
        self.entries |= set(range(first, last + 1))
        self.batches = {entry: left for entry, left in self.batches.items() if entry not in self.entries}

    def part(self, entry: int, size: int, left: int) -> None:
        if entry in self.entries:
            return
        before = self.batches.get(entry, BatchLeft(size, (1 << size) - 1))
        both = before.left & left
        if both == 0:
            self.acknowledge(entry, entry)
        elif both != before.left:
            self.batches[entry] = BatchLeft(max(size, before.size), both)

    def drop(self, entry: int) -> None:
        self.entries = {one for one in self.entries if one >= entry}
        self.batches = {one: left for one, left in self.batches.items() if one >= entry}


def same(acks: LedgerAcks, model: Model) -> None:
    assert {entry for first, last in acks.runs() for entry in range(first, last + 1)} == model.entries
    assert dict(acks.batches) == model.batches
    assert bool(acks) == bool(model.entries or model.batches)
    assert acks.count_runs() == len(list(acks.runs()))


def done(steps: list[tuple[str, Any]]) -> tuple[LedgerAcks, Model]:
    acks, model = LedgerAcks(), Model()
    for kind, said in steps:
        before = (list(acks.runs()), dict(acks.batches))
        if kind == "drop":
            acks.drop_before(said)
            model.drop(said)
            same(acks, model)
            continue
        if kind == "range":
            changed = acks.acknowledge(*said)
            model.acknowledge(*said)
        else:
            entry, size, choice = said
            left = choice.getrandbits(size)
            changed = acks.acknowledge_part(entry, size, left)
            model.part(entry, size, left)
        assert changed == (before != (list(acks.runs()), dict(acks.batches)))
        same(acks, model)
    return acks, model


@given(STEPS, st.lists(ENTRIES, max_size=5))
def test_every_acknowledgement_counts_and_none_is_invented(steps, asked) -> None:
    acks, model = done(steps)
    for entry in (*asked, *(one + by for one in list(model.entries)[:20] for by in (-1, 0, 1))):
        if entry >= 0:
            assert acks.is_acknowledged(entry) == (entry in model.entries)
            hole = entry
            while hole in model.entries:
                hole += 1
            assert acks.first_hole(entry) == hole
            for last in (entry, entry + 3, entry + 100):
                touched = any(entry <= one <= last for one in (*model.entries, *model.batches))
                assert acks.has_none_of(entry, last) == (not touched)


@given(STEPS)
def test_a_piece_reads_back_as_it_was(steps) -> None:
    acks, model = done(steps)
    data = encode_piece(acks)
    back = decode_piece(data)
    same(back, model)
    assert encode_piece(back) == data, "equal states have equal bytes"


@given(st.binary(max_size=40) | st.binary(max_size=40).map(lambda data: bytes([RUNS]) + data))
def test_bytes_that_are_no_piece_are_refused_or_read_as_one(data: bytes) -> None:
    try:
        acks = decode_piece(data)
    except DamagedRecordError:
        return
    assert decode_piece(encode_piece(acks)).memory <= max(acks.memory, 8 + LEDGER_COST)


@given(STEPS, st.data())
def test_a_piece_that_is_cut_off_is_refused(steps, data) -> None:
    whole = encode_piece(done(steps)[0])
    with pytest.raises(DamagedRecordError):
        decode_piece(whole[: data.draw(st.integers(0, len(whole) - 1))])


def test_random_holes_cost_a_bit_an_entry_and_long_runs_nearly_nothing() -> None:
    choice = random.Random(1)
    holes = acks_of((n, n) for n in range(50_000) if choice.random() < 0.5)
    assert encode_piece(holes)[0] == BITS
    assert len(encode_piece(holes)) <= 6_300
    assert holes.memory <= 6_250 + LEDGER_COST
    run = acks_of([(7, 49_999)])
    assert encode_piece(run)[0] == RUNS
    assert len(encode_piece(run)) == 7


def test_more_than_a_ledger_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="no ledger has entries"):
        LedgerAcks().acknowledge(0, MOST_ENTRIES)
    with pytest.raises(ValueError, match="no batch of"):
        LedgerAcks().acknowledge_part(0, MOST_MESSAGES + 1, 1)
    with pytest.raises(DamagedRecordError):
        decode_piece(bytes([RUNS, 1]) + b"\xff\xff\xff\xff\x7f" + b"\0\0")
