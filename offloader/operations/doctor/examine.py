"""One visit: every check, in the order in which things would go wrong.

It has itself what is asked of the section `lifecycle`, before anything is deleted by it. And it names durable
subscriptions that retention of the archive waits for, though the gateway does not serve them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from offloader.ahead import map_ahead, unawaited_pool
from offloader.bridge.operations.doctor import check_bridge
from offloader.config import Config
from offloader.config.levels import TopicPolicy
from offloader.config.lifecycle import Lifecycle
from offloader.config.policies import namespace_switch
from offloader.cursors.stored import kept_names, subscription_marks
from offloader.errors import NamespaceNotFoundError, OffloadError
from offloader.lifecycle.deletion.timing import FLOOR_MS
from offloader.lifecycle.retention.policy import NOT_FOLLOWED, may_follow
from offloader.metadata import listing
from offloader.metadata.layout import name_fits
from offloader.model import TopicName
from offloader.offload.core import namespace_policies
from offloader.offload.core.check import Check, attempt, fail, ok, remedy_for, warn
from offloader.offload.driver.discovery import discover
from offloader.operations.doctor import (
    google_checks,
    pulsar_checks,
    store_checks,
)
from offloader.operations.doctor.google_checks import GoogleBucket
from offloader.operations.doctor.probes import EQUAL_PARTS, PARTS, Probes, find_root, try_race, try_store, try_upload
from offloader.ports.object_store import ObjectStore

# Stores whose keys are paths of files.
FILE_SYSTEMS = ("file", "hdfs", "webhdfs", "swebhdfs")
MOST_TOPICS = 10_000  # each takes a listing
LISTINGS = 8  # at a time
SHOWN = 5  # topics or subscriptions of many
MOST_ASKED = 1000  # topics, of which each can have a retention of its own
SERVE_OR_DELETE = (
    "set gateway.durableSubscriptions to true, here and where the gateway runs; or delete each of them: "
    "offloader gateway subscriptions delete TOPIC NAME --yes"
)


def examine(config: Config, probes: Probes) -> Iterator[Check]:
    """All checks; what cannot be asked is a finding, too."""
    yield pulsar_checks.reachable("java", attempt(probes.java), "Spark needs it")
    yield from _cluster(config, probes)
    bookies = attempt(probes.bookies)
    if bookies is not None:
        yield from pulsar_checks.bookies_reachable(bookies)
        yield from pulsar_checks.ledgers_deletable(attempt(probes.ledger_deletion))
    yield from quarantine(config.lifecycle)
    yield from stock_bucket(attempt(probes.stock_bucket))
    yield from _store(config, probes)
    yield from _topics(config, probes, from_bookies=bookies is not None and not isinstance(bookies, OffloadError))


def _cluster(config: Config, probes: Probes) -> Iterator[Check]:
    yield pulsar_checks.reachable(
        "broker-port", attempt(probes.connect), f"pulsar.serviceUrl {config.pulsar.service_url}"
    )
    version = attempt(probes.admin.version)
    answer = version if isinstance(version, OffloadError) else f"Pulsar {version}"
    yield pulsar_checks.reachable("admin-port", answer, f"pulsar.adminUrl {config.pulsar.admin_url}")
    if isinstance(version, OffloadError):
        return
    configuration = attempt(probes.admin.runtime_configuration)
    yield pulsar_checks.exact_bytes(configuration, vouched=config.pulsar.entries_are_exact)
    yield from pulsar_checks.entry_size(
        configuration, int(config.policies.resolve("max_entry_size", config.policies.layers(None, None)).value)
    )
    offset = attempt(probes.admin_clock)
    if not isinstance(offset, OffloadError):
        yield from store_checks.clock("admin-clock", offset)


def _store(config: Config, probes: Probes) -> Iterator[Check]:
    written = attempt(partial(try_store, probes.store))
    yield store_checks.works("store", f"{probes.store.url} can be written, listed and read", written)
    if written is not None:
        return
    yield store_checks.works("store-race", "of racing writers one creates", attempt(partial(try_race, probes.store)))
    policies = config.policies
    equal = all(policies.resolve("equal_parts", layers).value for layers in policies.scopes())
    sizes, kind = (EQUAL_PARTS, "equal") if equal else (PARTS, "different")
    uploaded = attempt(partial(try_upload, probes.store, sizes))
    text = f"three parts of {kind} length were completed, read and deleted"
    yield store_checks.works("store-multipart", text, uploaded)
    yield store_checks.root(attempt(partial(find_root, probes.store)), attempt(probes.admin.cluster))
    if not config.gateway.durable_subscriptions:
        found = attempt(partial(durable_subscriptions, probes.store))
        yield from unserved(found)


def _topics(config: Config, probes: Probes, *, from_bookies: bool) -> Iterator[Check]:
    interval = config.discovery_interval_ms
    found = attempt(lambda: discover(probes.admin, config.policies, [], config.namespaces, interval))
    if isinstance(found, OffloadError):
        return  # the admin port's check has said why
    enabled = {topic: policy for topic, policy in sorted(found.policies.items()) if policy.enabled}
    absent = [name for name in sorted(config.namespaces) if _is_absent(probes, name)]
    chosen = [] if enabled else _chosen(config, probes, found.dangers.keys() - {*absent})
    yield from pulsar_checks.enabled(len(enabled), found.unread, absent, chosen)
    yield from pulsar_checks.skipped(found.system)
    file_system = probes.store.url.partition("://")[0] in FILE_SYSTEMS
    too_long = [topic for topic in enabled if not name_fits(topic, file_system=file_system)]
    yield from pulsar_checks.names_fit(too_long, probes.store.url)
    following = [topic for topic, policy in enabled.items() if policy.follow_pulsar_retention]
    asked = {t: attempt(partial(probes.admin.retention, t)) for t in following[:MOST_ASKED]}
    yield from followed(asked, len(following))
    yield from _bucket(probes, max((p.max_rollover_ms for p in enabled.values()), default=0))
    # Policies are nearly always the namespace's; one topic stands for the others.
    for topic in sorted({topic.namespace: topic for topic in enabled}.values()):
        yield pulsar_checks.readable(attempt(partial(probes.read_topic, topic)))
        if from_bookies:
            yield pulsar_checks.ledger_readable(attempt(partial(probes.read_ledger, topic)))
        yield from _policies(probes, topic, enabled[topic], config)
    readable = {topic.namespace: topic for topic, policy in enabled.items() if policy.broker_readable}
    for topic in sorted(readable.values()):
        yield from check_bridge(probes.bridge(topic))


def _chosen(config: Config, probes: Probes, namespaces: Iterable[str]) -> list[str]:
    """Those that are enabled, by the configuration or by their property, whether they have topics or not."""
    policies = config.policies
    switches = {name: attempt(partial(_switch, probes, name)) for name in sorted(namespaces)}
    known = {name: None if isinstance(found, OffloadError) else found for name, found in switches.items()}
    return [name for name, one in known.items() if policies.resolve("enabled", policies.layers(name, None, one)).value]


def _is_absent(probes: Probes, namespace: str) -> bool:
    return isinstance(attempt(partial(_switch, probes, namespace)), NamespaceNotFoundError)


def _switch(probes: Probes, namespace: str) -> bool | None:
    return namespace_switch(probes.admin.namespace_properties(namespace))


def _bucket(probes: Probes, longest_roll_ms: int) -> Iterator[Check]:
    found = attempt(probes.bucket)
    if found is not None:
        facts, offset = (found, None) if isinstance(found, OffloadError) else found
        if isinstance(facts, GoogleBucket):
            yield from google_checks.bucket(facts)
        else:
            yield from store_checks.life_cycle(facts, longest_roll_ms)
        yield from store_checks.clock("store-clock", offset)


def _policies(probes: Probes, topic: TopicName, policy: TopicPolicy, config: Config) -> Iterator[Check]:
    applied: Mapping[str, object] | OffloadError = attempt(partial(probes.applied, topic))
    if isinstance(applied, OffloadError):
        yield fail("policies", f"{topic.namespace}: {applied}", remedy_for(applied, "see docs/permissions.md#pulsar"))
    else:
        yield from namespace_policies.check_policies(topic.namespace, applied, policy, config.discovery_interval_ms)
        ttl, wait_ms = applied.get("message_ttl_in_seconds"), config.bridge.longest_wait_ms
        if policy.broker_readable and not isinstance(ttl, OffloadError):
            yield namespace_policies.bridge_time_to_live(topic.namespace, ttl, policy.max_rollover_ms, wait_ms)


def quarantine(section: Lifecycle) -> Iterator[Check]:
    """Whether the floor under the quarantine, and under all other delays, is one that nobody may have in production."""
    floor = section.quarantine_floor_ms
    if floor < FLOOR_MS:
        said = f"lifecycle.quarantineFloor is {floor // 1000} s: what is deleted may still be in use, or just be read"
        yield fail("quarantine-floor", said, "it is for tests alone: remove it")


def followed(found: Mapping[TopicName, tuple[int, int] | OffloadError], topics: int) -> Iterator[Check]:
    """Whether topics with `followPulsarRetention` have a retention in Pulsar that can be followed. `found`: of each
    that was asked for; `topics`: how many there are."""
    name = "follow-pulsar-retention"
    at_zero = [topic for topic, said in found.items() if not isinstance(said, OffloadError) and not may_follow(said)]
    unread = {topic: said for topic, said in found.items() if isinstance(said, OffloadError)}
    if at_zero:
        remedy = "give them a retention in Pulsar (pulsar-admin namespaces set-retention), or do not follow it"
        yield fail(name, f"{_some(at_zero)}: {NOT_FOLLOWED}", remedy)
    if unread:
        first = next(iter(unread.values()))
        text = f"{_some(list(unread))}: the retention in Pulsar cannot be read: {first}"
        yield fail(name, text, remedy_for(first, "let the role read it", "see the reason"))
    if found and not at_zero and not unread:
        more = "" if len(found) == topics else f", of {topics}; `archive retention plan` asks for each"
        yield ok(name, f"{len(found)} topics follow their retention in Pulsar{more}")


def _some(topics: Sequence[TopicName]) -> str:
    more = f" and {len(topics) - SHOWN} more" if len(topics) > SHOWN else ""
    return ", ".join(str(topic) for topic in topics[:SHOWN]) + more


def stock_bucket(found: str | OffloadError | None) -> Iterator[Check]:
    """Whether copies of Pulsar's own offloader could be read back: without that their ledgers stay for ever."""
    name = "stock-bucket"
    if isinstance(found, OffloadError):
        yield fail(name, str(found), "lifecycle.stockBucket: it is reached as storage is, and must be listed and read")
    elif found is not None:
        yield ok(name, f"copies of Pulsar's own offloader can be read from {found}")


