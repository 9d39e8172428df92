"""In random clusters the verdicts find exactly the orphans, and whatever they would delete is never missed. Scans that
are broken on purpose are caught by the same checks."""

from __future__ import annotations

from collections.abc import Callable, Container
from random import Random

import pytest

from offloader.bookkeeper.metadata_codec import encode_metadata
from offloader.lifecycle.deletion.ledger_records import was_open_with_entries
from offloader.lifecycle.deletion.records import LedgerNode
from offloader.lifecycle.ledgers.evidence import Fact, LedgerVerdict, Standing
from offloader.lifecycle.ledgers.kinds import RefereeKind
from offloader.lifecycle.ledgers.leftovers import leftover_managed_ledgers
from offloader.lifecycle.ledgers.references import References, named_ledgers
from offloader.lifecycle.ledgers.scanned import MissingLedger, still_missing
from offloader.lifecycle.ledgers.verdicts import KnownStores, LedgerJudge

from .clusters import MAKINGS, ORDINARY, cluster, left_over_names, offload, pause, some_topic
from .world import World

SEEDS = range(60)
Scan = Callable[[World, Callable[[], None]], list[LedgerVerdict]]


def nothing() -> None:
    """Brokers rest while the scan runs."""


def scan(world: World, meanwhile: Callable[[], None] = nothing) -> list[LedgerVerdict]:
    """The ids first, then the references."""
    seen = world.seen()
    meanwhile()
    judge = LedgerJudge(KnownStores((world.references(),), alone=True, copies=dict(world.copies)))
    return [judge.verdict(one) for one in seen]


def references_first(world: World, meanwhile: Callable[[], None] = nothing) -> list[LedgerVerdict]:
    """Broken: what was listed in between is not known."""
    judge = LedgerJudge(KnownStores((world.references(),), alone=True, copies=dict(world.copies)))
    meanwhile()
    return [judge.verdict(one) for one in world.seen()]


def not_listed_means_orphan(world: World, meanwhile: Callable[[], None] = nothing) -> list[LedgerVerdict]:
    """Broken: a ledger that was created and is about to be listed is not listed."""
    found = scan(world, meanwhile)
    return [LedgerVerdict(one.ledger, Standing.CERTAIN, one.kind, one.evidence) if one.orphan else one for one in found]


def ids(verdicts, *standings) -> set[int]:
    return {one.ledger.ledger for one in verdicts if one.standing in standings}


def brokers_go_on(world: World, seed: int) -> None:
    """Between two reads of a scan: topics are created, loaded, trimmed, deleted; brokers are paused."""
    world.random = Random(seed)
    for _ in range(6):
        world.random.choice((*ORDINARY, pause, lambda w, _: w.topic()))(world, some_topic(world))


def lost_by(scan_it: Scan, seed: int) -> set[int]:
    """The ledgers that are named in the end and were deleted: a scan while brokers work, the deletions, and then every
    paused broker goes on."""
    world = cluster(seed)
    verdicts = scan_it(world, lambda: brokers_go_on(world, seed + 1))
    deleted = {one.ledger.ledger for one in verdicts if one.deletable}
    for ledger in deleted:
        world.ledgers.pop(ledger, None)
    world.resume()
    return deleted & {ledger for ledger, _ in named_ledgers(world.references())}


@pytest.mark.parametrize("seed", SEEDS)
def test_exactly_the_orphans_are_found(seed):
    world = cluster(seed)
    verdicts = scan(world)
    paused = {one.ledger for one in world.about_to_list}
    orphans = {ledger for ledger in world.orphans if ledger in world.ledgers}
    assert ids(verdicts, Standing.CERTAIN, Standing.SUSPECT) == orphans | paused
    assert ids(verdicts, Standing.CERTAIN) & paused == set()
    assert ids(verdicts, Standing.FOREIGN) == world.foreign
    assert len(verdicts) == len(world.ledgers)


@pytest.mark.parametrize("seed", SEEDS)
def test_exactly_the_managed_ledgers_that_belong_to_nobody_are_found(seed):
    world = cluster(seed)
    found = leftover_managed_ledgers(world.references())
    assert {one.name for one in found} == left_over_names(world)
    for one in found:
        assert one.standing is Standing.CERTAIN
        assert set(one.ledgers) == {*world.used_by(one.name)}


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_is_deleted_is_never_missed(seed):
    assert lost_by(scan, seed) == set()


@pytest.mark.parametrize("broken", [references_first, not_listed_means_orphan])
def test_a_broken_scan_is_caught(broken):
    caught = [seed for seed in SEEDS if lost_by(broken, seed)]
    assert len(caught) > 3


