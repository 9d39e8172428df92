"""Looks at a few ledgers that follow one scan, while brokers go on: they say what a scan would say by then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from offloader.lifecycle.ledgers.again import LookAgain
from offloader.lifecycle.ledgers.evidence import LedgerVerdict, Standing
from offloader.lifecycle.ledgers.leftovers import LeftoverManagedLedger
from offloader.lifecycle.ledgers.references import named_ledgers
from offloader.lifecycle.ledgers.refusals import RefusalKind
from offloader.lifecycle.ledgers.scan import ClusterScan
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.scanner import ClusterScanner

from .clusters import cluster, left_over_names
from .test_scan import brokers_work
from .world import World
from .written import BOOKIE, NOW, Meanwhile, Written

KNOWN_FOR_MS = 3_600_000

SEEDS = range(40)
A_LOOK = 7  # ledgers


def written_without_others(seed: int) -> Written:
    """Nothing of another cluster: nothing stands against deletion."""
    world = cluster(seed)
    edited(world)
    theirs = [one.ledger for one in world.seen() if one.purpose.cluster and one.purpose.cluster != "memory"]
    for ledger in theirs:
        world.ledgers.pop(ledger)
    return Written(world)


def edited(world: World) -> None:
    """Somebody has put an orphan of one topic into the list of another one: nothing else says so."""
    orphan = next(one for one in world.seen() if one.ledger in world.orphans and one.purpose.managed_ledger)
    name = next(name for name in world.topics if name != orphan.purpose.managed_ledger)
    world.list_ledger(name, orphan.ledger)


def work(written: Written, seed: int, steps: int = 60) -> None:
    step = brokers_work(written, Random(seed), 1.0)
    for _ in range(steps):
        step("")


def shares(ledgers: list[int]) -> Iterator[set[int]]:
    return (set(ledgers[at : at + A_LOOK]) for at in range(0, len(ledgers), A_LOOK))


def looked_again(scanner: ClusterScanner, ledgers: list[int], leftovers: set[str]) -> LedgerScan:
    """All of them, a few at a time, as one scan tells them."""
    verdicts, gone, names = list[LedgerVerdict](), set[int](), list[LeftoverManagedLedger]()
    for share in shares(ledgers):
        found = scanner.look_again(share)
        assert found is not None
        assert not found.refusals
        verdicts += found.verdicts
        gone |= found.gone
    found = scanner.look_again((), leftovers)
    assert found is not None
    names += found.leftovers
    return LedgerScan(0, 0, {}, tuple(verdicts), frozenset(gone), leftovers=tuple(names))


def differences(seed: int) -> list[object]:
    """What looks after a scan say otherwise than a scan at that time, of all ledgers that there were."""
    written = written_without_others(seed)
    ledgers = sorted(written.world.ledgers)
    scanner = written.scanner()
    known = scanner.scan(ledgers[:1])
    assert not known.refusals
    leftovers = {one.name for one in known.leftovers} | left_over_names(written.world)
    work(written, seed)
    again = looked_again(scanner, ledgers, leftovers)
    anew = written.scanner().scan(ledgers)
    others = [one for one in anew.leftovers if one.name in leftovers]
    told = sorted(anew.verdicts, key=lambda one: one.ledger.ledger)
    pairs = (list(again.verdicts), told), (again.gone, anew.gone), (list(again.leftovers), others)
    return [(mine, theirs) for mine, theirs in pairs if mine != theirs]


@pytest.mark.parametrize("seed", SEEDS)
def test_looks_after_a_scan_say_what_a_scan_would_say(seed):
    assert differences(seed) == []


def test_a_left_over_managed_ledger_whose_namespace_goes_is_suspect_at_the_next_look_too():
    written = next(one for seed in SEEDS if left_over_names((one := written_without_others(seed)).world))
    scanner = written.scanner()
    name = scanner.scan([1]).leftovers[0].name
    for path in ("/admin/policies/t/n1", "/admin/policies/t/n2", "/admin/policies/t/n3"):
        if written.nodes.get(path) is not None:
            written.nodes.delete(path)
    found, anew = scanner.look_again((), {name}), written.scanner().scan([1])
    assert [one.standing for one in anew.leftovers if one.name == name] == [Standing.SUSPECT]
    assert found.leftovers == tuple(one for one in anew.leftovers if one.name == name)


def test_brokers_change_what_is_said_meanwhile():
    """Else the test above would see nothing."""
    changed = Counter[tuple[Standing, Standing | None]]()
    for seed in SEEDS:
        written = written_without_others(seed)
        before = written.scanner().scan(sorted(written.world.ledgers))
        work(written, seed)
        after = {one.ledger.ledger: one for one in written.scanner().scan(sorted(written.world.ledgers)).verdicts}
        for one in before.verdicts:
            now = after.get(one.ledger.ledger)
            changed[one.standing, None if now is None else now.standing] += one != now
    assert len([pair for pair, number in changed.items() if number and pair[0] is not pair[1]]) >= 4


def not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterScan, "_read_again", lambda _self, stores, _again: list(stores))


def whom_they_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: what another one's list names."""
    monkeypatch.setattr(LookAgain, "at_referee", lambda _self, _referee: None)


