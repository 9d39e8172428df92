"""The command line takes orphans through both phases on real processes, and some of them back. Whoever uses topics
notices nothing."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import pytest

from integration.lifecycle import topics
from integration.lifecycle.bequests import (
    closed_orphan,
    created_again,
    delete,
    deleted_namespace,
    of_a_gone_broker,
    offloaded_cut,
)
from integration.lifecycle.commands import Commands
from integration.lifecycle.conftest import Used
from integration.lifecycle.ground import KEPT, Ground, list_of
from integration.lifecycle.makings import roll_cut, trim_cut
from integration.lifecycle.reading import copies, everything
from offloader.lifecycle.ledgers.references import list_path
from offloader.model import TopicName
from offloader.state.managed_ledger_codec import decode_record

pytestmark = pytest.mark.pulsar

BOOKKEEPERS_OWN = 36
"""Bytes before an entry's payload: ids, LAC, length, CRC32C."""


def test_the_commands_take_orphans_through_both_phases_and_one_of_them_back(
    ground: Ground, used: Used, tmp_path: Path
) -> None:
    """By the command line alone. One bookie has collected when one deletion is undone, the other one has not."""
    cut = {one.ledger for one in trim_cut(ground)}
    back = closed_orphan(ground)
    offloader = Commands.beside(ground.cluster, tmp_path, KEPT)
    whole = copies(ground, back)
    assert {len(entries) for entries in whole.values()} == {10}
    assert {one["outcome"] for one in offloader("orphans", "quarantine", "--all-certain")["marks"]} == {
        "would be marked"
    }
    said = offloader("orphans", "quarantine", "--all-certain", "--yes")
    marked = {one["id"] for one in said["marks"] if one["outcome"] == "marked"}
    assert marked >= {*cut, back}
    assert not said["refusals"]
    assert marked <= ground.ledgers()
    offloader("orphans", "undo", min(cut))
    assert offloader.purge() == dict.fromkeys(marked - {min(cut)}, "deleted")
    assert ground.ledgers() & marked == {min(cut)}
    ground.cluster.collect(1)
    undone = offloader("orphans", "undo", back, code=2)  # it is there again, without some copies
    first, second = (one.id for one in ground.cluster.books.bookies)
    assert (undone["entries"], undone["lost"]) == (10, [])
    assert {one["bookie"]: (one["there"], one["gone"]) for one in undone["copies"]} == {first: (0, 10), second: (10, 0)}
    ground.cluster.collect()
    assert copies(ground, back) == {second: whole[second]}
    for ledger in marked - {back, min(cut)}:
        assert copies(ground, ledger) == {}, ledger
    assert everything(ground, used.topics) == used.said
    states = {one["id"]: one["state"] for one in offloader.lines("orphans", "list")}
    assert states == {one: "undone" if one in (back, min(cut)) else "deleted" for one in marked}
    again = {one["id"]: one["outcome"] for one in offloader("orphans", "quarantine", "--all-certain", "--yes")["marks"]}
    assert again == {back: "spared", min(cut): "spared"}  # somebody wanted them
    for ledger in (back, min(cut)):
        ground.cluster.books.official.call("delete", ledger=ledger)


def test_the_doctor_fails_where_the_floor_was_lowered(ground: Ground, tmp_path: Path) -> None:
    checks = Commands.beside(ground.cluster, tmp_path, KEPT).lines("doctor", code=2)
    (floor,) = [one for one in checks if one["check"] == "quarantine-floor"]
    assert floor["verdict"] == "fail"


