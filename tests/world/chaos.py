"""Random worlds: what may happen to an application, chosen by the seed, and then a calm in which everything must come
to rest."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import count

from offloader.metadata import requests
from offloader.metadata.requests import Request, RequestKind
from offloader.model import GapKind, TopicName
from offloader.offload.core.topic import Topic
from offloader.pulsar.subscription_rest import keeps_properties
from tests.fakes.cluster import PIN
from tests.world.application import Setup
from tests.world.ingress import LIES
from tests.world.world import World

TOPICS = [TopicName.parse(f"public/default/t{n}") for n in range(4)]
WITNESS = TopicName.parse(
    "public/default/witness"
)  # nobody takes it away: that it is there proves which cluster this is
NAMESPACE, SWITCH = "public/default", "offloader.enabled"
ZONES = (0, 60, -330, 345)

VERSIONS = ("2.9.5", "2.10.0", "2.11.4", "3.0.9", "4.0.7")
MOST_PARTITIONS = 3
LENGTHS = [(4, 12)] * 7 + [
    (15, 30)
]  # how much happens: in twice the time twice as many worlds find more than longer ones

Happening = Callable[[World], None]


def chaotic(seed: int) -> dict[str, object]:
    """The settings of a random world."""
    rng = random.Random(seed)
    setup = Setup(
        max_size=rng.choice([3_000, 20_000, 64_000, 10**9]),
        part=rng.choice([4_096, 8_192, 16_384]),
        roll=rng.choice(["5s", "20s", "60s"]),
        executors=rng.choice([1, 2]),
        slots=rng.choice([1, 2]),
        poll_ms=rng.choice([500, 1_000, 2_000]),
    )
    count, old, new = rng.randint(1, 3), rng.choice(VERSIONS), rng.choice(VERSIONS)
    return {
        "setup": setup,
        "zones": tuple(rng.choice(ZONES) for _ in range(count)),
        "versions": tuple(rng.choice((old, new)) for _ in range(count)),
        "entries_per_ledger": rng.choice([3, 20, 50, None]),
    }


def lives(world: World) -> None:
    """A random life in which nobody takes away what is not offloaded, then rest."""
    _lives(world, HAPPENINGS)
    world.check()


def is_robbed(world: World) -> None:
    """A random life in which topics are deleted, pins moved and ledgers lost as well: nothing is missing without a
    record of it."""
    world.kept = False
    world.setup = replace(world.setup, fail_on_data_loss=False)
    world.create(WITNESS)
    _lives(world, HAPPENINGS | ROBBERIES)
    world.check(at_rest=False)


def _lives(world: World, happenings: Mapping[Happening, float]) -> None:
    rng = world.rng
    topics = TOPICS[: rng.randint(1, 4)]
    world.create(*topics)
    world.start()
    world.supervise()
    for _ in range(rng.randint(*rng.choice(LENGTHS))):
        for topic in world.topics:
            if rng.random() < 0.6 and world.cluster.exists(topic):
                world.produce(topic, rng.randint(1, 15), largest=rng.choice([200, 3_000, 20_000]))
        happening = rng.choices(list(happenings), list(happenings.values()))[0]
        world.scheduler.log(f"happens: {happening.__name__}")
        happening(world)
        world.sleep(rng.choice([0.1, 1, 3, 10]))
    world.heal()
    for topic in [t for t in world.topics if world.cluster.exists(t)]:
        if any(e.hidden is None and not e.delivered for e in world.cluster.entries(topic)):
            world.cluster.resolve(topic, commit=rng.random() < 0.5)
        world.produce(topic, 1)
    if not world.kept:
        world.meanwhile("operator", partial(operate, world))
    world.rest(1_800)


def operate(world: World) -> None:
    """Somebody says that topics were deleted, where the application asks for that and its records prove nothing."""
    asked: dict[TopicName, str] = {}
    application, store, tokens = world.setup.application, world.bucket.plain, map(str, count())
    while True:
        world.sleep(5)
        registry, context = world.app.registry, world.app.context
        if registry is None or context is None:
            continue
        for topic in list(registry.topics.values()):
            told = topic.in_question and f"accept-loss {topic.name} --deleted" in topic.poll.error
            pending = topic.name in asked and requests.outcome_of(store, application, asked[topic.name]) is None
            if told and not pending and not is_as_claimed(world, topic) and not has_witness(world, topic):
                world.scheduler.log(f"operator: {topic.name} was deleted")
                request = Request(RequestKind.ACCEPT_LOSS, topic.name, context.clock_ms())
                asked[topic.name] = requests.submit(store, application, request, tokens.__next__)


def is_as_claimed(world: World, topic: Topic) -> bool:
    """Whether Pulsar has it, and not another one of its name."""
    claim, there = topic.catalog.claim, world.cluster.exists(topic.name)
    return there and claim is not None and claim.created == world.cluster.admin.topic_info(topic.name).created


def has_witness(world: World, topic: Topic) -> bool:
    """Whether another topic is there that was claimed before the last record of this one: that is enough."""
    others = [t for t in world.app.registry.topics.values() if t is not topic] if world.app.registry is not None else []
    return any(t.catalog.claimed_at <= topic.catalog.last_seen and is_as_claimed(world, t) for t in others)


def topic_of(world: World) -> TopicName:
    """One that there is."""
    others = [t for t in world.topics if t != WITNESS]
    living = [t for t in others if world.cluster.exists(t)]
    if not living:
        world.create(others[0])
    return world.rng.choice(living or others[:1])


def claimed(world: World) -> TopicName | None:
    """One that the application keeps: before it did, nothing was promised."""
    topic = topic_of(world)
    return topic if is_claimed(world, topic) else None


def is_claimed(world: World, topic: TopicName) -> bool:
    if not world.cluster.exists(topic):
        return False
    registry = world.app.registry
    known = registry.topics.get(topic) if registry is not None else None
    ours = known is not None and known.catalog.claim is not None and world.knows(topic)
    return ours and world.cluster.mark_delete(topic) is not None


def committed(world: World) -> TopicName | None:
    """One of which something is committed, too: a ledger that is lost of another one, with its pin as it was, leaves no
    trace from which anybody could tell."""
    topic = claimed(world)
    return topic if topic is not None and is_committed(world, topic) else None


def is_committed(world: World, topic: TopicName) -> bool:
    registry = world.app.registry
    return registry is not None and registry.topics[topic].catalog.end is not None


def shows_token(world: World, topic: TopicName) -> bool:
    """Whether anybody could tell that the pin was made anew: by its token, which brokers from before 2.10.1 do not
    keep."""
    claim = world.catalog(topic).head.claim
    return (
        claim is not None
        and claim.token != ""
        and all(keeps_properties(broker.version) for broker in world.brokers.all)
    )


def for_a_while(world: World, seconds: float, end: Callable[[], None]) -> None:
    """Let it end by itself."""

    def work() -> None:
        world.sleep(seconds)
        end()

    world.meanwhile("end", work)


def nothing(world: World) -> None:
    pass


def kill(world: World) -> None:
    if world.app.actor.started:
        world.kill()


def stop(world: World) -> None:
    world.app.stop()


def stall(world: World) -> None:
    """A process stands still; sometimes somebody starts another one meanwhile, and the first one wakes."""
    app = world.app
    if app.process.dead or app.process.paused:
        return
    world.pause(app, world.rng.choice([2, 20, 90, 300]))
    if world.rng.random() < 0.6:
        world.start()


def take_over(world: World) -> None:
    world.start()


def lose_executor(world: World) -> None:
    spark = world.app.spark
    if spark is not None and spark.executors and not world.app.process.dead:
        spark.lose(world.rng.choice(spark.executors), zombie_seconds=world.rng.choice([0, 0, 5, 40]))


def roll(world: World) -> None:
    world.cluster.roll(topic_of(world))


def unload(world: World) -> None:
    world.brokers.unload(topic_of(world))


def restart_broker(world: World) -> None:
    broker = world.rng.choice(world.brokers.all)
    if broker.up:
        world.brokers.stop(broker)
        zone, version = world.rng.choice(ZONES), world.rng.choice([broker.version, broker.version, VERSIONS[-1]])
        for_a_while(
            world, world.rng.choice([0.5, 5, 30]), lambda: world.brokers.start(broker, zone=zone, version=version)
        )


def hang_broker(world: World) -> None:
    broker = world.rng.choice(world.brokers.all)
    broker.hangs = True
    world.scheduler.log(f"{broker.host} hangs")

    def end() -> None:
        broker.hangs = False

    for_a_while(world, world.rng.choice([1, 20, 100]), end)


def ingress_lies(world: World) -> None:
    name = world.rng.choice(list(LIES))
    world.scheduler.log(f"ingress: {name}")
    world.ingress.lie = LIES[name]
    share = world.rng.choice([1.0, 0.5])
    world.ingress.lies_to = lambda path: world.rng.random() < share
    for_a_while(world, world.rng.choice([0.5, 5, 40]), lambda: setattr(world.ingress, "lie", None))


def ingress_hangs(world: World) -> None:
    world.ingress.hangs = True
    for_a_while(world, world.rng.choice([5, 60]), lambda: setattr(world.ingress, "hangs", False))


def slow_topic(world: World) -> None:
    topic = topic_of(world)
    world.brokers.bytes_per_second[topic] = world.rng.choice([500, 5_000, 50_000])
    for_a_while(world, world.rng.choice([10, 60]), lambda: world.brokers.bytes_per_second.pop(topic, None))


def store_weather(world: World) -> None:
    kinds = [
        {"latency_ms": (50.0, 3_000.0)},
        {"throttled": 0.5},
        {"lost": 0.1},
        {"failed": 0.3},
        {"failed": 0.1, "lost": 0.1, "throttled": 0.1},
        {"down": True},
    ]
    world.weather(**world.rng.choice(kinds))
    for_a_while(world, world.rng.choice([1, 10, 80]), world.weather)


def hidden(world: World) -> None:
    world.cluster.add_hidden(topic_of(world), world.rng.choice([GapKind.ABORTED, GapKind.MARKER]))


def add_partition(world: World) -> None:
    """A topic gets one partition more, in which somebody writes at once."""
    partitions = [t for t in world.topics if t.partition >= 0]
    if len(partitions) < MOST_PARTITIONS:
        topic = TopicName.parse(f"public/default/parted-partition-{len(partitions)}")
        world.create(topic)
        world.produce(topic, world.rng.randint(0, 5))


def transaction(world: World) -> None:
    topic = topic_of(world)
    world.cluster.add_pending(topic, b"pending")
    for_a_while(world, world.rng.choice([1, 30]), lambda: _resolve(world, topic))


def _resolve(world: World, topic: TopicName) -> None:
    if world.cluster.exists(topic):
        world.cluster.resolve(topic, commit=world.rng.random() < 0.5)


def clock_jumps(world: World) -> None:
    world.app.process.clock_offset += world.rng.choice([-3_600, -30, 30, 3_600]) * 1_000_000_000
    world.scheduler.log("the clock jumps")


HAPPENINGS: dict[Happening, float] = {
    nothing: 6,
    kill: 1,
    stop: 0.5,
    stall: 1,
    take_over: 0.5,
    lose_executor: 1.5,
    roll: 1,
    unload: 1,
    restart_broker: 1,
    hang_broker: 0.5,
    ingress_lies: 1,
    ingress_hangs: 0.5,
    slow_topic: 1,
    store_weather: 2,
    hidden: 1,
    add_partition: 1,
    transaction: 0.5,
    clock_jumps: 0.5,
}


def delete(world: World) -> None:
    """Perhaps it is created again, at once or later."""
    topic = topic_of(world)
    world.scheduler.log(f"delete {topic}")
    world.cluster.delete(topic)
    world.brokers.owners.pop(topic, None)
    after = world.rng.choice([0, 0, 1, 30, 10_000])
    if after == 0:
        world.create(topic)
        return

    def again() -> None:
        if not world.cluster.exists(topic):
            world.create(topic)

    for_a_while(world, after, again)


def move_pin(world: World) -> None:
    topic = claimed(world)
    if topic is None:
        return
    world.scheduler.log(f"move the pin of {topic}")
    if world.rng.random() < 0.5:
        world.cluster.skip_all(topic)
    else:
        world.cluster.skip(topic, world.rng.randint(1, 30))


def messages_expire(world: World) -> None:
    """By TTL, for a while: a timer of the brokers moves the pin past what is too old."""
    longest = world.rng.choice([5, 20])
    _timer(world, "TTL", lambda topic: sum(1 for place, at in world.unread(topic) if world.age(at) > longest))


def backlog_is_evicted(world: World) -> None:
    """By quota, for a while: a timer of the brokers moves the pin until no more than so many entries are left."""
    most = world.rng.choice([5, 30])
    _timer(world, "quota", lambda topic: len(world.unread(topic)) - most)


def _timer(world: World, name: str, too_many: Callable[[TopicName], int]) -> None:
    topic = topic_of(world)

    def work() -> None:
        for _ in range(world.rng.choice([1, 6])):
            count = too_many(topic) if is_claimed(world, topic) else 0
            if count > 0:
                world.scheduler.log(f"{name} moves the pin of {topic} by {count}")
                world.cluster.skip(topic, count)
            world.sleep(10)

    world.meanwhile(name, work)


def delete_subscription(world: World) -> None:
    topic = claimed(world)
    if topic is None or not (is_committed(world, topic) or shows_token(world, topic)):
        return
    world.scheduler.log(f"delete the subscription of {topic}")
    world.cluster.delete_subscription(topic)
    if world.rng.random() < 0.3:
        world.cluster.roll(topic)
        world.cluster.add_subscription(topic, PIN)


def switch_off(world: World) -> None:
    """The namespace is not to be offloaded for a while: its topics are paused, and Pulsar keeps what is written."""
    properties = world.cluster.namespace(NAMESPACE).properties
    properties[SWITCH] = "false"
    for_a_while(world, world.rng.choice([1, 20, 60]), lambda: properties.update({SWITCH: "true"}))


def lose_ledger(world: World) -> None:
    topic = committed(world)
    if topic is None:
        return
    closed = [span.ledger for span in world.cluster.admin.topic_info(topic).ledgers.spans[:-1]]
    if closed:
        world.scheduler.log(f"lose ledger {closed[0]} of {topic}")
        world.cluster.lose(topic, closed[0])


ROBBERIES: dict[Happening, float] = {
    delete: 1,
    move_pin: 1,
    messages_expire: 0.5,
    backlog_is_evicted: 0.5,
    delete_subscription: 1,
    lose_ledger: 0.5,
    switch_off: 1,
}