@pytest.mark.parametrize("broken", [not_read_again, whom_they_name_alone])
def test_a_broken_look_is_caught(broken, monkeypatch):
    broken(monkeypatch)
    assert any(differences(seed) for seed in range(10))


def lost_by(seed: int) -> set[int]:
    """The ledgers that are named in the end and were deleted: one scan, then look by look what is certain goes, while
    brokers work all the time; and then every paused broker goes on."""
    written = written_without_others(seed)
    world = written.world
    nodes = Meanwhile(written.nodes, brokers_work(written, Random(seed), 0.05))
    scanner, ledgers, deleted = written.scanner(nodes=nodes), sorted(world.ledgers), set()
    scanner.scan(ledgers[:1])
    for share in shares(ledgers):
        found = scanner.look_again(share)
        assert found is not None
        certain = {one.ledger.ledger for one in found.verdicts if one.deletable}
        for ledger in certain & world.ledgers.keys():
            world.ledgers.pop(ledger)
            deleted.add(ledger)
        written.sync()
    world.resume()
    assert deleted
    return deleted & {ledger for ledger, _ in named_ledgers(world.references())}


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_is_deleted_look_by_look_is_never_missed(seed):
    assert lost_by(seed) == set()


class Counted(Meanwhile):
    def __init__(self, nodes) -> None:
        self.asked: list[str] = []
        super().__init__(nodes, self.asked.append)


def test_a_look_reads_no_more_than_what_decides_on_its_ledgers():
    written = written_without_others(3)
    nodes = Counted(written.nodes)
    scanner = written.scanner(nodes=nodes)
    scanner.scan([1])
    whole = len(nodes.asked)
    nodes.asked.clear()
    assert scanner.look_again([1]) is not None
    assert len(nodes.asked) < whole / 5
    assert not any(path.startswith("/managed-ledgers/") and path.count("/") < 5 for path in nodes.asked)


def test_there_is_nothing_to_go_by_without_a_scan_of_some_or_where_something_stands_against_deletion():
    written = written_without_others(3)
    scanner = written.scanner()
    assert scanner.look_again([1]) is None
    scanner.scan()
    assert scanner.look_again([1]) is None
    scanner.scan([1])
    written.fill.unregister(BOOKIE)
    refused = scanner.look_again([1])
    assert refused is not None
    assert [one.kind for one in refused.refusals] == [RefusalKind.IN_TROUBLE]
    written.fill.register(BOOKIE, None)
    assert scanner.look_again([1]) is None


def test_an_old_scan_is_nothing_to_go_by():
    written, now = written_without_others(3), [NOW]
    scanner = written.scanner()
    scanner.clock_ms = lambda: now[0]
    scanner.scan([1])
    now[0] += KNOWN_FOR_MS - 1
    assert scanner.look_again([1]) is not None
    now[0] += 1
    assert scanner.look_again([1]) is None
    scanner.scan([1])
    now[0] -= 1  # a clock that was set back says nothing of age
    assert scanner.look_again([1]) is None
