"""Ledgers that nobody refers to, made in every way that stock Pulsar has, on real processes: found, deleted under
guard, and nothing else is lost.

One cluster for everything here. A test leaves it as it found it, but for brokers that it killed.
"""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration.bookkeeper.contents import Contents
from integration.bookkeeper.official import Shape
from integration.lifecycle import bequests, topics
from integration.lifecycle.bequests import BEQUESTS
from integration.lifecycle.commands import QUARANTINE, Commands
from integration.lifecycle.ground import KEPT, TRIMMED, Ground
from integration.lifecycle.looking import Looking, looking
from integration.lifecycle.makings import MAKINGS, LeftBehind, roll_cut, trim_cut
from integration.lifecycle.reading import account, controls, everything
from integration.lifecycle.rounds import SENT, Outcome, Session, checking, paused_round, plainly, rewriting
from integration.lifecycle.soak import offloading_cluster
from integration.starting import started
from offloader.bookkeeper.managed_ledgers import decode_record
from offloader.lifecycle.deletion.guarded import GuardedOutcome
from offloader.lifecycle.ledgers.evidence import LedgerVerdict, Standing
from offloader.lifecycle.ledgers.kinds import LedgerKind
from offloader.lifecycle.ledgers.refusals import RefusalKind
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.model import TopicName

pytestmark = pytest.mark.pulsar

BOOKKEEPERS_OWN = 36
"""Bytes before an entry's payload: ids, LAC, length, CRC32C."""
GONE = {"application": "pulsar", "component": "managed-ledger", "pulsar/managed-ledger": f"{KEPT}/persistent/gone"}


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with started(tmp_path_factory.mktemp("lifecycle"), offloading_cluster) as cluster:
        ground = Ground(cluster)
        yield ground
        ground.close()


@pytest.fixture(scope="module")
def product(ground: Ground) -> Iterator[Looking]:
    with looking(ground.cluster) as found:
        yield found


@dataclass
class Scene:
    """Topics that are in use, and orphans of every making beside them. `said`: what the topics said before."""

    topics: dict[str, TopicName]
    said: dict
    made: list[LeftBehind]
    foreign: dict[str, int]
    package: int
    scan: LedgerScan


@dataclass
class Used:
    """Topics that are in use. `said`: what they said before anything else was there."""

    topics: dict[str, TopicName]
    said: dict


@pytest.fixture(scope="module")
def used(ground: Ground) -> Used:
    topics = controls(ground)
    return Used(topics, everything(ground, topics))


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
        assert _copies(ground, verdict.ledger.ledger) == {}, verdict
    assert everything(ground, scene.topics) == scene.said
    after = product.scan()
    assert not after.missing
    assert {one.ledger.ledger for one in after.verdicts}.isdisjoint(one.ledger.ledger for one in going)


def test_the_commands_take_orphans_through_both_phases_and_one_of_them_back(
    ground: Ground, used: Used, tmp_path: Path
) -> None:
    """By the command line alone. One bookie has collected when one deletion is undone, the other one has not."""
    cut = {one.ledger for one in trim_cut(ground)}
    back = _closed_orphan(ground)
    ground.cluster.all_back()
    offloader = Commands.beside(ground.cluster, tmp_path, KEPT)
    copies = _copies(ground, back)
    assert {len(entries) for entries in copies.values()} == {10}
    assert {one["outcome"] for one in offloader("orphans", "quarantine", "--all-certain")["marks"]} == {
        "would be marked"
    }
    said = offloader("orphans", "quarantine", "--all-certain", "--yes")
    marked = {one["id"] for one in said["marks"] if one["outcome"] == "marked"}
    assert marked >= {*cut, back}
    assert not said["refusals"]
    assert offloader("orphans", "purge", "--yes")["due"] == 0  # the quarantine is not over
    assert marked <= ground.ledgers()
    offloader("orphans", "undo", min(cut))
    time.sleep(QUARANTINE)
    purged = offloader("orphans", "purge", "--yes")
    assert {one["id"] for one in purged["ended"] if one["answer"] == "deleted"} == marked - {min(cut)}
    assert (purged["failed"], purged["gaveUp"], purged["refusals"]) == ([], [], [])
    assert ground.ledgers() & marked == {min(cut)}
    ground.cluster.collect(1)
    undone = offloader("orphans", "undo", back, code=2)  # it is there again, without some copies
    first, second = (one.id for one in ground.cluster.books.bookies)
    assert (undone["entries"], undone["lost"]) == (10, [])
    assert {one["bookie"]: (one["there"], one["gone"]) for one in undone["copies"]} == {first: (0, 10), second: (10, 0)}
    ground.cluster.collect()
    assert _copies(ground, back) == {second: copies[second]}
    for ledger in marked - {back, min(cut)}:
        assert _copies(ground, ledger) == {}, ledger
    assert everything(ground, used.topics) == used.said
    states = {one["id"]: one["state"] for one in offloader.lines("orphans", "list")}
    assert states == {one: "undone" if one in (back, min(cut)) else "deleted" for one in marked}
    again = {one["id"]: one["outcome"] for one in offloader("orphans", "quarantine", "--all-certain", "--yes")["marks"]}
    assert again == {back: "spared", min(cut): "spared"}  # somebody wanted them
    for ledger in (back, min(cut)):
        ground.cluster.books.official.call("delete", ledger=ledger)


