"""A catalog that lost any of its records is made again: everything that can be known is, nothing is guessed, nothing readable
changes, and an interruption anywhere is repaired by trying again."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.checking.findings import Kind
from offloader.archive.checking.verify import verify
from offloader.archive.rebuilding.found import NoteKind
from offloader.archive.rebuilding.propose import Proposal
from offloader.errors import OffloadError, StoreUnavailableError
from offloader.metadata.state import TopicCatalog
from offloader.model import GapKind, Position, Segment
from offloader.testing.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.archive.rebuilding.support import Built, built, damage, proposed, read, record_key, written

randoms = st.integers(0, 2**32).map(Random)
# What only a record said: a ledger's end, a segment without objects, or one that follows it.
NOT_KNOWN = {Kind.UNPROVEN_END, Kind.WRONG_PREDECESSOR, Kind.LEFT_OVER}


def lose(there: Built, random: Random) -> set[int]:
    """Some records are deleted, some damaged; which slots those are."""
    lost = {slot for slot in range(there.original.next_slot) if random.random() < random.choice([0.2, 0.5, 1])}
    for slot in lost:
        if random.random() < 0.5:
            there.archive.store.delete([record_key(slot)])
        else:
            damage(there.archive, slot)
    return lost


def check(there: Built, catalog: TopicCatalog, *, sure: bool) -> None:
    """Everything is readable again and nothing else. `sure`: no doubt is left about incarnations."""
    found = read(there.archive, catalog)
    assert plain(found) == plain(there.entries)
    if sure:
        assert found == there.entries
    uuids = {s.uuid: s for s in catalog.segments}
    for segment in there.original.segments:
        if segment.parts:
            same(uuids[segment.uuid], segment)
    assert {f.kind for f in verify(there.archive.store).findings} <= NOT_KNOWN


def same(found: Segment, original: Segment) -> None:
    """All that its objects can say."""
    assert (found.size, found.crc32c, found.offloaded_at, found.cuts) == (
        original.size, original.crc32c, original.offloaded_at, original.cuts,
    )  # fmt: skip
    assert [(p.offset, p.size, p.crc32c, p.stats, p.blocks) for p in found.parts] == [
        (p.offset, p.size, p.crc32c, p.stats, p.blocks) for p in original.parts
    ]
    sizes = {r.ledger: (r.count, r.size) for r in original.ledgers if r.count}
    assert {r.ledger: (r.count, r.size) for r in found.ledgers if r.count} == sizes


def sure_of_incarnations(proposal: Proposal) -> bool:
    return not any("incarnation" in note.message for note in proposal.notes)


@given(randoms)
def test_any_records_that_were_lost_are_made_again(random: Random) -> None:
    there = built(random)
    lost = lose(there, random)
    store = there.archive.store
    before = {key: store.read(key)[0] for key, _ in store.list()}
    proposal = proposed(there.archive)
    assert {key: store.read(key)[0] for key, _ in store.list()} == before, "a proposal writes nothing"
    if not proposal.records:
        assert not there.entries
        return
    assert written(there.archive) == proposal
    for key in (record_key(slot) for slot in range(there.original.next_slot) if slot not in lost):
        assert store.read(key)[0] == before[key]
    assert there.archive.catalog == proposal.catalog()
    check(there, there.archive.catalog, sure=sure_of_incarnations(proposal))
    assert proposed(there.archive).new == []


@given(randoms, st.integers(0, 30))
def test_an_interruption_anywhere_is_repaired_by_trying_again(random: Random, passed: int) -> None:
    there = built(random)
    lose(there, random)
    proposal = proposed(there.archive)
    sure = sure_of_incarnations(proposal)
    if not proposal.records:
        return
    inner = there.archive.store
    faults = StoreFaults([StoreFault("put", random.choice([Effect.BEFORE, Effect.LOST]), after=passed, times=1000)])
    try:
        written(there.archive, store=FaultyStore(inner, faults))
    except OffloadError:
        unreadable_or_begun(there)
        faults.clear()
        written(there.archive)
    check(there, there.archive.catalog, sure=sure)


def unreadable_or_begun(there: Built) -> None:
    """Whoever reads meanwhile reads what is right, or is refused."""
    try:
        catalog = there.archive.catalog
    except OffloadError:
        return
    found = plain(read(there.archive, catalog))
    assert found == plain(there.entries)[: len(found)]


def plain(entries: list[tuple[Position, bytes]]) -> list[tuple[int, int, bytes]]:
    return [(p.ledger, p.entry, data) for p, data in entries]


@given(randoms)
def test_gaps_inside_of_a_segment_are_gaps_again_without_their_kind(random: Random) -> None:
    there = built(random)
    for slot in range(there.original.next_slot):
        there.archive.store.delete([record_key(slot)])
    proposal = proposed(there.archive)
    for segment in proposal.catalog().segments if proposal.records else ():
        assert all(g.kind is GapKind.UNKNOWN for g in segment.gaps)
        inside = {(g.ledger, e) for g in segment.gaps for e in range(g.first, g.last + 1)}
        assert inside <= {(p.ledger, p.entry) for p in there.hidden}
    gaps = [n for n in proposal.notes if n.kind is NoteKind.UNKNOWN and "kind of the gap" in n.message]
    assert len(gaps) == sum(len(p.record.gaps) for p in proposal.records if isinstance(p.record, Segment))


def test_a_store_that_does_not_answer_is_no_damage() -> None:
    there = built(Random(1))
    faults = StoreFaults([StoreFault("read", times=1)])
    try:
        written(there.archive, store=FaultyStore(there.archive.store, faults))
    except StoreUnavailableError:
        return
    raise AssertionError("it must not go on")
