"""Why data of a topic are still there, and what to do about it, as a person would tell it: the one list of reasons, for
plans, visits and explanations. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from shlex import quote
from typing import NamedTuple

from offloader.lifecycle.explaining.words import moment_text, size_text
from offloader.lifecycle.topics.cursors.kinds import SubscriptionKind
from offloader.lifecycle.topics.unloaded import HeldBack, PassedOver, UnloadedTopic, VisitReason, WhyPassedOver
from offloader.printable import printable


class StayReason(NamedTuple):
    """`do`: what would change it; empty: nothing, or time alone."""

    why: str
    do: str = ""


def why_not(topic: UnloadedTopic, now_ms: int) -> tuple[str, ...]:
    """One sentence each; none: nothing is left, or all goes at the next visit."""
    return tuple(one.why for one in stay_reasons(topic, now_ms))


def stay_reasons(
    found: UnloadedTopic | PassedOver, now_ms: int, *, loaded: bool | None = False, used: Container[str] = ()
) -> tuple[StayReason, ...]:
    """`loaded`: a broker has it, and applies its retention; None: nobody could say. `used`: subscriptions with
    consumers."""
    if isinstance(found, PassedOver):
        return (_passed_over(found),)
    waits = () if loaded is None else _at_its_broker(found) if loaded else _until_a_visit(found, now_ms)
    return (*_kept(found, used), *waits, *_doubt(found))


def _kept(topic: UnloadedTopic, used: Container[str]) -> Iterator[StayReason]:
    if topic.retention.for_ever and topic.size:
        yield StayReason(
            f"retention keeps everything for ever: {topic.retention}",
            "If it should not be kept for ever, set another retention: `pulsar-admin namespaces set-retention "
            f"{topic.topic.namespace}`, or `pulsar-admin topicPolicies set-retention` for the topic.",
        )
    yield from (_holder(topic, one, used) for one in topic.held)
    if topic.terminated and topic.size:
        yield StayReason(
            "it is terminated: its last ledger stays as long as the topic",
            f"If nobody reads it any more: `pulsar-admin topics delete {topic.topic}`.",
        )


def _at_its_broker(topic: UnloadedTopic) -> Iterator[StayReason]:
    if topic.overdue:
        yield StayReason(
            f"retention does not keep {size_text(topic.overdue)}: its broker drops them at its next look, after "
            "retentionCheckIntervalInSeconds (2 minutes by default)",
            f"Where that lasts: `pulsar-admin topics trim-topic {topic.topic}`, and look into that broker's log.",
        )


def _until_a_visit(topic: UnloadedTopic, now_ms: int) -> Iterator[StayReason]:
    run = f"`offloader topics trim-unloaded run {topic.topic.namespace} --yes`"
    if topic.open_ledger is not None and not topic.terminated:
        yield StayReason(
            f"ledger {topic.open_ledger} is open: a load closes it, or `offloader topics close-orphan-tail`",
            f"{run} has it closed: by a broker, or safely where none can load the topic.",
        )
    if topic.due_ms is None:
        return
    if topic.due_ms > now_ms:
        yield StayReason(f"the next visit is due at {moment_text(topic.due_ms)}: {' and '.join(topic.reasons)}")
        return
    yield StayReason(
        f"a visit is due: {', '.join(topic.reasons)}",
        f"{run} has a broker load it and apply its retention, and unload it again; or let the application do so, with "
        "`lifecycle.visitUnloaded`.",
    )
    if topic.undated and VisitReason.EXPIRED in topic.reasons:
        yield StayReason("the data of its last ledger go with a second visit, a retention time after the next one")
    elif topic.reasons == (VisitReason.UNDATED,):
        yield StayReason("the next visit dates its last ledger, a second one a retention time later drops it")


def _doubt(topic: UnloadedTopic) -> Iterator[StayReason]:
    if topic.doubt:
        yield StayReason(
            topic.doubt, "Bring that broker back, or grant the offloader's role the right (docs/permissions.md)."
        )


def _holder(topic: UnloadedTopic, held: HeldBack, used: Container[str]) -> StayReason:
    by = held.by
    name = f"{by.cursor}" if by.kind.value in by.cursor else f"{by.cursor} ({_KINDS.get(by.kind, by.kind)})"
    sure = "" if by.certain else ", or fewer: its position is in a ledger of its own until a visit"
    catch_up = f"{by.cursor} has consumers: let them catch up." if by.cursor in used else ""
    why = f"held by {printable(name)} with {size_text(held.size)}{sure}"
    return StayReason(why, catch_up or _of_holder(topic, by.kind, by.cursor))


_KINDS = {
    SubscriptionKind.USER: "subscription",
    SubscriptionKind.PIN: "our pin: it holds data until they are offloaded",
    SubscriptionKind.REPLICATION: "replication to another cluster",
}


def _of_holder(topic: UnloadedTopic, kind: SubscriptionKind, cursor: str) -> str:
    match kind:
        case SubscriptionKind.PIN:
            return (
                f"`offloader topics offload-status {topic.topic}` says how our own offload of it stands; "
                f"`offloader topics release {topic.topic}` lets go of it."
            )
        case SubscriptionKind.COMPACTION:
            return f"Have it compacted: `pulsar-admin topics compact {topic.topic}`."
        case SubscriptionKind.REPLICATION:
            return f"Bring the cluster of {cursor} back, or take it from those to which the topic is replicated."
        case SubscriptionKind.DEDUPLICATION:
            return "Have a client connect to it: its broker then renews what deduplication knows, and moves on."
        case SubscriptionKind.USER:
            remove = f"`offloader topics cursors remove {quote(str(topic.topic))} {quote(cursor)}`"
            return f"If nobody needs {cursor} any more: {remove}."
        case SubscriptionKind.TRANSACTIONS | SubscriptionKind.SYSTEM:
            return f"Have a client connect to the topic: {cursor} is moved on by Pulsar itself."


_REMEDIES: Mapping[WhyPassedOver, str] = {
    WhyPassedOver.SHADOW: "Its ledgers are the source's: `offloader explain` that.",
    WhyPassedOver.SAME_NAME: "A visit would go to all partitions: have a client connect to it, or delete one of both.",
    WhyPassedOver.UNKNOWN: "Where that lasts, somebody has removed only a part of it: compare with `pulsar-admin "
    "topics list`.",
    WhyPassedOver.NO_NAMESPACE: "No broker loads it, so nothing of it ever goes: create the namespace again, and "
    "delete the topic with `pulsar-admin topics delete`.",
    WhyPassedOver.DAMAGED: "Bring that node back from a copy of ZooKeeper's data: no broker can load the topic.",
    WhyPassedOver.MISSING: "Find out who deleted that ledger before anybody loads the topic: a load drops it from the "
    "list without a word.",
    WhyPassedOver.NOT_OFFLOADED: "Start `offloader run`, which subscribes, or disable the topic: a visit would drop "
    "what is to be archived.",
    WhyPassedOver.UNASKED: "Bring that broker back, or grant the offloader's role the right (docs/permissions.md).",
}


def _passed_over(found: PassedOver) -> StayReason:
    detail = f" ({found.detail})" if found.detail else ""
    return StayReason(f"{found.why}{detail}", _REMEDIES.get(found.why, ""))
