"""The topics of the running application: found, adopted, kept up to date with their policies, retired."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace

from offloader.config.levels import TopicPolicy
from offloader.doctor.check import Check, Verdict
from offloader.errors import OffloadError, RetryableError, TopicNotFoundError
from offloader.metadata.catalog import released
from offloader.metadata.state import TopicState
from offloader.model import Position, RollReason, TopicName
from offloader.streaming.acknowledging import acknowledged
from offloader.streaming.adoption import adopt, next_incarnation, rules_of
from offloader.streaming.context import Context
from offloader.streaming.discovery import Discovery, discover
from offloader.streaming.looking import DELETED
from offloader.streaming.rates import RateLimits
from offloader.streaming.tails import explain_tail
from offloader.streaming.topics import Topic

log = logging.getLogger(__name__)

ADOPT_AGAIN_MS = 2_000
REFUSED_FOR_GOOD_MS = 120_000  # longer than a broker holds a subscription for a process that is gone


class Roster:
    """`topics` are adopted; `refused` says of those that are not, why; `unread` are namespaces whose topics are not known, and why."""

    def __init__(
        self, context: Context, rates: RateLimits, interval_ms: int, configured: Iterable[str], *, until_caught_up: bool = False
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
        self._discovery: Future[Discovery] | None = None
        self._discover_at = 0
        self._dangers: dict[str, tuple[Check, ...]] = {}
        self._adopting: dict[TopicName, Future[Topic]] = {}
        self._adopt_again_at: dict[TopicName, int] = {}
        self._forgotten: set[TopicName] = set()  # since the newest discovery began, which may have seen them
        self._released: set[TopicName] = set()
        self._barred: set[TopicName] = set()
        self._retrying: dict[TopicName, int] = {}  # refused for now (a busy pin, a broker that does not answer): since when
        self._claimed: frozenset[TopicName] = frozenset()
        self.discovered = False

    @property
    def settled(self) -> bool:
        """All namespaces were read, or cannot be; every topic that was found is adopted or refused, or was refused for now for so long that
        it will hardly change. From any thread."""
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
        """Take what discovery found, adopt new topics; never waits."""
        now = self._context.clock_ms()
        self._take_discovery(now)
        self._take_adopted(now)
        for name, policy in self._policies.items():
            wanted = self._wanted(name, policy) and name not in self.topics and name not in self._adopting
            if wanted and self._refuse(name):
                continue
            if wanted and self._adopt_again_at.get(name, 0) <= now:
                self._adopting[name] = self._context.adopters.submit(self._adopt, name, policy)

    def _adopt(self, name: TopicName, policy: TopicPolicy) -> Topic:
        topic = adopt(self._context, name, policy)
        if self._until_caught_up and topic.hidden_tail() is not None:
            explain_tail(self._context, topic)
        return topic

    def _warn(self, found: Discovery) -> None:
        """Say what endangers a namespace's pins, once for each."""
        for namespace, checks in found.dangers.items():
            for check in checks:
                if check not in self._dangers.get(namespace, ()):
                    log.warning("%s: %s; remedy: %s", check.name, check.message, check.remedy)
        self._dangers.update(found.dangers)

    def _refuse(self, name: TopicName) -> bool:
        """Whether a policy of the namespace keeps a topic that we do not hold yet from being adopted."""
        if name in self._context.journal.topics:
            return False
        danger = next((c for c in self._dangers.get(name.namespace, ()) if c.verdict is Verdict.FAIL), None)
        if danger is not None:
            self.refused[name] = f"{danger.message}; {danger.remedy}"
        return danger is not None

    def was_released(self, name: TopicName) -> bool:
        """Whether this run gave the topic's subscription up."""
        return name in self._released

    def _take_discovery(self, now: int) -> None:
        if self._discovery is not None and self._discovery.done():
            answer, self._discovery = self._discovery, None
            self._discovered(answer, now)
        if self._discovery is None and now >= self._discover_at:
            self._discover_at = now + self._interval_ms
            self._forgotten = set()
            self._discovery = self._context.pool.submit(self._discover, self._known())

    def _known(self) -> set[TopicName]:
        """Topics whose policies must be known, also where nothing enables any of their namespace: those that were released wait for that."""
        return {*self.topics, *self._context.journal.topics, *self._barred, *self._claimed}

    def _discovered(self, answer: Future[Discovery], now: int) -> None:
        try:
            found = answer.result()
        except OffloadError as error:
            log.warning("cannot discover topics, tried again soon: %s", error)
            self._discover_at = now + ADOPT_AGAIN_MS
            return
        self.discovered = True
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
        """The policies that hold now. Those of namespaces that were not read stay; topics that are not there any more are not missed."""
        stay = {
            n: p for n, p in self._policies.items() if n.namespace not in found.dangers or n in self.topics or n in self._adopting
        }
        self._policies = stay | {n: p for n, p in found.policies.items() if n not in self._forgotten}
        self.refused = {n: why for n, why in self.refused.items() if n in self._policies}
        self._retrying = {n: since for n, since in self._retrying.items() if n in self._policies}
        self._adopt_again_at = {n: at for n, at in self._adopt_again_at.items() if n in self._policies}

    def _discover(self, known: set[TopicName]) -> Discovery:
        """Runs in the pool. The first time topics that only the bucket remembers are looked at too: one that was disabled
        while nothing ran is still to be released. One that is enabled and not listed was deleted."""
        context = self._context
        if self.discovered:
            return discover(context.admin, context.policies, sorted(known), self._configured, self._interval_ms)
        remembered = {*context.catalogs.topics()} - known
        found = discover(context.admin, context.policies, sorted({*known, *remembered}), self._configured, self._interval_ms)
        deleted = {n for n in remembered if n in found.policies and found.policies[n].enabled and n not in found.listed}
        found = replace(found, policies={n: p for n, p in found.policies.items() if n not in deleted})
        self._claimed = frozenset(n for n, p in found.policies.items() if not p.enabled and n not in known and self._ours(n))
        return found

    def _ours(self, name: TopicName) -> bool:
        try:
            claim = self._context.catalogs.load(name).claim
        except OffloadError as error:
            log.warning("cannot read the catalog of topic=%s: %s", name, error)
            return False
        return claim is not None and claim.application == self._context.application

    def _wanted(self, name: TopicName, policy: TopicPolicy) -> bool:
        if name in self._barred:
            return False  # released by a request: until it was disabled, or the next start
        return policy.enabled or name in self._context.journal.topics or name in self._claimed

    def _apply(self, topic: Topic, policy: TopicPolicy) -> None:
        """A policy may have changed: new rules, or an end."""
        topic.rules = rules_of(policy)
        self._rates.set(topic.name, policy.rates)
        if policy.enabled and topic.retire is RollReason.DISABLED and not self._context.state(topic.name).releasing:
            topic.retire = topic.retire_at = None
        elif not policy.enabled and topic.retire is None:
            self._retire(topic, RollReason.DISABLED)
            log.info("%s topic=%s", "release" if policy.released else "pause", topic.name)
        if not policy.enabled and policy.released:
            self._context.record(replace(self._context.state(topic.name), releasing=True))
        if self._context.state(topic.name).releasing and topic.retire is None:
            self._retire(topic, RollReason.RELEASED)
        if self._until_caught_up and topic.retire is None:
            topic.retire_at = _end_of(topic)
            topic.retire = RollReason.CAUGHT_UP

    def _retire(self, topic: Topic, reason: RollReason) -> None:
        """Offload up to the end that the topic has now, and no further: the next look says where that is."""
        topic.retire, topic.retire_at = reason, None
        topic.retire_asked = self._context.clock_ms()
        topic.look_again_at = 0

    def _fix_retirement(self, topic: Topic) -> None:
        if topic.retire is not None and topic.retire_at is None and topic.known_at > topic.retire_asked:
            topic.retire_at = _end_of(topic)

    def _take_adopted(self, now: int) -> None:
        for name, answer in list(self._adopting.items()):
            if not answer.done():
                continue
            del self._adopting[name]
            try:
                topic = answer.result()
            except OffloadError as error:
                if isinstance(error, TopicNotFoundError):
                    self._claimed -= {name}  # nothing is left that could be released
                self._adopt_again_at[name] = now + ADOPT_AGAIN_MS
                if self.refused.get(name) != str(error):
                    log.warning("cannot offload topic=%s: %s", name, error)
                self.refused[name] = str(error)
                if isinstance(error, RetryableError):
                    self._retrying.setdefault(name, now)
                else:
                    self._retrying.pop(name, None)
                continue
            self.refused.pop(name, None)
            self._retrying.pop(name, None)
            self._released.discard(name)  # by a former request: the next one is for the subscription that it has now
            self._apply(topic, self._policies[name])
            self.topics[name] = topic  # only now: another thread watches how far it is from its goal

    def perhaps_deleted(self, topic: Topic) -> None:
        """A look says that the topic is gone: it is, when its own name is not found while its namespace can be read."""
        try:
            self._context.admin.topics(topic.name.namespace)
            self._context.admin.topic_info(topic.name)
        except TopicNotFoundError:
            log.warning("deleted topic=%s", topic.name)
            topic.gone = DELETED
        except OffloadError as error:
            log.info("cannot tell whether topic=%s is deleted: %s", topic.name, error)

    def forget(self, topic: Topic) -> None:
        """The topic does not exist any more and everything of it is recorded."""
        self._context.pins.drop(topic.name)
        self._context.journal.record([TopicState(topic.name)])
        self._forgotten.add(topic.name)
        self.topics.pop(topic.name, None)
        self._policies.pop(topic.name, None)

    def renew(self, topic: Topic) -> None:
        """Go on with the topic's next incarnation; tried again where Pulsar does not answer."""
        began = self._context.clock_ms()
        if began < topic.letting_go.again_at:
            return
        try:
            renewed = next_incarnation(self._context, topic)
        except OffloadError as error:
            topic.letting_go.failed(began, self._context.clock_ms())
            log.info("cannot adopt the next incarnation of topic=%s yet: %s", topic.name, error)
            return
        if topic.name in self._policies:
            self._apply(renewed, self._policies[topic.name])
        self.topics[topic.name] = renewed

    def retire_if_done(self, topic: Topic, state: TopicState) -> None:
        """Let go of a topic that is to be released and has nothing left to offload."""
        self._fix_retirement(topic)
        if (
            not (state.releasing or topic.pin_released)
            or topic.gone
            or topic.trouble
            or state.open is not None
            or state.abandoned
            or topic.sealing is not None
            or not acknowledged(topic)
        ):
            return
        if topic.retire is None:
            self._retire(topic, RollReason.RELEASED)
        begin, now = topic.begin(), self._context.clock_ms()
        if topic.retire_at is None or (begin is not None and begin <= topic.retire_at) or now < topic.letting_go.again_at:
            return
        try:
            if not topic.pin_released:
                self._context.pins.release(topic.name)
                topic.pin_released = True
            self._end_claim(topic)
        except OffloadError as error:
            topic.letting_go.failed(now, self._context.clock_ms())
            log.warning("cannot release the subscription of topic=%s yet: %s", topic.name, error)
            return
        log.info("released topic=%s end=%s", topic.name, topic.catalog.end)
        self._released.add(topic.name)
        self._barred.add(topic.name)
        self._claimed -= {topic.name}
        self._context.journal.record([TopicState(topic.name)])
        del self.topics[topic.name]

    def _end_claim(self, topic: Topic) -> None:
        """Nobody's topic from here on: any application may claim it."""
        context = self._context
        topic.catalog = context.catalogs.load(topic.name)
        claim = topic.catalog.claim
        if claim is not None and claim.application:
            ended = released(claim, context.clock_ms(), "released")
            topic.catalog = context.catalogs.append(topic.catalog, ended, token=context.new_uuid())


def _end_of(topic: Topic) -> Position:
    """Where the topic ends now; before its first ledger where it is empty."""
    return topic.last or Position(topic.incarnation, -1, -1)
