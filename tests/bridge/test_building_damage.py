"""Nothing is bridged of damaged or absent segments, and nothing is named as built that cannot be read back."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from offloader.bridge.core.pieces import PlannedPiece, SourceRange
from offloader.bridge.core.rounds import UnbridgedLedger
from offloader.bridge.transfer import DataCheck, read_source
from offloader.metadata import layout
from offloader.metadata.stock_keys import data_key, index_key
from offloader.ports.object_store import ObjectStore
from offloader.storage.forwarding import ForwardingStore
from offloader.storage.memory import MemoryStore
from tests.archive.support import META, TOPIC
from tests.bridge.support import LEDGER, UUID, WORLDS, BridgeWorld, built, damage_of

DATA, INDEX = data_key(UUID, LEDGER), index_key(UUID, LEDGER)


def segment_keys(world: BridgeWorld) -> list[str]:
    return [layout.data_key(TOPIC, one.uuid) for one in world.archive.catalog.segments]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("ending", ["", "-index"])
def test_a_segment_that_is_absent_is_named(number: int, ending: str) -> None:
    world = BridgeWorld()
    key = segment_keys(world)[number] + ending
    world.store.delete([key])
    assert key in damage_of(world.builder().build(TOPIC, world.wanted))
    assert list(world.bucket.list()) == []


def bridged_of_damage(seed: int) -> bool:
    """Whether damaged bytes were bridged, wherever a bit of a segment is another one: in the middle of a copy, in a
    part of which only some is taken, in what passes through us. Where it is told, it is by the object's name."""
    gaps = [(17, 18)] if seed % 2 else []
    world, reference = BridgeWorld(seed, gaps=gaps), BridgeWorld(seed, gaps=gaps)
    reference.build()
    rng = Random(seed)
    key = rng.choice(segment_keys(world))
    data = bytearray(world.store.read(key)[0])
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    world.store.put(key, bytes(data), meta=META)
    found = world.builder().build(TOPIC, world.wanted)
    if isinstance(found, UnbridgedLedger):
        assert key in damage_of(found)
        return world.bucket.stat(INDEX) is not None
    return world.bucket.read(DATA)[0] != reference.bucket.read(DATA)[0]  # damage may belong to another ledger


@pytest.mark.explores
@pytest.mark.parametrize("seed", range(2 * WORLDS))
def test_nothing_is_bridged_of_damaged_bytes(seed: int) -> None:
    assert not bridged_of_damage(seed)


def unread(*_: object) -> DataCheck:
    return DataCheck(0)


def unproven(archive: ObjectStore, piece: PlannedPiece, etags: dict[str, str]) -> bytes:
    assert isinstance(piece.source, SourceRange)
    return read_source(archive, piece.source, etags[piece.source.key])


@pytest.mark.parametrize(
    ("place", "broken"),
    [("offloader.bridge.building.check_data", unread), ("offloader.bridge.sources.content_of", unproven)],
    ids=["nothing is read back", "parts of which some is taken are not proven"],
)
def test_who_leaves_a_check_out_bridges_damage(
    monkeypatch: pytest.MonkeyPatch, place: str, broken: Callable[..., object]
) -> None:
    """The worlds above would show it."""
    monkeypatch.setattr(place, broken)
    assert any(bridged_of_damage(seed) for seed in range(60))


class SilentlyWrong(ForwardingStore):
    """A server that answers well, and keeps something else."""

    def __init__(self, store: MemoryStore, times: int) -> None:
        super().__init__(store)
        self.times = times

    def commit(self, upload, parts):
        stat = super().commit(upload, parts)
        if self.times:
            self.times -= 1
            key = upload.partition(":")[2]
            data = bytearray(self.store.read(key)[0])
            data[len(data) // 2] ^= 1
            self.store.put(key, bytes(data))
        return stat


def test_a_store_that_keeps_something_else_is_told_after_some_tries() -> None:
    world = BridgeWorld()
    found = built(world.builder(bucket=SilentlyWrong(world.bucket, 2)).build(TOPIC, world.wanted))
    assert world.bucket.read(DATA)[1].size == found.ledger.size
    world.bucket.delete([DATA, INDEX])
    wrong = world.builder(bucket=SilentlyWrong(world.bucket, 100)).build(TOPIC, world.wanted)
    assert "3 times" in damage_of(wrong)
    assert world.bucket.stat(INDEX) is None
