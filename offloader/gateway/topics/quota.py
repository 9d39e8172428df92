"""The bounds of a topic's durable subscriptions. Retention waits for what each of them has not acknowledged."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from offloader.cursors.core.records import ROLE
from offloader.cursors.stored import kept_names, kept_properties
from offloader.errors import StoreUnavailableError
from offloader.gateway.values import ErrorCode, RefusedError
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

READ_AGAIN = 10.0  # seconds at least between two reads of a full topic: other processes delete subscriptions, too
SHARE = 10  # and this many times as long as the read before took
NAMES = 10  # times `per_topic`: names, deleted ones included, each of which keeps one object for ever
LONGEST_WAIT = 1.0  # seconds for another thread that counts
LONGEST_ROLE = 100  # characters of a role that are kept


class SubscriptionBounds(NamedTuple):
    """The most durable subscriptions of a topic, and of one role in a topic."""

    per_topic: int = 1_000
    per_role: int = 100


class SubscriptionQuota:
    """The durable subscriptions of a topic, by the role that created them. Its calls come from threads."""

    def __init__(
        self,
        store: ObjectStore,
        topic: TopicName,
        bounds: SubscriptionBounds,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._topic = topic
        self._bounds = bounds
        self._clock = clock
        self._read_again_at = 0.0
        self._names: set[str] | None = None  # deleted ones included
        self._roles: dict[str, str] = {}  # by the name of a subscription that exists
        self._has_roles = False  # whether the roles of all of them were read
        self._given_back = deque[str]()
        self._lock = threading.Lock()

    def take(self, name: str, role: str) -> None:
        """Count one more subscription. Raises RefusedError where the topic or the role has as many as it may,
        StoreUnavailableError where another thread is still reading: nobody waits for that in one that writes, too."""
        if not self._lock.acquire(timeout=LONGEST_WAIT):
            raise StoreUnavailableError(f"the subscriptions of {self._topic} are being counted; subscribe again")
        try:
            while self._given_back:
                self._roles.pop(self._given_back.popleft(), None)
            names = self._names if self._names is not None else self._read()
            if not self._has_roles and len(names) >= min(self._bounds):
                names = self._read()
            refusal = self._refusal(names, name, role)
            if refusal and self._clock() >= self._read_again_at:
                names = self._read()
                refusal = self._refusal(names, name, role)
            if refusal:
                raise RefusedError(ErrorCode.NOT_ALLOWED, refusal)
            names.add(name)
            self._roles[name] = kept_role(role)
        finally:
            self._lock.release()

    def give_back(self, name: str) -> None:
        """Count a subscription no more that is deleted. Never waits."""
        self._given_back.append(name)

    def _refusal(self, names: set[str], name: str, role: str) -> str:
        others = Counter(owner for other, owner in self._roles.items() if other != name)
        most = self._bounds.per_topic
        if others.total() >= most:
            return f"{self._topic} has {most} durable subscriptions, which is the most; unsubscribe one"
        if role and others[kept_role(role)] >= self._bounds.per_role:
            return (
                f"the role {role} has {self._bounds.per_role} durable subscriptions of {self._topic}, which is the "
                "most; unsubscribe one"
            )
        if name not in names and len(names) >= NAMES * most:
            return f"{self._topic} has had {len(names)} names of durable subscriptions; use a name of a deleted one"
        return ""

    def _read(self) -> set[str]:
        began = self._clock()
        found = kept_names(self._store, self._topic)
        self._has_roles = len(found) >= min(self._bounds)
        if self._has_roles:
            kept = kept_properties(self._store, self._topic, found)
            self._roles = {name: role_of(properties) for name, properties in kept.items()}
        else:  # no bound is reached, whoever created them: nothing but the listing is needed
            self._roles = dict.fromkeys(found, "")
        self._names = set(found)
        now = self._clock()
        self._read_again_at = now + max(READ_AGAIN, SHARE * (now - began))
        return self._names


def kept_role(role: str) -> str:
    """The part of a role's name that is kept."""
    return role[:LONGEST_ROLE]


def with_role(properties: tuple[tuple[str, int], ...], role: str) -> tuple[tuple[str, int], ...]:
    """Properties of a subscription that this role creates."""
    others = tuple(named for named in properties if not named[0].startswith(ROLE))
    return (*others, (ROLE + kept_role(role), 1)) if role else others


def role_of(properties: tuple[tuple[str, int], ...]) -> str:
    """The role that created the subscription; empty: none is recorded."""
    return next((name.removeprefix(ROLE) for name, _ in properties if name.startswith(ROLE)), "")
