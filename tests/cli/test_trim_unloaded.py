"""`offloader topics trim-unloaded` over brokers in memory."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from offloader.bookkeeper.api import Bookies
from offloader.errors import BrokerUnavailableError
from offloader.runtime.connections import ClosableAdmin
from tests.cli.support import Line
from tests.lifecycle.topics.support import NAMESPACE, PIN, Idle

COMMAND = ("topics", "trim-unloaded")


@pytest.fixture
def cluster() -> Idle:
    return Idle()


@pytest.fixture
def line(line: Line, cluster: Idle) -> Line:
    line.dependencies = replace(
        line.dependencies,
        bookkeeper=lambda _config, _timeout: (cluster.metadata, cast("Bookies", cluster)),
        visits=lambda _: cast("ClosableAdmin", cluster),
        clock_ms=lambda: cluster.now_ms,
        sleep=cluster.sleep,
    )
    return line


def told(line: Line, *arguments: str, code: int) -> list[dict[str, Any]]:
    result = line.run(*COMMAND, *arguments, "--output", "json")
    assert result.exit_code == code, result.output
    return [json.loads(one) for one in result.stdout.splitlines()]


def test_plan_run_and_the_second_run(line: Line, cluster: Idle) -> None:
    topic = cluster.written("t", 100, 200, 30)
    cluster.tick(61)
    planned, all_planned = told(line, "plan", code=2)
    assert (planned["topic"], planned["overdueBytes"], planned["dueNow"]) == (str(topic), 330, True)
    assert (all_planned["due"], all_planned["dueBytes"]) == (1, 330)
    visit, all_visits = told(line, "run", "--yes", code=0)
    assert (visit["end"], visit["freedBytes"], visit["stayedLoaded"]) == ("visited", 300, None)
    assert "the next visit is due at" in visit["why"][0]
    assert (all_visits["shouldHaveFreedBytes"], all_visits["freedBytes"]) == (330, 300)
    waiting, _ = told(line, "plan", code=0)
    assert waiting["due"] == visit["due"]
    cluster.tick(61)
    assert told(line, "run", "--yes", code=0)[0]["freedBytes"] == 30
    assert cluster.size(topic) == 0


@pytest.mark.parametrize("subscribed", [False, True])
@pytest.mark.parametrize("by", ["file", "property"])
def test_a_topic_that_is_to_be_offloaded_is_not_visited_before_it_has_our_subscription(
    line: Line, cluster: Idle, by: str, subscribed: bool
) -> None:
    topic = cluster.written("t", 100, 200, 30)
    if subscribed:
        cluster.subscribe(topic, PIN, (cluster.topics[topic].ledgers[0].id, -1))
    cluster.tick(61)
    if by == "file":
        line.config += f"  {NAMESPACE}: {{enabled: true}}\n"
    else:
        line.cluster.namespace(NAMESPACE).properties["offloader.enabled"] = "true"
    planned = told(line, "plan", code=0)
    run = told(line, "run", "--yes", code=0)
    assert run[-1]["visits"] == 0
    assert cluster.size(topic) == 330
    assert ("passedOver" in planned[0]) is not subscribed


def test_without_yes_nothing_is_loaded_and_what_is_due_is_shown(line: Line, cluster: Idle) -> None:
    topic = cluster.written("t", 100)
    cluster.written("kept", 100, shut=False)
    cluster.tick(61)
    due, summary = told(line, "run", code=0)
    assert (due["topic"], due["dueNow"], summary["due"]) == (str(topic), True, 1)
    assert "1 topic would be loaded, and 100 bytes that retention does not keep" in line.ok(*COMMAND, "run")
    assert cluster.trimmed == []


def test_nothing_to_do_is_no_finding(line: Line, cluster: Idle) -> None:
    cluster.written("t", 100, shut=False)
    assert line.ok(*COMMAND, "plan") == (
        "1 topic: 0 due for a visit (0 bytes overdue), 0 later, cursors hold 0 bytes back; passed over: loaded 1\n"
    )
    assert line.ok(*COMMAND, "run") == "no visit is due\n"
    assert line.ok(*COMMAND, "run", "--yes") == "no visit was due\n"


def test_only_the_namespaces_that_are_named_are_looked_at(line: Line, cluster: Idle) -> None:
    cluster.written("t", 100)
    cluster.tick(61)
    assert told(line, "plan", "acme/others", code=0)[-1]["topics"] == 0
    assert "acme/others: no topic has a ledger list there" in line.run(*COMMAND, "plan", "acme/others").stderr
    assert told(line, "plan", NAMESPACE, NAMESPACE, code=2)[-1]["topics"] == 1
    assert "is no namespace; write tenant/namespace" in line.error(*COMMAND, "plan", "acme")


def test_who_holds_data_is_named_with_bytes(line: Line, cluster: Idle) -> None:
    topic = cluster.written("t", 100, 200, 30)
    cluster.subscribe(topic, PIN, (11, -1))
    cluster.subscribe(topic, "pulsar.repl.west", (12, -1))
    cluster.tick(3600)
    found, summary = told(line, "plan", code=0)
    assert [(one["cursor"], one["bytes"], one["certain"]) for one in found["held"]] == [
        (PIN, 330, True),
        ("pulsar.repl.west", 230, True),
    ]
    assert summary["heldBytes"] == 330
    text = line.ok(*COMMAND, "plan")
    assert "held by __offloader (our pin: it holds data until they are offloaded) with 330 bytes" in text
    assert "held by pulsar.repl.west (replication to another cluster) with 230 bytes" in text


def test_a_visit_that_fails_is_a_finding(line: Line, cluster: Idle) -> None:
    cluster.written("t", 100)
    cluster.tick(61)
    cluster.faults.add("visits.trim", lambda: BrokerUnavailableError("the bundle is being split"))
    visit, summary = told(line, "run", "--yes", code=2)
    assert (visit["end"], visit["why"]) == ("not visited: no answer", ["the bundle is being split"])
    assert summary["failed"] == 1


def test_names_and_errors_of_others_move_no_cursor(line: Line, cluster: Idle) -> None:
    evil = "\x1b[2J\x9b2J\u202e\r\nerror: forged"
    topic = cluster.written(evil, 100, 200)
    cluster.subscribe(topic, evil, (12, -1))
    cluster.tick(3600)
    cluster.faults.add("visits.trim", lambda: BrokerUnavailableError(evil))
    for output in ("text", "json"):
        for arguments in (["plan"], ["run", "--yes"]):
            result = line.run(*COMMAND, *arguments, "--output", output)
            assert result.exit_code in (0, 2), result.output
            assert [c for c in result.output if c != "\n" and not c.isprintable()] == []
            assert not any(part.startswith("error: forged") for part in result.output.splitlines())


def test_long_work_tells_how_far_it_is(line: Line, cluster: Idle) -> None:
    for number in range(30):
        cluster.written(f"t{number:02}", 100)
    cluster.tick(61)
    result = line.run(*COMMAND, "run", "--yes")
    assert "visits: 15 of 30" in result.stderr.splitlines()


def test_without_a_metadata_service_the_missing_setting_is_named(line: Line) -> None:
    line.dependencies = replace(line.dependencies, bookkeeper=type(line.dependencies)().bookkeeper)
    assert line.error(*COMMAND, "plan").startswith("pulsar.metadataServiceUri: needed")
