"""Brokers' objects that are archived where they are: read, verified, never deleted by us, and told when brokers do."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from offloader.archive.archive import Archive
from offloader.archive.items import ArchivedEntry, Missing
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.metadata import layout, stock_keys
from offloader.metadata.catalog_codec import decode_catalog, encode_catalog
from offloader.metadata.deletions import Deleted, range_of
from offloader.metadata.history import History
from offloader.metadata.requests import RequestKind
from offloader.model import V1, BrokersObject, FailureKind, Source, TopicName
from offloader.operations.verify.verify import Report, verify
from offloader.ports.object_store import ObjectStore
from offloader.testing.truth import truth_of_cluster
from tests.archive.bridges import fresh_bucket, opened
from tests.offload.simulation import RETENTION_MS, Simulation
from tests.offload.stock_offloader import closed_ledgers, offload
from tests.offload.test_taking_over import answer, ask

T = TopicName.parse("public/default/t")
MINUTE = 60_000


def referring(
    seed: int = 1,
    count: int = 110,
    offloaded: int = 3,
    *,
    kind: RequestKind = RequestKind.MIGRATE_REFERENCE,
    retention: str = "",
) -> tuple[Simulation, ObjectStore, list[int], str]:
    """A topic of whose ledgers brokers have offloaded the first ones, and which were asked for as they are."""
    bucket = opened(fresh_bucket())
    sim = Simulation(seed, roll="5s", stock=bucket, retention=retention)
    sim.cluster.create(T)
    sim.cluster.add_subscription(T, "mine")
    sim.produce(T, count)
    closed = closed_ledgers(sim.cluster, T)[:offloaded]
    for ledger in closed:
        offload(sim.cluster, bucket, T, ledger)
    return sim, bucket, closed, ask(sim, kind)


def keys_of(bucket: ObjectStore, ledger: int) -> list[str]:
    return [key for key, _ in bucket.list() if (found := stock_keys.parse_key(key)) and found.ledger == ledger]


def read(sim: Simulation) -> list[ArchivedEntry | Missing]:
    with Archive(OpenArchive(Stores.of(sim.store))) as archive:
        return list(archive.topic(T).items())


def verified(sim: Simulation, *, quick: bool = False) -> Report:
    return verify(sim.store, [T], quick=quick, open_bucket=opened)


def truth(sim: Simulation) -> list[bytes]:
    return [entry.data for entry in sim.cluster.entries(T)]


def test_what_brokers_have_offloaded_is_archived_where_it_is() -> None:
    sim, bucket, closed, request = referring()
    before = {key: bucket.read(key) for key, _ in bucket.list()}
    sim.settle()
    assert answer(sim, request).ok, answer(sim, request)
    segments = sim.context.catalogs.load(T).segments
    for segment, ledger in zip(segments, closed, strict=False):
        assert (segment.source, segment.cuts.version, {held.ledger for held in segment.ledgers}) == (
            Source.REFERENCED,
            V1,
            {ledger},
        )
        assert segment.brokers == BrokersObject(f"00000000-0000-4000-9000-{ledger:012d}", bucket.url)
        assert sim.store.stat(layout.data_key(T, segment.uuid)) is None, "nothing of it is stored twice"
        assert decode_catalog("k", encode_catalog("t", segment)) == segment
    assert {segment.source for segment in segments[3:]} == {Source.BROKER}
    assert [item.data for item in read(sim) if isinstance(item, ArchivedEntry)] == truth(sim)
    assert {key: bucket.read(key) for key, _ in bucket.list()} == before
    assert [str(one) for one in verified(sim).findings] == []
    assert truth_of_cluster(sim.cluster, T)


@pytest.mark.parametrize("what", ["data", "index", "both"])
def test_what_brokers_have_deleted_is_told_as_that_and_is_no_damage(what: str) -> None:
    sim, bucket, closed, _ = referring()
    sim.settle()
    keys = keys_of(bucket, closed[1])
    bucket.delete([key for key in keys if what == "both" or key.endswith("-index") == (what == "index")])
    items = read(sim)
    (missing,) = [item for item in items if isinstance(item, Missing)]
    assert (missing.start.ledger, missing.end.ledger, missing.deleted) == (closed[1], closed[1], True)
    assert "deleted by Pulsar" in missing.why
    assert not missing.damaged
    kept = [entry.data for entry in sim.cluster.entries(T) if entry.ledger != closed[1]]
    assert [item.data for item in items if isinstance(item, ArchivedEntry)] == kept
    for quick in (True, False):
        assert verified(sim, quick=quick).findings == ()


def test_that_pulsar_has_let_go_of_a_ledger_is_recorded_and_then_nothing_is_asked_for() -> None:
    """Whatever the topic's policies say: none says anything here."""
    sim, bucket, closed, _ = referring()
    sim.settle()
    spans = sim.cluster.ledgers(T).spans
    assert spans[0].ledger == closed[0]
    sim.cluster.add_subscription(T, "late")
    _forget(sim, closed[0])
    sim.rounds(3, step_ms=RETENTION_MS)
    sim.settle()
    trimmed = sim.context.catalogs.head(T).removed.trimmed
    assert trimmed is not None
    assert trimmed.first == closed[1]
    first = read(sim)[0]
    assert isinstance(first, Missing)
    assert first.deleted
    assert f"Pulsar had no ledger {closed[0]} any more" in first.why
    assert len(keys_of(bucket, closed[0])) == 2, "whatever is left of it is not ours"


