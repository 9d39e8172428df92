"""Who names which ledger, in little memory: the same as a dictionary says."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest

from offloader.lifecycle.ledgers.kinds import LedgerKind
from offloader.lifecycle.ledgers.named import LedgerIds, NamedLedgers, PackedList, packed
from offloader.lifecycle.ledgers.references import References, named_ledgers
from offloader.state.managed_ledger import ListedLedger, ManagedLedger, OffloadContext

from .clusters import cluster


@pytest.mark.parametrize("seed", range(10))
def test_it_says_what_a_dictionary_says(seed):
    world = cluster(seed)
    stores = [world.references(), cluster(seed + 1).references(store="another")]
    expected = defaultdict(list)
    for store in stores:
        for ledger, referee in named_ledgers(store):
            expected[ledger].append(referee)
    named, ids = NamedLedgers(stores), LedgerIds(world.ledgers)
    for ledger in range(-1, max(expected) + 2):
        assert sorted(named.referees(ledger)) == sorted(expected.get(ledger, []))
        assert (ledger in ids) == (ledger in world.ledgers)
    assert [*named.not_named(ids)] == sorted(world.ledgers.keys() - expected.keys())
    assert [*named.not_among(ids)] == sorted(expected.keys() - world.ledgers.keys())
    assert sum(named.kinds_of(ids).values()) == len(world.ledgers.keys() & expected.keys())
    assert len(ids) == len(world.ledgers)


def test_where_nothing_is_named_or_there():
    assert NamedLedgers([References("ours")]).referees(1) == ()
    assert NamedLedgers([]).kinds_of(LedgerIds([1])) == {}
    assert [*NamedLedgers([]).not_named(LedgerIds([2, 1]))] == [1, 2]
    text: object = "1"
    assert text not in LedgerIds([1])


def test_kinds_by_who_names_them():
    world = cluster(5)
    named, ids = NamedLedgers([world.references()]), LedgerIds(world.ledgers)
    kinds = named.kinds_of(ids)
    assert kinds[LedgerKind.FUNCTIONS_PACKAGES] == len(world.packages)
    pending = {x for name in world.managed_ledgers if "pending_ack" in name for x in world.used_by(name)}
    assert kinds.get(LedgerKind.PENDING_ACKS, 0) == len(pending & world.ledgers.keys())


@pytest.mark.parametrize("seed", range(5))
def test_a_packed_list_is_the_list_without_what_nobody_judges_by(seed):
    random = Random(seed)
    copies = [None, OffloadContext("u", complete=True, bookkeeper_deleted=True), OffloadContext("v", False, False)]
    ids = sorted(random.sample(range(10**12), 9))
    listed = tuple(ListedLedger(one, 5, 50, 7, random.choice(copies)) for one in ids)
    node = packed(ManagedLedger(listed, 4, says_more=True))
    assert isinstance(node.ledgers, PackedList)
    expected = [one._replace(entries=0, size=0, timestamp_ms=0) for one in listed]
    assert [*node.ledgers] == expected
    assert [*node.ledgers[2:5]] == expected[2:5]
    assert (node.version, node.says_more, node.greatest) == (4, True, ids[-1])
    assert packed(ManagedLedger(version=1)) == ManagedLedger(version=1)
