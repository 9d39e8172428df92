"""Pulsar's policies that move, delete or overfill our subscription, or copy beside us. Pure. Names are those of
namespace policies; values are in force for a topic, or set on the namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from offloader.config.levels import TopicPolicy
from offloader.config.units import format_time
from offloader.errors import OffloadError
from offloader.offload.core.check import Check, fail, ok, remedy_for, warn

MINUTE_MS = 60_000
DAY_MINUTES = 24 * 60
LEDGER_LIFE_MS = 4 * 60 * MINUTE_MS  # managedLedgerMaxLedgerRolloverTimeMinutes, as brokers have it by default
# A copy that is this many times its roll-over late will not come.
LATE = 10
STOCK_OFFLOAD = "stock-offload"


def check_policies(
    namespace: str, applied: Mapping[str, object], policy: TopicPolicy, discovery_ms: int
) -> Iterator[Check]:
    """All that endanger the topics of a namespace. `policy`: ours of one of its topics. The value of a policy that
    cannot be read is its error."""
    rollover_ms = policy.max_rollover_ms
    checks: list[tuple[str, str, Callable[[object], Iterable[Check]]]] = [
        ("message-ttl", "message_ttl_in_seconds", lambda value: [time_to_live(namespace, value, rollover_ms)]),
        ("backlog-quota", "backlog_quota_map", partial(backlog_quotas, namespace)),
        (
            "subscription-expiration",
            "subscription_expiration_time_minutes",
            lambda value: [expiration(namespace, value)],
        ),
        ("retention", "retention_policies", lambda value: [retention(namespace, value, discovery_ms)]),
        (STOCK_OFFLOAD, "offload_policies", lambda value: [stock_offload(namespace, value)]),
    ]
    if policy.broker_readable:
        checks.append(("bridge-retention", "retention_policies", lambda value: [bridge_retention(namespace, value)]))
    for name, key, check in checks:
        value = applied.get(key)
        if isinstance(value, OffloadError):
            permission = "let the role read it, or look at it yourself; see docs/permissions.md#pulsar"
            text = f"{namespace}: not known: {value}"
            yield warn(name, text, remedy_for(value, permission, f"look at it yourself: {key}"))
        else:
            yield from check(value)


def time_to_live(namespace: str, seconds: object, rollover_ms: int) -> Check:
    """Messages' TTL moves our subscription past what is not offloaded."""
    name = "message-ttl"
    value = _number(seconds)
    if value <= 0:
        return ok(name, f"{namespace}: messages do not expire")
    remedy = f"pulsar-admin namespaces set-message-ttl {namespace} --messageTTL 0 (and at topics that set their own)"
    text = (
        f"{namespace}: messages expire after {format_time(value * 1000)}, and our subscription moves past what is "
        "not offloaded"
    )
    return (fail if value * 1000 < LATE * rollover_ms else warn)(name, text, remedy)


def bridge_time_to_live(namespace: str, seconds: object, rollover_ms: int, wait_ms: int) -> Check:
    """Whoever waits for brokers to read a ledger from objects holds back the subscription until then. `rollover_ms`:
    ours; `wait_ms`: the longest time between two rounds of bridging."""
    name, value, least = "bridge-ttl", _number(seconds), LEDGER_LIFE_MS + rollover_ms + wait_ms
    if value <= 0 or value * 1000 >= least:
        return ok(name, f"{namespace}: messages are bridged before they expire")
    text = (
        f"{namespace}: messages expire after {format_time(value * 1000)}, and brokers may read them from objects only "
        f"after {format_time(least)}: a ledger is open for {format_time(LEDGER_LIFE_MS)} by default, and waits for its "
        "round; what expires before may be in the archive alone"
    )
    remedy = (
        f"pulsar-admin namespaces set-message-ttl {namespace} --messageTTL 0, or a shorter bridge.minInterval and "
        "no bridge.quietHours"
    )
    return fail(name, text, remedy)


