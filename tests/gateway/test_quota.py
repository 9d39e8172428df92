"""How many durable subscriptions clients may create, and what created and deleted ones leave in the bucket."""

from __future__ import annotations

import base64
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from offloader._proto.pulsar_wire_pb2 import CloseConsumer, Connect, Subscribe, Unsubscribe
from offloader.cursors.core.records import FirstState
from offloader.cursors.durable import DurableCursor
from offloader.cursors.stored import delete_kept
from offloader.errors import DamagedRecordError
from offloader.gateway.topics import quota
from offloader.gateway.topics.quota import SubscriptionBounds, SubscriptionQuota, with_role
from offloader.gateway.values import ErrorCode, RefusedError
from offloader.metadata.layout import subscription_folder, subscriptions_folder
from offloader.model import Position
from offloader.pulsar.commands import command
from offloader.storage.forwarding import ForwardingStore
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.format.support import Stored
from tests.gateway.access.tokens import SECRET, token
from tests.gateway.gateway import durable_gateway
from tests.gateway.raw import RawClient

T = TypeVar("T")
FOLDER = subscriptions_folder(TOPIC)
TOKENS = itertools.count()


class Connected:
    """A raw client of one role."""

    def __init__(self, raw: RawClient) -> None:
        self.raw = raw
        self._numbers = itertools.count(1)

    def create(self, name: str) -> str:
        """Subscribe durably; returns the refusal."""
        number = next(self._numbers)
        self.raw.send(
            command(
                subscribe=Subscribe(
                    topic=str(TOPIC), subscription=name, type=Subscribe.SHARED, consumer_id=number, request_id=number
                )
            )
        )
        answer = self.raw.answer()
        if answer.HasField("success"):
            self.newest = number
            return ""
        assert answer.error.error == ErrorCode.NOT_ALLOWED
        return answer.error.message

    def delete(self) -> None:
        """The one that was created last."""
        self.raw.send(command(unsubscribe=Unsubscribe(consumer_id=self.newest, request_id=next(self._numbers))))
        assert self.raw.answer().HasField("success")

    def leave(self) -> None:
        self.raw.send(command(close_consumer=CloseConsumer(consumer_id=self.newest, request_id=next(self._numbers))))
        assert self.raw.answer().HasField("success")


@contextmanager
def connected(url: str, role: str) -> Iterator[Connected]:
    with RawClient(url) as raw:
        shown = token(sub=role)
        raw.send(command(connect=Connect(client_version="x", auth_method_name="token", auth_data=shown)))
        yield Connected(raw)


@pytest.fixture
def archive() -> Archive:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(3)])
    return made


def served(archive: Archive, **settings: object):
    key = base64.b64encode(SECRET).decode()
    return durable_gateway(archive.store, tokenSecretKey=key, roles={"*": ["*"]}, durableRoles={"*": ["*"]}, **settings)


def objects(archive: Archive) -> int:
    return len(list(archive.store.list(FOLDER)))


def test_a_role_and_a_topic_have_so_many_durable_subscriptions(archive: Archive) -> None:
    with (
        served(archive, subscriptionsPerTopic=3, subscriptionsPerRole=2) as url,
        connected(url, "a") as one,
        connected(url, "b") as other,
    ):
        assert [one.create(name) for name in ("a1", "a2")] == ["", ""]
        assert "the role a has 2 durable subscriptions" in one.create("a3")
        assert other.create("b1") == ""
        assert "has 3 durable subscriptions" in other.create("b2")
        other.delete()
        assert other.create("b2") == "", "one was deleted"
    with served(archive, subscriptionsPerTopic=3, subscriptionsPerRole=2) as url, connected(url, "a") as one:
        assert one.create("a1") == "", "it is there already"
        assert "has 3 durable subscriptions" in one.create("a3")
    with served(archive, subscriptionsPerTopic=4, subscriptionsPerRole=2) as url, connected(url, "a") as one:
        assert "the role a has 2 durable subscriptions" in one.create("a3"), "who created them is kept"


