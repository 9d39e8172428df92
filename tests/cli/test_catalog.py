"""`offloader catalog rebuild`: proposes, writes only when told so, and says what is not known."""

from __future__ import annotations

import json

import pytest

from offloader.metadata import layout
from offloader.metadata.catalog_codec import plain
from offloader.metadata.compaction import compact
from offloader.metadata.envelope import unwrap
from offloader.metadata.manifest import FAN
from tests.archive.support import TOPIC, gap, stream


@pytest.fixture
def damaged(line):
    line.root()
    line.archive.claim(1)
    line.archive.add(stream(1, 0, 9))
    line.archive.add(stream(1, 10, 19), [gap(1, 15, 16)][:0])
    line.archive.add(stream(1, 20, 24) + stream(1, 27, 29), [gap(1, 25, 26)])
    line.archive.store.put(layout.catalog_folder(TOPIC) + layout.slot_name(3), b"rubbish")
    line.archive.store.delete([layout.catalog_folder(TOPIC) + layout.slot_name(2)])
    return line


def slots(*numbers: int) -> list[str]:
    return [layout.catalog_folder(TOPIC) + layout.slot_name(n) for n in numbers]


def beside(archive, *numbers: int) -> list[str]:
    """The objects of the records in these slots."""
    return [layout.record_key(TOPIC, unwrap(key, plain(archive.store.read(key)[0])).token) for key in slots(*numbers)]


def test_a_proposal_writes_nothing(damaged) -> None:
    before = list(damaged.archive.store.list())
    result = damaged.run("catalog", "rebuild", "orders")
    assert result.exit_code == 2
    lines = result.stdout.splitlines()
    assert [line.split()[:2] for line in lines[:4]] == [
        ["kept", "claim"],
        ["kept", "segment"],
        ["restored", "segment"],
        ["restored", "segment"],
    ]
    assert "damaged public/default/orders/_catalog" in lines[4]
    text = "a new generation of the catalog with 4 records is to be written; nothing is written without --yes"
    assert lines[-1] == f"{TOPIC}: {text}"
    assert list(damaged.archive.store.list()) == before


def test_with_yes_it_is_written_and_verify_is_content(damaged) -> None:
    result = damaged.run("catalog", "rebuild", "orders", "--yes", "--output", "json")
    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert (found["written"], [r["origin"] for r in found["records"]]) == (4, ["kept", "kept", "restored", "restored"])
    assert {n["kind"] for n in found["notes"]} == {"damaged"}
    assert found["records"][3]["entries"] == 8
    again = damaged.json("catalog", "rebuild", "orders")
    assert (again["notes"], again["message"]) == ([], f"{TOPIC}: the catalog has all 4 records")
    result = damaged.run("verify")
    assert [line.split()[:2] for line in result.stdout.splitlines()[:-1]] == [
        ["left-over", f"{layout.catalog_folder(TOPIC)}:"]
    ]


def test_a_catalog_that_is_lost_altogether_comes_back(damaged) -> None:
    damaged.archive.store.delete(slots(0, 1, 3))
    assert damaged.run("catalog", "rebuild", "orders", "--yes").exit_code == 0
    assert len(damaged.archive.catalog.segments) == 3


def test_a_claim_that_is_lost_needs_the_topic_s_creation_date(damaged) -> None:
    damaged.archive.store.delete([*beside(damaged.archive, 0), *slots(0)])
    assert "whose the topic was from 1:0 on" in damaged.run("catalog", "rebuild", "orders").stdout
    assert "give --created DATE" in damaged.error("catalog", "rebuild", "orders", "--yes")
    assert (
        damaged.run("catalog", "rebuild", "orders", "--yes", "--created", "2026-11-21T12:12:20.531+01:00").exit_code
        == 2
    )
    claim = damaged.archive.catalog.claim
    assert (claim.application, claim.created, claim.reason) == ("app", 1_795_259_540_531, "catalog rebuild")


