"""Whatever happens, chosen by a seed, and wherever a process dies: brokers read every closed ledger in the end, and
nothing that they have not read is let go of before.

`OFFLOADER_WORLDS` says how many worlds live."""

from __future__ import annotations

import pytest

from offloader.bridge.log import BridgeLog
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import TopicName
from tests.examples import tries
from tests.world.application import Setup
from tests.world.world import World, live

TOPICS = [TopicName.parse(f"public/default/t{number}") for number in range(2)]
SEEDS = max(2, tries("OFFLOADER_WORLDS", 32, 160) // 80)


def closed(world: World, topic: TopicName) -> set[int]:
    spans = world.cluster.admin.topic_info(topic).ledgers.spans
    return {span.ledger for span in spans if span.last not in (None, -1)}


def nothing_is_let_go_of(world: World, topic: TopicName) -> None:
    """The pin has passed no ledger that brokers do not read, or did not read while it was there."""
    state, mark = BridgeLog(world.bucket.plain, str).load(topic).state, world.cluster.mark_delete(topic)
    up_to = state.up_to.place if state is not None and state.up_to is not None else (-1, -1)
    begin = world.catalog(topic).claim
    assert mark is not None
    assert mark[1] < 0 or mark <= up_to or begin is None or mark < begin.begin.place, (mark, up_to)


def is_bridged(world: World) -> bool:
    app = world.app
    if app.registry is None or app.driver is None or app.process.dead or set(TOPICS) - set(app.registry.topics):
        return False
    topics = app.registry.topics
    known = all(
        all(f.is_done(topics[t], topics[t].catalog.end) for f in app.context.features) and world.offloaded(t)
        for t in TOPICS
    )
    return known and all(
        closed(world, t) == world.bridges.records.contexts.get(t, {}).keys() & closed(world, t) for t in TOPICS
    )


def check(world: World) -> None:
    there = {key for key, _ in world.bridges.bucket.list()}
    named = set[str]()
    for topic in TOPICS:
        nothing_is_let_go_of(world, topic)
        for state in BridgeLog(world.bucket.plain, str).finished_rounds(topic):
            for one in state.finished.ledgers if state.finished else ():
                named |= {data_key(one.uuid, one.ledger), index_key(one.uuid, one.ledger)}
    assert there == named, "whole pairs, and nothing else"
    assert not world.bridges.records.behind, "a record was rewritten, and its topic not unloaded"
    for start in world.starts:
        start.check()


def lives(world: World) -> None:
    rng, records = world.rng, world.bridges.records
    world.begin(*TOPICS)
    for topic in TOPICS:
        world.cluster.add_subscription(topic, "a-client")
        world.keep_producing(topic, every=rng.uniform(0.3, 2), seconds=45)
    world.supervise()
    for _ in range(rng.randrange(4, 8)):
        world.sleep(rng.uniform(1, 20))
        topic = rng.choice(TOPICS)
        match rng.randrange(6):
            case 0 | 1:
                world.kill()
            case 2:
                world.brokers.unload(topic)
            case 3:
                records.delivers = not records.delivers
            case 4:
                world.start()  # the former one is overtaken, wherever it is
            case _:
                world.pause(world.app, rng.uniform(1, 70))
        for each in TOPICS:
            nothing_is_let_go_of(world, each)
    records.delivers = True
    world.heal()
    world.until(lambda: is_bridged(world), seconds=7_200, step=5)
    check(world)


@pytest.mark.explores
@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_brokers_read_every_closed_ledger_in_the_end(seed: int) -> None:
    live(lives, seed, setup=Setup(readable=True))


def is_refused(world: World) -> None:
    world.bridges.records.refuses = "not yet"
    world.begin(*TOPICS)
    world.produce(TOPICS[0], 70)
    world.sleep(60)
    nothing_is_let_go_of(world, TOPICS[0])


@pytest.mark.parametrize("waits", [True, False])
def test_a_pin_that_does_not_wait_is_seen(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(readable=True)
    if waits:
        live(is_refused, setup=setup)
        return
    monkeypatch.setattr("offloader.bridge.driver.feature.limit_of", lambda _: None)
    with pytest.raises(AssertionError):
        live(is_refused, setup=setup)
