"""Which topics are to be offloaded: the configuration's policies over what Pulsar lists."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from offloader.config.levels import TopicPolicy
from offloader.config.policies import Policies, namespace_switch
from offloader.errors import NamespaceNotFoundError, OffloadError, RetryableError
from offloader.metadata.log import READERS
from offloader.model import TopicName
from offloader.offload.core.check import Check, Verdict, attempt
from offloader.offload.core.namespace_policies import check_policies
from offloader.offload.driver.context import Context
from offloader.offload.driver.work import WorkKind
from offloader.ports.admin import Admin

log = logging.getLogger(__name__)

DISCOVER_AGAIN_MS = 2_000


@dataclass(frozen=True)
class Discovery:
    """What one look found. `policies`: of the topics that there are, and of those that were asked for. `unread`:
    namespaces that could not be read. `dangers`: what the policies of each namespace that was read would do to our
    subscription. `listed`: the topics that there are in namespaces where any may be enabled. `system`: Pulsar's own
    topics there, which are never offloaded."""

    policies: Mapping[TopicName, TopicPolicy]
    unread: Mapping[str, OffloadError]
    dangers: Mapping[str, tuple[Check, ...]]
    listed: frozenset[TopicName]
    system: frozenset[TopicName] = frozenset()


def discover(
    admin: Admin,
    policies: Policies,
    known: Iterable[TopicName],
    configured: Iterable[str],
    interval_ms: int,
    is_dealt: Callable[[TopicName], bool] = lambda _: True,
) -> Discovery:
    """Every topic of each namespace that may be enabled that `is_dealt` to us, with its policy; every `known` one's."""
    found: dict[TopicName, TopicPolicy] = {}
    unread: dict[str, OffloadError] = {}
    dangers: dict[str, tuple[Check, ...]] = {}
    listed: set[TopicName] = set()
    system: set[TopicName] = set()
    known = list(known)
    names = set(_namespaces(admin, configured)) | {t.namespace for t in known}
    for namespace in sorted(names):
        try:
            there = [t for t in known if t.namespace == namespace]
            here, topics, skipped = _in_namespace(admin, policies, namespace, there, is_dealt)
            dangers[namespace] = _dangers(admin, namespace, here, frozenset(there), interval_ms)
            found.update(here)
            listed.update(topics)
            system.update(skipped)
        except OffloadError as error:
            unread[namespace] = error
            log.warning(
                "cannot read namespace %s, its policies stay as they were: %s",
                namespace,
                error,
                extra={"see": "namespace-unread"},
            )
    return Discovery(found, unread, dangers, frozenset(listed), frozenset(system))


def _namespaces(admin: Admin, configured: Iterable[str]) -> list[str]:
    try:
        return [*admin.namespaces(), *configured]
    except OffloadError as error:
        log.warning(
            "cannot list the namespaces, only the configured ones are looked at: %s",
            error,
            extra={"see": "namespaces-unlisted"},
        )
        return list(configured)


def _in_namespace(
    admin: Admin,
    policies: Policies,
    namespace: str,
    known: list[TopicName],
    is_dealt: Callable[[TopicName], bool],
) -> tuple[dict[TopicName, TopicPolicy], list[TopicName], list[TopicName]]:
    """Policies of all topics that concern us, those of them that Pulsar lists, and Pulsar's own topics."""
    try:
        switch = namespace_switch(admin.namespace_properties(namespace))
    except NamespaceNotFoundError:
        return {topic: policies.of(topic) for topic in known}, [], []
    listed = admin.all_topics(namespace) if policies.enables_any(namespace, switch) else []
    ours = frozenset(known)
    topics = [topic for topic in listed if not topic.is_system and (topic in ours or is_dealt(topic))]
    skipped = [topic for topic in listed if topic.is_system]
    return {topic: policies.of(topic, switch) for topic in sorted({*topics, *known})}, topics, skipped


