"""The service killed at any write to the bucket or to ZooKeeper: each marked ledger is deleted exactly once or told,
none is told twice, none is lost."""

from __future__ import annotations

from random import Random

import pytest

from integration.soak import SOAK
from offloader.errors import OutcomeUnknownError
from offloader.lifecycle.deletion.records import DeletionAnswer, DeletionState
from offloader.lifecycle.deletion.timing import DeletionBounds, DeletionTiming
from tests.examples import few
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults

from .cluster import DyingNodes, KilledError
from .test_service import DELETED, Setting, Told

LEDGERS, KILLS = (1000, 100) if SOAK else (40, 20)
PACE = LEDGERS // KILLS  # how many a process may do before it is killed, about


@pytest.mark.parametrize("seed", few(range(3), 1))
def test_each_marked_ledger_is_deleted_exactly_once_or_told_whenever_the_service_is_killed(seed: int):
    rng = Random(seed)
    setting = Setting(seed)
    setting.timing = DeletionTiming(max_tries=1000, kept=2**50)
    setting.bounds = DeletionBounds(percent=100, a_round=2 * PACE)
    setting.on()
    ids = set(range(1, LEDGERS + 1))
    open_ones = set(rng.sample(sorted(ids), LEDGERS // 4))
    for ledger in sorted(ids):
        setting.cluster.ledger(ledger, "t", 0, is_open=ledger in open_ones)
    setting.cluster.ledger(9000, "t")
    setting.cluster.list_ledgers("t", 9000)
    setting.later()
    assert len(setting.mark().marks) == LEDGERS
    in_use = set(rng.sample(sorted(ids), LEDGERS // 10))
    others = range(9001, 9001 + LEDGERS)  # else too many of all would go
    for ledger in others:
        setting.cluster.ledger(ledger, "t", 0)
    setting.cluster.list_ledgers("t", *sorted(in_use), *others)
    killed, told = 0, Told()
    while killed < KILLS and any(it.record.is_in_flight for it in setting.queue.records()):
        setting.later(3 * 3600)
        killed += lives(setting, rng, told)
    assert killed > KILLS // 2
    side = setting.cluster.side(DyingNodes(setting.cluster, rng))
    for _ in range(3 * LEDGERS // setting.bounds.a_round):
        setting.later()
        setting.service(side, told=told).round()
    check_ends(setting, ids, in_use, told)


def lives(setting: Setting, rng: Random, told: Told) -> bool:
    """One process, until it is killed or its round is over. Whether it was killed."""
    nodes, faults = DyingNodes(setting.cluster, rng), []
    if rng.random() < 0.5:
        effect = rng.choice((Effect.BEFORE, Effect.LOST))
        faults = [StoreFault("*", effect, KilledError, after=LEDGERS + rng.randrange(6 * PACE))]
    else:
        nodes.dies_at = rng.randrange(1, 2 * PACE + 1)
    queue = setting.queue_over(FaultyStore(setting.store, StoreFaults(faults)))
    try:
        setting.service(setting.cluster.side(nodes), queue, told).round()
    except (KilledError, OutcomeUnknownError):
        return True
    return False


def check_ends(setting: Setting, ids: set[int], in_use: set[int], told: Told) -> None:
    ended = {it.record.ledger_id: it.record for it in setting.queue.records()}
    assert ended.keys() == ids
    for ledger, record in ended.items():
        expected = (DeletionState.KEPT, DeletionAnswer.STILL_IN_USE) if ledger in in_use else DELETED
        assert (record.state, record.answer) == expected, record
    assert ids & setting.cluster.ledger_ids() == in_use
    assert setting.cluster.deleted == dict.fromkeys(ids - in_use, 1)
    names = [ledger for ledger, *_ in told.ends]
    assert len(names) == len(set(names))
