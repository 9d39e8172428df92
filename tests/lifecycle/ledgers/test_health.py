"""What stands against a deletion although every verdict is right: bookies away, copies that lack, recovery off."""

from __future__ import annotations

import pytest

from offloader.lifecycle.ledgers.objections import interruptions, troubles
from offloader.lifecycle.ledgers.patient import PatientNodes
from tests.fakes.ledger_metadata import MemoryMetadata

UNDER = "/ledgers/underreplication"


@pytest.fixture
def metadata():
    metadata = MemoryMetadata()
    for bookie in ("a:1", "b:1"):
        metadata.cluster.register(bookie, None)
        metadata.cluster.put_cookie(bookie, b"cookie")
    return metadata


def said(metadata, orphans=()):
    return list(troubles(PatientNodes(metadata.nodes), "/ledgers", orphans if orphans is None else set(orphans)))


def test_all_is_well(metadata):
    metadata.nodes.put(f"{UNDER}/ledgers/0000/0000/0000/0000", b"")  # folders stay behind
    metadata.nodes.put(f"{UNDER}/locks", b"")
    assert said(metadata) == []


def test_a_bookie_that_only_reads_is_no_trouble(metadata):
    """Its disks are full: that is when orphans are deleted."""
    metadata.cluster.unregister("a:1")
    metadata.cluster.register("a:1", None, read_only=True)
    assert said(metadata) == []


def test_bookies_that_are_away(metadata):
    metadata.cluster.unregister("a:1")
    assert said(metadata) == ["a:1 is not registered, of 2 bookies that have a cookie"]
    metadata.cluster.unregister("b:1")
    assert said(metadata) == ["a:1 and 1 more are not registered, of 2 bookies that have a cookie"]


def test_a_bookie_that_was_taken_out_of_service_is_none(metadata):
    metadata.cluster.unregister("a:1")
    metadata.cluster.delete_cookie("a:1")
    assert said(metadata) == []


def test_ledgers_that_lack_copies_but_orphans(metadata):
    metadata.nodes.put(f"{UNDER}/ledgers/0000/0000/0000/0007/urL0000000007", b"")
    metadata.nodes.put(f"{UNDER}/ledgers/0000/0000/0000/0008/urL0000000008", b"")
    assert said(metadata, orphans=[7]) == ["1 ledger without all copies: ledger 8 is one"]
    assert said(metadata, orphans=[7, 8]) == []
    assert said(metadata, orphans=None) == []  # nobody has scanned


def test_a_thousand_orphans_that_lack_copies_hide_no_other_ledger(metadata):
    for ledger in range(1, 1_002):
        metadata.nodes.put(f"{UNDER}/ledgers/0000/0000/0000/{ledger:04x}/urL{ledger:010d}", b"")
    assert said(metadata, orphans=range(1, 1_001)) == ["1 ledger without all copies: ledger 1001 is one"]
    assert said(metadata) == ["1000 ledgers without all copies: ledger 1 is one"]


def test_recovery_that_is_switched_off(metadata):
    metadata.nodes.put(f"{UNDER}/disable", b"")
    assert said(metadata) == ["auto-recovery is switched off"]


def test_a_service_that_was_away():
    assert list(interruptions(0)) == []
    assert list(interruptions(3)) == ["ZooKeeper did not answer 3 times while this was read"]