def _dangers(
    admin: Admin,
    namespace: str,
    here: Mapping[TopicName, TopicPolicy],
    known: Container[TopicName],
    interval_ms: int,
) -> tuple[Check, ...]:
    """What is wrong with a namespace that has enabled topics, or `known` ones that are paused: quotas and expiration
    endanger their subscriptions, too."""
    policy = next((p for topic, p in here.items() if p.enabled or topic in known), None)
    if policy is None:
        return ()
    checks = check_policies(namespace, admin.namespace_policies(namespace), policy, interval_ms)
    # Retention is for topics that are not found yet.
    fine = {"retention", *(["stock-offload"] if policy.start_after_offloaded else [])}
    return tuple(c for c in checks if c.verdict is not Verdict.OK and c.name not in fine)


class Claims(NamedTuple):
    """Topics that only the list of claims knows (`listed`): which are ours and disabled, which may be, and which Pulsar
    does not list."""

    listed: frozenset[TopicName]
    ours: frozenset[TopicName]
    unclear: frozenset[TopicName]
    absent: frozenset[TopicName]

    def without(self, name: TopicName) -> Claims:
        """The same, but for what became of an absent topic since the list was read."""
        return self._replace(absent=self.absent - {name}) if name in self.absent else self


Findings = tuple[Discovery, Claims]


