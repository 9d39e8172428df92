"""The adopted topics: taken in, kept up to date with their policies, and let go of."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from offloader.config.levels import TopicPolicy
from offloader.errors import (
    ClaimedByOtherError,
    HeldByShardError,
    OffloadError,
    OutcomeUnknownError,
    RetryableError,
    ShadowTopicError,
    SubscriptionBusyError,
    TopicNotFoundError,
)
from offloader.metadata.state import TopicState
from offloader.model import Taking, TopicName
from offloader.offload.core.namespace_policies import STOCK_OFFLOAD
from offloader.offload.core.rates import RateLimits
from offloader.offload.core.retry_schedule import RetrySchedule
from offloader.offload.core.topic import Topic
from offloader.offload.driver import retiring
from offloader.offload.driver.adoption import adopt, next_incarnation, rules_of
from offloader.offload.driver.context import Context
from offloader.offload.driver.discovery import DiscoveredTopics, Findings
from offloader.offload.driver.inquiries import have_first_seen
from offloader.offload.driver.work import Attempt, WorkKind

log = logging.getLogger(__name__)

ADOPT_AGAIN_MS = 2_000
ELSEWHERE_MS = 600_000  # nobody need ask: the list of claims tells of what is passed on
LET_GO_MS = 90_000  # longer than brokers take to notice that a process does not answer
REFUSED_FOR_GOOD_MS = 120_000  # longer than a broker holds a subscription for a process that is gone


class TopicRegistry:
    """`topics` are adopted; `refused` says of those that are not, why. `found`: what discovery found."""

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
        self.found = DiscoveredTopics(context, interval_ms, configured)
        self._context = context
        self._rates = rates
        self._until_caught_up = until_caught_up
        self._leaving = context.changes.agenda()
        self._unadopted: dict[TopicName, None] = {}  # topics that discovery found
        self._unadopted_of: Mapping[TopicName, TopicPolicy] | None = None  # what it had found then
        self._adopting: set[TopicName] = set()
        self._unsettled: TopicName | None = None  # one that is neither adopted nor refused: asked about first
        self._adoptions: dict[TopicName, RetrySchedule] = {}  # those that failed
        # Refused for now (a busy pin, a broker that does not answer): since when.
        self._retrying: dict[TopicName, int] = {}
        self._held: set[TopicName] = set()  # have a pin of ours, or had
        self._released: set[TopicName] = set()
        self._taking: dict[TopicName, Taking] = {}  # wanted for topics that are not adopted yet
        self._elsewhere: dict[TopicName, int] = {}  # with another shard: until when nobody asks again
        self._shadows: dict[TopicName, int] = {}  # of other topics: until when nobody asks again
        self._barred: set[TopicName] = set()  # released by a request: until they are disabled, or the next start

    @property
    def settled(self) -> bool:
        """All that discovery found is adopted, or refused for good or for long. From any thread."""
        if not self.found.complete:  # first: what it found is there before it says so
            return False
        one = self._unsettled
        if one is None or not self._is_unsettled(one):
            policies = self.found.policies
            names = (*(self._unadopted if self._unadopted_of is policies else policies), *self._adopting)
            one = self._unsettled = next((name for name in reversed(names) if self._is_unsettled(name)), None)
        return one is None

    def _is_unsettled(self, name: TopicName) -> bool:
        if name in self.refused:  # first: whoever is refused for now is in both before another thread sees it here
            since = self._retrying.get(name)
            if since is None or since <= self._context.clock_ms() - REFUSED_FOR_GOOD_MS:
                return False
        policy = self.found.policies.get(name)
        wanted = policy is not None and name not in self.topics and self._wanted(name, policy)
        return wanted or name in self._adopting

    def update(self) -> None:
        """Have topics discovered, and new ones adopted."""
        now = self._context.clock_ms()
        if self.found.due():
            self.found.have_updated({*self.topics, *self._context.journal.topics, *self._barred}, self._discovered)
        for name in self._without_topic():
            policy = self.found.policies.get(name)
            if policy is None or name in self._adopting or not self._wanted(name, policy):
                continue
            if self._endangered(name):
                continue
            retry = self._adoptions.get(name, RetrySchedule())
            if retry.again_at <= now:
                self._adopting.add(name)
                attempt, taking, to_end = Attempt(), self._taking.get(name), self._until_caught_up
                call = partial(adopt, self._context, name, policy, attempt, taking, until_caught_up=to_end)
                then = partial(self._adopted, name, attempt, taking)
                self._context.work.post(_kind(retry), name, call, then)

    def _without_topic(self) -> list[TopicName]:
        """The topics that discovery found and that are not adopted."""
        policies = self.found.policies
        if self._unadopted_of is not policies:
            self._unadopted = {name: None for name in policies if name not in self.topics}
            self._unadopted_of = policies
        return list(self._unadopted)

    def _hold(self, topic: Topic) -> None:
        """The topic is adopted, or its next incarnation is."""
        topic.changes = self._context.changes
        self.topics[topic.name] = topic
        self._unadopted.pop(topic.name, None)
        self._context.changes.mark([topic.name])

    def drop(self, name: TopicName) -> None:
        """The topic is not adopted any more."""
        if name in self.topics:
            self._unadopted[name] = None  # first: another thread asks what is not adopted yet
            del self.topics[name]
            self._context.changes.mark([name])

    def _wanted(self, name: TopicName, policy: TopicPolicy) -> bool:
        state = self._context.journal.topics.get(name)
        if name in self._barred or (state is not None and state.passed_to):
            return False
        if self._context.clock_ms() < max(self._elsewhere.get(name, 0), self._shadows.get(name, 0)):
            return False
        return policy.enabled or state is not None or name in self.found.claimed

    def _endangered(self, name: TopicName) -> bool:
        """Whether a policy of its namespace keeps a topic from being adopted. One that has a pin is safer with us."""
        if name in self._context.journal.topics or name in self._held:
            return False
        danger = self.found.danger(name.namespace, but=STOCK_OFFLOAD if name in self._taking else "")
        if danger is not None:
            self.refused[name] = f"{danger.message}; {danger.remedy}"
        return danger is not None

    def _discovered(self, answer: Findings | OffloadError) -> None:
        findings = self.found.take(answer, {*self.topics, *self._adopting})
        if findings is None:
            return
        (found, claims), policies = findings, self.found.policies
        self._held |= claims.listed
        self._elsewhere = {  # what was passed on to us is in the list of claims before it is ours
            name: until for name, until in self._elsewhere.items() if name in policies and name not in claims.listed
        }
        self._shadows = {name: until for name, until in self._shadows.items() if name in found.listed}
        self.refused = {n: why for n, why in self.refused.items() if n in policies}
        self._retrying = {n: since for n, since in self._retrying.items() if n in policies}
        self._adoptions = {n: retry for n, retry in self._adoptions.items() if n in policies}
        self._barred = {name for name in self._barred if name not in found.policies or found.policies[name].enabled}
        for name, topic in self.topics.items():
            if name in found.policies:
                self._apply(topic, found.policies[name])
        have_first_seen(self.topics.values())

    def _apply(self, topic: Topic, policy: TopicPolicy) -> None:
        """A policy may have changed: new rules, or an end."""
        rules = rules_of(policy)
        if rules != topic.rules:
            topic.rules = rules
        self._rates.set(topic.name, policy.rates)
        retiring.follow(self._context, topic, policy)
        if self._until_caught_up:
            retiring.stop_at_present_end(topic)

    def _adopted(self, name: TopicName, attempt: Attempt, taking: Taking | None, topic: Topic | OffloadError) -> None:
        if isinstance(topic, OffloadError) and taking is not self._taking.get(name):
            pass  # somebody has asked for something else since
        elif isinstance(topic, OffloadError):
            self._not_adopted(name, attempt, topic)
        else:
            self._apply(topic, self.found.policies[name])
            self.refused.pop(name, None)
            self._retrying.pop(name, None)
            self._adoptions.pop(name, None)
            self._held.add(name)
            self._released.discard(name)  # by a former request: the next one is for the subscription that it has now
            self._taking.pop(name, None)
            self._hold(topic)  # only now: another thread watches how far it is from its goal
        self._adopting.discard(name)

    def _not_adopted(self, name: TopicName, attempt: Attempt, error: OffloadError) -> None:
        now = self._context.clock_ms()
        if isinstance(error, HeldByShardError):
            self._elsewhere[name] = now + ELSEWHERE_MS
            self._adoptions.pop(name, None)
            self.refused.pop(name, None)
            self.found.claimed -= {name}
            return
        if isinstance(error, ShadowTopicError):
            if name not in self._shadows:
                log.info("skipped topic=%s: %s", name, error)
            self._shadows[name] = now + ELSEWHERE_MS
            self._adoptions.pop(name, None)
            self.refused.pop(name, None)
            return
        if isinstance(error, TopicNotFoundError | ClaimedByOtherError):
            self.found.claimed -= {name}  # nothing is left that could be released
        elif self._context.pins.holds(name):
            # Released like any other, should it be disabled now: or nobody would ever give up the pin.
            self.found.claimed |= {name}
            self._held.add(name)
        retry = self._adoptions.get(name, RetrySchedule())
        if attempt.committing:
            retry = retry.not_committed(now, self._context.jitter())
        else:
            retry = retry.failed(attempt.began, now)
        self._adoptions[name] = replace(retry, again_at=max(retry.again_at, now + ADOPT_AGAIN_MS))
        if self._is_being_let_go(name, error, now):
            self._retrying.setdefault(name, now)
            return
        if self.refused.get(name) != str(error):
            log.warning("cannot offload topic=%s: %s", name, error, extra={"see": "not-offloaded"})
        if isinstance(error, RetryableError | OutcomeUnknownError):
            self._retrying.setdefault(name, now)
        else:
            self._retrying.pop(name, None)
        self.refused[name] = str(error)

    def _is_being_let_go(self, name: TopicName, error: OffloadError, now: int) -> bool:
        """Whether another process that had this shard, or the topic, still has its subscription, as is to be
        expected."""
        waited = now - self._retrying.get(name, now)
        return self._context.deal.sharded and isinstance(error, SubscriptionBusyError) and waited < LET_GO_MS

    def take_over(self, name: TopicName, taking: Taking) -> str:
        """Adopt a topic soon, with its ledgers that brokers have offloaded. Returns why not; empty: it is tried."""
        if not self.is_enabled(name):
            return f"{name} is not enabled for {self._context.application}: enable it in the configuration, ask again"
        self._barred.discard(name)
        self._taking[name] = taking
        self.refused.pop(name, None)
        self._adoptions.pop(name, None)
        return ""

    def is_enabled(self, name: TopicName) -> bool:
        """Whether its policy says that the topic is to be offloaded."""
        policy = self.found.policies.get(name)
        return policy is not None and policy.enabled

    def take_over_no_more(self, name: TopicName) -> None:
        """Nobody waits for that any more: it is adopted like any other, or not at all."""
        self._taking.pop(name, None)

    def refused_for_good(self, name: TopicName) -> str:
        """Why a topic is not adopted, where waiting alone changes nothing; else empty."""
        return "" if name in self._retrying or name in self._adopting else self.refused.get(name, "")

    @property
    def waiting(self) -> int:
        """How many topics that are to be ours are with another shard."""
        return sum(map(self._context.deal.is_dealt, list(self._elsewhere)))

    def let_go(self, name: TopicName) -> None:
        """The topic is to be another shard's, and the journal says so: nothing more is decided about it."""
        self.drop(name)
        self._held.discard(name)
        self.found.claimed -= {name}
        self.found.claims = self.found.claims.without(name)

    def is_awaited(self, name: TopicName) -> bool:
        """Whether somebody has asked to take a topic's ledgers over that brokers have offloaded."""
        return name in self._taking

    def was_released(self, name: TopicName) -> bool:
        """Whether this run gave the topic's subscription up."""
        return name in self._released

    def forget(self, topic: Topic) -> None:
        """The topic does not exist any more and everything of it is recorded."""
        call, then = partial(self._context.pins.drop, topic.name), partial(self._dropped, topic.name)
        self._context.work.post(WorkKind.RELEASE, topic.name, call, then)

    def _dropped(self, name: TopicName, error: OffloadError | None) -> None:
        if error is not None:
            log.info("cannot let go of topic=%s yet: %s", name, error)
            return
        self._context.journal.record([TopicState(name)])
        self.found.forget(name)
        self._held.discard(name)
        self.drop(name)

    def renew(self, topic: Topic) -> None:
        """Go on with the topic's next incarnation; tried again where Pulsar does not answer."""
        attempt = Attempt(self._context.clock_ms())
        if attempt.began >= topic.release.retry.again_at:
            call = partial(next_incarnation, self._context, topic, attempt)
            then = partial(self._renewed, topic, attempt)
            self._context.work.post(_kind(topic.release.retry), topic.name, call, then)

    def _renewed(self, topic: Topic, attempt: Attempt, renewed: Topic | OffloadError) -> None:
        if isinstance(renewed, OffloadError):
            retiring.tried_in_vain(self._context, topic, attempt)
            log.info("cannot adopt the next incarnation of topic=%s yet: %s", topic.name, renewed)
            return
        if topic.name in self.found.policies:
            self._apply(renewed, self.found.policies[topic.name])
        self._hold(renewed)

    def release_retired(self) -> None:
        """Let go of topics that are to be released and have nothing left to offload."""
        for topic in self._leaving.take(self.topics, self._context.clock_ms()):
            retiring.release_if_done(self._context, topic, self._was_released)
            if not retiring.may_leave(self._context, topic):
                self._leaving.rest(topic.name)

    def _was_released(self, topic: Topic) -> None:
        """Nothing of the topic is ours any more."""
        self._barred.add(topic.name)
        self._context.journal.record([TopicState(topic.name)])
        log.info("released topic=%s end=%s", topic.name, topic.catalog.end)
        self._released.add(topic.name)
        self._held.discard(topic.name)
        self.found.claimed -= {topic.name}
        self.drop(topic.name)


def _kind(retry: RetrySchedule) -> WorkKind:
    return WorkKind.ADOPT_AGAIN if retry.in_vain else WorkKind.ADOPT
