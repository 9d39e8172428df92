"""From the configuration to what the application goes by: shards, lanes, threads, retention."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

from offloader.config import Config
from offloader.config.levels import TopicPolicy
from offloader.errors import ConfigError
from offloader.lifecycle.bucket.reading import asked_store_time
from offloader.lifecycle.clocks import Clocks, has_own_clock, is_this_host
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.metadata.deal import Deal, DealBy, family_of, shard_name
from offloader.model import MIB, Lane
from offloader.offload.core.lanes import LaneLimits
from offloader.offload.driver.work import THREADS, WorkKind
from offloader.runtime.connections import Runtime, everywhere, pulsar_settings

log = logging.getLogger(__name__)

SLOW_READ_AHEAD = 2 * MIB  # what comes slowly is not there to be read ahead


def clocks(runtime: Runtime) -> Clocks:
    """What ages are computed with: this host's clock, the store's and a broker's."""
    brokers = (urlsplit(url).hostname or "" for url in pulsar_settings(runtime.config).admin_urls)
    return Clocks(
        store_ms=partial(asked_store_time, runtime.store, runtime.dependencies.new_token),
        broker_ms=runtime.admin.time_ms,
        store_is_independent=has_own_clock(runtime.storage),
        broker_is_independent=not any(is_this_host(host) for host in brokers),
    )


def deal(config: Config) -> Deal:
    """How the application's topics are dealt out, as its shard sees it that the configuration is of."""
    shards = config.shards
    family = family_of(config.application)
    return (
        Deal(family, sharded=False)
        if shards is None
        else Deal(family, shards.index or 0, shards.count, DealBy(shards.by))
    )


def of_shard(config: Config, index: int) -> Config:
    """The configuration of another shard of the application; `index` may lie beyond their number."""
    if config.shards is None:
        return config
    shards = config.shards.model_copy(update={"index": index})
    name = shard_name(family_of(config.application), index)
    return config.model_copy(update={"application": name, "shards": shards})


def chosen_shard(config: Config, index: int | None) -> Config:
    """The configuration of the shard that a process is to be; `index`: where that is said beside the file. Raises
    ConfigError."""
    shards = config.shards
    if shards is None:
        if index is not None:
            raise ConfigError("shards: the configuration has no such section, so there is no shard to choose")
        return config
    index = shards.index if index is None else index
    if index is None and shards.count > 1:
        raise ConfigError(f"shards.index: say which of the {shards.count} shards this is, for example with --shard 0")
    if index is not None and index >= shards.count:
        raise ConfigError(f"shards.index: there is no shard {index} of {shards.count}, they are counted from 0")
    return of_shard(config, index or 0)


def retention(policy: TopicPolicy) -> RetentionPolicy:
    """How long a topic's archive is kept."""
    return RetentionPolicy(
        policy.archive_retention_minutes,
        policy.archive_retention_mb,
        policy.deleted_topic_retention_minutes,
        policy.follow_pulsar_retention,
        policy.hold,
        keep_unacknowledged=policy.keep_unacknowledged,
    )


def lanes(config: Config, slots: int) -> Mapping[Lane, LaneLimits]:
    """What one micro-batch of each lane may hold where Spark runs so many tasks at once. The slow lane takes one slot,
    which is left to it. Where there is but one, nobody waits for a slow slice longer than half of the shortest roll."""
    section = config.limits
    if slots == 1:
        log.warning(
            "Spark runs one task at a time: others wait for topics that are read slowly, whose segments are small",
            extra={"see": "one-slot"},
        )
    fast = LaneLimits(
        tasks=max(slots - 1, 1) * section.tasks_per_core,
        threads=section.threads_per_task,
        byte_budget=section.slice.byte_budget,
        time_budget_ms=section.slice.time_budget_ms,
        hard_limit_ms=section.slice.hard_limit_ms,
        silent_ms=section.slice.hard_limit_ms,
        max_gap_lookups=section.slice.max_gap_lookups,
        history=section.history_segments,
        cores=max(slots - 1, 1),
        history_span_ms=section.history_span_ms,
    )
    slow = replace(fast, tasks=1, threads=section.slow_lane.threads, queue_factor=1, read_ahead=SLOW_READ_AHEAD)
    if slots > 1:
        slow = replace(
            slow, time_budget_ms=section.slow_lane.time_budget_ms, hard_limit_ms=section.slow_lane.hard_limit_ms
        )
    else:
        shortest = min(everywhere(config, "max_rollover_ms"))
        slow = replace(slow, longest_ms=max(slow.hard_limit_ms, min(shortest // 2, section.slow_lane.hard_limit_ms)))
    return {Lane.FAST: fast, Lane.SLOW: slow}


def threads(config: Config) -> Mapping[WorkKind, int]:
    """How many threads of the main process each kind of work has."""
    bridged = config.bridge.topics_at_once
    return {
        **THREADS,
        WorkKind.BEGIN: config.limits.upload_starters,
        WorkKind.SEAL: config.limits.sealers,
        WorkKind.BRIDGE_BUILD: bridged,
        WorkKind.BRIDGE_SWAP: bridged,
    }
