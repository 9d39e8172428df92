"""Why data of a topic that nobody has loaded are still there, as a person would tell it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from offloader.lifecycle.topics.unloaded import HeldBack, UnloadedTopic, VisitReason
from offloader.printable import printable


def why_not(topic: UnloadedTopic, now_ms: int) -> tuple[str, ...]:
    """One sentence each; none: nothing is left, or all goes at the next visit."""
    return tuple(_reasons(topic, now_ms))


def _reasons(topic: UnloadedTopic, now_ms: int) -> Iterator[str]:
    if topic.retention.for_ever and topic.size:
        yield f"retention keeps everything: {topic.retention}"
    yield from map(_holder, topic.held)
    if topic.open_ledger is not None and not topic.terminated:
        yield f"ledger {topic.open_ledger} is open: a load closes it, or `offloader topics close-orphan-tail`"
    if topic.terminated and topic.size:
        yield "it is terminated: its last ledger stays as long as the topic"
    if topic.due_ms is not None and topic.due_ms > now_ms:
        yield f"the next visit is due at {time_told(topic.due_ms)}: {_purpose(topic)}"
    elif topic.due_ms is not None and topic.undated and VisitReason.EXPIRED in topic.reasons:
        yield "the data of its last ledger go with a second visit, a retention time after the next one"
    elif topic.due_ms is not None and topic.reasons == (VisitReason.UNDATED,):
        yield "the next visit dates its last ledger, a second one a retention time later drops it"
    if topic.doubt:
        yield topic.doubt


def _holder(held: HeldBack) -> str:
    by = held.by
    name = f"{by.cursor}" if by.role.value in by.cursor else f"{by.cursor} ({by.role})"
    sure = "" if by.certain else ", or fewer: its position is in a ledger of its own until a visit"
    return f"held by {printable(name)} with {held.size} bytes{sure}"


def _purpose(topic: UnloadedTopic) -> str:
    return " and ".join(topic.reasons)


def time_told(ms: int) -> str:
    """UTC; of a broker whose clock is far off, too."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