def test_created_and_deleted_subscriptions_leave_one_object_of_each_name(archive: Archive) -> None:
    with served(archive, subscriptionsPerTopic=4, subscriptionsPerRole=2) as url, connected(url, "a") as one:
        for number in range(400):
            assert one.create(f"s{number % 40}") == ""
            one.delete()
            assert objects(archive) <= 40
        assert "has had 40 names" in one.create("another")
        assert one.create("s7") == ""
        assert objects(archive) == 40


def test_who_leaves_and_comes_back_takes_no_place(archive: Archive) -> None:
    with served(archive, subscriptionsPerRole=1) as url, connected(url, "a") as one:
        for _ in range(5):
            assert one.create("s") == ""
            one.leave()


def test_without_tokens_a_gateway_that_anyone_reads_has_no_durable_subscriptions(archive: Archive) -> None:
    def refusal(**settings: object) -> str:
        with durable_gateway(archive.store, **settings) as url, RawClient(url) as raw:
            raw.send(command(connect=Connect(client_version="x")))
            raw.send(
                command(
                    subscribe=Subscribe(
                        topic=str(TOPIC), subscription="s", type=Subscribe.SHARED, consumer_id=1, request_id=1
                    )
                )
            )
            answer = raw.answer()
            return answer.error.message if answer.HasField("error") else ""

    assert "gateway.durableRoles" in refusal(anyoneMayRead=True)
    assert objects(archive) == 0
    assert refusal(anyoneMayRead=True, durableRoles={"*": ["*"]}) == ""
    assert refusal() == "", "only this machine reaches it"


class CountingStore(ForwardingStore):
    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.calls = Counter[str]()

    def _call(self, verb: str, key: str, work: Callable[[], T]) -> T:
        self.calls[verb] += 1
        return work()


def create(store: MemoryStore, name: str, role: str = "") -> None:
    first = FirstState(Position(0, 10, -1), with_role((), role))
    DurableCursor.open(store, subscription_folder(TOPIC, name), lambda: first, lambda: f"t{next(TOKENS)}")


def test_a_quota_reads_subscriptions_only_where_a_bound_is_near() -> None:
    memory = MemoryStore()
    for number in range(9):
        create(memory, f"s{number}", "a")
    store = CountingStore(memory)
    bounded = SubscriptionQuota(store, TOPIC, SubscriptionBounds(20, 10))
    bounded.take("s9", "a")
    assert store.calls.total() == 1
    create(memory, "s9", "a")
    with pytest.raises(RefusedError, match="role a has 10"):
        bounded.take("s10", "a")
    bounded.take("s10", "b")


def test_a_full_quota_is_read_again_once_in_a_while() -> None:
    memory, now = MemoryStore(), [100.0]
    for number in range(3):
        create(memory, f"s{number}")
    store = CountingStore(memory)
    bounded = SubscriptionQuota(store, TOPIC, SubscriptionBounds(3, 3), lambda: now[0])
    with pytest.raises(RefusedError):
        bounded.take("more", "")
    delete_kept(memory, TOPIC, "s1", lambda: f"t{next(TOKENS)}")  # by another process
    known = store.calls.total()
    for _ in range(50):
        with pytest.raises(RefusedError):
            bounded.take("more", "")
    assert store.calls.total() == known, "who asks again and again costs nothing"
    now[0] += quota.READ_AGAIN
    bounded.take("more", "")


def test_a_damaged_subscription_counts() -> None:
    store = MemoryStore()
    create(store, "s")
    ((key, _),) = store.list(FOLDER)
    store.put(key, b"damaged")
    with pytest.raises(DamagedRecordError):
        create(store, "s")
    with pytest.raises(RefusedError):
        SubscriptionQuota(store, TOPIC, SubscriptionBounds(1, 1)).take("more", "a")


def test_a_role_that_creates_a_subscription_replaces_the_one_that_a_copy_names() -> None:
    first = with_role((("x", 1),), "a" * 300)
    assert with_role(first, "b") == (("x", 1), ("offloader.role.b", 1))
    assert with_role(first, "") == (("x", 1),)
    assert quota.role_of(first) == "a" * quota.LONGEST_ROLE
