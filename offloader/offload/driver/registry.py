"""The topics of the running application: found, adopted, and kept up to date with their policies."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from offloader.config.levels import TopicPolicy
from offloader.errors import (
    ClaimedByOtherError,
    OffloadError,
    RetryableError,
    TopicNotFoundError,
)
from offloader.metadata.log import READERS
from offloader.metadata.state import TopicState
from offloader.model import TopicName
from offloader.offload.core.check import Check, Verdict
from offloader.offload.core.rates import RateLimits
from offloader.offload.core.retry_schedule import RetrySchedule
from offloader.offload.driver import retiring
from offloader.offload.driver.adoption import adopt, next_incarnation, rules_of
from offloader.offload.driver.context import Context
from offloader.offload.driver.discovery import Discovery, discover
from offloader.offload.driver.topic import Topic
from offloader.offload.driver.undelivered import explain_tail
from offloader.offload.driver.work import WorkKind

log = logging.getLogger(__name__)

ADOPT_AGAIN_MS = 2_000
REFUSED_FOR_GOOD_MS = 120_000  # longer than a broker holds a subscription for a process that is gone


class _Remembered(NamedTuple):
    """Of topics that only the bucket's list of claims knows (`listed`, where it was read): which are ours and disabled,
    and of which that is not known yet."""

    listed: frozenset[TopicName]
    ours: frozenset[TopicName]
    unclear: frozenset[TopicName]


@dataclass
class _Attempt:
    """When a thread began with it: that it stood in a queue says nothing of who was asked."""

    began: int = 0


class TopicRegistry:
    """`topics` are adopted; `refused` says of those that are not, why; `unread` are namespaces whose topics are not
    known, and why."""

    def __init__(
        self,
        context: Context,
        rates: RateLimits,
        interval_ms: int,
        configured: Iterable[str],
        *,
        until_caught_up: bool = False,
    ) -> None:
        self.topics: dict[TopicName, Topic] = {}
        self.refused: dict[TopicName, str] = {}
        self.unread: Mapping[str, OffloadError] = {}
        self._context = context
        self._rates = rates
        self._interval_ms = interval_ms
        self._configured = list(configured)
        self._until_caught_up = until_caught_up
        self._policies: dict[TopicName, TopicPolicy] = {}
        self._discover_at = 0
        self._dangers: dict[str, tuple[Check, ...]] = {}
        self._adopting: set[TopicName] = set()
        self._adoptions: dict[TopicName, RetrySchedule] = {}  # those that failed
        self._forgotten: set[TopicName] = set()  # since the newest discovery began, which may have seen them
        self._released: set[TopicName] = set()
        self._barred: set[TopicName] = set()
        self._retrying: dict[
            TopicName, int
        ] = {}  # refused for now (a busy pin, a broker that does not answer): since when
        self._claimed: frozenset[TopicName] = frozenset()
        self._held: set[TopicName] = set()  # have a pin of ours, or had
        self._unclear: frozenset[TopicName] | None = (
            None  # of the bucket's list of claims; None: the list was not read yet
        )
        self.discovered = False

    @property
    def settled(self) -> bool:
        """All namespaces were read, or cannot be; every topic that was found is adopted or refused, or was refused for
        now for so long that it will hardly change. From any thread."""
        given_up_before = self._context.clock_ms() - REFUSED_FOR_GOOD_MS
        retrying = {name for name, since in list(self._retrying.items()) if since > given_up_before}
        refused = set(self.refused) - retrying
        wanted = {name for name, policy in list(self._policies.items()) if self._wanted(name, policy)}
        adopting = set(self._adopting) - refused
        return self.discovered and not self._unread_for_now and not adopting and wanted <= set(self.topics) | refused

    @property
    def _unread_for_now(self) -> bool:
        return any(isinstance(error, RetryableError) for error in self.unread.values())

    def update(self) -> None:
        """Have topics discovered, and new ones adopted."""
        now = self._context.clock_ms()
        self._have_discovered(now)
        for name, policy in self._policies.items():
            wanted = self._wanted(name, policy) and name not in self.topics and name not in self._adopting
            if wanted and self._refuse(name):
                continue
            retry = self._adoptions.get(name, RetrySchedule())
            if wanted and retry.again_at <= now:
                self._adopting.add(name)
                attempt = _Attempt()
                call, then = partial(self._adopt, name, policy, attempt), partial(self._adopted, name, attempt)
                self._context.work.post(_kind(retry), name, call, then)

    def _adopt(self, name: TopicName, policy: TopicPolicy, attempt: _Attempt) -> Topic:
        attempt.began = self._context.clock_ms()
        topic = adopt(self._context, name, policy)
        if self._until_caught_up and topic.hidden_tail() is not None:
            explain_tail(self._context, topic)
        return topic

    def _warn(self, found: Discovery) -> None:
        """Say what endangers a namespace's pins, once for each."""
        for namespace, checks in found.dangers.items():
            for check in checks:
                if check not in self._dangers.get(namespace, ()):
                    log.warning("%s: %s; remedy: %s", check.name, check.message, check.remedy, extra={"see": "policy"})
        self._dangers.update(found.dangers)

    def _refuse(self, name: TopicName) -> bool:
        """Whether a policy of the namespace keeps a topic that we do not hold yet from being adopted. One that has a
        pin is safer with us."""
        if name in self._context.journal.topics or name in self._held:
            return False
        danger = next((c for c in self._dangers.get(name.namespace, ()) if c.verdict is Verdict.FAIL), None)
        if danger is not None:
            self.refused[name] = f"{danger.message}; {danger.remedy}"
        return danger is not None

    def was_released(self, name: TopicName) -> bool:
        """Whether this run gave the topic's subscription up."""
        return name in self._released

    def _have_discovered(self, now: int) -> None:
        if now < self._discover_at or self._context.work.has(WorkKind.DISCOVER, ""):
            return
        self._discover_at = now + self._interval_ms
        self._forgotten = set()
        self._context.work.post(WorkKind.DISCOVER, "", partial(self._discover, self._known()), self._discovered)

    def _known(self) -> set[TopicName]:
        """Topics whose policies must be known, also where nothing enables any of their namespace: those that were
        released wait for that."""
        return {*self.topics, *self._context.journal.topics, *self._barred, *self._claimed}

    def _discovered(self, answer: Future[tuple[Discovery, _Remembered]]) -> None:
        now = self._context.clock_ms()
        try:
            found, remembered = answer.result()
        except OffloadError as error:
            log.warning("cannot discover topics, tried again soon: %s", error, extra={"see": "discovery-failed"})
            self._discover_at = now + ADOPT_AGAIN_MS
            return
        self.discovered = True
        self._held |= remembered.listed
        self._claimed |= remembered.ours
        self._unclear = remembered.unclear
        self.unread = found.unread
        if self._unread_for_now:
            self._discover_at = now + ADOPT_AGAIN_MS
        self._warn(found)
        self._learn(found)
        self._barred = {name for name in self._barred if name not in found.policies or found.policies[name].enabled}
        for name, topic in self.topics.items():
            if name in found.policies:
                self._apply(topic, found.policies[name])

    def _learn(self, found: Discovery) -> None:
        """The policies that hold now. Those of namespaces that were not read stay; topics that are not there any more
        are not missed."""
        stay = {
            n: p
            for n, p in self._policies.items()
            if n.namespace not in found.dangers or n in self.topics or n in self._adopting
        }
        self._policies = stay | {n: p for n, p in found.policies.items() if n not in self._forgotten}
        self.refused = {n: why for n, why in self.refused.items() if n in self._policies}
        self._retrying = {n: since for n, since in self._retrying.items() if n in self._policies}
        self._adoptions = {n: retry for n, retry in self._adoptions.items() if n in self._policies}

    def _discover(self, known: set[TopicName]) -> tuple[Discovery, _Remembered]:
        """Runs in the pool.

        It also looks at topics that only the bucket's list of claims remembers, until it is clear whether they are
        ours: a topic that was disabled while nothing ran must still be released. An enabled topic that is not listed is
        absent now; that proves nothing.
        """
        context = self._context
        listed = context.catalogs.claimed() if self._unclear is None else []
        remembered = {*listed, *(self._unclear or ())} - known
        found = discover(
            context.admin, context.policies, sorted({*known, *remembered}), self._configured, self._interval_ms
        )
        absent = {n for n in remembered if n in found.policies and found.policies[n].enabled and n not in found.listed}
        found = replace(found, policies={n: p for n, p in found.policies.items() if n not in absent})
        disabled = [name for name, policy in found.policies.items() if name in remembered and not policy.enabled]
        with ThreadPoolExecutor(READERS, "claims") as pool:
            ours = dict(zip(disabled, pool.map(self._ours, disabled), strict=True))
        unread = {n for n in remembered if n.namespace in found.unread} | {n for n in disabled if ours[n] is None}
        return found, _Remembered(frozenset(listed), frozenset(n for n in disabled if ours[n]), frozenset(unread))

    def _ours(self, name: TopicName) -> bool | None:
        """Whether a topic that is in the list of claims is claimed; else it is taken from the list. None: its catalog
        cannot be read."""
        catalogs = self._context.catalogs
        try:
            if self._is_claimed(name):
                return True
            catalogs.unmark(name)
            if not self._is_claimed(name):
                return False
            catalogs.mark(name)  # another process of this application has claimed it meanwhile
        except OffloadError as error:
            log.warning("cannot read the catalog of topic=%s: %s", name, error, extra={"see": "catalog-unread"})
            return None
        return True

    def _is_claimed(self, name: TopicName) -> bool:
        claim = self._context.catalogs.head(name).claim
        return claim is not None and claim.application == self._context.application

    def _wanted(self, name: TopicName, policy: TopicPolicy) -> bool:
        if name in self._barred:
            return False  # released by a request: until it was disabled, or the next start
        return policy.enabled or name in self._context.journal.topics or name in self._claimed

    def _apply(self, topic: Topic, policy: TopicPolicy) -> None:
        """A policy may have changed: new rules, or an end."""
        topic.rules = rules_of(policy)
        self._rates.set(topic.name, policy.rates)
        retiring.follow(self._context, topic, policy)
        if self._until_caught_up:
            retiring.stop_at_present_end(topic)

    def _adopted(self, name: TopicName, attempt: _Attempt, answer: Future[Topic]) -> None:
        try:
            topic = answer.result()
        except OffloadError as error:
            self._not_adopted(name, attempt, error)
        else:
            self._apply(topic, self._policies[name])
            self.refused.pop(name, None)
            self._retrying.pop(name, None)
            self._adoptions.pop(name, None)
            self._held.add(name)
            self._released.discard(name)  # by a former request: the next one is for the subscription that it has now
            self.topics[name] = topic  # only now: another thread watches how far it is from its goal
        self._adopting.discard(name)

    def _not_adopted(self, name: TopicName, attempt: _Attempt, error: OffloadError) -> None:
        now = self._context.clock_ms()
        if isinstance(error, TopicNotFoundError | ClaimedByOtherError):
            self._claimed -= {name}  # nothing is left that could be released
        elif self._context.pins.holds(name):
            # Released like any other, should it be disabled now: or nobody would ever give up the pin.
            self._claimed |= {name}
            self._held.add(name)
        retry = self._adoptions.get(name, RetrySchedule()).failed(attempt.began, now)
        self._adoptions[name] = replace(retry, again_at=max(retry.again_at, now + ADOPT_AGAIN_MS))
        if self.refused.get(name) != str(error):
            log.warning("cannot offload topic=%s: %s", name, error, extra={"see": "not-offloaded"})
        self.refused[name] = str(error)
        if isinstance(error, RetryableError):
            self._retrying.setdefault(name, now)
        else:
            self._retrying.pop(name, None)

    def take_in_anew(self, topic: Topic) -> None:
        """The topic was held only to find out what became of it: it is there."""
        del self.topics[topic.name]

    def forget(self, topic: Topic) -> None:
        """The topic does not exist any more and everything of it is recorded."""
        call, then = partial(self._context.pins.drop, topic.name), partial(self._dropped, topic.name)
        self._context.work.post(WorkKind.RELEASE, topic.name, call, then)

    def _dropped(self, name: TopicName, answer: Future[None]) -> None:
        try:
            answer.result()
        except OffloadError as error:
            log.info("cannot let go of topic=%s yet: %s", name, error)
            return
        self._context.journal.record([TopicState(name)])
        self._forgotten.add(name)
        self._held.discard(name)
        self.topics.pop(name, None)
        self._policies.pop(name, None)

    def renew(self, topic: Topic) -> None:
        """Go on with the topic's next incarnation; tried again where Pulsar does not answer."""
        began = self._context.clock_ms()
        if began >= topic.release_retry.again_at:
            call, then = partial(next_incarnation, self._context, topic), partial(self._renewed, topic, began)
            self._context.work.post(_kind(topic.release_retry), topic.name, call, then)

    def _renewed(self, topic: Topic, began: int, answer: Future[Topic]) -> None:
        try:
            renewed = answer.result()
        except OffloadError as error:
            retiring.tried_in_vain(self._context, topic, began)
            log.info("cannot adopt the next incarnation of topic=%s yet: %s", topic.name, error)
            return
        if topic.name in self._policies:
            self._apply(renewed, self._policies[topic.name])
        self.topics[topic.name] = renewed

    def retire_if_done(self, topic: Topic, state: TopicState) -> None:
        """Let go of a topic that is to be released and has nothing left to offload."""
        retiring.release_if_done(self._context, topic, state, self._was_released)

    def _was_released(self, topic: Topic, *, by_policy: bool) -> None:
        """Nothing of the topic is ours any more."""
        if not by_policy:  # the policy keeps it out by itself, as long as it says so
            self._barred.add(topic.name)
        self._context.journal.record([TopicState(topic.name)])
        log.info("released topic=%s end=%s", topic.name, topic.catalog.end)
        self._released.add(topic.name)
        self._held.discard(topic.name)
        self._claimed -= {topic.name}
        self.topics.pop(topic.name, None)


def _kind(retry: RetrySchedule) -> WorkKind:
    return WorkKind.ADOPT_AGAIN if retry.in_vain else WorkKind.ADOPT
