"""Ledgers of writers that are gone are closed safely, by us and by the official client, whatever happens to bookies
meanwhile."""

from __future__ import annotations

import random

import pytest

from integration.bookkeeper.bookie import Bookie
from integration.bookkeeper.closers import Closers
from integration.bookkeeper.cluster import BookKeeperCluster
from integration.bookkeeper.rounds import Moment, Plan, Round, Spares, Writer
from integration.soak import SOAK

pytestmark = [pytest.mark.pulsar, pytest.mark.timeout(7_200 if SOAK else 3_600)]

PLANS = (
    Plan(),
    Plan(Moment.WHILE_WRITING),
    Plan(Moment.WHILE_CLOSING),
    Plan(Moment.BEFORE_CLOSING),
    Plan(writer=Writer.PAUSED),
    Plan(Moment.BEFORE_CLOSING, Bookie.pause),
    Plan(Moment.WHILE_CLOSING, writer=Writer.GOES_ON),
    Plan(Moment.AFTER_CLOSING),
    Plan(Moment.WHILE_CLOSING, Bookie.pause),
    Plan(Moment.BEFORE_CLOSING, bookies=2),
) * (8 if SOAK else 1)

FIRST_CLOSERS = (
    Closers.ours,
    Closers.official,
    Closers.both,
    Closers.ours_twice,
    Closers.ours_crashes,
    Closers.official_crashes,
)


def test_ledgers_of_dead_writers_are_closed_safely(cluster: BookKeeperCluster) -> None:
    assert len(PLANS) * len(FIRST_CLOSERS) >= 50
    refusals = 0
    with Closers(cluster, random.Random(1)) as closers, Spares(cluster, 2) as spares:
        for number, plan in enumerate(PLANS):
            closers.victim = spares.take()
            this = Round(cluster, closers, plan, random.Random(number))
            this.run(spares.take(), FIRST_CLOSERS)
            refusals += this.refusals
        assert len(closers.closed_by_us) >= len(PLANS), "we closed hardly any"
    assert refusals, "there were always enough bookies: the test is too easy"
