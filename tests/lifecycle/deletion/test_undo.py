"""The second chance: a ledger's node is created again, and every copy of every entry is asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.bookkeeper.model import LedgerState
from offloader.bookkeeper.nodes import AclEntry
from offloader.errors import FatalError, OutcomeUnknownError
from offloader.lifecycle.deletion.machine import undone
from offloader.lifecycle.deletion.marking import MarkOutcome
from offloader.lifecycle.deletion.quarantine import Quarantine
from offloader.lifecycle.deletion.records import DeletionState
from offloader.lifecycle.deletion.undo import LedgerCopies, recreate_ledger

from .cluster import OrphanCluster
from .test_service import DELETED, Setting

NO_WAY_BACK = (
    "once it is deleted, `orphans undo` will not be possible: ZooKeeper hides from us who may do what "
    "with its nodes, so they could only be created again by hand"
)
DEFAULT_GC_WAIT_MS = 900_000

ACL = (AclEntry(31, "digest", "us:hash"),)


@pytest.fixture
def setting():
    """Ledger 5 was deleted by us: three entries on two of three bookies each."""
    it = Setting()
    it.on()
    it.cluster.ledger(5, "gone", 3)
    path, nodes = it.cluster.path(5), it.cluster.metadata.nodes
    value = nodes.get(path).value
    nodes.delete(path)
    nodes.create(path, value, ACL)
    it.later()
    assert [one.outcome for one in it.mark().marks] == [MarkOutcome.MARKED]
    it.later()
    it.service().round()
    assert it.end_of(5) == DELETED
    return it


def recreate(cluster: OrphanCluster, record):
    return recreate_ledger(cluster.client()[1], record)


def copies_of(cluster: OrphanCluster, **more) -> LedgerCopies:
    return LedgerCopies(cluster.client()[0], **more)


def test_the_node_is_there_again_with_bytes_and_acl_and_every_copy_was_read(setting):
    record = setting.record(5)
    undo = copies_of(setting.cluster)
    done = undo.check(5, recreate(setting.cluster, record))
    node = setting.cluster.metadata.nodes.get(setting.cluster.path(5), with_acl=True)
    assert (node.value, node.acl, node.version) == (record.node.data, ACL, 0)
    assert (done.whole, done.entries, done.lost_number, done.unknown) == (True, 3, 0, 0)
    assert sum(one.there for one in done.copies) == 6


def test_repeated_it_does_nothing_more(setting):
    recreate(setting.cluster, setting.record(5))
    before = setting.cluster.metadata.nodes.get(setting.cluster.path(5))
    recreate(setting.cluster, setting.record(5))
    assert setting.cluster.metadata.nodes.get(setting.cluster.path(5)) == before


def test_another_ledger_of_the_id_is_left_alone(setting):
    setting.cluster.ledger(5, "gone", 1)
    before = setting.cluster.metadata.nodes.get(setting.cluster.path(5))
    with pytest.raises(FatalError, match="another one"):
        recreate(setting.cluster, setting.record(5))
    assert setting.cluster.metadata.nodes.get(setting.cluster.path(5)) == before


def test_a_lost_answer_is_looked_up(setting):
    setting.cluster.metadata.nodes.lost_answers = 1
    recreate(setting.cluster, setting.record(5))
    assert 5 in setting.cluster.ledger_ids()


def test_a_lost_request_is_told(setting):
    setting.cluster.metadata.nodes.lost_requests = 1
    with pytest.raises(OutcomeUnknownError):
        recreate(setting.cluster, setting.record(5))


def test_only_a_closed_ledger_comes_back(setting):
    setting.cluster.ledger(6, "gone", 0, is_open=True)
    open_one = setting.cluster.metadata.nodes.get(setting.cluster.path(6)).value
    record = replace(setting.record(5), node=replace(setting.record(5).node, data=open_one))
    with pytest.raises(FatalError, match="not closed"):
        recreate(setting.cluster, record)
    with pytest.raises(FatalError, match="cannot be read"):
        recreate(setting.cluster, replace(record, node=replace(record.node, data=b"damaged")))
    assert 5 not in setting.cluster.ledger_ids()


def test_an_acl_that_was_hidden_from_us_is_not_written(setting):
    record = setting.record(5)
    hidden = replace(record, node=replace(record.node, acl=(AclEntry(31, "digest", "us:x"),)))
    with pytest.raises(FatalError, match="by hand"):
        recreate(setting.cluster, hidden)
    assert 5 not in setting.cluster.ledger_ids()


def test_an_undo_while_a_paused_process_is_about_to_close_leaves_it_closed_and_whole():
    it = Setting()
    it.on()
    it.cluster.ledger(5, "gone", 3, is_open=True)
    it.later()
    it.mark()
    it.later()
    side = it.cluster.side()
    close = side.close

    def paused(record):
        it.queue.change(record.name, lambda one: undone(one, it.cluster.now_ms))
        return close(record)

    side.close = paused
    it.service(side).round()
    for _ in range(3):
        it.later()
        it.service().round()
    assert it.record(5).state is DeletionState.UNDONE
    metadata = it.cluster.metadata.read(5).metadata
    assert (metadata.state, metadata.last_entry) == (LedgerState.CLOSED, 2)
    assert not copies_of(it.cluster).check(5, metadata).lost_number


@pytest.mark.parametrize(("identity", "said"), [("us:x", NO_WAY_BACK), ("us:hash", "")])
@pytest.mark.parametrize("dry", [True, False])
def test_who_marks_hears_that_there_will_be_no_way_back(identity, said, dry):
    """While it can still be left, and before anything is written."""
    it = Setting()
    it.cluster.ledger(5, "gone", 3)
    path, nodes = it.cluster.path(5), it.cluster.metadata.nodes
    value = nodes.get(path).value
    nodes.delete(path)
    nodes.create(path, value, (AclEntry(31, "digest", identity),))
    it.later()
    side = it.cluster.side()
    phase = Quarantine(it.queue, side, it.bounds, lambda: it.cluster.now_ms, "test", dry)
    (mark,) = phase.mark(side.scanner.scan({5})).marks
    assert (mark.outcome, mark.why) == (MarkOutcome.WOULD_BE_MARKED if dry else MarkOutcome.MARKED, said)
    assert mark.record.node.acl_is_hidden == bool(said)


def test_what_bookies_have_collected_is_told_copy_by_copy(setting):
    undo = copies_of(setting.cluster, window_ms=lambda bookie: 30_000 if bookie.startswith("b1") else None)
    metadata = recreate(setting.cluster, setting.record(5))
    collected = metadata.write_set(0)[0]
    del setting.cluster.bookies[collected].memory.ledgers[5]
    done = undo.check(5, metadata)
    by_bookie = {one.bookie: one for one in done.copies}
    assert not done.whole
    assert by_bookie[collected].gone == 2
    assert by_bookie[collected].there == 0
    assert done.lost_number == 0
    assert {one.window_ms for one in done.copies} == {30_000, DEFAULT_GC_WAIT_MS}
    assert [one.asked for one in done.copies] == [one.bookie.startswith("b1") for one in done.copies]


def test_entries_that_nobody_has_any_more_are_named(setting):
    undo = copies_of(setting.cluster)
    metadata = recreate(setting.cluster, setting.record(5))
    for bookie in set(metadata.write_set(1)):
        del setting.cluster.bookies[bookie].memory.ledgers[5]
    done = undo.check(5, metadata)
    assert done.lost == (1,)


def test_a_bookie_that_is_down_leaves_it_unknown(setting):
    undo = copies_of(setting.cluster)
    metadata = recreate(setting.cluster, setting.record(5))
    for bookie in set(metadata.write_set(1)):
        setting.cluster.bookies[bookie].up = False
    done = undo.check(5, metadata)
    assert (done.lost_number, done.unknown) == (0, 1)
    assert not done.whole