def test_entries_that_a_rollback_of_metadata_left_behind_are_rescued_before_their_ledger_goes(
    ground: Ground, tmp_path: Path
) -> None:
    """Acknowledged messages, of which the list knows nothing any more: read again once every bookie has forgotten."""
    topic = ground.new_topic("rolled-back")
    said = [_said_in_a_ledger_of_its_own(ground, topic, first) for first in (0, 8, 16)]
    cut = _cut_out_of_the_list(ground, topic, 1)
    ground.load(topic)
    stored = copies(ground, cut)
    offloader = Commands.beside(ground.cluster, tmp_path, KEPT)
    before = offloader("orphans", "explain", cut)
    assert (before["verdict"], before["kept"]) == ("certain", True)
    assert offloader("ledgers", "delete", cut, "--yes", code=2)["answer"] == "denied"
    done = offloader("orphans", "rescue", cut, "--yes")
    assert (done["outcome"], done["rescue"]["entries"], done["rescue"]["missing"]) == ("rescued", 8, [])
    assert any("were rescued on" in text for text in offloader("orphans", "explain", cut)["evidence"])
    every = offloader("orphans", "quarantine", "--all-certain")["marks"]
    assert {one["outcome"] for one in every if one["id"] == cut} == {"kept"}
    assert offloader("ledgers", "delete", cut, "--yes")["answer"] == "marked"
    assert offloader.purge() == {cut: "deleted"}
    ground.cluster.collect()
    assert copies(ground, cut) == {}
    read = [b64decode(one["payload"]) for one in offloader.lines("orphans", "read", cut)]
    assert read == said[1]
    entries = [b64decode(one["data"]) for one in offloader.lines("orphans", "read", cut, "--entries")]
    assert {bookie: [one[BOOKKEEPERS_OWN:] for one in given] for bookie, given in stored.items()} == dict.fromkeys(
        stored, entries
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


def test_pending_acknowledgements_of_a_deleted_topic_go_as_a_whole_and_then_their_ledgers(
    ground: Ground, used: Used, tmp_path: Path
) -> None:
    topic = topics.transactional(ground)
    name = topics.pending_acks(topic)
    ground.owner(topic).kill()  # so some of the ledgers mostly stay open
    delete(ground, topic)
    offloader = Commands.beside(ground.cluster, tmp_path, KEPT)
    (found,) = offloader("orphans", "scan", "--ledgers-only", code=2)["leftOverManagedLedgers"]
    ledgers = ground.naming(managed_ledger=name)  # the next broker may have begun one more before the scan
    assert (found["name"], found["verdict"], set(found["ledgers"]) <= ledgers) == (name, "certain", True)
    assert offloader.delete("--managed-ledger", name) == {name: "deleted"}
    assert ground.zookeeper.exists(list_path(name)) is None
    assert ledgers <= ground.ledgers()
    assert offloader.delete(*ledgers) == dict.fromkeys(ledgers, "deleted")
    ground.cluster.collect()
    assert [copies(ground, one) for one in ledgers] == [{}] * len(ledgers)
    assert everything(ground, used.topics) == used.said


@pytest.mark.usefixtures("credentials")
def test_an_offloaded_ledger_goes_once_its_copy_was_read_back_and_readers_read_the_same(
    ground: Ground, tmp_path: Path
) -> None:
    """A broker died between `bookkeeperDeleted` and the deletion: it would never be tried again."""
    cut = offloaded_cut(ground)
    topic, ledgers = cut[0].topic, {one.ledger for one in cut}
    said = ground.read(topic)
    offloader = Commands.beside(ground.cluster, tmp_path, KEPT)
    for ledger in ledgers:
        assert offloader("orphans", "explain", ledger)["verdict"] == "suspect"  # nobody says where its copy is
    refused = offloader("orphans", "quarantine", *ledgers, "--yes", code=2)
    assert {one["outcome"] for one in refused["marks"]} == {"not deletable"}
    offloader = Commands.beside_the_copies(ground.cluster, tmp_path, KEPT)
    for ledger in ledgers:
        assert offloader("orphans", "explain", ledger)["verdict"] == "certain"
    assert offloader.delete(*ledgers) == dict.fromkeys(ledgers, "deleted")
    ground.cluster.collect()
    assert [copies(ground, one) for one in ledgers] == [{}] * len(ledgers)
    ground.unload(topic)
    assert ground.read(topic) == said
    assert ledgers <= set(ground.listed(topic))
    for one in decode_record(ground.zookeeper.get(list_of(topic))[0]).ledgerInfo:
        if one.ledgerId in ledgers:
            uuid = _uuid(one.offloadContext.uidMsb, one.offloadContext.uidLsb)
            asked = ("ledgers", "delete", one.ledgerId, "--type", "OFFLOAD_LEDGER", "--offload-uuid", uuid, "--yes")
            assert offloader(*asked)["answer"] == "still in use"


def test_a_suspect_ledger_goes_on_demand_and_its_topic_goes_on(ground: Ground, tmp_path: Path) -> None:
    (left,) = roll_cut(ground)
    offloader = Commands.beside(ground.cluster, tmp_path, KEPT)
    assert offloader("ledgers", "delete", left.ledger, "--yes", code=2)["answer"] == "denied"
    before = ground.zookeeper.get(list_of(left.topic))
    marked = offloader("ledgers", "delete", left.ledger, "--topic", left.topic, "--suspect", "--yes")
    assert (marked["answer"], marked["deletion"]["proof"]) == ("marked", "on demand")
    assert offloader.purge() == {left.ledger: "deleted"}
    after = ground.zookeeper.get(list_of(left.topic))
    assert (after[0], after[1].version) == (before[0], before[1].version + 1)
    found = ground.read(left.topic)
    assert len(found) >= 10
    sent = ground.produce(left.topic, 15, first=100)  # over the end of a ledger
    assert [data for _, _, data in ground.read(left.topic)] == [data for _, _, data in found] + sent
    assert left.ledger not in ground.ledgers()


def test_ledgers_that_nothing_proves_to_be_orphans_go_by_name_once_they_were_rescued(
    ground: Ground, tmp_path: Path
) -> None:
    """Of a topic that was created again and is in use, of a deleted namespace, of a broker's health check."""
    topic, before = created_again(ground)
    sent = ground.produce(topic, 5, first=100)
    left = deleted_namespace(ground)
    ledgers = [*before, *(one.ledger for one in left), of_a_gone_broker(ground)]
    offloader = Commands.beside(ground.cluster, tmp_path, KEPT)
    for ledger in ledgers:
        explained = offloader("orphans", "explain", ledger)
        assert explained["verdict"] == "suspect", explained
        assert any(f"orphans quarantine {ledger} --yes" in text for text in explained["evidence"]), explained
    every = offloader("orphans", "quarantine", "--all-certain")["marks"]
    assert not {one["id"] for one in every if one["outcome"] == "would be marked"} & set(ledgers)
    filled = [ledger for ledger in ledgers if ground.metadata(ledger).last_entry >= 0]
    assert len(filled) >= 4
    refused = offloader("orphans", "quarantine", *filled, "--yes", code=2)
    assert {one["outcome"] for one in refused["marks"]} == {"not deletable"}
    for ledger in filled:
        assert offloader("orphans", "rescue", ledger, "--yes")["outcome"] == "rescued"
    assert offloader.delete(*ledgers) == dict.fromkeys(ledgers, "deleted")
    assert not set(ledgers) & ground.ledgers()
    assert [data for _, _, data in ground.read(topic)] == sent
    rescued = [one for ledger in before for one in offloader.lines("orphans", "read", ledger)]
    assert len(rescued) == 15


def _uuid(most: int, least: int) -> str:
    digits = f"{most % 2**64:016x}{least % 2**64:016x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
