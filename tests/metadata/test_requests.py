"""Commands ask, the application answers, both through the bucket."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import DamagedRecordError, FormatVersionError
from offloader.metadata import layout, requests
from offloader.metadata.requests import Request, RequestKind, RequestOutcome
from offloader.model import TopicName
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import FaultyStore, StoreFault, StoreFaults
from tests.times import DAY_MS

from .support import TOPIC, position, positions, tokens

CLOSE = Request(RequestKind.CLOSE, TOPIC, 1000, "joe", position(12))
DONE = RequestOutcome(True, "closed", 2000)

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@given(st.sampled_from(RequestKind), st.integers(0, 10**13), names, st.none() | positions)
def test_what_is_asked_is_what_is_pending(kind, at, by, where):
    store, request = MemoryStore(), Request(kind, TopicName("acme", "orders", "a/b"), at, by, where)
    request_id = requests.submit(store, "app", request, tokens())
    assert requests.pending(store, "app", 0) == [(request_id, request)]


def test_requests_are_pending_in_the_order_of_asking_until_they_are_done(store):
    new_token = tokens()
    ids = [requests.submit(store, "app", Request(RequestKind.RELEASE, TOPIC, at), new_token) for at in (30, 4, 100)]
    assert [i for i, _ in requests.pending(store, "app", 0)] == [ids[1], ids[0], ids[2]]
    requests.mark_seen(store, "app", ids[0])
    assert requests.is_seen(store, "app", ids[0])
    assert not requests.is_seen(store, "app", ids[1])
    requests.mark_done(store, "app", ids[1], DONE)
    assert [i for i, _ in requests.pending(store, "app", 0)] == [ids[0], ids[2]]
    assert requests.outcome_of(store, "app", ids[1]) == DONE
    assert requests.outcome_of(store, "app", ids[0]) is None


def test_applications_do_not_see_each_other_s_requests(store):
    requests.submit(store, "app", CLOSE, tokens())
    assert requests.pending(store, "app2", 0) == []


def test_answers_may_be_repeated_and_the_first_one_stands(store):
    request_id = requests.submit(store, "app", CLOSE, tokens())
    for outcome in (DONE, RequestOutcome(False, "too late", 3000)):
        requests.mark_seen(store, "app", request_id)
        requests.mark_done(store, "app", request_id, outcome)
    assert requests.outcome_of(store, "app", request_id) == DONE


def test_waiting_ends_with_the_outcome(store):
    request_id, now = requests.submit(store, "app", CLOSE, tokens()), [0]

    def sleep(seconds: float) -> None:
        now[0] += int(seconds * 1000)
        if now[0] >= 1500:
            requests.mark_done(store, "app", request_id, DONE)

    found = requests.wait(store, "app", request_id, timeout_ms=9000, clock=lambda: now[0], sleep=sleep)
    assert (found, now) == (DONE, [1500])


def test_waiting_ends_with_the_timeout(store):
    now = [0]
    waited = requests.wait(
        store,
        "app",
        "nobody",
        timeout_ms=1200,
        clock=lambda: now[0],
        sleep=lambda s: now.append(now.pop() + int(s * 1000)),
    )
    assert (waited, now) == (None, [1200])


def test_old_answers_are_removed_after_a_day(store):
    new_token = tokens()
    old, young, pending = (requests.submit(store, "app", CLOSE, new_token) for _ in range(3))
    requests.mark_seen(store, "app", old)
    requests.mark_done(store, "app", old, RequestOutcome(True, "", 1000))
    requests.mark_done(store, "app", young, RequestOutcome(True, "", 1001))
    assert requests.remove_old(store, "app", 1001 + DAY_MS) == 1
    assert [i for i, _ in requests.pending(store, "app", 0)] == [pending]
    assert {key.split("/")[-1] for key, _ in store.list()} == {young, f"{young}.done", pending}


def test_a_removal_that_is_interrupted_does_not_make_a_request_pending_again(store):
    request_id = requests.submit(store, "app", CLOSE, tokens())
    requests.mark_done(store, "app", request_id, RequestOutcome(True, "", 0))
    with pytest.raises(Exception, match="unavailable"):
        requests.remove_old(FaultyStore(store, StoreFaults([StoreFault("delete", after=1)])), "app", 2 * DAY_MS)
    assert requests.pending(store, "app", 0) == []
    assert requests.remove_old(store, "app", 2 * DAY_MS) == 1
    assert list(store.list()) == []


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b'{"version": 1, "kind": "dance"}', b'{"version": 2}'])
def test_a_request_that_cannot_be_read_is_answered_and_stops_nobody(store, data: bytes):
    store.put("_requests/app/bad", data)
    good = requests.submit(store, "app", CLOSE, tokens())
    assert [i for i, _ in requests.pending(store, "app", 5)] == [good]
    answer = requests.outcome_of(store, "app", "bad")
    assert (answer.ok, answer.at) == (False, 5)
    assert "request bad" in answer.message


def test_an_answer_that_cannot_be_read_is_told(store):
    store.put("_requests/app/a.done", b"{}")
    with pytest.raises(DamagedRecordError, match="request a"):
        requests.outcome_of(store, "app", "a")
    store.put("_requests/app/b.done", json.dumps({"version": 2}).encode())
    with pytest.raises(FormatVersionError, match="newer version"):
        requests.outcome_of(store, "app", "b")


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"version": 1, "kind": ' + b"[" * 100_000,
        b'{"version": Infinity}',
        b'{"version": 1e400}',
        b'{"version": 1, "kind": "close", "topic": "a/b/\\ud800", "at": 1, "by": "", "position": null}',
        b'{"version": 1, "kind": "close", "topic": "a/b/c", "at": 1, "by": "", "position": [0,9223372036854775808,1]}',
        b'{"version": 1, "kind": "close", "topic": "a/b/c", "at": 99999999999999999999, "by": "", "position": null}',
        b" " * (requests.LARGEST + 1),
    ],
    ids=["deep", "deep inside", "infinity", "large float", "half a character", "position", "time", "large"],
)
def test_no_request_is_more_than_damage(store, data):
    store.put(f"{layout.requests_folder('app')}1", data)
    assert requests.pending(store, "app", 7) == []
    outcome = requests.outcome_of(store, "app", "1")
    assert outcome is not None
    assert not outcome.ok


def test_an_outcome_that_cannot_be_read_keeps_no_other_from_being_removed(store):
    new_token = tokens()
    damaged, old = (requests.submit(store, "app", CLOSE, new_token) for _ in range(2))
    requests.mark_done(store, "app", old, RequestOutcome(True, "", 0))
    store.put(layout.requests_folder("app") + damaged + requests.DONE, b"{")
    assert requests.remove_old(store, "app", 2 * DAY_MS) == 1
    assert {key.split("/")[-1] for key, _ in store.list()} == {damaged, f"{damaged}.done"}