@pytest.mark.parametrize("seed", range(20))
def test_each_suspect_of_a_topic_becomes_certain_once_its_remedy_is_done(seed):
    """All but those whose cursor is there, and those of paused brokers."""
    world = cluster(seed, steps=60)
    world.resume()
    before = ids(scan(world), Standing.SUSPECT)
    for name in world.topics:
        world.roll(name)
        for cursor in world.cursors(name):
            world.acknowledge(name, cursor)
        world.compact(name)
    for path in [path for path in world.nodes if path.startswith("/schemas/")]:
        world.schema(path.removeprefix("/schemas/"))
    after = {one.ledger.ledger: one for one in scan(world)}
    assert {ledger for ledger in before if after[ledger].standing is not Standing.CERTAIN} == set()


@pytest.mark.parametrize("making", MAKINGS, ids=lambda making: making.__name__)
def test_each_making_of_orphans_is_found_by_itself(making):
    for seed in range(5):
        world = World(Random(seed))
        making(world, world.topic())
        orphans = {ledger for ledger in world.orphans if ledger in world.ledgers}
        assert ids(scan(world), Standing.CERTAIN, Standing.SUSPECT) == orphans
        assert {one.name for one in leftover_managed_ledgers(world.references())} == left_over_names(world)


# Metadata that were restored, and topics that were made again


def without_ages(world: World, meanwhile: Callable[[], None] = nothing) -> list[LedgerVerdict]:
    """Broken: nodes are as old as can be, whenever they were made."""
    nodes: dict[str | int, int] = {one: 0 for one in world.made if isinstance(one, str)}
    made, world.made, born, world.born = world.made, world.made | nodes, world.born, world.born | nodes
    try:
        return scan(world, meanwhile)
    finally:
        world.made, world.born = made, born


def restored(seed: int, *, anew: bool, jumps: bool = False) -> tuple[World, list[str]]:
    """Lists are put back to what they were some ledgers ago; nobody has loaded the topics since."""
    world = cluster(seed, steps=20, jumps=jumps)
    names = [world.topic() for _ in range(4)]
    for name in names:
        for _ in range(world.random.randint(0, 2)):
            world.roll(name)
        backup = world.info(name)
        for _ in range(world.random.randint(2, 4)):
            world.roll(name)
        if world.random.random() < 0.3:
            world.trim(name)
        world.restore(name, backup, anew=anew)
    return world, names


def go_on_and_trim(world: World, names: list[str]) -> None:
    """Brokers load the topics, and trim until nothing is listed that is older than the restore."""
    for name in names:
        restored_ones = len(world.info(name).ledgerInfo)
        for _ in range(world.random.randint(1, 3)):
            world.roll(name)
        info = world.info(name)
        for one in info.ledgerInfo[:restored_ones]:
            world.drop(one.ledgerId)
        del info.ledgerInfo[:restored_ones]
        world.put_list(name, info)


def deletable(verdicts) -> set[int]:
    return {one.ledger.ledger for one in verdicts if one.deletable}


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_entries_that_were_never_trimmed_are_kept_after_a_restore(seed, anew):
    """In a node that was made anew for ever; else as long as it is remembered what was kept."""
    world, names = restored(seed, anew=anew)
    assert world.untrimmed
    before = scan(world)
    assert deletable(before) & world.untrimmed == set()
    kept = {one.ledger.ledger for one in before if one.kept}
    go_on_and_trim(world, names)
    after = deletable(scan(world))
    assert (after if anew else after - kept) & world.untrimmed == set()


def test_to_forget_what_was_kept_is_caught_and_so_is_a_scan_that_knows_no_ages():
    for anew, scan_it in ((False, scan), (True, without_ages)):
        caught = 0
        for seed in SEEDS:
            world, names = restored(seed, anew=anew)
            go_on_and_trim(world, names)
            caught += bool(deletable(scan_it(world)) & world.untrimmed)
        assert caught > len(SEEDS) / 2


def deleted_once_closed(world: World) -> set[int]:
    """Of the ledgers that were open at the restore and are marked now: those that would go once they are closed, which
    shows that they have entries."""
    recorded = {
        one: LedgerNode(encode_metadata(world.ledgers[one]), 0, 0) for one in deletable(scan(world)) & world.still_open
    }
    for ledger in recorded:
        world.close(ledger, 3)
    verdicts = [one for one in scan(world) if one.deletable and one.ledger.ledger in recorded]
    return {one.ledger.ledger for one in verdicts if not was_open_with_entries(recorded[one.ledger.ledger], one)}


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_entries_of_what_was_open_at_a_restore_are_kept_once_they_show(seed, anew):
    """Whoever marks it, before or after its list was trimmed: a broker closes what it trims."""
    world, names = restored(seed, anew=anew)
    assert len(world.still_open) == len(names)
    go_on_and_trim(world, names)
    assert deleted_once_closed(world) == set()


