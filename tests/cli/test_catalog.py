"""`offloader catalog rebuild`: proposes, writes only when told so, and says what is not known."""

from __future__ import annotations

import json

import pytest

from offloader.metadata import layout
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


def test_a_proposal_writes_nothing(damaged) -> None:
    before = list(damaged.archive.store.list())
    result = damaged.run("catalog", "rebuild", "orders")
    assert result.exit_code == 2
    lines = result.stdout.splitlines()
    assert [line.split()[:3] for line in lines[:4]] == [
        ["0", "kept", "claim"],
        ["1", "kept", "segment"],
        ["2", "remade", "segment"],
        ["3", "remade", "segment"],
    ]
    assert "the kind of the gap 1:25..26" in result.stdout
    assert lines[-1] == f"{TOPIC}: 2 records to be written, 2 kept; nothing is written without --yes"
    assert list(damaged.archive.store.list()) == before


def test_with_yes_it_is_written_and_verify_is_content(damaged) -> None:
    result = damaged.run("catalog", "rebuild", "orders", "--yes", "--output", "json")
    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert (found["written"], [r["origin"] for r in found["records"]]) == (2, ["kept", "kept", "remade", "remade"])
    assert {n["kind"] for n in found["notes"]} == {"unknown", "damaged"}
    assert found["records"][3]["entries"] == 8
    again = damaged.json("catalog", "rebuild", "orders")
    assert (again["notes"], again["message"]) == ([], f"{TOPIC}: all 4 records can be read")
    result = damaged.run("verify")
    assert [line.split()[0] for line in result.stdout.splitlines()[:-1]] == ["left-over"]


def test_a_claim_that_is_lost_needs_the_topic_s_creation_date(damaged) -> None:
    damaged.archive.store.delete([layout.catalog_folder(TOPIC) + layout.slot_name(n) for n in range(4)])
    assert "when the topic was created" in damaged.run("catalog", "rebuild", "orders").stdout
    assert "give --created TEXT" in damaged.error("catalog", "rebuild", "orders", "--yes")
    assert damaged.run("catalog", "rebuild", "orders", "--yes", "--created", "then").exit_code == 2
    claim = damaged.archive.catalog.claim
    assert (claim.application, claim.created, claim.reason) == ("app", "then", "catalog rebuild")


def test_pulsar_is_asked_for_the_creation_date(damaged) -> None:
    cluster = damaged.cluster
    cluster.create(TOPIC)
    cluster.produce(TOPIC, b"entry")
    info = cluster.admin.topic_info(TOPIC)
    ledger = info.ledgers.spans[0].ledger
    archive = type(damaged.archive)()
    damaged.archive = archive
    damaged.root()
    archive.claim(ledger)
    archive.add(stream(ledger, 0, 9))
    archive.store.delete([layout.catalog_folder(TOPIC) + layout.slot_name(0)])
    damaged.run("catalog", "rebuild", "orders", "--yes")
    assert archive.catalog.claim.created == info.created


def test_a_topic_of_which_nothing_is_left(damaged) -> None:
    assert "neither records nor objects are left" in damaged.error("catalog", "rebuild", "nothing")


def test_another_application_than_the_claim_s(damaged) -> None:
    assert "is app's, not other's" in damaged.error("catalog", "rebuild", "orders", "--application", "other")


def test_what_is_in_doubt_can_be_vouched_for(line) -> None:
    line.root()
    line.archive.claim(1)
    for ledger in (1, 3):
        line.archive.add(stream(ledger, 0, 9))
        line.archive.closed(ledger, 9)
    line.archive.store.delete([layout.catalog_folder(TOPIC) + layout.slot_name(n) for n in (3, 4)])
    for _ in range(2):
        result = line.run("catalog", "rebuild", "orders", "--yes")
        assert result.exit_code == 2
        assert "whether anything was at 1:10..3:-1" in result.stdout
        assert "--ended 1:9 where you know that nothing was" in result.stdout
    assert "# 1:10..3:-1" in line.run("topics", "cat", "orders", "--entries").stdout.replace("missing ", "")
    assert "no segment ends with 1:8" in line.error("catalog", "rebuild", "orders", "--ended", "1:8")
    assert line.run("catalog", "rebuild", "orders", "--ended", "nonsense").exit_code == 1
    result = line.run("catalog", "rebuild", "orders", "--yes", "--ended", "1:9")
    assert "closed   ledger 1 with 9, said by catalog rebuild --ended" in result.stdout
    assert "#" not in line.run("topics", "cat", "orders", "--entries").stdout
    assert line.archive.catalog.losses == ()


@pytest.mark.parametrize("left", [None, b"rubbish"])
def test_a_root_s_own_record_need_not_be_left(damaged, left) -> None:
    damaged.archive.store.delete([layout.ROOT])
    if left is not None:
        damaged.archive.store.put(layout.ROOT, left)
    assert damaged.run("catalog", "rebuild", "orders", "--yes").exit_code == 2
    assert len(damaged.archive.catalog.segments) == 3
    assert "_root" in damaged.run("verify").stdout
