"""Subscriptions of a restored topic: as wanted whatever answer gets lost, and nobody's are moved."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from offloader.cursors.copies import CopiedCursor, pieces_of
from offloader.errors import AuthorizationFailedError, BrokerUnavailableError, OutcomeUnknownError
from offloader.lifecycle.topics.cursors.stored import StoredCursor
from offloader.model import AcknowledgedRange, PartlyAcknowledged, TopicName
from offloader.operations.restore.numbering import MappedCursor
from offloader.operations.restore.subscriptions import RestoreStanding, SubscriptionRestorer
from offloader.state.subscription import CursorState
from tests.fakes.cluster_subscriptions import HeldCursor, MemorySubscriptions
from tests.fakes.ledger_metadata import MemoryMetadata

TRIES = 5
UNFINISHED = "offloader.restore.unfinished"

TOPIC = TopicName("public", "default", "t")
PARTS = (PartlyAcknowledged(3, 8, (0b101,)),)
RANGES = (AcknowledgedRange((3, 2), (3, 4)),)
CURSOR = CopiedCursor(
    "job",
    (2, 9),
    pieces_of((2, 9), RANGES, PARTS, [(2, 10), (3, None)]),
    subscription_properties=(("owner", "joe"), ("#pulsar.internal.delayed", "1")),
    replicated=True,
)
MAPPED = MappedCursor(CURSOR, 7, 0)
STEPS = ("look", "create", "move", "replicate", "acknowledge", "describe")


@pytest.fixture
def brokers() -> MemorySubscriptions:
    metadata = MemoryMetadata()
    found = MemorySubscriptions(metadata.nodes, metadata.uri.managed_ledgers, lambda: 0)
    found.make(TOPIC, {2: 10, 3: 10})
    return found


def restorer(brokers, stored=None) -> SubscriptionRestorer:
    return SubscriptionRestorer(brokers, stored, lambda _: None)


def is_whole(held: HeldCursor) -> bool:
    return held.replicated and (held.mark, held.ranges, held.batches, held.properties) == (
        (2, 9),
        RANGES,
        {(3, 8): (0b101,)},
        {"owner": "joe"},
    )


def test_one_is_made_and_stands_where_it_stood(brokers) -> None:
    done = restorer(brokers).restore(TOPIC, MAPPED)
    assert done.standing is RestoreStanding.RESTORED
    assert "parts of 1 batches are acknowledged could not be read back" in done.why
    assert is_whole(brokers.topics[TOPIC].cursors["job"])
    assert restorer(brokers).restore(TOPIC, MAPPED).standing is RestoreStanding.THERE


@pytest.mark.parametrize(("step", "effect", "after"), list(itertools.product(STEPS, (False, True), (0, 1))))
def test_a_lost_answer_is_followed_by_another_try(brokers, step, effect, after) -> None:
    brokers.faults.add(step, lambda: OutcomeUnknownError("lost"), effect=effect, after=after)
    assert restorer(brokers).restore(TOPIC, MAPPED).standing is RestoreStanding.RESTORED
    assert is_whole(brokers.topics[TOPIC].cursors["job"])


def test_one_whose_broker_does_not_copy_its_position_to_other_clusters_is_told(brokers) -> None:
    brokers.faults.add("replicate", lambda: OutcomeUnknownError("it is not set to"), times=100)
    done = restorer(brokers).restore(TOPIC, replace(MAPPED, cursor=replace(CURSOR, pieces={})))
    assert done.standing is RestoreStanding.RESTORED
    assert done.why.startswith("It was replicated to other clusters, and its broker did not take that")
    done = restorer(brokers).restore(TOPIC, replace(MAPPED, cursor=replace(CURSOR, pieces={})))
    assert (done.standing, "enableReplicatedSubscriptions" in done.why) == (RestoreStanding.THERE, True)


@pytest.mark.parametrize("step", STEPS)
def test_the_last_try_counts_like_the_first(brokers, step) -> None:
    brokers.faults.add(step, lambda: OutcomeUnknownError("lost"), times=TRIES - 1)
    assert restorer(brokers).restore(TOPIC, MAPPED).standing is RestoreStanding.RESTORED


@pytest.mark.parametrize("step", STEPS)
def test_a_call_that_ended_in_between_is_made_again(brokers, step) -> None:
    brokers.faults.add(step, lambda: BrokerUnavailableError("away"), times=2 * TRIES, after=1 if step == "look" else 0)
    done = restorer(brokers).restore(TOPIC, MAPPED)
    assert (done.standing, done.why) == (RestoreStanding.FAILED, "away")
    brokers.faults.clear()
    held = brokers.topics[TOPIC].cursors.get("job")
    assert held is None or UNFINISHED in held.properties
    assert restorer(brokers).restore(TOPIC, MAPPED).standing is RestoreStanding.RESTORED
    assert is_whole(brokers.topics[TOPIC].cursors["job"])


def test_somebody_s_is_never_moved(brokers) -> None:
    brokers.topics[TOPIC].cursors["job"] = HeldCursor((3, 6))
    done = restorer(brokers).restore(TOPIC, MAPPED)
    assert done.standing is RestoreStanding.NOT_TOUCHED
    assert "differs from 3:0 on (0 entries more are to be delivered, 5 fewer): delete it first" in done.why
    assert brokers.topics[TOPIC].cursors["job"].mark == (3, 6)


def test_one_that_was_used_since_it_was_restored_is_not_moved_back(brokers) -> None:
    restorer(brokers).restore(TOPIC, MAPPED)
    brokers.acknowledge_as_a_client(TOPIC, "job", (3, 0))
    assert restorer(brokers).restore(TOPIC, MAPPED).standing is RestoreStanding.NOT_TOUCHED


def test_a_consumer_that_comes_as_soon_as_it_is_whole_is_none_of_our_business(
    brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe = brokers.describe

    def used(*args: object) -> None:
        describe(*args)
        brokers.acknowledge_as_a_client(TOPIC, "job", (3, 0))

    monkeypatch.setattr(brokers, "describe", used)
    assert restorer(brokers).restore(TOPIC, MAPPED).standing is RestoreStanding.RESTORED


def test_one_that_somebody_makes_meanwhile_is_not_moved(brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    create = brokers.create

    def second(*args: object) -> bool:
        brokers.topics[TOPIC].cursors.setdefault("job", HeldCursor((3, 6)))
        return create(*args)

    monkeypatch.setattr(brokers, "create", second)
    assert restorer(brokers).restore(TOPIC, MAPPED).standing is RestoreStanding.NOT_TOUCHED
    assert brokers.topics[TOPIC].cursors["job"].mark == (3, 6)


def test_one_that_was_copied_before_it_was_whole_is_restored_like_any_other(brokers) -> None:
    marked = replace(CURSOR, subscription_properties=(*CURSOR.subscription_properties, (UNFINISHED, "true")))
    done = restorer(brokers).restore(TOPIC, replace(MAPPED, cursor=marked))
    assert done.standing is RestoreStanding.RESTORED
    assert is_whole(brokers.topics[TOPIC].cursors["job"])


def test_a_consumer_of_one_that_is_not_whole_is_told(brokers) -> None:
    brokers.topics[TOPIC].cursors["job"] = HeldCursor((1, -1), properties={UNFINISHED: "true"}, consumers=1)
    done = restorer(brokers).restore(TOPIC, MAPPED)
    assert done.standing is RestoreStanding.NOT_TOUCHED
    assert "a consumer is connected" in done.why


def test_what_a_broker_drops_is_a_failure(brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "acknowledge", lambda *_: None)
    done = restorer(brokers).restore(TOPIC, MAPPED)
    assert done.standing is RestoreStanding.FAILED
    assert "2 entries are not acknowledged that should be" in done.why


def test_a_role_that_may_not_fails_at_once(brokers) -> None:
    brokers.faults.add("create", lambda: AuthorizationFailedError("not allowed"))
    done = restorer(brokers).restore(TOPIC, MAPPED)
    assert (done.standing, done.why) == (RestoreStanding.FAILED, "not allowed")


def stored(*batches: PartlyAcknowledged, problem: str = "") -> StoredCursor:
    return StoredCursor(b"", 1, 0, CursorState((2, 9), RANGES, batches), None, problem)


def test_parts_of_batches_are_read_back_from_what_is_stored(brokers) -> None:
    answers = iter([stored(), stored(*PARTS)])  # a broker answers before it stores
    assert restorer(brokers, lambda *_: next(answers)).restore(TOPIC, MAPPED).why == ""
    assert "of 1 of 1 batches" in restorer(brokers, lambda *_: stored()).restore(TOPIC, MAPPED).why
    assert "not stored yet" in restorer(brokers, lambda *_: None).restore(TOPIC, MAPPED).why
    assert "no bookie" in restorer(brokers, lambda *_: stored(problem="no bookie")).restore(TOPIC, MAPPED).why

    def away(*_: object) -> None:
        raise BrokerUnavailableError("away")

    assert "could not be read back: away" in restorer(brokers, away).restore(TOPIC, MAPPED).why
