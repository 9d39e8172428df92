"""Scans of whole random clusters, over nodes and bookies: exactly the orphans, and never one that is in use."""

from __future__ import annotations

import pytest

from offloader.lifecycle.ledgers.evidence import Standing

from .clusters import cluster, left_over_names
from .written import Written

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
