"""Ledgers that nobody refers to, made in every way that stock Pulsar has, on real processes: found, deleted under
guard, and nothing else is lost.

One cluster for everything here. A test leaves it as it found it, but for brokers that it killed.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from integration.lifecycle import bequests, topics
from integration.lifecycle.bequests import BEQUESTS, closed_orphan
from integration.lifecycle.conftest import Used
from integration.lifecycle.ground import KEPT, TRIMMED, Ground
from integration.lifecycle.looking import Looking
from integration.lifecycle.makings import MAKINGS, LeftBehind, roll_cut, trim_cut
from integration.lifecycle.reading import account, copies, everything
from integration.lifecycle.rounds import SENT, Outcome, Session, checking, paused_round, plainly, rewriting
from offloader.lifecycle.deletion.guarded import GuardedOutcome
from offloader.lifecycle.ledgers.evidence import LedgerVerdict, Standing
from offloader.lifecycle.ledgers.kinds import LedgerKind
from offloader.lifecycle.ledgers.refusals import RefusalKind
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.model import TopicName

pytestmark = pytest.mark.pulsar


@dataclass
class Scene:
    """Topics that are in use, and orphans of every making beside them. `said`: what the topics said before."""

    topics: dict[str, TopicName]
    said: dict
    made: list[LeftBehind]
    foreign: dict[str, int]
    package: int
    scan: LedgerScan


@pytest.fixture(scope="module")
def scene(ground: Ground, product: Looking, used: Used) -> Scene:
    made = [one for make in (*MAKINGS.values(), *BEQUESTS.values()) for one in make(ground)]
    ground.cluster.all_back()
    foreign, package = bequests.foreign_ledgers(ground), bequests.package_ledger(ground)
    return Scene(used.topics, used.said, made, foreign, package, product.scan())


def test_just_the_orphans_are_found(ground: Ground, scene: Scene) -> None:
    found = {one.ledger.ledger: one for one in scene.scan.verdicts}
    wanted = {one.ledger: one for one in scene.made}
    assert {one.making for one in scene.made} == {*MAKINGS, *BEQUESTS} - {"deleted transactional"}
    for ledger, one in wanted.items():
        assert ledger in found, one
        assert (found[ledger].kind, found[ledger].standing) == (one.kind, one.standing), (one, found[ledger])
    by_itself = [verdict for ledger, verdict in found.items() if ledger not in wanted]
    assert {one.kind for one in by_itself} <= {LedgerKind.SCHEMA, LedgerKind.HEALTH_CHECK}, by_itself
    assert found.keys().isdisjoint({*scene.foreign.values(), scene.package})
    assert scene.scan.counts[Standing.FOREIGN] == len(scene.foreign)
    assert not scene.scan.missing
    assert not scene.scan.refusals
    used = account(ground, (KEPT, TRIMMED, "pulsar/system"))
    assert len(used) > 20
    assert not used & found.keys()


def test_pending_acknowledgements_of_a_topic_that_is_gone_are_found_as_a_whole(ground: Ground, scene: Scene) -> None:
    """And those of a topic that is there are not."""
    (leftover,) = scene.scan.leftovers
    assert leftover.standing is Standing.CERTAIN
    assert leftover.name != topics.pending_acks(scene.topics["transactional"])
    assert set(leftover.ledgers) <= ground.naming(managed_ledger=leftover.name)
    assert leftover.ledgers


def test_whoever_uses_a_topic_notices_nothing_of_the_deletion(ground: Ground, product: Looking, scene: Scene) -> None:
    """Certain ones go under guard, in every bookie. What the topics say is what they said before."""
    going = [one for one in scene.scan.verdicts if one.deletable]
    assert {one.kind for one in going} >= {
        LedgerKind.DATA,
        LedgerKind.CURSOR,
        LedgerKind.COMPACTED_VIEW,
        LedgerKind.DELAYED_INDEX,
    }
    for verdict in going:
        again = product.verdict(verdict.ledger.ledger)
        assert again.standing is Standing.CERTAIN
        done = product.delete(again)
        assert done.outcome is GuardedOutcome.DELETED, done
    ground.cluster.collect()
    for verdict in going:
        assert copies(ground, verdict.ledger.ledger) == {}, verdict
    assert everything(ground, scene.topics) == scene.said
    after = product.scan()
    assert not after.missing
    assert {one.ledger.ledger for one in after.verdicts}.isdisjoint(one.ledger.ledger for one in going)


def test_a_suspect_one_becomes_certain_once_its_topic_is_loaded(ground: Ground, product: Looking) -> None:
    (left,) = roll_cut(ground)
    ground.cluster.all_back()
    assert product.verdict(left.ledger).standing is Standing.SUSPECT
    ground.load(left.topic)
    assert product.verdict(left.ledger).standing is Standing.CERTAIN


def test_another_clusters_ledger_stops_all_deletion(ground: Ground, product: Looking) -> None:
    other = bequests.of_another_cluster(ground)
    scan = product.scan()
    assert RefusalKind.ANOTHER_CLUSTER in {one.kind for one in scan.refusals}
    assert other not in {one.ledger.ledger for one in scan.verdicts}
    ground.cluster.books.official.call("delete", ledger=other)
    assert not product.scan().refusals


@pytest.mark.parametrize("session", Session)
def test_a_broker_that_stood_still_while_its_new_ledger_was_deleted_loses_nothing(
    ground: Ground, product: Looking, session: Session
) -> None:
    outcome = paused_round(ground, rewriting(product), session)
    assert outcome == Outcome(SENT, SENT, SENT, GuardedOutcome.DELETED.name)


def test_a_broker_that_stood_still_while_certain_ones_were_deleted_loses_nothing(
    ground: Ground, product: Looking
) -> None:
    left = trim_cut(ground)
    topic = left[0].topic
    ground.subscribe(topic, topics.SUBSCRIPTION)  # from here on nothing is trimmed
    outcome = paused_round(ground, checking(product, [one.ledger for one in left]), topic=topic)
    assert outcome == Outcome(SENT, SENT, SENT, GuardedOutcome.DELETED.name)


def test_without_the_guard_acknowledged_messages_are_lost(ground: Ground, product: Looking) -> None:
    """So these rounds would notice."""
    outcome = paused_round(ground, plainly(product))
    assert outcome.told == SENT
    assert outcome.lost > 0


def test_a_deletion_is_undone_until_the_bookies_have_collected(ground: Ground, product: Looking) -> None:
    ledger = closed_orphan(ground)
    before = copies(ground, ledger)
    assert {len(entries) for entries in before.values()} == {10}
    assert len(before) == 2
    _delete_and_undo(ground, product, ledger, collected=0)
    assert copies(ground, ledger) == before
    _delete_and_undo(ground, product, ledger, collected=1)
    assert copies(ground, ledger) == dict(list(before.items())[1:])  # the first one's copies are gone
    _delete_and_undo(ground, product, ledger, collected=2)
    assert copies(ground, ledger) == {}


def _delete_and_undo(ground: Ground, product: Looking, ledger: int, *, collected: int) -> None:
    ground.cluster.all_back()
    path = product.tree.path_of(ledger)
    saved = product.tree.nodes.get(path, latest=True, with_acl=True)
    assert saved is not None
    verdict: LedgerVerdict = product.verdict(ledger)
    assert verdict.deletable
    assert product.delete(verdict).outcome is GuardedOutcome.DELETED
    ground.cluster.collect(collected)
    product.tree.nodes.create(path, saved.value, saved.acl)
