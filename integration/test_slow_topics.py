"""A topic that Pulsar itself delivers slowly, beside three others: they roll as if it were not there, and what is read
of it is read once."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from dev.embedded.standalone import PulsarStandalone
from integration.application import RunningApplication
from integration.pace import BATCH, PLANNED
from integration.processes import HANGS
from integration.produce import open_client
from integration.world import World, keep_everything
from offloader.model import Lane, TopicName
from offloader.storage.settings import StoreSettings

pytestmark = [pytest.mark.pulsar, pytest.mark.spark]

LIMIT = 30_000  # bytes a second
ROLL_SECONDS = 10
ROUNDS, ROUND_SECONDS = 240, 0.25
THROUGH = 1_200.0  # seconds after which it hangs: the limit alone makes it last minutes
POLICIES = {
    "maxOffloadSegmentRolloverTimeInSeconds": ROLL_SECONDS,
    "partSizeInBytes": "256K",
    "blockSizeInBytes": "64K",
    "indexStepInBytes": "64K",
}
DISPATCH = {"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": LIMIT, "ratePeriodInSecond": 1}

_names = itertools.count()


@pytest.mark.soak
def test_a_topic_under_a_dispatch_limit_holds_no_other_and_is_read_once(
    pulsar: PulsarStandalone, tmp_path: Path
) -> None:
    quick, slow = (pulsar.create_namespace(f"public/lanes-{next(_names)}") for _ in range(2))
    for namespace in (quick, slow):
        keep_everything(pulsar, namespace)
    pulsar.admin("POST", f"namespaces/{slow}/dispatchRate", json=DISPATCH)
    topics = [TopicName.parse(f"persistent://{quick}/t{n}") for n in range(3)]
    throttled = TopicName.parse(f"persistent://{slow}/throttled")
    storage = StoreSettings((tmp_path / "archive").as_uri())
    with World(pulsar, storage, tmp_path, [quick, slow], policies=POLICIES) as world:
        application = world.new_application().start().wait_ready()
        with producing(pulsar, topics, throttled) as produce:
            for number in range(ROUNDS):
                produce(number)
            numbers = itertools.count(ROUNDS)
            application.until(
                lambda: produce(next(numbers)) or went_on_meanwhile(application, world, topics),
                "rolling the others meanwhile",
            )
        application.until(
            lambda: all(offloaded(world, t) for t in (*topics, throttled)), "through with all topics", THROUGH
        )
        read, uploaded = (
            counted(application, name, slow) for name in ("offloader_read_bytes_total", "offloader_bytes_total")
        )
        assert application.stop() == 0
        pulsar.admin("DELETE", f"namespaces/{slow}/dispatchRate")
        world.check(timeout=60)
        told(application, world, topics, throttled, read, uploaded)
        assert read <= 1.2 * uploaded
        took = batches(application)
        assert max(took[Lane.SLOW], default=0) > 5_000, "the limit did not make it slow"
        # The budget of a slice, and its hard limit where the topic was found to be slow. What Spark adds is a busy
        # machine's.
        assert sorted(batches(application, "longest")[Lane.FAST])[-3] <= 20_000


def test_a_stop_does_not_wait_for_a_slow_slice(pulsar: PulsarStandalone, tmp_path: Path) -> None:
    slow = pulsar.create_namespace(f"public/lanes-{next(_names)}")
    keep_everything(pulsar, slow)
    pulsar.admin("POST", f"namespaces/{slow}/dispatchRate", json={**DISPATCH, "dispatchThrottlingRateInByte": 3_000})
    throttled = TopicName.parse(f"persistent://{slow}/throttled")
    storage = StoreSettings((tmp_path / "archive").as_uri())
    with World(pulsar, storage, tmp_path, [slow], policies=POLICIES) as world:
        client = open_client(pulsar.service_url)
        producer = client.create_producer(str(throttled))
        for _ in range(1_500):  # eight minutes
            producer.send_async(bytes(1_000), lambda *_: None)
        producer.flush()
        client.close()
        application = world.new_application().start().wait_ready()
        application.until(
            lambda: any(" lane=slow " in line for line in application.log_lines()), "reading slowly", THROUGH
        )
        began = time.monotonic()
        assert application.stop() == 0
        print(f"stopped in {time.monotonic() - began:.1f} s")
        assert not batches(application)[Lane.SLOW], "the slow slice had ended"
        pulsar.admin("DELETE", f"namespaces/{slow}/dispatchRate")
        world.catch_up(THROUGH)
        world.check(timeout=60)


@contextmanager
def producing(
    pulsar: PulsarStandalone, topics: list[TopicName], throttled: TopicName
) -> Iterator[Callable[[int], None]]:
    """Produces a round, of this number, when it is due: 20 kB/s to each topic; to the throttled one twice the limit,
    and after ROUNDS less than it, or its backlog would grow on. A round that is late is made up for: however busy the
    machine, the limit is exceeded."""
    client = open_client(pulsar.service_url)
    others, limited = [client.create_producer(str(t)) for t in topics], client.create_producer(str(throttled))
    began = time.monotonic()

    def produce(number: int) -> None:
        time.sleep(max(0.0, began + number * ROUND_SECONDS - time.monotonic()))
        for producer, count in [*((other, 5) for other in others), (limited, 15 if number < ROUNDS else 7)]:
            for _ in range(count):
                producer.send_async(bytes(1_000), lambda *_: None)

    yield produce
    for producer in (*others, limited):
        producer.flush()
    client.close()


def offloaded(world: World, topic: TopicName) -> bool:
    last, end = world.admin.topic_info(topic).last_confirmed, world.catalog(topic).end
    return last is not None and end is not None and (end.ledger, end.entry) >= last


def counted(application: RunningApplication, name: str, namespace: str) -> float:
    port = yaml.safe_load(application.config.read_text())["metrics"]["port"]
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=HANGS).text
    found = re.search(rf'^{name}{{namespace="{namespace}"}} (\S+)$', text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def batches(application: RunningApplication, what: str = "took") -> dict[Lane, list[int]]:
    """How long they took, or the longest slice of each."""
    found: dict[Lane, list[int]] = {lane: [] for lane in Lane}
    for line in application.log_lines():
        if batch := BATCH.search(line):
            found[Lane(batch["lane"])].append(int(batch[what]))
    return found


def went_on_meanwhile(application: RunningApplication, world: World, topics: list[TopicName]) -> bool:
    """Whether each of these has a segment that was sealed while a slow slice was under way."""
    return all(any(within_slow(application, s.offloaded_at) for s in world.catalog(t).segments) for t in topics)


def within_slow(application: RunningApplication, moment: int) -> bool:
    """Whether a slice of the slow lane was under way then."""
    began = None
    for line in application.log_lines():
        if (planned := PLANNED.search(line)) and planned["lane"] == Lane.SLOW:
            began = int(planned["at"])
        elif (batch := BATCH.search(line)) and batch["lane"] == Lane.SLOW and began is not None:
            if began <= moment <= began + int(batch["took"]):
                return True
            began = None
    return False


def told(
    application: RunningApplication,
    world: World,
    topics: list[TopicName],
    throttled: TopicName,
    read: float,
    uploaded: float,
) -> None:
    """Figures for people."""
    took = batches(application)
    for topic in (*topics, throttled):
        moments = [s.offloaded_at for s in world.catalog(topic).segments]
        longest = max((b - a for a, b in itertools.pairwise(moments)), default=0)
        print(f"{topic}: {len(moments)} segments, at most {longest / 1000:.1f} s apart")
    print(
        f"read {read:.0f} of {uploaded:.0f} B ({read / uploaded:.2f}); longest batch "
        f"{ ({k: max(v, default=0) for k, v in took.items()}) }"
    )
