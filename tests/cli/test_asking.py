"""Manual work on topics: ask, wait for the application to see it, and on request for its answer."""

from __future__ import annotations

import getpass
import os
from dataclasses import replace

import pytest

from offloader.metadata import requests
from offloader.metadata.journal import Journal
from offloader.metadata.requests import RequestKind, RequestOutcome
from offloader.metadata.state import TopicState
from offloader.model import Failure, FailureKind, Position
from tests.archive.support import APPLICATION, TOPIC, stream


@pytest.fixture
def topic(line):
    """A topic with 15 entries, 10 of them offloaded."""
    line.cluster.create(TOPIC)
    places = [line.cluster.produce(TOPIC, b"x") for _ in range(15)]
    line.ledger = places[0][0]
    line.archive.claim(line.ledger, 0)
    line.archive.add(stream(line.ledger, 0, 9))
    return line


def serve(line, *, outcome=None, after=0.1) -> list:
    """An application that sees requests `after` seconds, and answers."""
    served = []

    def work() -> None:
        for request_id, request in requests.pending(line.archive.store, APPLICATION, 1):
            served.append(request)
            requests.mark_seen(line.archive.store, APPLICATION, request_id)
            if outcome is not None:
                requests.mark_done(line.archive.store, APPLICATION, request_id, outcome)

    line.clock.at.append((after, work))
    return served


def test_offload_asks_for_the_topics_end(topic) -> None:
    served = serve(topic)
    end = Position(0, topic.ledger, 14)
    assert topic.ok("topics", "offload", "orders") == f"Offload triggered for {TOPIC} up to {end}\n"
    assert [(r.kind, r.topic, r.position) for r in served] == [(RequestKind.CLOSE, TOPIC, end)]


@pytest.mark.parametrize("unknown", [KeyError("uid not found: 54321"), OSError("no username set in the environment")])
def test_a_user_without_a_name_is_told_by_the_id(topic, monkeypatch: pytest.MonkeyPatch, unknown) -> None:
    def nameless() -> str:
        raise unknown

    monkeypatch.setattr(getpass, "getuser", nameless)
    served = serve(topic)
    topic.ok("topics", "release", "orders")
    assert [request.by for request in served] == [f"uid {os.getuid()}"]


def test_offload_waits_for_the_answer(topic) -> None:
    serve(topic, outcome=RequestOutcome(ok=True, message="segment u 1:10 to 1:14", at=1))
    lines = topic.json_lines("topics", "offload", "-w", "orders")
    assert lines[0]["end"] == f"{topic.ledger}:14"
    assert lines[1] == {
        "message": "segment u 1:10 to 1:14",
        "topic": str(TOPIC),
        "request": lines[0]["request"],
        "ok": True,
    }


def test_an_answer_that_is_a_refusal_is_exit_code_1(topic) -> None:
    serve(topic, outcome=RequestOutcome(ok=False, message="not offloaded by app", at=1))
    result = topic.run("topics", "offload", "-w", "orders")
    assert result.exit_code == 1
    assert result.stdout.endswith(f"{TOPIC}: not offloaded by app\n")


def test_nothing_to_offload(topic) -> None:
    topic.archive.add(stream(topic.ledger, 10, 14))
    assert topic.ok("topics", "offload", "-w", "orders") == "Nothing to offload\n"
    assert list(topic.archive.store.list("_requests/")) == []


def test_nothing_to_offload_of_an_empty_topic(line) -> None:
    line.cluster.create(TOPIC)
    assert line.ok("topics", "offload", "orders") == "Nothing to offload\n"


def test_no_application_answers(topic) -> None:
    result = topic.run("topics", "offload", "orders")
    assert result.exit_code == 1
    assert "offload triggered" not in result.output.lower()
    waits, failed = result.stderr.splitlines()
    assert waits == "app has not answered yet: is `offloader run` at work? Waiting 57s"
    assert "no application answers: app has not seen the request for 1m; is `offloader run` at work?" in failed
    assert 60 <= topic.clock.slept < 61


