"""Three applications to look at: one that is idle, one at work, one of whose topics something is wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from offloader.metrics.server import MetricsServer
from offloader.model import FailureKind, Lane, RollReason, TopicName
from offloader.offload.live.status import Filling, TopicStatus, Trouble
from offloader.offload.live.view import LaneStatus, LiveView
from tests.offload.live.showing import MINUTE, NOW, Shown

ROLL, MOST = 10 * MINUTE, 2**30
NAMES = ("placed", "paid", "shipped", "returned", "carts", "refunds")
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202e"


def topic(number: int) -> TopicName:
    namespace = "orders" if number % 3 else "billing"
    return TopicName.parse(f"persistent://shop/{namespace}/{NAMES[number % 6]}-partition-{number // 6}")


def idle() -> Shown:
    """Twelve topics that nobody writes to."""
    rng = random.Random(1)
    return _shown(LiveView(NOW, tuple(_quiet(rng, n) for n in range(12)), (), _lanes(12), settled=True))


def busy() -> Shown:
    """Eighteen topics, most of which are written to."""
    rng = random.Random(3)
    topics = tuple(_quiet(rng, n) if n % 4 == 3 else _open(rng, n) for n in range(18))
    lanes = _lanes(15, LaneStatus(Lane.FAST, NOW - 1_300, 11, 15), LaneStatus(Lane.SLOW, NOW - 73_000, 2, 3))
    shown = _shown(LiveView(NOW, topics, (), lanes, settled=True))
    _traffic(shown, rng)
    return shown


def failing() -> Shown:
    """The same, of which one is in danger, one fails, one does not advance, and one belongs to somebody else."""
    shown = busy()
    assert shown.view is not None
    topics = list(shown.view.topics)
    late = Filling(MOST // 4, MOST, NOW - 42 * MINUTE, ROLL)
    moved = (
        f"{topics[5].topic}: the subscription stands at 4711:99, past what was acknowledged of 4711:20: message TTL, a "
        "backlog quota with consumer_backlog_eviction, or somebody moved it; remove that policy, data may be lost"
    )
    topics[5] = replace(topics[5], filling=late, trouble=Trouble(moved, "pin-moved", since=NOW - 4 * MINUTE))
    refused = Trouble(
        "the role offloader may not consume from this topic",
        "slice-failed",
        FailureKind.FATAL,
        7,
        NOW + 200_000,
        NOW - 6 * MINUTE,
    )
    topics[1] = replace(topics[1], state="Failed", filling=late, trouble=refused)
    topics[8] = replace(topics[8], filling=late)
    others = ((topic(20), "it is claimed by application other"),)
    shown.view = replace(shown.view, topics=tuple(topics), refused=others)
    shown.metrics.work("acknowledge", 3, 8, 190.0)
    shown.metrics.bridges({}, {}, {"bridged": 4, "behind": 2})
    return shown


def hostile() -> Shown:
    """Whoever names topics, and whatever answers, would like to be more than text."""
    shown = failing()
    assert shown.view is not None
    evil = TopicStatus(TopicName("shop", EVIL, EVIL), "Failed", trouble=Trouble(EVIL, "slice-failed"))
    shown.view = replace(shown.view, topics=(evil, *shown.view.topics))
    shown.metrics.segment(RollReason.AGE, evil.topic, 1)
    return shown


STATES: Mapping[str, Callable[[], Shown]] = {"idle": idle, "busy": busy, "failing": failing, "hostile": hostile}


@contextmanager
def serving(shown: Shown) -> Iterator[str]:
    """The address of a server of this page."""
    server = MetricsServer(shown.metrics.registry, shown.metrics.health, "127.0.0.1", 0, site=shown.site)
    try:
        yield server.url
    finally:
        server.close()


def _shown(view: LiveView) -> Shown:
    return Shown(view, application="orders-archive", uptime_ms=3 * 24 * 60 * MINUTE + 4 * 60 * MINUTE)


def _lanes(topics: int, *lanes: LaneStatus) -> tuple[LaneStatus, ...]:
    return lanes or (LaneStatus(Lane.FAST, topics=topics), LaneStatus(Lane.SLOW))


def _quiet(rng: random.Random, number: int) -> TopicStatus:
    segments = rng.randint(1, 300)
    return TopicStatus(
        topic(number), "Caught up", segments, segments * 40_000, segments * rng.randint(10**7, 3 * 10**8)
    )


def _open(rng: random.Random, number: int) -> TopicStatus:
    size, lag = rng.randint(0, MOST), rng.randint(10**4, 10**8)
    filling = Filling(size, MOST, NOW - rng.randint(1_000, ROLL - 1_000), ROLL)
    lane = Lane.SLOW if number % 6 == 4 else Lane.FAST
    archived = replace(_quiet(rng, number), state=rng.choice(["Assigned"] * 6 + ["Closing", "Sealing"]))
    return replace(
        archived,
        lag_entries=lag // 900,
        lag_bytes=lag,
        pinned_bytes=size + lag,
        filling=filling,
        lane=lane,
        planned_at=NOW - 1_300,
    )


def _traffic(shown: Shown, rng: random.Random) -> None:
    """An hour of it, and what it was cut into."""
    end = shown.seconds
    for minute in range(60):
        shown.seconds = end - 60 * (59 - minute)
        size = int((1.2 + math.sin(minute / 7) + rng.random() * 0.4) * 3e8)
        shown.metrics.offloaded(topic(0), size, size // 900)
    for minute in range(8):
        shown.seconds = end - 60 * (8 - minute) + 20
        reason = rng.choice([RollReason.SIZE, RollReason.AGE, RollReason.AGE])
        shown.metrics.segment(reason, topic(minute), rng.randint(10**8, MOST))
    shown.seconds = end