def backlog_quotas(namespace: str, quotas: object) -> Iterator[Check]:
    """A full quota drops what is not offloaded, or stops producers while we lag."""
    name = "backlog-quota"
    active = [(kind, quota) for kind, quota in _mapping(quotas).items() if _limited(_mapping(quota))]
    for kind, quota in active:
        quota, what = _mapping(quota), str(_mapping(quota).get("policy"))
        if what == "consumer_backlog_eviction":
            remedy = (
                f"pulsar-admin namespaces set-backlog-quota {namespace} -t {kind} -p producer_request_hold with "
                "limits that an outage of ours fits in"
            )
            yield fail(name, f"{namespace}: {what} ({kind}) drops entries that are not offloaded yet", remedy)
        else:
            remedy, lag = "leave room for the longest outage of the offloader, and watch the lag", _limits(quota)
            yield warn(name, f"{namespace}: {what} ({kind}) stops producers when the offloader lags by {lag}", remedy)
    if not active:
        yield ok(name, f"{namespace}: no backlog quota")


def expiration(namespace: str, minutes: object) -> Check:
    """An idle subscription is deleted; ours is idle while the offloader is down."""
    name = "subscription-expiration"
    value = _number(minutes)
    if value <= 0:
        return ok(name, f"{namespace}: idle subscriptions are kept")
    text = f"{namespace}: our subscription is deleted when the offloader is down for {format_time(value * MINUTE_MS)}"
    remedy = f"pulsar-admin namespaces set-subscription-expiration-time {namespace} -t 0"
    return (fail if value < DAY_MINUTES else warn)(name, text, remedy)


def retention(namespace: str, policies: object, discovery_ms: int) -> Check:
    """What a new topic gets before we find it is kept only by other subscriptions, or by retention."""
    name = "retention"
    minutes = _number(_mapping(policies).get("retentionTimeInMinutes"))
    size = _number(_mapping(policies).get("retentionSizeInMB"))
    if size != 0 and (minutes < 0 or minutes * MINUTE_MS >= discovery_ms):
        return ok(name, f"{namespace}: new topics are kept until they are discovered")
    text = f"{namespace}: entries of a new topic may be deleted before it is discovered ({format_time(discovery_ms)})"
    remedy = (
        f"pulsar-admin namespaces set-retention {namespace} --time {discovery_ms // MINUTE_MS + 1}m --size -1, or "
        "create topics with a subscription"
    )
    return warn(name, text, remedy)


def bridge_retention(namespace: str, policies: object) -> Check:
    """What brokers do not retain they delete once it is consumed, also where they read it from objects of ours. A topic
    may have a retention of its own: before the first ledger is bridged its own is asked for."""
    name, found = "bridge-retention", _mapping(policies)
    if not found:
        return ok(
            name, f"{namespace}: it sets no retention; that of its brokers is looked at before anything is bridged"
        )
    if 0 not in (_number(found.get("retentionTimeInMinutes")), _number(found.get("retentionSizeInMB"))):
        return ok(name, f"{namespace}: what is consumed is retained")
    remedy = f"pulsar-admin namespaces set-retention {namespace} with as much as clients shall read"
    return warn(name, f"{namespace}: retention 0, though brokerReadable: nothing can be bridged", remedy)


def stock_offload(namespace: str, policies: object) -> Check:
    """Pulsar's own offloader beside us copies everything a second time."""
    name = STOCK_OFFLOAD
    found = _mapping(policies)
    driver = found.get("managedLedgerOffloadDriver")
    limits = [found.get(f"managedLedgerOffloadThresholdIn{unit}") for unit in ("Bytes", "Seconds")]
    if not driver or all(limit is None or _number(limit) < 0 for limit in limits):
        return ok(name, f"{namespace}: Pulsar's own offloader is off")
    remedy = (
        f"pulsar-admin namespaces set-offload-threshold {namespace} --size -1; with ledgers that it has copied: "
        "`offloader migrate to-streaming`, which switches it off by itself, or startAfterOffloaded: true"
    )
    return fail(name, f"{namespace}: Pulsar's own offloader ({driver}) copies its ledgers, too", remedy)


def _limited(quota: Mapping[str, Any]) -> bool:
    return any(_number(quota.get(key)) > 0 for key in ("limitSize", "limit", "limitTime"))


def _limits(quota: Mapping[str, Any]) -> str:
    size, seconds = _number(quota.get("limitSize") or quota.get("limit")), _number(quota.get("limitTime"))
    return " or ".join([f"{size} bytes"] * (size > 0) + [f"{seconds} s"] * (seconds > 0))


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float | str) and str(value).lstrip("-").isdigit() else 0


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
