"""The last entry of a compaction cursor's ledger: what enough bookies confirm, or nothing at all. Nobody is fenced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.bookkeeper.entry_codec import digest_for, encode, master_key
from offloader.bookkeeper.model import LedgerState, StoredEntry
from offloader.lifecycle.ledgers.last_entries import LastEntries
from offloader.lifecycle.ledgers.patient import PatientNodes
from offloader.lifecycle.ledgers.references import UnreadableNode
from tests.fakes.bookkeeper import SimulatedCluster

from .world import position

LEDGER, NAME = 77, "t/ns/persistent/t"


class Cursor:
    """An open ledger on three bookies, two acknowledge; entries by bookie."""

    def __init__(self, ensemble=3, write_quorum=3, ack_quorum=2) -> None:
        self.cluster = SimulatedCluster(1, 3, prompt=True)
        self.metadata = self.cluster.create(LEDGER, ensemble, write_quorum, ack_quorum)
        self.bookies = self.metadata.fragments[0].ensemble

    def add(self, entry, view, *bookies, payload=None, damaged=False) -> None:
        body = payload if payload is not None else position(view)
        stored = encode(StoredEntry(LEDGER, entry, entry - 1, 10, body), digest_for(self.metadata))
        for bookie in bookies or self.bookies:
            kept = stored[:-1] + b"?" if damaged else stored
            self.cluster.bookies[bookie].memory.add(LEDGER, entry, kept, master_key(b""))

    def close(self, last) -> None:
        closed = replace(self.metadata, state=LedgerState.CLOSED, last_entry=last, length=10)
        self.cluster.metadata.cluster.put_ledger(LEDGER, closed)

    def read(self):
        bookies, tree = self.cluster.client()
        entries = LastEntries(PatientNodes(tree.nodes, tries=1), bookies, tree.path_of, 0.01)
        found = entries.of({NAME: LEDGER})[NAME]
        assert not any(one.memory.ledgers.get(LEDGER, _NOT_FENCED).fenced for one in self.cluster.bookies.values())
        return found


class _NotFenced:
    fenced = False


_NOT_FENCED = _NotFenced()


def view_in(found):
    assert found.cursor_ledger == LEDGER
    return found.view


def test_all_bookies_say_the_same():
    cursor = Cursor()
    cursor.add(0, None)
    cursor.add(1, 12)
    assert view_in(cursor.read()) == 12


def test_an_entry_that_names_no_view():
    cursor = Cursor()
    cursor.add(0, None)
    assert view_in(cursor.read()) is None


def test_the_greatest_counts_where_an_acknowledgement_has_as_many():
    cursor = Cursor()
    cursor.add(0, 12)
    cursor.add(1, 13, *cursor.bookies[:2])
    assert view_in(cursor.read()) == 13


def test_an_entry_that_one_bookie_has_may_never_have_been_acknowledged():
    """The view before it may still be the one in use."""
    cursor = Cursor()
    cursor.add(0, 12)
    cursor.add(1, 13, cursor.bookies[0])
    found = cursor.read()
    assert isinstance(found, UnreadableNode)
    assert "entry 1 is not on as many bookies as confirm it" in found.why


def test_one_silent_bookie_hides_nothing_two_may():
    cursor = Cursor()
    cursor.add(0, 12)
    cursor.cluster.bookies[cursor.bookies[0]].up = False
    assert view_in(cursor.read()) == 12
    cursor.cluster.bookies[cursor.bookies[1]].up = False
    assert isinstance(cursor.read(), UnreadableNode)


def test_a_bookie_that_lost_its_disk_says_nothing():
    cursor = Cursor()
    cursor.add(0, 12, cursor.bookies[0])
    assert isinstance(cursor.read(), UnreadableNode)


def test_a_damaged_copy_counts_for_nothing():
    cursor = Cursor()
    cursor.add(0, 12, *cursor.bookies[:2])
    cursor.add(0, 12, cursor.bookies[2], damaged=True)
    assert view_in(cursor.read()) == 12
    cursor.add(0, 12, cursor.bookies[1], damaged=True)
    assert isinstance(cursor.read(), UnreadableNode)


def test_entries_that_are_striped():
    cursor = Cursor(ensemble=3, write_quorum=2, ack_quorum=2)
    for entry in range(5):
        cursor.add(entry, 10 + entry, *cursor.metadata.write_set(entry))
    assert view_in(cursor.read()) == 14


def test_a_closed_ledger_says_which_entry_it_is():
    cursor = Cursor()
    cursor.add(0, 12)
    cursor.add(1, 13, cursor.bookies[0])  # cut off by its recovery
    cursor.close(0)
    assert view_in(cursor.read()) == 12
    for bookie in cursor.bookies[:2]:
        cursor.cluster.bookies[bookie].up = False
    assert view_in(cursor.read()) == 12


@pytest.mark.parametrize("payload", [b'{"json": 1}', b"", b"\xff\xff"])
def test_what_is_no_position_is_not_known(payload):
    cursor = Cursor()
    cursor.add(0, None, payload=payload)
    assert isinstance(cursor.read(), UnreadableNode)


def test_a_ledger_that_is_gone_empty_or_damaged_is_not_known():
    cursor = Cursor()
    assert isinstance(cursor.read(), UnreadableNode)  # no bookie has anything
    cursor.close(-1)
    assert isinstance(cursor.read(), UnreadableNode)
    cursor.cluster.metadata.cluster.put_ledger(LEDGER, b"damaged")
    assert isinstance(cursor.read(), UnreadableNode)
    cursor.cluster.metadata.cluster.delete_ledger(LEDGER)
    assert cursor.read() == UnreadableNode(0, f"there is no ledger {LEDGER}")


def test_an_id_that_no_ledger_can_have():
    cursor = Cursor()
    bookies, tree = cursor.cluster.client()
    found = LastEntries(PatientNodes(tree.nodes), bookies, tree.path_of, 0.01).of({NAME: 2**70})
    assert isinstance(found[NAME], UnreadableNode)
