"""A store that takes only parts of equal length, as Cloudflare R2: a real S3 server behind a front that refuses
others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from crc32c import crc32c

from offloader.errors import PartRejectedError
from offloader.migrate import ledger_copy
from offloader.migrate.ledger_copy import LedgerCopier, WantedCopy
from offloader.model import MIB, V3, Segment, TopicName
from offloader.operations.doctor import store_checks
from offloader.operations.doctor.probes import try_upload
from tests.in_turn import in_turn
from tests.invariants import HARMLESS, check_invariants
from tests.offload.simulation import Simulation
from tests.storage.equal_parts_front import EqualPartsFront
from tests.storage.servers import S3Server, Stores
from tests.truth import truth_of_cluster

EQUAL_PARTS = (5 * 1024**2, 5 * 1024**2, 64)

T = TopicName.parse("public/default/t")
PART = 6 * MIB


@pytest.fixture
def front(moto: S3Server) -> Iterator[EqualPartsFront]:
    with EqualPartsFront(moto.host, moto.port) as front:
        yield front


def offloading(front: EqualPartsFront, moto: S3Server, stores: Stores, policies: str = "") -> Simulation:
    store = stores.open(moto.settings(moto.fresh_root(), endpoint=front.url))
    sim = Simulation(1, store=store, part=PART, max_size=20 * MIB, roll="5s", retention=policies)
    sim.cluster.create(T)
    sim.rounds(2)
    return sim


def produce(sim: Simulation) -> None:
    for size in (700_000, 1_900_000, 30, 5_100_000, 900_000) * 2:
        sim.cluster.produce(T, sim.rng.randbytes(size))


def segments(sim: Simulation) -> tuple[Segment, ...]:
    return sim.context.catalogs.load(T).segments


def test_segments_of_equal_parts_are_taken(front: EqualPartsFront, moto: S3Server, stores: Stores) -> None:
    with in_turn():
        sim = offloading(front, moto, stores, "equalParts: true")
        produce(sim)
        sim.settle()
        assert {s.cuts.version for s in segments(sim)} == {V3}
        assert {p.size for s in segments(sim) for p in s.parts[:-1]} == {PART}
        assert front.answers["refused"] == 0
        assert front.answers["completed"] == sum(len(s.parts) > 1 for s in segments(sim)) > 0
        truths = {T: truth_of_cluster(sim.cluster, T)}
        check_invariants(sim.store, truths, at_rest=True, allowed=HARMLESS, paces=[sim.pace])
        sim.close()


def test_without_them_it_is_tried_less_and_less_and_goes_on_once_they_are_set(
    front: EqualPartsFront, moto: S3Server, stores: Stores
) -> None:
    with in_turn():
        sim = offloading(front, moto, stores)
        produce(sim)
        sim.rounds(60, 10_000)
        failure = sim.driver.state(T).failure
        assert failure is not None
        assert "same length" in failure.reason
        assert 5 <= failure.attempts <= front.answers["refused"] <= 12
        assert not segments(sim)
        sim.retention = "equalParts: true"
        sim.kill()
        sim.settle()
        assert {s.cuts.version for s in segments(sim)} == {V3}
        sim.close()


def test_the_doctor_finds_it_and_names_the_setting(front: EqualPartsFront, moto: S3Server, stores: Stores) -> None:
    store = stores.open(moto.settings(moto.fresh_root(), endpoint=front.url))
    with pytest.raises(PartRejectedError, match="same length") as refused:
        try_upload(store)
    assert "equalParts" in store_checks.works("store-multipart", "", refused.value).remedy
    try_upload(store, EQUAL_PARTS)
    assert not list(store.list())


@pytest.mark.parametrize("streamed", [False, True])
def test_what_brokers_have_offloaded_is_copied_in_equal_parts(
    front: EqualPartsFront, moto: S3Server, stores: Stores, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_copy, "COPIED_PART", 5 * MIB)
    monkeypatch.setattr(ledger_copy, "STREAMED_PART", 5 * MIB)
    settings = moto.settings(moto.fresh_root(), endpoint=moto.url if streamed else front.url)
    stock, store = stores.open(settings), stores.open(moto.settings(moto.fresh_root(), endpoint=front.url))
    wanted, data = WantedCopy(T, 7, 0, 0, "uuid"), bytes(12 * MIB)
    stock.put(wanted.source, data)
    stat = stock.stat(wanted.source)
    assert stat is not None
    upload = store.begin("copy", copies=True)
    assert LedgerCopier(store, stock, lambda: 0)._copied(wanted, upload) == len(data)
    assert front.answers == {"completed": 1}
    assert crc32c(store.read("copy")[0]) == crc32c(data)