def test_entries_that_a_rollback_of_metadata_left_behind_are_rescued_before_their_ledger_goes(
    ground: Ground, tmp_path: Path
) -> None:
    """Acknowledged messages, of which the list knows nothing any more: read again once every bookie has forgotten."""
    ground.cluster.all_back()
    topic = ground.new_topic("rolled-back")
    said = [_said_in_a_ledger_of_its_own(ground, topic, first) for first in (0, 8, 16)]
    cut = _cut_out_of_the_list(ground, topic, 1)
    ground.load(topic)
    copies = _copies(ground, cut)
    offloader = Commands.beside(ground.cluster, tmp_path, KEPT)
    before = offloader("orphans", "explain", cut)
    assert (before["verdict"], before["kept"]) == ("certain", True)
    assert offloader("ledgers", "delete", cut, "--yes", code=2)["answer"] == "denied"
    done = offloader("orphans", "rescue", cut, "--yes")
    assert (done["outcome"], done["rescue"]["entries"], done["rescue"]["missing"]) == ("rescued", 8, [])
    assert any("were rescued on" in text for text in offloader("orphans", "explain", cut)["evidence"])
    assert cut not in {one["id"] for one in offloader("orphans", "quarantine", "--all-certain")["marks"]}
    assert offloader("ledgers", "delete", cut, "--yes")["answer"] == "marked"
    time.sleep(QUARANTINE)
    purged = offloader("orphans", "purge", "--yes")
    assert [(one["id"], one["answer"]) for one in purged["ended"]] == [(cut, "deleted")]
    ground.cluster.collect()
    assert _copies(ground, cut) == {}
    read = [b64decode(one["payload"]) for one in offloader.lines("orphans", "read", cut)]
    assert read == said[1]
    entries = [b64decode(one["data"]) for one in offloader.lines("orphans", "read", cut, "--entries")]
    assert {bookie: [one[BOOKKEEPERS_OWN:] for one in given] for bookie, given in copies.items()} == dict.fromkeys(
        copies, entries
    )
    assert [data for _, _, data in ground.read(topic)] == [*said[0], *said[2]]
    assert offloader("orphans", "scan", "--bucket-only")["candidates"] == []


def _said_in_a_ledger_of_its_own(ground: Ground, topic: TopicName, first: int) -> list[bytes]:
    said = ground.produce(topic, 8, first=first)  # fewer than a ledger takes here
    ground.unload(topic)
    return said


def _cut_out_of_the_list(ground: Ground, topic: TopicName, number: int) -> int:
    """As an older copy of the node, or an edit, would have it."""
    path = ground.tree.topic_path(topic)
    node = ground.tree.nodes.get(path, latest=True)
    assert node is not None
    info = decode_record(node.value)
    ledger = int(info.ledgerInfo[number].ledgerId)
    del info.ledgerInfo[number]
    assert ground.tree.nodes.set(path, info.SerializeToString(), node.version) is not None
    return ledger


def test_the_doctor_fails_where_the_floor_was_lowered(ground: Ground, tmp_path: Path) -> None:
    ground.cluster.all_back()
    checks = Commands.beside(ground.cluster, tmp_path, KEPT).lines("doctor", code=2)
    (floor,) = [one for one in checks if one["check"] == "quarantine-floor"]
    assert floor["verdict"] == "fail"


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
    ledger = _closed_orphan(ground)
    before = _copies(ground, ledger)
    assert {len(entries) for entries in before.values()} == {10}
    assert len(before) == 2
    _delete_and_undo(ground, product, ledger, collected=0)
    assert _copies(ground, ledger) == before
    _delete_and_undo(ground, product, ledger, collected=1)
    assert _copies(ground, ledger) == dict(list(before.items())[1:])  # the first one's copies are gone
    _delete_and_undo(ground, product, ledger, collected=2)
    assert _copies(ground, ledger) == {}


def _closed_orphan(ground: Ground) -> int:
    return ground.cluster.books.official.write(Shape(2, 2, 2), 10, Contents(seed=7, smallest=1), custom=GONE)


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


def _copies(ground: Ground, ledger: int) -> dict[str, list[bytes]]:
    """What each bookie gives of the ledger's first entries."""
    official = ground.cluster.books.official
    found = {}
    for bookie in ground.cluster.books.bookies:
        answers = official.ask(bookie.id, ledger, 0, 9)
        entries = [one for one in answers if isinstance(one, bytes)]
        if entries:
            found[bookie.id] = entries
    return found
