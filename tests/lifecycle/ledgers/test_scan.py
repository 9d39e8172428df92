"""Scans of whole random clusters, over nodes and bookies: exactly the orphans, and never one that is in use."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest

from offloader.errors import AccessDeniedError, MetadataUnavailableError
from offloader.lifecycle.ledgers.again import LookAgain
from offloader.lifecycle.ledgers.evidence import LedgerVerdict, Standing
from offloader.lifecycle.ledgers.named import LedgerIds
from offloader.lifecycle.ledgers.references import References, named_ledgers
from offloader.lifecycle.ledgers.refusals import RefusalKind
from offloader.lifecycle.ledgers.scan import ClusterScan
from offloader.lifecycle.ledgers.verdicts import LedgerJudge

from .clusters import (
    ORDINARY,
    cluster,
    dies_between_bookkeeper_deleted_and_the_delete,
    left_over_names,
    pause,
    schema_id,
    some_topic,
)
from .world import World, data_of
from .written import Meanwhile, Written

SEEDS = range(25)


def ids(scan, *standings) -> set[int]:
    return {one.ledger.ledger for one in scan.verdicts if one.standing in standings}


@pytest.mark.parametrize("seed", SEEDS)
def test_exactly_the_orphans_are_found(seed):
    world = cluster(seed)
    scan = Written(world).scanner().scan()
    paused = {one.ledger for one in world.about_to_list}
    orphans = {ledger for ledger in world.orphans if ledger in world.ledgers}
    assert ids(scan, Standing.CERTAIN, Standing.SUSPECT) == orphans | paused
    assert ids(scan, Standing.CERTAIN) & paused == set()
    assert scan.counts[Standing.FOREIGN] == len(world.foreign)
    assert sum(scan.counts.values()) == scan.ledgers == len(world.ledgers)
    assert {one.name for one in scan.leftovers} == left_over_names(world)
    assert scan.missing == ()
    assert [str(one.kind) for one in scan.refusals] == ["another-cluster"]


# Brokers work while the scan runs


def brokers_work(written: Written, random: Random, share: float):
    """Before some of the requests a broker takes a step."""

    def before(_path: str) -> None:
        if random.random() < share:
            written.world.random = random
            step = random.choice((*ORDINARY, pause, lambda world, _: world.topic()))
            step(written.world, some_topic(written.world))
            written.sync()

    return before


def lost_by(seed: int, broken: type[ClusterScan] | None = None) -> set[int]:
    """The ledgers that are named in the end and were deleted: a scan while brokers work, the deletions, and then every
    paused broker goes on."""
    world = cluster(seed)
    written = Written(world)
    scanner = written.scanner(nodes=Meanwhile(written.nodes, brokers_work(written, Random(seed), 0.05)))
    scan = broken(scanner, scanner.finder.locate(), None).run() if broken else scanner.scan()
    deleted = {one.ledger.ledger for one in scan.verdicts if one.deletable}
    for ledger in deleted:
        world.ledgers.pop(ledger, None)
    world.resume()
    return deleted & {ledger for ledger, _ in named_ledgers(world.references())}


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_deleted_is_never_missed(seed):
    assert lost_by(seed) == set()


class ReferencesFirst(ClusterScan):
    """Broken: what is listed while the ids are read is not known, and nothing is looked at again."""

    def _ids(self) -> LedgerIds:
        self._early = super()._references()
        for _ in range(3):  # brokers go on
            super()._references()
        return super()._ids()

    def _references(self) -> list[References]:
        return self._early

    def _read_again(self, stores: Sequence[References], again: LookAgain) -> list[References]:
        return list(stores)


class NotListedIsAnOrphan(ClusterScan):
    """Broken: what is not listed may be about to be."""

    def _look_again(self, judge: LedgerJudge, candidates: array[int]) -> Iterator[LedgerVerdict]:
        found = super()._look_again(judge, candidates)
        return (replace(one, standing=Standing.CERTAIN) if one.orphan else one for one in found)


@pytest.mark.parametrize("broken", [ReferencesFirst, NotListedIsAnOrphan])
def test_a_broken_scan_is_caught(broken):
    assert len([seed for seed in range(20) if lost_by(seed, broken)]) > 3


@pytest.mark.parametrize("seed", range(20))
def test_what_is_missing_is_missing_before_and_after(seed):
    world = cluster(seed)
    named = sorted(ledger for ledger, _ in named_ledgers(world.references()))
    lost = set(world.random.sample(named, 3))
    for ledger in lost:
        world.ledgers.pop(ledger)
    written = Written(world)
    nodes = Meanwhile(written.nodes, brokers_work(written, Random(seed), 0.02))
    found = {one.ledger for one in written.scanner(nodes=nodes).scan().missing}
    assert found <= lost
    assert found >= lost & {ledger for ledger, _ in named_ledgers(world.references())}


# The metadata service is away, or lets us not read


@pytest.mark.parametrize("seed", range(10))
def test_answers_that_are_lost_change_nothing_but_that_it_is_said(seed):
    world = cluster(seed)
    written, random, lost = Written(world), Random(seed), list[str]()

    def before(path: str) -> None:
        if random.random() < 0.03 or not lost:
            lost.append(path)
            raise MetadataUnavailableError(f"{path}: lost")

    calm = written.scanner().scan()
    rough = written.scanner(nodes=Meanwhile(written.nodes, before), tries=50).scan()
    assert (rough.verdicts, rough.counts, rough.missing) == (calm.verdicts, calm.counts, calm.missing)
    assert [str(one.kind) for one in rough.refusals] == ["another-cluster", "in-trouble"]
    assert "ZooKeeper did not answer" in rough.refusals[-1].detail


def test_a_page_of_ids_that_was_lost_is_listed_again_and_no_other():
    world = cluster(3)
    for _ in range(30):  # pages of their own
        world.next_id += 10_000
        world.roll(world.topics[0])
    written, asked = Written(world), []

    def before(path: str) -> None:
        asked.append(path)
        if path == "/ledgers/00/0015" and asked.count(path) < 3:
            raise MetadataUnavailableError(path)

    scan = written.scanner(nodes=Meanwhile(written.nodes, before)).scan()
    assert scan.ledgers == len(world.ledgers)
    assert asked.count("/ledgers/00/0015") == 3
    assert asked.count("/ledgers/00/0003") == 1


def test_a_service_that_stays_away_is_an_error():
    written = Written(cluster(1))
    written.nodes.gone = True
    with pytest.raises(MetadataUnavailableError):
        written.scanner().scan()


FOLDERS = ("/managed-ledgers/t", "/schemas", "/admin/policies", "/ledgers/00/0000", "/managed-ledgers")


@pytest.mark.parametrize("folder", FOLDERS)
def test_where_we_may_not_read_nothing_is_certain_and_nothing_is_gone(folder):
    world = cluster(2)
    written = Written(world)

    def before(path: str) -> None:
        if path == folder:
            raise AccessDeniedError(f"refused access to {path}")

    scan = written.scanner(nodes=Meanwhile(written.nodes, before)).scan()
    assert ids(scan, Standing.CERTAIN) == set()
    assert {one.standing for one in scan.leftovers} <= {Standing.SUSPECT}
    assert folder in next(one.detail for one in scan.refusals if one.kind is RefusalKind.LISTING_FAILED)


def test_a_ledger_that_we_may_not_read_is_neither_gone_nor_missing():
    world = cluster(2)
    written = Written(world)
    orphan = min(ledger for ledger in world.orphans if ledger in world.ledgers)
    used = min(ledger for ledger, _ in named_ledgers(world.references()))

    def before(path: str) -> None:
        if path in (written.ledger_path(orphan), written.ledger_path(used)):
            raise AccessDeniedError(f"refused access to {path}")

    scan = written.scanner(nodes=Meanwhile(written.nodes, before)).scan({orphan, used, 10**6})
    assert scan.gone == {10**6}
    assert scan.missing == ()
    assert scan.verdicts == ()
    assert RefusalKind.LISTING_FAILED in {one.kind for one in scan.refusals}


# Only some


@pytest.mark.parametrize("seed", range(8))
def test_of_some_ledgers_it_says_what_a_whole_scan_says(seed):
    world = cluster(seed)
    written = Written(world)
    whole = {one.ledger.ledger: one for one in written.scanner().scan().verdicts}
    chosen = set(world.random.sample(sorted(world.ledgers), 12)) | {10**7}
    some = written.scanner().scan(chosen)
    assert {one.ledger.ledger for one in some.verdicts} == chosen - {10**7}
    assert some.gone == {10**7}
    assert some.ledgers == len(world.ledgers)
    for one in some.verdicts:
        assert one == whole.get(one.ledger.ledger, one)
        assert one.orphan == (one.ledger.ledger in whole)
    assert [str(one.kind) for one in some.refusals] == ["another-cluster"]  # which none of them is of


# Bytes of others


ODD = (
    "/managed-ledgers/leaf",
    "/managed-ledgers/t/leaf",
    "/managed-ledgers/t/n1/non-persistent/topic",
    "/managed-ledgers/t/n1/persistent/%ZZ+/%00",
    "/managed-ledgers/t/n1/persistent/-__transaction_pending_ack",
    "/managed-ledgers/t/n1/persistent/persistent/cursor",
    "/schemas/leaf",
    "/schemas/t/n1/a/b/c",
    "/admin/policies/leaf",
    "/ledgers/strange/00",
    "/ledgers/00/0000/Lxyz1",
    "/pulsar/functions/a/<default>/ledgers/inprogress_1",
    "/pulsar/functions/<default>/ledgers/<default>/ledgers/x",
    "/ledgers/underreplication/ledgers/strange/urLx",
)


@pytest.mark.parametrize("seed", range(40))
def test_damaged_nodes_make_nothing_certain_that_was_in_use(seed):
    world, random = cluster(seed), Random(seed)
    written = Written(world)
    named = {ledger for ledger, _ in named_ledgers(world.references())}
    for path in random.sample(sorted(world.nodes), 8):
        value = world.nodes[path][0]
        damaged = random.choice((value[: random.randint(0, len(value))], random.randbytes(9), b"", b"Gx" + value))
        written.nodes.put(path, damaged)
    for path in random.sample(ODD, 6):
        written.nodes.put(path, random.choice((b"", random.randbytes(20), b"5;x;1", b"5;-7;1", b"5;" + b"9" * 30)))
    for ledger in random.sample(sorted(world.ledgers), 4):
        written.fill.put_ledger(ledger, random.choice((b"", random.randbytes(20), b"BookieMetadataFormatVersion\t3\n")))
    scan = written.scanner().scan()
    assert ids(scan, Standing.CERTAIN) & named == set()
    assert sum(scan.counts.values()) == scan.ledgers == len(world.ledgers)


def test_topics_with_a_cluster_in_their_names_and_topics_named_as_the_domain():
    world = World(Random(1))
    names = [
        "t/c/ns/persistent/a",
        "t/c/persistent/persistent/b",
        "t/ns/persistent/persistent",
        "t/persistent/persistent/c",
    ]
    for name in names:
        world.topic(name)
        world.acknowledge(name, world.subscribe(name))
        world.compact(name)
        world.schema(schema_id(name))
    scan = Written(world).scanner().scan()
    assert scan.verdicts == ()
    assert scan.counts[Standing.REFERENCED] == scan.ledgers == len(world.ledgers)
    assert scan.missing == ()


# Copies in the bucket


def an_offloaded_one() -> tuple[Written, int]:
    world = World(Random(1))
    name = world.topic()
    dies_between_bookkeeper_deleted_and_the_delete(world, name)
    (ledger,) = world.copies
    return Written(world), ledger


@pytest.mark.parametrize(
    ("whole", "standing", "kept"), [(True, "certain", False), (False, "suspect", True), (None, "suspect", False)]
)
def test_an_offloaded_ledger_is_certain_once_its_copy_was_read_back(whole, standing, kept):
    written, ledger = an_offloaded_one()
    written.world.copies = {} if whole is None else {ledger: whole}
    (verdict,) = written.scanner().scan().verdicts
    assert (verdict.ledger.ledger, verdict.standing, verdict.kept) == (ledger, standing, kept)
    asked = written.verified[ledger]
    assert asked.managed_ledger == written.world.topics[0]
    assert asked.copy.uuid == "00000000-0000-0001-ffff-fffffffffffe"
    assert asked.copy.complete


def test_ids_that_no_ledger_can_have_are_gone():
    written = Written(cluster(1))
    assert written.scanner().scan({2**63, 2**70, -1}).gone == {2**63, 2**70, -1}


def test_a_ledger_that_was_made_again_after_the_listing_is_not_gone():
    """As an undo does, between the listing and the look at it."""
    written = Written(cluster(1))
    world = written.world
    ledger = world.create(data_of(world.topics[0]), 0)

    def before(path: str) -> None:
        if path == "sync /":
            written.sync()

    scan = written.scanner(nodes=Meanwhile(written.nodes, before)).scan({ledger})
    assert scan.gone == frozenset()
    assert [one.ledger.ledger for one in scan.verdicts] == [ledger]


# Orphans that lack copies: nobody can make them anew once their bookies are gone


def lacks_copies(written: Written, ledger: int) -> None:
    written.nodes.put(f"/ledgers/underreplication/ledgers/0000/0000/0000/{ledger:04x}/urL{ledger:010d}", b"")


@pytest.mark.parametrize("standing", [Standing.CERTAIN, Standing.SUSPECT])
def test_an_orphan_that_lacks_copies_stands_in_the_way_of_no_deletion_in_either_phase(standing):
    """Also where it is suspect, and never goes, or is not among those that are looked at."""
    written = Written(cluster(3))
    scanner = written.scanner()
    before = scanner.scan()
    lacking = min(ids(before, standing))
    others = sorted(ids(before, Standing.CERTAIN) - {lacking})
    lacks_copies(written, lacking)
    for only in (None, {lacking}, {others[0]}, others, ()):
        assert scanner.scan(only).refusals == before.refusals


@pytest.mark.parametrize("asked_for", [False, True])
def test_a_ledger_in_use_that_lacks_copies_stands_in_the_way_of_all(asked_for):
    written = Written(cluster(3))
    scanner = written.scanner()
    orphan = min(ids(scanner.scan(), Standing.CERTAIN))
    used = min(ledger for ledger, _ in named_ledgers(written.world.references()) if ledger in written.world.ledgers)
    lacks_copies(written, used)
    for only in (None, {orphan, used} if asked_for else {orphan}):
        trouble = [one for one in scanner.scan(only).refusals if one.kind is RefusalKind.IN_TROUBLE]
        assert [one.detail for one in trouble] == [f"1 ledger without all copies: ledger {used} is one"]


def test_the_doctor_who_does_not_scan_says_nothing_of_ledgers_that_lack_copies():
    written = Written(cluster(3))
    before = written.scanner().prospects()
    lacks_copies(written, min(written.world.orphans))
    assert written.scanner().prospects() == before
