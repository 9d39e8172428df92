"""`orphans quarantine --managed-ledger`, and what follows from it, on the command line."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest

from tests.lifecycle.deletion.cluster import NAMESPACE, list_node

from .test_orphan_deletion import line, orphans, purged  # noqa: F401 (fixtures)

NAME = f"{NAMESPACE}/persistent/t-gone__transaction_pending_ack"
NODE = list_node("t-gone__transaction_pending_ack")


@pytest.fixture(autouse=True)
def left_over(orphans) -> None:  # noqa: F811
    orphans.ledger(1500, "t-gone__transaction_pending_ack")
    orphans.list_ledgers("t-gone__transaction_pending_ack", 1500)


def quarantine(line, *more):  # noqa: F811
    return line.json("orphans", "quarantine", "--managed-ledger", NAME, *more)


def listed_now(line):  # noqa: F811
    return [json.loads(one) for one in line.ok("orphans", "list", "--output", "json").splitlines()]


def test_it_is_marked_by_its_name_goes_and_comes_back(line, orphans) -> None:  # noqa: F811
    shown = quarantine(line)
    assert [(one["id"], one["outcome"]) for one in shown["marks"]] == [(NAME, "would be marked")]
    shown = quarantine(line, "--yes")
    assert shown["message"] == (
        "1 left-over managed ledger is marked; the application deletes nothing "
        f"(lifecycle.topicTwoPhaseDeletionEnabled), `orphans purge --yes` does, not before {shown['goesAt']}"
    )
    (listed,) = listed_now(line)
    assert (listed["topic"], listed["type"], listed["component"]) == (NAME, "MANAGED_LEDGER", "PENDING_ACKS")
    assert purged(line, orphans)["ended"][0]["answer"] == "deleted"
    nodes = orphans.metadata.nodes
    assert nodes.get(NODE) is None
    assert 1500 in orphans.ledger_ids()
    said = line.json("orphans", "undo", NAME)
    assert "is there again" in said["message"]
    assert nodes.get(NODE) is not None


def test_its_ledgers_are_marked_after_it(line, orphans) -> None:  # noqa: F811
    quarantine(line, "--yes")
    purged(line, orphans)
    shown = line.json("orphans", "quarantine", "1500")
    assert [one["outcome"] for one in shown["marks"]] == ["would be marked"]


def test_a_mark_is_undone_by_the_record_s_name_too(line) -> None:  # noqa: F811
    quarantine(line, "--yes")
    (listed,) = listed_now(line)
    assert line.json("orphans", "undo", listed["record"])["deletion"]["state"] == "undone"


def test_one_that_is_none_is_a_finding(line) -> None:  # noqa: F811
    result = line.run("orphans", "quarantine", "--managed-ledger", f"{NAMESPACE}/persistent/t", "--yes")
    assert result.exit_code == 2
    assert "no left-over managed ledger of this name" in result.output


def test_it_is_explained_by_the_name_that_a_scan_shows(line, orphans, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    judging = nullcontext(orphans.side().scanner)
    monkeypatch.setattr("offloader.cli.orphans.explain.ledger_scanner", lambda _: judging)
    found = line.json("orphans", "explain", NAME)
    assert (found["id"], found["verdict"], found["refusals"]) == (NAME, "certain", [])
    assert any("It refers to 1 ledger" in one for one in found["evidence"])
    assert f"orphans quarantine --managed-ledger {NAME} --yes" in line.ok("orphans", "explain", NAME)
    other = f"{NAMESPACE}/persistent/t-none__transaction_pending_ack"
    assert "is left over" in line.error("orphans", "explain", other)
