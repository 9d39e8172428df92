"""A suspect data ledger that an operator asked for: whoever is about to list it loses the race, and nothing else."""

from __future__ import annotations

import pytest

from offloader.bookkeeper.model import LedgerState
from offloader.bookkeeper.nodes import DeleteNode
from offloader.errors import VersionConflictError
from offloader.lifecycle.deletion.marking import MarkOutcome
from offloader.lifecycle.deletion.quarantine import Quarantine
from offloader.lifecycle.deletion.records import DeletionAnswer, DeletionProof, DeletionState

from .cluster import DAY, NAMESPACE, list_node
from .test_service import DELETED, Setting

SUSPECT = 2000  # its topic's list ends with 1000


@pytest.fixture
def setting():
    it = Setting()
    it.on()
    it.cluster.ledger(1000, "t")
    it.cluster.list_ledgers("t", 1000)
    return it


def demanded(setting: Setting, *ledgers: int, loaded=dict) -> list[MarkOutcome]:
    setting.later()
    side, named = setting.cluster.side(loaded=loaded), set(ledgers)
    phase = Quarantine(setting.queue, side, setting.bounds, lambda: setting.cluster.now_ms, "test")
    return [one.outcome for one in phase.mark(side.scanner.scan(named), named, suspect=True).marks]


def marked(setting: Setting, *ledgers: int) -> None:
    assert demanded(setting, *ledgers) == [MarkOutcome.MARKED] * len(ledgers)
    assert {setting.record(one).evidence.proof for one in ledgers} == {DeletionProof.ON_DEMAND}
    setting.later()


class Before:
    """Nodes at which somebody does something right before a ledger's node is deleted."""

    def __init__(self, setting: Setting, does) -> None:
        self._nodes, self._does = setting.cluster.metadata.nodes, does

    def __getattr__(self, name):
        return getattr(self._nodes, name)

    def multi(self, operations):
        if isinstance(operations[-1], DeleteNode):
            self._does()
        self._nodes.multi(operations)


def test_an_open_one_is_closed_first_and_the_list_keeps_its_bytes(setting):
    setting.cluster.ledger(SUSPECT, "t", 0, is_open=True)
    marked(setting, SUSPECT)
    before = setting.cluster.metadata.nodes.get(list_node("t"))
    setting.service().round()
    after = setting.cluster.metadata.nodes.get(list_node("t"))
    assert setting.end_of(SUSPECT) == DELETED
    assert (after.value, after.version) == (before.value, before.version + 1)


def test_entries_that_show_once_it_is_closed_are_kept(setting):
    setting.cluster.ledger(SUSPECT, "t", 2, is_open=True)
    marked(setting, SUSPECT)
    setting.service().round()
    assert setting.end_of(SUSPECT) == (DeletionState.KEPT, DeletionAnswer.HOLDS_DATA)
    assert SUSPECT in setting.cluster.ledger_ids()


def test_one_whose_topic_a_broker_has_loaded_is_not_marked_and_later_not_closed(setting):
    def loaded():
        return {f"persistent://{NAMESPACE}/t": "broker-1"}

    setting.cluster.ledger(SUSPECT, "t", 0, is_open=True)
    assert demanded(setting, SUSPECT, loaded=loaded) == [MarkOutcome.NOT_DELETABLE]
    marked(setting, SUSPECT)
    setting.service(setting.cluster.side(loaded=loaded)).round()
    assert setting.cluster.metadata.read(SUSPECT).metadata.state is LedgerState.OPEN
    assert "broker-1" in setting.record(SUSPECT).reason


def test_a_broker_that_stood_still_cannot_list_what_is_gone(setting):
    setting.cluster.ledger(SUSPECT, "t", 0)
    nodes = setting.cluster.metadata.nodes
    read = nodes.get(list_node("t"))
    marked(setting, SUSPECT)
    setting.service().round()
    assert setting.end_of(SUSPECT) == DELETED
    with pytest.raises(VersionConflictError):
        nodes.set(list_node("t"), b"with 2000", read.version)


def test_a_guard_that_only_checks_would_let_it_be_listed(setting, monkeypatch):
    """The broken variant: what the test above catches."""
    from offloader.lifecycle.deletion import guard

    monkeypatch.setattr(guard, "_rewritten", guard._checked)
    setting.cluster.ledger(SUSPECT, "t", 0)
    read = setting.cluster.metadata.nodes.get(list_node("t"))
    marked(setting, SUSPECT)
    setting.service().round()
    assert setting.end_of(SUSPECT) == DELETED
    assert setting.cluster.metadata.nodes.set(list_node("t"), b"with 2000", read.version) is not None


def test_one_that_is_listed_right_before_the_transaction_stays(setting):
    setting.cluster.ledger(SUSPECT, "t", 0)
    marked(setting, SUSPECT)
    side = setting.cluster.side(Before(setting, lambda: setting.cluster.list_ledgers("t", 1000, SUSPECT)))
    setting.service(side).round()
    setting.later()
    setting.service().round()
    assert setting.end_of(SUSPECT) == (DeletionState.KEPT, DeletionAnswer.STILL_IN_USE)
    assert SUSPECT in setting.cluster.ledger_ids()


def test_one_that_became_certain_waits_anew_and_goes_as_such(setting):
    setting.cluster.ledger(SUSPECT, "t", 0)
    marked(setting, SUSPECT)
    setting.cluster.list_ledgers("t", 1000, 3000)
    setting.service().round()
    assert (setting.record(SUSPECT).state, setting.record(SUSPECT).evidence.proof) == (
        DeletionState.MARKED,
        DeletionProof.PASSED_BY,
    )
    setting.later(DAY + 1)
    setting.service().round()
    assert setting.end_of(SUSPECT) == DELETED


def test_several_of_one_topic_go_one_after_the_other(setting):
    """Each writes the list, so the others look again."""
    for ledger in (SUSPECT, 2001, 2002):
        setting.cluster.ledger(ledger, "t", 0)
    marked(setting, SUSPECT, 2001, 2002)
    for _ in range(3):
        setting.service().round()
        setting.later()
    assert [setting.end_of(one) for one in (SUSPECT, 2001, 2002)] == [DELETED] * 3