class DiscoveredTopics:
    """`policies`: of each topic that is there, or that we hold. `unread`: namespaces that could not be read, and why.
    `claimed`: disabled topics that are ours by the bucket's list of claims. `discovered`: at least once. `claims`: what
    that list had when it was last read."""

    def __init__(self, context: Context, interval_ms: int, configured: Iterable[str]) -> None:
        self.policies: dict[TopicName, TopicPolicy] = {}
        self.unread: Mapping[str, OffloadError] = {}
        self.claimed: frozenset[TopicName] = frozenset()
        self.claims = Claims(*[frozenset[TopicName]()] * 4)
        self.discovered = False
        self._context = context
        self._interval_ms = interval_ms
        self._configured = list(configured)
        self._again_at = 0
        self._dangers: dict[str, tuple[Check, ...]] = {}
        self._skipped: frozenset[TopicName] = frozenset()  # system topics that the log has
        self._forgotten: set[TopicName] = set()  # since the newest discovery began, which may have seen them
        self._judged: set[TopicName] = set()  # disabled ones of the list of claims that are ours
        self._unbridged: set[TopicName] = set()  # enabled ones of it that are absent, and have no unfinished round
        self._unclear: frozenset[TopicName] | None = None  # None: the list of claims was not read yet

    @property
    def complete(self) -> bool:
        """All namespaces were read, or cannot be. From any thread."""
        return self.discovered and not any(isinstance(error, RetryableError) for error in self.unread.values())

    def due(self) -> bool:
        """Whether it is time for another discovery."""
        return self._context.clock_ms() >= self._again_at and not self._context.work.has(WorkKind.DISCOVER, "")

    def have_updated(self, held: set[TopicName], then: Callable[[Findings | OffloadError], None]) -> None:
        """Have topics discovered; the policies of those that are `held`, too. `then` gets what `take` is to take."""
        self._again_at = self._context.clock_ms() + self._interval_ms
        self._forgotten = set()
        call = partial(self._discover, {*held, *self.claimed})
        self._context.work.post(WorkKind.DISCOVER, "", call, then)

    def take(self, answer: Findings | OffloadError, held: Container[TopicName]) -> Findings | None:
        """Take what a discovery found; None: it failed. `held`: topics whose policies stay, whatever was listed."""
        soon = self._context.clock_ms() + DISCOVER_AGAIN_MS
        if isinstance(answer, OffloadError):
            log.warning("cannot discover topics, tried again soon: %s", answer, extra={"see": "discovery-failed"})
            self._again_at = soon
            return None
        found, claims = answer
        self.claimed |= claims.ours
        self._unclear = claims.unclear
        self.claims = claims
        # Policies of namespaces that were not read stay; topics that are not there any more are not missed.
        stay = {n: p for n, p in self.policies.items() if n.namespace not in found.dangers or n in held}
        self.policies = stay | {n: p for n, p in found.policies.items() if n not in self._forgotten}
        # Last: another thread that sees `complete` sees these policies.
        self.unread = found.unread
        self.discovered = True
        if not self.complete:
            self._again_at = soon
        self._warn(found)
        return answer

    def danger(self, namespace: str, but: str = "") -> Check | None:
        """What policy of a namespace endangers its topics, if any. `but`: one that does not count."""
        checks = self._dangers.get(namespace, ())
        return next((c for c in checks if c.verdict is Verdict.FAIL and c.name != but), None)

    def forget(self, name: TopicName) -> None:
        """The topic does not exist any more."""
        self._forgotten.add(name)
        self.policies.pop(name, None)

    def _warn(self, found: Discovery) -> None:
        """Log what endangers a namespace's pins, and which topics are skipped, once for each."""
        for namespace, checks in found.dangers.items():
            for check in checks:
                if check not in self._dangers.get(namespace, ()):
                    log.warning("%s: %s; remedy: %s", check.name, check.message, check.remedy, extra={"see": "policy"})
        self._dangers.update(found.dangers)
        for topic in sorted(found.system - self._skipped):
            log.info("skipped topic=%s: a system topic of Pulsar's, which is never offloaded", topic)
        self._skipped |= found.system

    # Not in the driver's thread

    def _discover(self, known: set[TopicName]) -> Findings:
        """Also looks at topics that only the list of claims remembers, until it is clear whether they are ours: one
        that was disabled while nothing ran must still be released. An enabled one that is not listed is absent, which
        proves nothing, and is looked for only where it has an unfinished round of bridging."""
        context = self._context
        # Shards pass topics on to us, of which only the claims tell.
        listed = context.catalogs.claimed() if context.deal.sharded or self._unclear is None else []
        remembered = {*listed, *(self._unclear or ())} - known
        found = discover(
            context.admin,
            context.policies,
            sorted({*known, *remembered}),
            self._configured,
            self._interval_ms,
            context.deal.is_dealt,
        )
        absent = {n for n in remembered if n in found.policies and found.policies[n].enabled and n not in found.listed}
        absent -= self._being_bridged({n for n in absent if found.policies[n].broker_readable})
        found = replace(found, policies={n: p for n, p in found.policies.items() if n not in absent})
        self._judged.intersection_update(listed)
        new = remembered - self._judged
        disabled = [name for name, policy in found.policies.items() if name in new and not policy.enabled]
        with ThreadPoolExecutor(READERS, "claims") as pool:
            ours = dict(zip(disabled, pool.map(self._is_ours, disabled), strict=True))
        unread = {n for n in remembered if n.namespace in found.unread} | {n for n in disabled if ours[n] is None}
        self._judged.update(n for n in disabled if ours[n])
        left = frozenset(
            absent | {n for n in self._judged if n not in found.listed and n.namespace not in found.unread}
        )
        return found, Claims(frozenset(listed), frozenset(n for n in disabled if ours[n]), frozenset(unread), left)

    def _being_bridged(self, names: set[TopicName]) -> set[TopicName]:
        """Those whose round nobody else would end, should they be gone for good. As long as they are not listed nobody
        begins one: each is asked about once, for there are ever more of them."""
        features = self._context.features

        def is_open(name: TopicName) -> bool:
            return any(feature.has_open_record(name) for feature in features)

        asked = sorted(names - self._unbridged)
        with ThreadPoolExecutor(READERS, "bridges") as pool:
            found = dict(zip(asked, pool.map(lambda name: attempt(partial(is_open, name)), asked), strict=True))
        self._unbridged = (self._unbridged & names) | {name for name in asked if found[name] is False}
        return {name for name in asked if found[name] is True}

    def _is_ours(self, name: TopicName) -> bool | None:
        """Whether a topic in the list of claims is ours; if not, it leaves the list. None: its catalog is unread."""
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
