"""Durable subscriptions that no gateway serves: the doctor names them, and what to do."""

from __future__ import annotations

import itertools
import json

import pytest

from offloader.cursors.core.records import FirstState
from offloader.cursors.durable import DurableCursor
from offloader.errors import AccessDeniedError
from offloader.metadata.layout import subscription_folder, subscriptions_folder
from offloader.model import Position, TopicName
from offloader.operations.doctor import examine as examining
from offloader.operations.doctor.examine import durable_subscriptions, unserved
from tests.archive.support import TOPIC
from tests.cli.support import Line
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.operations.doctor.test_examine import line  # noqa: F401 (a fixture)

SERVE_OR_DELETE = (
    "set gateway.durableSubscriptions to true, here and where the gateway runs; or delete each of them: "
    "offloader gateway subscriptions delete TOPIC NAME --yes"
)

TOKENS = itertools.count()
OTHER = TopicName.parse("public/other/t")


def subscribed(line: Line, topic: TopicName, *names: str) -> list[DurableCursor]:  # noqa: F811
    return [
        DurableCursor.open(
            line.archive.store,
            subscription_folder(topic, name),
            lambda: FirstState(Position(0, 1, -1)),
            lambda: f"t{next(TOKENS)}",
        )
        for name in names
    ]


def said(line: Line) -> list[dict[str, str]]:  # noqa: F811
    """The checks of that name."""
    checks = map(json.loads, line.run("doctor", "--output", "json").stdout.splitlines())
    return [check for check in checks if check["check"] == "gateway-subscriptions"]


def test_without_any_nothing_is_said(line: Line) -> None:  # noqa: F811
    assert said(line) == []


def test_those_that_are_left_are_named_until_they_are_deleted_or_the_option_is_on(line: Line) -> None:  # noqa: F811
    first, _ = subscribed(line, TOPIC, "a", "b")
    subscribed(line, OTHER, "c")
    (check,) = said(line)
    assert (check["verdict"], check["remedy"]) == ("warn", SERVE_OR_DELETE)
    assert check["message"] == (
        "gateway.durableSubscriptions is false, and retention of the archive waits for durable subscriptions: "
        f"a of {TOPIC}, b of {TOPIC}, c of {OTHER}"
    )
    first.forget()
    first.flush()
    assert said(line)[0]["message"].endswith(f": b of {TOPIC}, c of {OTHER}")
    line.config += "gateway: {durableSubscriptions: true}\n"
    assert said(line) == []


def test_commands_list_and_delete_them_though_the_option_is_off(line: Line) -> None:  # noqa: F811
    subscribed(line, TOPIC, "a", "b")
    line.archive.claim(1)
    group = ("gateway", "subscriptions")
    assert [one["subscription"] for one in line.json(*group, str(TOPIC))] == ["a", "b"]
    for name in ("a", "b"):
        line.ok(*group, "delete", str(TOPIC), name, "--yes")
    assert line.json(*group, str(TOPIC)) == []
    assert said(line) == []


def test_one_that_was_handed_over_to_brokers_is_named_too(line: Line) -> None:  # noqa: F811
    (cursor,) = subscribed(line, TOPIC, "a")
    cursor.count_property("offloader.handed-over", 1)
    cursor.flush()
    assert said(line)[0]["message"].endswith(f": a of {TOPIC}")


def test_where_there_are_very_many_topics_it_says_of_how_many(
    line: Line,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(examining, "MOST_TOPICS", 1)
    subscribed(line, OTHER, "c")
    subscribed(line, TOPIC, "a")
    found = durable_subscriptions(line.archive.store)
    assert (found.names, found.is_whole) == (((TOPIC, "a"),), False)
    (check,) = unserved(found)
    assert check.message.endswith(f": a of {TOPIC}; only the first 1 topics were looked at")


def test_where_the_first_of_very_many_topics_have_none_it_says_so(
    line: Line,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(examining, "MOST_TOPICS", 1)
    subscribed(line, OTHER, "c")
    line.archive.claim(1)
    (check,) = unserved(durable_subscriptions(line.archive.store))
    assert check.message.endswith(": none is known; only the first 1 topics were looked at")


def test_a_listing_that_is_refused_is_a_finding(line: Line) -> None:  # noqa: F811
    subscribed(line, TOPIC, "a")
    faults = StoreFaults()
    is_of_them = lambda key: key.startswith(subscriptions_folder(TOPIC))  # noqa: E731
    faults.add(StoreFault("list", Effect.BEFORE, lambda: AccessDeniedError("no"), is_of_them, times=99))
    line.probes.store = FaultyStore(line.archive.store, faults)
    (check,) = said(line)
    assert (check["verdict"], check["message"]) == ("fail", "the gateway's subscriptions cannot be read: no")
