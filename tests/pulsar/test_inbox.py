"""What one subscription holds until a reader takes it."""

import pytest

from offloader.errors import TopicMovedError
from offloader.pulsar.reader import Inbox, Window


class Calls:
    def __init__(self):
        self.granted, self.stopped = [], 0

    def grant(self, permits):
        self.granted.append(permits)

    def stop(self):
        self.stopped += 1


@pytest.fixture
def calls():
    return Calls()


@pytest.fixture
def inbox(calls):
    inbox = Inbox(Window(1000), (7, 3), calls.grant, calls.stop)
    inbox.open()
    return inbox


def test_the_first_permit_is_one(inbox, calls):
    assert calls.granted == [1]


def test_it_gives_everything_that_has_arrived_from_its_start_on(inbox):
    for number in range(2, 6):
        inbox.on_entry(7, number, b"x")
    assert [(e.ledger, e.entry) for e in inbox.take(0)] == [(7, 3), (7, 4), (7, 5)]
    assert inbox.take(0) == []
    assert inbox.next == (7, 6)


def test_an_entry_that_does_not_fit_ends_it_and_says_where_to_go_on(inbox, calls):
    inbox.on_entry(7, 3, bytes(600))
    inbox.on_entry(7, 4, bytes(600))
    inbox.on_entry(7, 5, b"x")  # on its way when the consumer was closed
    granted = len(calls.granted)
    assert (inbox.overflowed, inbox.exhausted, calls.stopped) == (True, False, 1)
    assert [e.entry for e in inbox.take(0)] == [3]
    assert inbox.exhausted
    assert inbox.next == (7, 4)
    assert len(calls.granted) == granted, "no permits for a consumer that was closed"


def test_an_entry_larger_than_everything_is_taken_alone(inbox):
    inbox.on_entry(7, 3, bytes(5000))
    assert [len(e.data) for e in inbox.take(0)] == [5000]
    assert not inbox.overflowed


def test_an_error_comes_after_what_had_arrived_and_stays(inbox):
    inbox.on_entry(7, 3, b"x")
    inbox.on_closed(TopicMovedError("gone"))
    assert len(inbox.take(0)) == 1
    for _ in range(2):
        with pytest.raises(TopicMovedError, match="gone"):
            inbox.take(0)
