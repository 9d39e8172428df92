"""Shards of an application as processes of the world: each runs its own, and others as long as theirs are silent, by
the product's own rules."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from offloader.errors import OffloadError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.heartbeats import Heartbeats
from offloader.metadata.journal_reading import applications, read_journals
from offloader.metadata.state import TopicState
from offloader.model import TopicName
from offloader.offload import settings as derived
from offloader.offload.driver.acknowledging import acknowledged
from offloader.offload.driver.context import Context, SteadyClock
from offloader.offload.driver.driver import Driver
from offloader.offload.driver.passing_on import PassingOn
from offloader.offload.driver.registry import TopicRegistry
from offloader.offload.driver.request_handler import RequestHandler
from offloader.offload.fleet import Fleet
from tests.world.application import Edges, Setup, Start
from tests.world.world import World


class ShardStart(Start):
    """A process of one shard. `others`: the shards that it runs beside its own, or ran."""

    world: ShardWorld
    fleet: Fleet

    def __init__(self, world: ShardWorld, name: str, setup: Setup) -> None:
        self.world = world
        self.others: list[StandIn] = []
        super().__init__(world.scheduler, name, setup, world.bucket, world.brokers, world.ingress, world.bridges)

    def _run(self) -> None:
        config = self.setup.config()
        assert config.shards is not None
        deal = derived.deal(config)
        store = Edges(self._bucket, self._brokers, self._ingress).store
        clock = SteadyClock()
        after = config.shards.take_over_after_ms
        self.fleet = Fleet(Heartbeats(store, deal.application), deal, after, clock, self.uuid())
        while not self.fleet.may_return():
            if self._stop.wait(1.0):
                return
        super()._run()

    def _watched(self, driver: Driver) -> Driver:
        driver = super()._watched(driver)
        self.fleet.joins(self.setup.shard, lambda: driver.turns)
        threading.Thread(target=self._watch, name="shards").start()
        return driver

    def _watch(self) -> None:
        wait = 0.0
        while not self._stop.wait(wait):
            wait = self.fleet.look_ms / 1000
            try:
                due = self.fleet.look()
            except OffloadError as error:
                self._scheduler.log(f"{self.process.name} sees no shards: {error}")
                continue
            for index in due:
                if not any(other.setup.shard == index and other.lives for other in self.others):
                    self.others.append(StandIn(self, index))

    def _passing_on(self, context: Context, registry: TopicRegistry, requests: RequestHandler) -> PassingOn | None:
        return self.world.passing_on(context, registry, self.fleet, requests)


class StandIn(Start):
    """Another shard, run by a process beside its own."""

    def __init__(self, host: ShardStart, index: int) -> None:
        self._host = host
        self._passing: PassingOn | None = None
        world = host.world
        name = f"{host.process.name}-for-{index}"
        setup = replace(host.setup, shard=index)
        world.scheduler.log(f"{host.process.name} runs shard {index}")
        super().__init__(
            world.scheduler, name, setup, world.bucket, world.brokers, world.ingress, world.bridges, host.process
        )
        world.adopt(self)

    @property
    def lives(self) -> bool:
        """Whether it has not ended."""
        return self.code is None and not self.process.dead

    def _run(self) -> None:
        is_over = False
        try:
            super()._run()
            is_over = self._is_over()
        finally:
            self._host.fleet.leaves(self.setup.shard, is_over=is_over)

    def _is_over(self) -> bool:
        return self.setup.shard >= self.setup.shards and self._passing is not None and self._passing.all_gone

    def _watched(self, driver: Driver) -> Driver:
        driver = super()._watched(driver)
        self._host.fleet.joins(self.setup.shard, lambda: driver.turns)
        threading.Thread(target=self._watch, name="over").start()
        return driver

    def _watch(self) -> None:
        while not self._stop.wait(1.0):
            if self._host._stop.is_set() or self._is_over():
                self._stop.set()

    def _passing_on(self, context: Context, registry: TopicRegistry, requests: RequestHandler) -> PassingOn | None:
        self._passing = self._host.world.passing_on(context, registry, self._host.fleet, requests)
        return self._passing

    def _ended(self) -> None:
        """Its process goes on."""
        self._stop.set()
        if self.pins is not None:
            self.pins.close()
        if self.spark is not None:
            self.spark.end(0.1)


class ShardWorld(World):
    """`world.setup.shards` says how many there are."""

    def passing_on(
        self, context: Context, registry: TopicRegistry, fleet: Fleet, requests: RequestHandler
    ) -> PassingOn:
        """As the application builds it; broken variants are put in its place."""
        return PassingOn(context, registry, fleet.agrees, requests.is_asked)

    def start_shard(self, index: int, count: int | None = None) -> ShardStart:
        """One more process of a shard, perhaps with another number of shards."""
        setup = replace(self.setup, shard=index, shards=count or self.setup.shards)
        name = f"shard-{index}-{len(self.starts) + 1}"
        self.scheduler.log(f"{name} of {setup.shards} starts")
        start = ShardStart(self, name, setup)
        self.adopt(start)
        return start

    def adopt(self, start: Start) -> None:
        """It belongs to the world, which notices its end."""
        self.starts.append(start)
        start.process.at_end.append(lambda: self._gone(start))

    def living(self) -> list[Start]:
        """All that is run by processes that live."""
        return [start for start in self.starts if start.code is None and not start.process.dead]

    def process_of(self, index: int) -> ShardStart | None:
        """The newest living process whose own shard this is."""
        found = [s for s in self.living() if isinstance(s, ShardStart) and s.setup.shard == index]
        return found[-1] if found else None

    def supervise_shards(self) -> None:
        """As Kubernetes does: each shard's process is started again a little after it has ended."""

        def work() -> None:
            while True:
                self.sleep(2)
                for index in range(self.setup.shards):
                    if self.process_of(index) is None:
                        self.sleep(self.rng.uniform(0, 8))
                        if index < self.setup.shards:  # their number may have changed meanwhile
                            self.start_shard(index)

        self.meanwhile("supervisor", work)

    def holder(self, topic: TopicName) -> Start | None:
        """Who has a topic adopted, by its own claim."""
        claim = Catalogs(self.bucket.plain, "").head(topic).claim
        for start in self.living():
            there = start.registry is not None and topic in start.registry.topics
            if there and claim is not None and start.setup.config().application == claim.application:
                return start
        return None

    def shards_at_rest(self, topics: Iterable[TopicName] | None = None) -> bool:
        """Every topic is held, and everything of it is committed and acknowledged; nothing is begun anywhere."""
        for topic in topics or [t for t in self.topics if self.cluster.exists(t)]:
            start, last = self.holder(topic), self.last(topic)
            if start is None or start.registry is None or start.context is None:
                return False
            known = start.registry.topics.get(topic)
            if known is None or known.inquiry is not None or not acknowledged(start.context, known):
                return False
            end, claim = known.catalog.end, known.catalog.claim
            if claim is None or claim.created != self.cluster.admin.topic_info(topic).created:
                return False
            written = last is not None and last >= (claim.begin.ledger, claim.begin.entry)
            if written and (end is None or (end.ledger, end.entry) < last):  # type: ignore[operator]
                return False
        return not any(_unfinished(state) for states in self.journals().values() for state in states)

    def journals(self) -> dict[str, list[TopicState]]:
        """What all journals hold."""
        plain = self.bucket.plain
        found = read_journals(plain, applications(plain))
        return {name: list(states.values()) for name, states in found.states.items()}

    def rest_all(self, seconds: float = 3_600) -> None:
        """Wait until nothing is left to do."""
        self.until(self.shards_at_rest, seconds, step=2)

    def owners(self) -> dict[TopicName, str]:
        """Whose the topics are by their catalogs."""
        heads = Catalogs(self.bucket.plain, "").heads(self.topics).found
        return {topic: head.claim.application for topic, head in heads.items() if head.claim is not None}

    def dealt(self, count: int) -> dict[TopicName, str]:
        """Whose they should be."""
        deal = derived.deal(replace(self.setup, shards=count).config())
        return {topic: deal.owner_of(topic) for topic in self.topics}

    def _how_it_stands(self) -> str:
        said = []
        for start in self.starts:
            if start.registry is not None and start.context is not None:
                lives = start.code is None and not start.process.dead
                states = {str(t): s for t, s in start.context.journal.topics.items()} if lives else ""
                topics = sorted(str(t).rpartition("/")[2] for t in start.registry.topics)
                said.append(
                    f"{start.process.name}/{start.setup.shard} lives={lives} code={start.code} {start.error!r} "
                    f"topics={topics} refused={start.registry.refused} elsewhere={start.registry._elsewhere} {states}"
                )
        return f"owners={self.owners()}\n" + "\n".join(said)


def _unfinished(state: TopicState) -> bool:
    return bool(state.unfinished or state.abandoned or state.passed_to)