def test_an_application_that_was_just_started_is_waited_for(topic) -> None:
    serve(topic, after=30)
    assert "Offload triggered" in topic.ok("topics", "offload", "orders")


def test_whoever_waits_is_told_once_why_the_topic_stands_still(topic) -> None:
    failure = Failure(FailureKind.RETRYABLE, "the bookies are gone", 1, 0)
    with Journal.open(topic.archive.store, APPLICATION, topic.archive.token) as journal:
        journal.record([TopicState(TOPIC, failure=failure)])
    serve(topic)
    serve(topic, outcome=RequestOutcome(ok=True, message="done", at=1), after=35)
    result = topic.run("topics", "offload", "-w", "orders")
    assert result.exit_code == 0
    assert result.stderr == f"{TOPIC} waits: the bookies are gone\n"


def test_not_done_in_time(topic) -> None:
    serve(topic)
    result = topic.run("topics", "offload", "-w", "--timeout", "5s", "orders")
    assert result.exit_code == 1
    assert "not done yet; the application goes on with request" in result.stderr


def test_a_topic_of_another_application(topic) -> None:
    topic.config = topic.config.replace("application: app", "application: mine")
    assert topic.error("topics", "offload", "orders") == f"{TOPIC} is claimed by app, this configuration is of mine"
    assert topic.error("topics", "release", "orders") == f"{TOPIC} is claimed by app, this configuration is of mine"


def test_all_partitions(line) -> None:
    names = [replace(TOPIC, name=f"orders-partition-{n}") for n in (0, 1)]
    for name in names:
        line.cluster.create(name)
        line.cluster.produce(name, b"x")
    served = serve(line, after=0.1)
    serve(line, after=0.3)
    line.ok("topics", "offload", "orders")
    assert {r.topic for r in served} <= set(names)
    assert sum(1 for key, _ in line.archive.store.list("_requests/") if key.endswith(".seen")) == 2


def test_release(topic) -> None:
    served = serve(topic, outcome=RequestOutcome(ok=True, message="released", at=1))
    assert topic.ok("topics", "release", "-w", "orders") == f"Release asked for {TOPIC}\n{TOPIC}: released\n"
    assert served[0].kind is RequestKind.RELEASE


def test_release_of_a_namespace_needs_a_yes(topic) -> None:
    served = serve(topic, outcome=RequestOutcome(ok=True, message="released", at=1))
    result = topic.run("topics", "release", TOPIC.namespace)
    assert (result.exit_code, result.stdout) == (1, f"Would be released: {TOPIC}\n")
    assert "--yes releases these 1 topics" in result.stderr
    assert not served
    text = topic.ok("topics", "release", "-w", "--yes", TOPIC.namespace)
    assert text == f"Release asked for {TOPIC}\n{TOPIC}: released\n"
    assert [(each.kind, each.topic) for each in served] == [(RequestKind.RELEASE, TOPIC)]
    assert "has no topic of public/empty" in topic.error("topics", "release", "public/empty")


def test_accept_loss(topic) -> None:
    served = serve(topic)
    assert topic.ok("topics", "accept-loss", "orders", "--to", "99:-1") == f"Loss accepted for {TOPIC}\n"
    assert (served[0].kind, served[0].position) == (RequestKind.ACCEPT_LOSS, Position(0, 99, -1))


def test_a_topic_that_was_deleted_is_said_to_be(topic) -> None:
    served = serve(topic)
    assert topic.ok("topics", "accept-loss", "orders", "--deleted") == f"Loss accepted for {TOPIC}\n"
    assert (served[0].kind, served[0].position) == (RequestKind.ACCEPT_LOSS, None)
    for how in ([], ["--deleted", "--to", "99:-1"]):
        assert topic.run("topics", "accept-loss", "orders", *how).exit_code != 0
