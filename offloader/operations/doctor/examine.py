"""One visit: every check, in the order in which things would go wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from offloader.config import Config
from offloader.config.levels import TopicPolicy
from offloader.errors import OffloadError
from offloader.model import TopicName
from offloader.offload.core import namespace_policies
from offloader.offload.core.check import Check, attempt, fail
from offloader.offload.driver.discovery import discover
from offloader.operations.doctor import cluster, store
from offloader.operations.doctor.probes import Probes, find_root, try_store, try_upload


def examine(config: Config, world: Probes) -> Iterator[Check]:
    """All checks; what cannot be asked is a finding, too."""
    yield cluster.reachable("java", attempt(world.java), "Spark needs it")
    yield from _cluster(config, world)
    bookies = attempt(world.bookies)
    if bookies is not None:
        yield from cluster.bookies_reachable(bookies)
    yield from _store(world)
    yield from _topics(config, world, from_bookies=bookies is not None and not isinstance(bookies, OffloadError))


def _cluster(config: Config, world: Probes) -> Iterator[Check]:
    yield cluster.reachable("broker-port", attempt(world.connect), f"pulsar.serviceUrl {config.pulsar.service_url}")
    version = attempt(world.admin.version)
    answer = version if isinstance(version, OffloadError) else f"Pulsar {version}"
    yield cluster.reachable("admin-port", answer, f"pulsar.adminUrl {config.pulsar.admin_url}")
    if isinstance(version, OffloadError):
        return
    configuration = attempt(world.admin.runtime_configuration)
    yield cluster.exact_bytes(configuration, vouched=config.pulsar.entries_are_exact)
    yield from cluster.entry_size(
        configuration, int(config.policies.resolve("max_entry_size", config.policies.layers(None, None)).value)
    )
    yield from _clock("admin-clock", attempt(world.admin_clock))


def _store(world: Probes) -> Iterator[Check]:
    written = attempt(partial(try_store, world.store))
    yield store.works("store", f"{world.store.url} can be written, listed and read", written)
    if written is not None:
        return
    yield store.works("store-multipart", "parts can be uploaded", attempt(partial(try_upload, world.store)))
    yield store.root(attempt(partial(find_root, world.store)), attempt(world.admin.cluster))


def _topics(config: Config, world: Probes, *, from_bookies: bool) -> Iterator[Check]:
    found = attempt(lambda: discover(world.admin, config.policies, [], config.namespaces, config.discovery_interval_ms))
    if isinstance(found, OffloadError):
        return  # the admin port's check has said why
    enabled = {topic: policy for topic, policy in sorted(found.policies.items()) if policy.enabled}
    yield from cluster.enabled(len(enabled), found.unread)
    yield from _bucket(world, max((p.max_rollover_ms for p in enabled.values()), default=0))
    for topic, policy in _one_of_each_namespace(enabled).items():
        yield cluster.readable(str(topic), attempt(partial(world.open_reader, topic)))
        if from_bookies:
            yield cluster.ledger_readable(attempt(partial(world.read_ledger, topic)))
        yield from _policies(world, topic, policy, config.discovery_interval_ms)


def _bucket(world: Probes, longest_roll_ms: int) -> Iterator[Check]:
    found = attempt(world.bucket)
    if isinstance(found, OffloadError):
        yield from store.life_cycle(found, longest_roll_ms)
    elif found is not None:
        facts, offset = found
        yield from store.life_cycle(facts, longest_roll_ms)
        yield from store.clock("store-clock", offset)


def _policies(world: Probes, topic: TopicName, policy: TopicPolicy, discovery_ms: int) -> Iterator[Check]:
    applied: Mapping[str, object] | OffloadError = attempt(partial(world.applied, topic))
    if isinstance(applied, OffloadError):
        yield fail("policies", f"{topic.namespace}: {applied}", "let the role read the namespace's policies")
    else:
        yield from namespace_policies.check_policies(topic.namespace, applied, policy, discovery_ms)


def _clock(name: str, offset: float | OffloadError | None) -> Iterator[Check]:
    if not isinstance(offset, OffloadError):
        yield from store.clock(name, offset)


def _one_of_each_namespace(topics: Mapping[TopicName, TopicPolicy]) -> dict[TopicName, TopicPolicy]:
    """Policies are nearly always the namespace's; one topic stands for the others."""
    samples = {topic.namespace: topic for topic in topics}
    return {topic: topics[topic] for topic in sorted(samples.values())}