def test_to_take_what_was_open_for_trimmed_is_caught(monkeypatch):
    monkeypatch.setattr(f"{__name__}.was_open_with_entries", lambda _recorded, _verdict: False)
    for seed in range(5):
        world, names = restored(seed, anew=False)
        go_on_and_trim(world, names)
        assert deleted_once_closed(world) == world.still_open


def lost_to_a_former_owner(scan_it: Scan, seed: int, *, jumps: bool = False) -> set[int]:
    """Brokers are paused, their topics and subscriptions deleted and made again, and loaded by others; then a scan, and
    its deletions. At last the paused ones go on, whose versions may fit again."""
    world = cluster(seed, steps=20, jumps=jumps)
    for _ in range(6):
        name = world.topic()
        cursor = world.subscribe(name, "sub")
        for _ in range(world.random.randint(0, 2)):
            world.roll(name)
            world.acknowledge(name, cursor)
        world.pause_roll(name)
        world.pause_acknowledge(name, cursor)
        world.delete(name)
        world.topic(name)
        world.subscribe(name, cursor)
        for _ in range(world.random.randint(0, 3)):
            world.roll(name)
            world.acknowledge(name, cursor)
    deleted = deletable(scan_it(world, nothing))
    for ledger in deleted:
        world.ledgers.pop(ledger, None)
    world.resume()
    return deleted & {ledger for ledger, _ in named_ledgers(world.references())}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_former_owner_that_goes_on_after_its_topic_was_made_again_misses_nothing(seed):
    assert lost_to_a_former_owner(scan, seed) == set()


# ZooKeeper's clock is that of whoever leads


def by_the_clock(world: World, meanwhile: Callable[[], None] = nothing) -> list[LedgerVerdict]:
    """Broken: what was there before what is asked of the clock."""
    world.born.clear()
    return scan(world, meanwhile)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_clock_that_jumps_makes_nothing_older_or_younger(seed):
    assert lost_to_a_former_owner(scan, seed, jumps=True) == set()
    world, names = restored(seed, anew=True, jumps=True)
    go_on_and_trim(world, names)
    assert deletable(scan(world)) & world.untrimmed == set()


@pytest.mark.parametrize("seed", SEEDS)
def test_nor_does_it_keep_what_may_go(seed):
    world = cluster(seed, jumps=True)
    data = [one for one in scan(world) if one.ledger.purpose.referee is RefereeKind.LEDGER_LIST]
    assert not any(one.kept for one in data)
    assert not any(fact.fact is Fact.MADE_SINCE for one in data for fact in one.evidence)


def test_to_go_by_the_clock_is_caught():
    lost = trimmed = 0
    for seed in SEEDS:
        lost += bool(lost_to_a_former_owner(by_the_clock, seed, jumps=True))
        world, names = restored(seed, anew=True, jumps=True)
        go_on_and_trim(world, names)
        trimmed += bool(deletable(by_the_clock(world)) & world.untrimmed)
    assert min(lost, trimmed) > 3


def test_a_scan_that_knows_no_ages_loses_what_a_former_owner_lists():
    caught = [seed for seed in SEEDS if lost_to_a_former_owner(without_ages, seed)]
    assert len(caught) > 3


# The other way round


def not_seen(references: References, seen: Container[int]) -> list[MissingLedger]:
    return [MissingLedger(*one) for one in named_ledgers(references) if one[0] not in seen]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_referenced_but_missing_is_found_and_nothing_else(seed):
    world = cluster(seed)
    named = sorted(ledger for ledger, _ in named_ledgers(world.references()))
    lost = world.random.sample(named, 3)
    for ledger in lost:
        world.ledgers.pop(ledger, None)
    seen = set(world.ledgers)
    brokers_go_on(world, seed)
    first = not_seen(world.references(), seen)
    again = {one.ledger for one in first if one.ledger in world.ledgers}  # each node is read once more
    later = world.references()
    missing = still_missing(first, not_seen(later, seen | again))
    expected = {ledger for ledger, _ in named_ledgers(later) if ledger in lost}
    assert {one.ledger for one in missing} == expected


def test_a_ledger_that_was_created_between_the_reads_is_not_missing():
    world = World(Random(3))
    name = world.topic()
    seen = set(world.ledgers)
    world.roll(name)
    first = not_seen(world.references(), seen)
    assert len(first) == 1
    assert still_missing(first, not_seen(world.references(), set(world.ledgers))) == ()


def test_a_ledger_that_left_bookkeeper_for_the_bucket_is_not_missing():
    world = World(Random(3))
    name = world.topic()
    offload(world, name)
    assert not_seen(world.references(), set(world.ledgers)) == []