class DurableSubscriptions(NamedTuple):
    """`names`: topic and subscription. `is_whole`: all topics of the archive were listed."""

    names: tuple[tuple[TopicName, str], ...]
    is_whole: bool


def durable_subscriptions(store: ObjectStore) -> DurableSubscriptions:
    """Those that exist in the bucket, of `MOST_TOPICS` topics at most. A listing of each topic, and of those that have
    had subscriptions another one and a read of each. Raises what the store raises."""
    topics = list(islice(listing.topics(store), MOST_TOPICS + 1))
    with unawaited_pool(LISTINGS, "subscription-lister") as pool:
        names = map_ahead(pool, partial(kept_names, store), topics[:MOST_TOPICS], 2 * LISTINGS)
        having = [topic for topic, kept in zip(topics, names, strict=False) if kept]
    found = tuple((topic, mark.name) for topic in having for mark in subscription_marks(store, topic))
    return DurableSubscriptions(found, len(topics) <= MOST_TOPICS)


def unserved(found: DurableSubscriptions | OffloadError) -> Iterator[Check]:
    """What is to be said of them where `gateway.durableSubscriptions` is false."""
    name = "gateway-subscriptions"
    if isinstance(found, OffloadError):
        yield fail(name, f"the gateway's subscriptions cannot be read: {found}", "let the role list and read the root")
    elif found.names or not found.is_whole:
        shown = ", ".join(f"{subscription} of {topic}" for topic, subscription in found.names[:SHOWN])
        more = f" and {len(found.names) - SHOWN} more" if len(found.names) > SHOWN else ""
        of = "" if found.is_whole else f"; only the first {MOST_TOPICS} topics were looked at"
        text = "gateway.durableSubscriptions is false, and retention of the archive waits for durable subscriptions"
        yield warn(name, f"{text}: {shown or 'none is known'}{more}{of}", SERVE_OR_DELETE)
