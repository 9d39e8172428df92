"""Recovering clients, a writer, bookies and metadata in bad weather: whatever the seed, nothing acknowledged is
lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration.soak import SOAK
from offloader.bookkeeper.status import Answer, NoEntryError, answer
from tests.bookkeeper.recovery.simulation import LEDGER, Simulation
from tests.examples import few
from tests.fakes.bookkeeper import SimulatedBookies, SimulatedCluster, SimulatedStore

SEEDS = 5_000 if SOAK else 40
BLOCKS = 4


def ran(seed: int, **more: object) -> Simulation:
    simulation = Simulation(seed, **more)
    try:
        simulation.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return simulation


@pytest.mark.parametrize("block", few(range(BLOCKS), 2))
def test_nothing_acknowledged_is_lost(block):
    runs = [ran(seed) for seed in range(block * SEEDS, (block + 1) * SEEDS)]
    assert sum(len(run.closed) for run in runs) > SEEDS
    assert sum(len(run.aborts) for run in runs) > SEEDS / 4
    assert sum(run.writer.acknowledged + 1 for run in runs) > SEEDS
    metadata = [run.cluster.metadata.read(LEDGER).metadata for run in runs]
    assert any(len(one.fragments) > 1 for one in metadata)
    assert any(one.last_entry > run.writer.acknowledged for one, run in zip(metadata, runs, strict=True))


@pytest.mark.parametrize("refuse", [True, False])
def test_a_disk_that_is_lost_loses_nothing_where_its_bookie_refuses_or_its_cookie_tells(refuse):
    for seed in range(SEEDS):
        ran(seed, lost_disks=1, refuse=refuse)


def test_a_bookie_that_is_gone_for_good_keeps_no_ledger_open_where_another_one_can_take_its_place():
    runs = [ran(seed, gone=1) for seed in range(SEEDS * 2)]
    metadata = [run.cluster.metadata.read(LEDGER).metadata for run in runs]
    done = [run for run, one in zip(runs, metadata, strict=True) if one.closed and run.can_do_without_one(one)]
    assert len(done) > SEEDS
    assert any(run.replaced for run in done)


class Unfencing(SimulatedBookies):
    """Recovery reads that do not fence."""

    def read(self, bookie, ledger, entry, *, fence=None):
        return super().read(bookie, ledger, entry)


class Denying(SimulatedBookies):
    """Whatever went wrong is *no such entry*."""

    def _answer(self, future, result, error):
        unknown = error is not None and answer(error) is Answer.UNKNOWN
        super()._answer(future, result, NoEntryError("unknown") if unknown else error)


class Forgetful(SimulatedBookies):
    """Nothing is written back."""

    def recovery_add(self, bookie, ledger, entry, stored, master_key):
        return self._send(bookie, lambda memory: None)


def breaks(kind: type[SimulatedBookies], seeds: int) -> bool:
    def client(cluster: SimulatedCluster) -> Callable[[], tuple[SimulatedBookies, SimulatedStore]]:
        made = cluster.client
        return lambda: (kind(cluster), made()[1])

    for seed in range(seeds):
        simulation = Simulation(seed)
        simulation.cluster.client = client(simulation.cluster)
        try:
            simulation.run()
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("kind", few([Unfencing, Denying, Forgetful], 1))
def test_what_is_broken_is_found(kind):
    assert breaks(kind, 2000)


def test_believing_a_bookie_that_lost_its_disk_is_found():
    assert any(loses(seed) for seed in range(2000))


def loses(seed: int) -> bool:
    try:
        ran(seed, lost_disks=1, refuse=False, cookies=False)
    except AssertionError as error:
        return "was acknowledged" in str(error)
    return False


def test_a_seed_is_one_course():
    first, second = ran(11), ran(11)
    assert (first.closed, first.aborts) == (second.closed, second.aborts)
    assert first.network.now == second.network.now