@pytest.mark.parametrize("listed", [1, 2])
def test_pulsar_is_asked_for_the_creation_date(damaged, listed: int) -> None:
    """Two ledgers with the recorded ends prove that its topic is the archived one; one does not."""
    cluster = damaged.cluster
    cluster.create(TOPIC)
    cluster.add_subscription(TOPIC, "keeps")
    for _ in range(2):
        cluster.produce(TOPIC, b"entry")
        cluster.roll(TOPIC)
    info = cluster.admin.topic_info(TOPIC)
    archive = type(damaged.archive)()
    damaged.archive = archive
    damaged.root()
    archive.claim(info.ledgers.spans[0].ledger)
    ids = [span.ledger for span in info.ledgers.spans[:listed]]
    archive.add([entry for ledger in ids for entry in stream(ledger, 0, 0)], closed=dict.fromkeys(ids, 0))
    archive.store.delete([*beside(archive, 0), *slots(0)])
    if listed == 1:
        assert "give --created DATE" in damaged.error("catalog", "rebuild", "orders", "--yes")
        return
    damaged.run("catalog", "rebuild", "orders", "--yes")
    assert archive.catalog.claim.created == info.created


def test_a_topic_of_which_nothing_is_left(damaged) -> None:
    assert "no record is left of it" in damaged.error("catalog", "rebuild", "nothing")


def test_another_application_than_the_claim_s(damaged) -> None:
    assert "is app's, not other's" in damaged.error("catalog", "rebuild", "orders", "--application", "other")


def test_what_is_in_doubt_can_be_vouched_for(line) -> None:
    line.root()
    line.archive.claim(1)
    for ledger in (1, 3):
        line.archive.add(stream(ledger, 0, 9))
        line.archive.closed(ledger, 9)
    line.archive.store.delete([*beside(line.archive, 2), *slots(2)])
    for _ in range(2):
        result = line.run("catalog", "rebuild", "orders", "--yes")
        assert result.exit_code == 2
        assert "nothing records that ledger 1 ended with 9; --ended 1:9 where you know that it did" in result.stdout
    assert "unproven-end" in line.run("verify").stdout
    assert "no segment ends with 1:8" in line.error("catalog", "rebuild", "orders", "--ended", "1:8")
    assert line.run("catalog", "rebuild", "orders", "--ended", "nonsense").exit_code == 1
    result = line.run("catalog", "rebuild", "orders", "--yes", "--ended", "1:9")
    assert "closed   ledger 1 with 9, said by catalog rebuild --ended" in result.stdout
    assert "unproven-end" not in line.run("verify").stdout
    assert line.archive.catalog.losses == ()


def test_a_record_that_is_lost_as_well_is_a_loss_until_it_comes_back(line) -> None:
    line.root()
    line.archive.claim(1)
    for first in (0, 10, 20):
        line.archive.add(stream(1, first, first + 9))
    original = line.archive.catalog
    keys = [*beside(line.archive, 2), *slots(2)]
    held = line.archive.store.read(keys[0])[0]
    line.archive.store.delete(keys)
    result = line.run("catalog", "rebuild", "orders", "--yes")
    assert result.exit_code == 2
    assert "made      loss     1:10..1:19  the record of" in result.stdout
    assert [(str(loss.start), str(loss.end)) for loss in line.archive.catalog.losses] == [("1:10", "1:19")]
    rebuilt = line.archive.catalog.head.generation
    line.archive.store.put(keys[0], held)
    line.run("catalog", "rebuild", "orders", "--yes")
    found = line.archive.catalog
    assert (found.segments, found.losses, found.head.generation) == (original.segments, (), rebuilt + 1)


@pytest.mark.parametrize("left", [None, b"rubbish"])
def test_a_root_s_own_record_need_not_be_left(damaged, left) -> None:
    damaged.archive.store.delete([layout.ROOT])
    if left is not None:
        damaged.archive.store.put(layout.ROOT, left)
    assert damaged.run("catalog", "rebuild", "orders", "--yes").exit_code == 2
    assert len(damaged.archive.catalog.segments) == 3
    assert "_root" in damaged.run("verify").stdout


def test_manifests_are_written_anew(line) -> None:
    line.root()
    line.archive.claim(1)
    for entry in range(FAN):
        line.archive.add(stream(1, entry, entry))
    compact(line.archive.store, line.archive.catalogs.head(TOPIC))
    key = layout.manifest_key(TOPIC, 0, 0, 0)
    line.archive.store.put(key, b"rubbish")
    assert line.run("verify", "--quick").exit_code == 2
    found = line.json("catalog", "compact", "orders")
    assert found["written"] == [key]
    assert found["message"] == f"{TOPIC}: 1 objects of 1 manifests of {FAN} records were written anew"
    assert line.run("verify", "--quick").exit_code == 0
    assert "error: persistent://public/default/none has no catalog" in line.run("catalog", "compact", "none").stderr
