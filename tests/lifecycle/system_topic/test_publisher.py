"""A deletion is told when its second phase begins, never to a consumer that would take it for a command; and it goes on
whatever comes of that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.errors import AuthorizationFailedError, FatalError
from offloader.lifecycle.deletion.records import DeletionProof, LedgerComponent
from offloader.lifecycle.deletion.system_topic.interfaces import SystemTopicName
from offloader.lifecycle.deletion.system_topic.messages import read_message
from tests.lifecycle.deletion.support import EVIDENCE, candidate

from .memory import LOST, KilledError, MemoryTopics
from .support import MARK, Examiner, Told, acceptor, asked, publisher

DELETION = SystemTopicName.DELETION


def test_a_deletion_is_told_with_our_mark_and_known_when_it_comes_back() -> None:
    topics, told, examine = MemoryTopics(), Told(), Examiner()
    assert publisher(topics, told).announce(candidate(7))
    (one,) = topics.left()
    assert read_message(one.data) == asked(7)
    assert MARK.is_on_message(one.data, one.properties)
    assert told.counts == {"sent LEDGER": 1}
    acceptor(topics, examine).run()
    assert (topics.left(), examine.asked) == ([], [])


def test_nothing_is_told_while_a_foreign_consumer_would_take_it_for_a_command(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topics, told = MemoryTopics(), Told()
    topics.consumers["patched-broker"] = {}
    mirror = publisher(topics, told)
    for ledger in range(5):
        assert not mirror.announce(candidate(ledger))
    assert topics.left() == []
    assert told.counts == {"not sent: foreign consumer": 5}
    assert [record.__dict__["see"] for record in caplog.records] == ["deletion-not-announced"], "once, not for each"
    assert "patched-broker at /9.9.9.9:9" in caplog.text
    topics.consumers.clear()
    assert mirror.announce(candidate(7))


@pytest.mark.parametrize(
    "metadata",
    [{"offloader-mark": "forged"}, MARK.of_consumer("another"), {"offloader-mark": ["x"]}],
    ids=["forged", "of another name", "of another type"],
)
def test_a_consumer_that_only_pretends_to_be_ours_is_foreign(metadata: dict[str, str]) -> None:
    topics = MemoryTopics()
    topics.consumers["ours"] = metadata
    assert not publisher(topics).announce(candidate(7))


def test_one_foreign_consumer_among_ours_is_enough() -> None:
    topics = MemoryTopics()
    acceptor(topics, Examiner()).run()
    mirror = publisher(topics)
    assert mirror.announce(candidate(7))
    topics.consumers["patched-broker"] = {}
    topics.now += 2_000
    assert not mirror.announce(candidate(8))


def test_a_subscription_that_a_foreign_worker_left_is_one_that_it_comes_back_to() -> None:
    topics = MemoryTopics(subscribed=True)
    assert not publisher(topics).announce(candidate(7))
    acceptor(topics, Examiner()).run()
    assert publisher(topics).announce(candidate(7)), "it is ours now"


def test_the_look_is_no_older_than_a_second() -> None:
    topics = MemoryTopics()
    mirror = publisher(topics)
    assert mirror.announce(candidate(1))
    topics.consumers["patched-broker"] = {}  # between our look and our send
    assert mirror.announce(candidate(2))
    topics.now += 1_000
    assert not mirror.announce(candidate(3))
    assert [read_message(one.data).ledger_id for one in topics.left()] == [1, 2]


def test_many_deletions_ask_the_broker_once_a_second() -> None:
    topics = MemoryTopics()
    mirror = publisher(topics)
    for ledger in range(1_000):
        mirror.announce(candidate(ledger))
    assert len([one for one in topics.requests if one.endswith("/stats")]) == 4
    assert len(topics.left()) == 1_000


@pytest.mark.parametrize("answer", ["[]", "{}", '{"subscriptions":{"ledger-deletion-worker":{"consumers":3}}}'])
def test_statistics_that_are_none_prove_nothing(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topics, told = MemoryTopics(), Told()
    monkeypatch.setattr(topics, "_stats", lambda: __import__("json").loads(answer))
    assert not publisher(topics, told).announce(candidate(7))
    assert told.counts == {"not sent: failed": 1}
    assert topics.left() == []


@pytest.mark.parametrize("error", [LOST, AuthorizationFailedError("no right"), FatalError("schema")], ids=repr)
def test_a_deletion_never_waits_for_a_cluster_that_does_not_take_its_message(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    topics, told = MemoryTopics(), Told()
    topics.refused[DELETION] = error
    mirror = publisher(topics, told)
    for ledger in range(100):
        assert not mirror.announce(candidate(ledger))
    assert told.counts == {"not sent: failed": 100}
    assert len(topics.requests) < 20, "after a failure nobody is asked for a minute"
    assert [record.__dict__["see"] for record in caplog.records] == ["deletion-not-announced"]
    topics.refused.clear()
    topics.now += 60_000
    assert mirror.announce(candidate(7))


def test_what_the_pip_has_no_message_for_is_counted() -> None:
    topics, told = MemoryTopics(), Told()
    mirror = publisher(topics, told)
    assert not mirror.announce(candidate(7, ledger_component=LedgerComponent.COMPACTED_VIEW))
    assert not mirror.announce(candidate(7, evidence=replace(EVIDENCE, proof=DeletionProof.ON_DEMAND)))
    assert told.counts == {"not sent: no form": 2}
    assert topics.requests == []


def test_killed_before_or_after_the_send_it_is_told_again_and_deleted_once() -> None:
    """Whoever reads the topic may see a deletion twice; we know both for ours."""
    for killed_at in ("producer", "send", "sent"):
        topics = MemoryTopics()

        def step(name: str, here: str = killed_at) -> None:
            if name == here:
                raise KilledError

        topics.on_step = step
        with pytest.raises(KilledError):
            publisher(topics).announce(candidate(7))
        topics.on_step = lambda _: None
        assert publisher(topics).announce(candidate(7))
        assert len(topics.left()) == 1 + (killed_at == "sent")
        examine = Examiner()
        acceptor(topics, examine).run()
        assert (topics.left(), examine.asked) == ([], [])