def _forget(sim: Simulation, ledger: int) -> None:
    """Pulsar's list begins behind it."""
    real = sim.context.admin.topic_info
    from dataclasses import replace

    from offloader.model import LedgerList

    def topic_info(topic: TopicName) -> object:
        info = real(topic)
        return replace(info, ledgers=LedgerList(tuple(s for s in info.ledgers.spans if s.ledger > ledger)))

    sim.context.admin.topic_info = topic_info  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize("which", ["data", "index"])
def test_what_is_wrong_with_them_stops_the_topic_before_anything_counts_on_it(which: str) -> None:
    sim, bucket, closed, _ = referring()
    key = next(key for key in keys_of(bucket, closed[0]) if key.endswith("-index") == (which == "index"))
    data = bucket.read(key)[0]
    bucket.put(key, data[:-9] + bytes(9) if which == "index" else data[:-1])
    sim.rounds(10, step_ms=60_000)
    failure = sim.driver.state(T).failure
    assert failure is not None
    assert failure.kind is FailureKind.INTEGRITY
    assert key in failure.reason
    assert sim.context.catalogs.load(T).segments == ()
    ask(sim, RequestKind.MIGRATE_REWRITE)
    sim.rounds(3, step_ms=400_000)
    sim.settle()
    assert [item.data for item in read(sim) if isinstance(item, ArchivedEntry)] == truth(sim)


def test_damage_of_an_object_that_is_there_is_damage() -> None:
    sim, bucket, closed, _ = referring()
    sim.settle()
    key = stock_keys.data_key(f"00000000-0000-4000-9000-{closed[0]:012d}", closed[0])
    data = bytearray(bucket.read(key)[0])
    data[300] ^= 1
    bucket.put(key, bytes(data))
    assert {one.key for one in verified(sim).findings} == {key}


@pytest.mark.parametrize("kind", [RequestKind.MIGRATE_REFERENCE, RequestKind.MIGRATE_COPY])
def test_retention_deletes_what_is_ours_and_never_an_object_of_brokers(kind: RequestKind) -> None:
    """A copy of ours goes; what is referenced leaves the catalog. Either is told as deleted by the policy."""
    sim, bucket, closed, _ = referring(kind=kind, retention="archiveRetentionTimeInMinutes: 30")
    theirs = {key: bucket.read(key) for key, _ in bucket.list()}
    sim.settle()
    taken = [segment for segment in sim.context.catalogs.load(T).segments if segment.start.ledger in closed]
    of_brokers = {segment.uuid: segment.end for segment in taken}
    ours = 0 if kind is RequestKind.MIGRATE_REFERENCE else len(closed)
    assert stored(sim, of_brokers) == ours
    sim.clock.now += 40 * MINUTE
    sim.produce(T, 5)
    sim.settle()
    sim.rounds(8, step_ms=RETENTION_MS)  # recorded, its grace, looked at again
    removed = sim.context.catalogs.head(T).removed
    assert removed.pending is None
    assert {range_of(removed.ranges, end) is not None for end in of_brokers.values()} == {True}
    assert stored(sim, of_brokers) == 0
    assert {key: bucket.read(key) for key, _ in bucket.list()} == theirs
    assert {done.absent for done in recorded(sim)} == {0}, "nothing that should be there was missed"
    items = read(sim)
    assert isinstance(items[0], Missing)
    assert "archiveRetentionTimeInMinutes 30" in items[0].why
    assert all(not item.damaged for item in items if isinstance(item, Missing))
    assert verified(sim).findings == ()


def stored(sim: Simulation, uuids: Iterable[str]) -> int:
    """How many of these segments have data of ours."""
    return sum(sim.store.stat(layout.data_key(T, uuid)) is not None for uuid in uuids)


def recorded(sim: Simulation) -> list[Deleted]:
    head = sim.context.catalogs.head(T)
    rows = History(sim.store, head).slots(lambda _: True)
    records = (each.record for row in rows for each in History(sim.store, head).read([row.number]))
    return [record for record in records if isinstance(record, Deleted)]


@pytest.mark.parametrize("seed", range(10))
def test_killed_anywhere_each_ledger_is_there_once(seed: int) -> None:
    rng = random.Random(seed)
    sim, _, closed, _ = referring(seed, rng.randrange(30, 120), rng.randrange(1, 3))
    for _ in range(rng.randrange(4, 20)):
        sim.rounds(rng.randrange(1, 3), step_ms=rng.choice([100, 3_000]))
        sim.kill()
        ask(sim, RequestKind.MIGRATE_REFERENCE)
    sim.settle()
    segments = sim.context.catalogs.load(T).segments
    assert [s.start.ledger for s in segments if s.brokers] == closed
    assert [item.data for item in read(sim) if isinstance(item, ArchivedEntry)] == truth(sim)
