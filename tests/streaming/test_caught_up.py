"""`--until-caught-up` gives a topic up for what it meets itself, not for what an earlier run met."""

from types import SimpleNamespace
from typing import cast

from offloader.errors import AuthorizationFailedError
from offloader.model import Failure, FailureKind, Position, TopicName
from offloader.streaming.caught_up import GIVE_UP_ATTEMPTS, CaughtUp, Outcome
from offloader.streaming.driver import Driver

TOPIC = TopicName.parse("persistent://t/n/a")


def failed(attempts, retry_at):
    return Failure(FailureKind.INTEGRITY, "a gap", attempts, retry_at)


class Watched:
    """A driver with one topic that is not where it should be."""

    def __init__(self, failure):
        goal = Position(0, 5, 9)
        topic = SimpleNamespace(retire_at=goal, undecided=False, catalog=SimpleNamespace(end=None), begin=lambda: goal)
        self.roster = SimpleNamespace(settled=True, refused={}, unread={}, topics={TOPIC: topic})
        self.failure = failure

    def state(self, name):
        assert name == TOPIC
        return SimpleNamespace(failure=self.failure, open=object())


def test_failures_of_an_earlier_run_get_another_try():
    driver = Watched(failed(GIVE_UP_ATTEMPTS, 1))
    watch = CaughtUp(cast("Driver", driver), 0, None)
    assert watch.look(0) is Outcome.NOT_YET
    assert watch.look(1) is Outcome.NOT_YET
    driver.failure = failed(GIVE_UP_ATTEMPTS + 1, 2)
    assert watch.look(2) is Outcome.CANNOT


def test_a_topic_that_fails_often_enough_is_given_up():
    driver = Watched(None)
    watch = CaughtUp(cast("Driver", driver), 0, None)
    for attempts in range(1, GIVE_UP_ATTEMPTS):
        driver.failure = failed(attempts, attempts)
        assert watch.look(attempts) is Outcome.NOT_YET
    driver.failure = failed(GIVE_UP_ATTEMPTS, 9)
    assert watch.look(9) is Outcome.CANNOT


def test_a_namespace_that_could_not_be_read_is_not_caught_up():
    driver = Watched(None)
    driver.roster.topics = {}
    watch = CaughtUp(cast("Driver", driver), 0, None)
    assert watch.look(0) is Outcome.CAUGHT_UP
    driver.roster.unread = {"shop/orders": AuthorizationFailedError("no administrator of this tenant")}
    assert watch.look(1) is Outcome.CANNOT
    assert watch.unfinished() == ["not looked at: shop/orders: no administrator of this tenant"]
