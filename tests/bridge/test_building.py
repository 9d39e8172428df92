"""A closed ledger becomes a pair of objects that brokers read, of sound sources alone, and only what was read back is
named as built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from offloader.bridge import transfer
from offloader.bridge.building import LedgerBuilder
from offloader.bridge.core.coverage import UncommittedLedger
from offloader.bridge.core.rounds import BridgeVerdict, UnbridgedLedger
from offloader.bridge.objects import remove_objects
from offloader.bridge.transfer import BridgeStores
from offloader.errors import OffloadError
from offloader.metadata import layout
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import Position
from offloader.storage.forwarding import ForwardingStore
from offloader.storage.local import LocalStore
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC
from tests.bridge.support import LEAST_PART, LEDGER, SETTINGS, UUID, WORLDS, BridgeWorld, built, damage_of, dying_after
from tests.fakes.faulty import FaultyStore, StoreFaults

DATA, INDEX = data_key(UUID, LEDGER), index_key(UUID, LEDGER)


def test_a_ledger_of_several_segments_becomes_a_pair_of_objects() -> None:
    world = BridgeWorld()
    found = world.build()
    world.check(found)
    assert found.ledger.segments == tuple(one.uuid for one in world.archive.catalog.segments)
    assert found.copied > 0
    assert found.copied + found.streamed == found.ledger.size


def test_both_objects_have_the_metadata_that_brokers_look_at() -> None:
    world = BridgeWorld()
    world.build()
    common = {
        "s3managedledgeroffloaderformatversion": "1",
        "managedledgername": "public/default/persistent/orders",
        "pulsarclustername": "memory",
    }
    for key, role in ((DATA, "data"), (INDEX, "index")):
        found = world.bucket.stat(key)
        assert found is not None
        assert found.meta == {**common, "role": role}


@pytest.mark.explores
@pytest.mark.parametrize("seed", range(WORLDS))
def test_of_whatever_segments_and_gaps_the_ledger_is_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)
    monkeypatch.setattr(transfer, "CHECKED_AT_ONCE", rng.choice((1, 3_000, 1 << 26)))
    count = rng.randrange(1, 90)
    borders = sorted(rng.sample(range(1, count), min(count - 1, rng.randrange(4))))
    cuts = sorted(rng.sample(range(count), min(count, 2 * rng.randrange(4)) // 2 * 2))
    gaps = list(zip(cuts[::2], cuts[1::2], strict=True))
    world = BridgeWorld(seed, count, gaps, borders)
    found = world.build()
    world.check(found)
    assert found.ledger.filled == sum(last - first + 1 for first, last in gaps)
    again = world.build()
    assert again.ledger == found.ledger
    assert (again.copied, again.streamed) == (0, 0)


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("at_once", [1, 3_000])
def test_what_a_broker_had_offloaded_is_bridged_as_it_is(
    monkeypatch: pytest.MonkeyPatch, at_once: int, *, copies: bool
) -> None:
    monkeypatch.setattr(transfer, "CHECKED_AT_ONCE", at_once)
    world = BridgeWorld(as_brokers_wrote_it=True, bucket=MemoryStore(min_part_size=LEAST_PART, copies=copies))
    found = world.build()
    world.check(found)
    copy = world.archive.catalog.segments[-1]
    assert world.bucket.read(DATA)[0] == world.store.read(layout.data_key(TOPIC, copy.uuid))[0]
    assert (found.copied > 0) == copies


def test_what_the_store_cannot_copy_is_sent_and_is_the_same_object() -> None:
    world = BridgeWorld()
    world.build()
    other = BridgeWorld(bucket=MemoryStore(min_part_size=LEAST_PART, copies=False))
    found = other.build()
    other.check(found)
    assert (found.copied, found.streamed) == (0, found.ledger.size)
    assert other.bucket.read(DATA)[0] == world.bucket.read(DATA)[0]
    assert other.bucket.read(INDEX)[0] == world.bucket.read(INDEX)[0]


def test_parts_that_are_copied_in_one_piece_and_too_large_to_send_are_planned_anew() -> None:
    world = BridgeWorld(count=600, borders=(300,))
    bucket = NoCopies(world.bucket)
    builder = LedgerBuilder(BridgeStores(world.store, bucket), settings=replace(SETTINGS, copy_size=1 << 40))
    world.check(built(builder.build(TOPIC, world.wanted)))
    assert builder.copies
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("offloader.bridge.transfer.STREAMED_PART", 10_000)
        bucket.delete([DATA, INDEX])
        world.check(built(builder.build(TOPIC, world.wanted)))
    assert not builder.copies


def test_folders_are_bridged_alike(tmp_path: Path) -> None:
    world = BridgeWorld()
    world.build()
    folder = LocalStore(tmp_path / "bucket")
    archive = LocalStore(tmp_path / "archive")
    for key, _ in world.store.list():
        archive.put(key, world.store.read(key)[0])
    found = built(world.builder(archive, folder).build(TOPIC, world.wanted))
    assert found.copied > 0
    assert [key for key, _ in folder.list()] == [DATA, INDEX]
    assert folder.read(DATA)[0] == world.bucket.read(DATA)[0]
    assert folder.read(INDEX)[0] == world.bucket.read(INDEX)[0]


def test_bookkeeper_that_has_forgotten_the_ledger_does_not_stop_it() -> None:
    world = BridgeWorld(in_bookies=False)
    world.check(world.build())


def test_gaps_that_bookies_do_not_have_are_told() -> None:
    world = BridgeWorld(gaps=[(3, 5), (20, 20)], in_bookies=False)
    found = world.builder().build(TOPIC, world.wanted)
    assert isinstance(found, UnbridgedLedger)
    assert found.verdict is BridgeVerdict.GAPS
    assert found.why == (
        "4 entries from 3 on are in no segment, and bookies cannot give them: BookKeeper has deleted the ledger"
    )
    without = LedgerBuilder(BridgeStores(world.store, world.bucket)).build(TOPIC, world.wanted)
    assert isinstance(without, UnbridgedLedger)
    assert "metadataServiceUri" in without.why
    assert list(world.bucket.list()) == []


def test_one_entry_that_no_bookie_has_any_more_is_told() -> None:
    world = BridgeWorld(gaps=[(3, 5)])
    for bookie in world.cluster.bookies.values():
        bookie.memory.ledgers[LEDGER].stored.pop(4, None)
    found = world.builder().build(TOPIC, world.wanted)
    assert isinstance(found, UnbridgedLedger)
    assert found.verdict is BridgeVerdict.GAPS
    assert list(world.bucket.list()) == []


def test_more_than_memory_shall_hold_is_not_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offloader.bridge.sources.MOST_FILLED", 1_000)
    world, asked = BridgeWorld(gaps=[(0, 30)]), list[object]()
    monkeypatch.setattr("offloader.bridge.sources.LedgerReader", lambda *them, **_: asked.append(them))
    found = world.builder().build(TOPIC, world.wanted)
    assert isinstance(found, UnbridgedLedger)
    assert "are more than is filled" in found.why
    assert not asked, "it is known before the first one is read"


def test_a_ledger_that_is_not_committed_yet_is_no_failure() -> None:
    world = BridgeWorld(borders=())
    later = replace(world.wanted, ledger=LEDGER + 1, last=9, length=0)
    found = world.builder().build(TOPIC, later)
    assert found == UncommittedLedger(LEDGER + 1, 9, 5)


def test_what_was_lost_is_told_and_nothing_is_written() -> None:
    world = BridgeWorld()
    world.archive.lose(Position(0, LEDGER + 1, 5), Position(0, LEDGER + 1, 9))
    found = world.builder().build(TOPIC, replace(world.wanted, ledger=LEDGER + 1, last=9, length=0))
    assert isinstance(found, UnbridgedLedger)
    assert found.verdict is BridgeVerdict.LOSS
    assert list(world.bucket.list()) == []


@pytest.mark.parametrize("gone", [DATA, INDEX, ""])
def test_what_was_built_before_is_looked_for_and_not_read_again(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = BridgeWorld()
    before = world.build().ledger
    world.bucket.delete([gone] if gone else [])
    reads, read = list[str](), world.bucket.read

    def counted_read(key: str, *more: Any) -> object:
        reads.append(key)
        return read(key, *more)

    monkeypatch.setattr(world.bucket, "read", counted_read)
    found = built(world.builder().build(TOPIC, before))
    assert found.ledger == before
    assert bool(reads) is bool(gone)
    world.check(found)


def test_another_length_than_pulsar_lists_is_refused() -> None:
    world = BridgeWorld()
    found = world.builder().build(TOPIC, replace(world.wanted, length=world.length + 1))
    assert "in Pulsar's list" in damage_of(found)
    assert list(world.bucket.list()) == []


@pytest.mark.parametrize("key", [DATA, INDEX])
def test_what_is_there_and_wrong_is_written_again(key: str) -> None:
    world = BridgeWorld()
    found = world.build()
    right = world.bucket.read(key)[0]
    for wrong in (right[:-1], right + b"x", bytes([right[0] ^ 1]) + right[1:], right[:-9] + b"y" + right[-8:], b""):
        world.bucket.put(key, wrong)
        assert world.build().ledger == found.ledger
        world.check(found)


def test_uploads_that_died_are_ended_and_those_of_others_are_left_alone() -> None:
    world = BridgeWorld()
    world.bucket.begin(DATA, copies=True)
    other = world.bucket.begin(f"{DATA}0", copies=True)
    world.build()
    assert [each.upload for each in world.bucket.list_uploads()] == [other]


class NoCopies(ForwardingStore):
    """A server that does not copy ranges of these objects."""

    def copy_part(self, *_: object, **__: object) -> None:
        return None


def test_removing_takes_exactly_what_the_round_named() -> None:
    world = BridgeWorld()
    found = world.build()
    others = [data_key(UUID, LEDGER * 10), index_key(UUID, LEDGER + 1), data_key(UUID.replace("0f", "0e"), LEDGER)]
    for key in others:
        world.bucket.put(key, b"another's")
    world.bucket.begin(DATA, copies=True)
    before = dict(world.store.list())
    for _ in range(2):
        remove_objects(world.bucket, [found.ledger])
        assert sorted(key for key, _ in world.bucket.list()) == sorted(others)
        assert list(world.bucket.list_uploads()) == []
    assert dict(world.store.list()) == before


def test_no_index_outlives_its_data_object() -> None:
    """Whichever request of the removal is the last one that is made."""
    for calls in range(20):
        world = BridgeWorld()
        found = world.build()
        faults = StoreFaults()
        bucket = FaultyStore(world.bucket, faults)
        for each in dying_after(calls):
            faults.add(each)
        try:
            remove_objects(bucket, [found.ledger])
        except OffloadError:
            assert world.bucket.stat(INDEX) is None or world.bucket.stat(DATA) is not None
        else:
            assert calls > 2
            return
    raise AssertionError("it never came to its end")
