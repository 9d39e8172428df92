"""A world to live in: brokers, an ingress, a bucket, processes of the application, and what becomes of them.

with a World as an actor of its scheduler (see `live`), a scenario reads:

    world.create(T); world.start(); world.produce(T, 100); world.rest()
"""

from __future__ import annotations

import gc
import logging
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from offloader.archive.findings import FindingKind
from offloader.metadata.catalog import Catalogs
from offloader.metadata.journal import Journal
from offloader.metadata.state import TopicCatalog, TopicState
from offloader.model import Position, TopicName
from offloader.offload.driver.acknowledging import acknowledged
from tests.fakes.cluster import MemoryCluster
from tests.invariants import HARMLESS, check_invariants
from tests.truth import truth_of_cluster
from tests.world.application import Setup, Start
from tests.world.bridges import Bridges
from tests.world.brokers import Broker, Brokers
from tests.world.ingress import Ingress
from tests.world.scheduler import SECOND, Scheduler
from tests.world.stores import Bucket, Weather
from tests.world.threads import simulated

KEEP_ALIVE = 60 * SECOND  # after so long brokers close the connections of a process that does not answer
RETENTION_CHECK_S = 120
_RECORD_WRITE = re.compile(r" store \S+ put \S*(_journal|_catalog)/")


W = TypeVar("W", bound="World")


def live(scenario: Callable[[World], None], seed: int = 1, **settings: object) -> World:
    """Let a scenario happen in a world of its own. A failure is told with the seed, and its events are written to a
    file."""
    world = World(seed, **settings)
    live_in(world, scenario)
    return world


def live_in(world: W, scenario: Callable[[W], None]) -> None:
    """The same in a world that is there."""
    quiet = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.disable()
    try:
        with simulated():
            world.scheduler.run(lambda: world.live(scenario))
    except BaseException as error:
        error.add_note(f"{world.reproduce}\nevents: {world.write_events()}")
        raise
    finally:
        gc.enable()
        logging.disable(quiet)


@dataclass
class World:
    """`seed` decides everything that is left to chance."""

    seed: int
    setup: Setup = field(default_factory=Setup)
    zones: tuple[int, ...] = (0, 0, 0)
    versions: tuple[str, ...] = ()  # of the brokers in turn; the newest one where none is given
    entries_per_ledger: int | None = 20
    reproduce: str = ""

    def __post_init__(self) -> None:
        self.reproduce = self.reproduce or f"seed {self.seed}"
        self.scheduler = Scheduler(self.seed)
        self.rng = self.scheduler.rng
        self.cluster = MemoryCluster(seed=self.seed, entries_per_ledger=self.entries_per_ledger)
        brokers = [Broker(n, zone) for n, zone in enumerate(self.zones)]
        for broker, version in zip(brokers, self.versions, strict=False):
            broker.version = version
        self.brokers = Brokers(self.scheduler, self.cluster, brokers)
        self.ingress = Ingress(self.brokers)
        self.bucket = Bucket(self.scheduler)
        self.bridges = Bridges(self.brokers)
        self.starts: list[Start] = []
        self.topics: list[TopicName] = []
        self._written: dict[
            TopicName, list[tuple[tuple[int, int], int]]
        ] = {}  # what was not committed when last looked, and when it was written
        self.kept = True  # nobody but us moves pins, deletes subscriptions or ledgers

    def live(self, scenario: Callable[[World], None]) -> None:
        """A scenario, and what goes on by itself."""
        self.meanwhile("retention", self._check_retention)
        scenario(self)

    def _check_retention(self) -> None:
        while True:
            self.sleep(RETENTION_CHECK_S)
            for topic in self.topics:
                if self.cluster.exists(topic):
                    self.cluster.check_retention(topic)

    # Time

    def sleep(self, seconds: float) -> None:
        self.scheduler.sleep(int(seconds * SECOND))

    def until(self, condition: Callable[[], bool], seconds: float = 600, step: float = 1.0) -> None:
        """Wait for something; it is a failure where it does not come."""
        until = self.scheduler.now + int(seconds * SECOND)
        while not condition():
            assert self.scheduler.now < until, f"after {seconds} s it is still not so: {self._how_it_stands()}"
            self.sleep(step)

    def meanwhile(self, name: str, work: Callable[[], None]) -> None:
        """Something else that goes on in the world."""
        self.scheduler.spawn(name, self.scheduler.world, work)

    # Topics

    def create(self, *topics: TopicName) -> None:
        for topic in topics:
            self.scheduler.log(f"create {topic}")
            self.cluster.create(topic)
            if topic not in self.topics:
                self.topics.append(topic)

    def produce(self, topic: TopicName, count: int = 1, largest: int = 3_000) -> None:
        for _ in range(count):
            size = self.rng.choice([0, 1, 100, 1000, largest])
            place = self.cluster.produce(topic, (b"\0" + self.rng.randbytes(size))[:size])
            self._written.setdefault(topic, []).append((place, self.scheduler.now))

    def keep_producing(self, topic: TopicName, every: float, seconds: float, largest: int = 3_000) -> None:
        """Entries at a steady pace, in the background."""

        def work() -> None:
            for _ in range(int(seconds / every)):
                self.produce(topic, 1, largest)
                self.sleep(every)

        self.meanwhile("producer", work)

    def unread(self, topic: TopicName) -> list[tuple[tuple[int, int], int]]:
        """What is written behind the pin's mark-delete, and when it was."""
        mark = self.cluster.mark_delete(topic)
        return [written for written in self._written.get(topic, []) if mark is not None and written[0] > mark]

    def age(self, at: int) -> float:
        return (self.scheduler.now - at) / SECOND

    # The application

    @property
    def app(self) -> Start:
        """The newest start that lives, or else the newest one."""
        return ([s for s in self.starts if not s.process.dead] or self.starts)[-1]

    def start(self, setup: Setup | None = None) -> Start:
        """One more process of the application."""
        if setup is not None:
            self.setup = setup
        name = f"app-{len(self.starts) + 1}"
        self.scheduler.log(f"{name} starts")
        start = Start(self.scheduler, name, self.setup, self.bucket, self.brokers, self.ingress, self.bridges)
        self.starts.append(start)
        start.process.at_end.append(lambda: self._gone(start))
        return start

    def begin(self, *topics: TopicName, setup: Setup | None = None) -> Start:
        """Topics, and an application that has taken them in: before that nothing keeps their entries."""
        self.create(*topics)
        start = self.start(setup)
        self.until(lambda: start.registry is not None and set(topics) <= set(start.registry.topics))
        return start

    def kill(self, start: Start | None = None) -> None:
        """`kill -9`."""
        start = start or self.app
        if not start.process.dead:
            self.scheduler.log(f"kill {start.process.name}")
            self.scheduler.kill(start.process)

    def stop(self, start: Start | None = None) -> None:
        """SIGTERM, and wait for the end."""
        start = start or self.app
        start.stop()
        self.scheduler.join(start.actor)

    def pause(self, start: Start, seconds: float) -> None:
        """The process stands still; after a while the brokers give its subscriptions to others."""
        self.scheduler.log(f"{start.process.name} stands still for {seconds:.0f} s")
        self.scheduler.pause(start.process)

        def wake() -> None:
            self.sleep(min(seconds, KEEP_ALIVE / SECOND))
            if seconds * SECOND > KEEP_ALIVE:
                for each in self.starts:
                    if each.process is start.process and each.pins is not None:
                        each.pins.connection_lost()
                self.sleep(seconds - KEEP_ALIVE / SECOND)
            if not start.process.dead:
                self.scheduler.log(f"{start.process.name} wakes")
                self.scheduler.resume(start.process)

        self.meanwhile("waker", wake)

    def supervise(self) -> None:
        """Start the application again a little after the last one has ended."""

        def work() -> None:
            while True:
                self.sleep(2)
                if self.app.process.dead:
                    self.sleep(self.rng.uniform(0, 8))
                if self.app.process.dead:
                    self.start()

        self.meanwhile("supervisor", work)

    # What was archived

    def catalog(self, topic: TopicName) -> TopicCatalog:
        """From the bucket, at no cost."""
        return Catalogs(self.bucket.plain, self.setup.application).load(topic)

    def journal(self) -> dict[TopicName, TopicState]:
        return dict(Journal.peek(self.bucket.plain, self.setup.application))

    def last(self, topic: TopicName) -> tuple[int, int] | None:
        """The newest entry that must be offloaded."""
        created = self.cluster.state.topics[topic].created
        return max(
            ((e.ledger, e.entry) for e in self.cluster.entries(topic) if e.created == created and e.delivered),
            default=None,
        )

    def knows(self, topic: TopicName) -> bool:
        """Whether the application has the topic, and not one that had its name before."""
        registry = self.app.registry
        known = registry.topics.get(topic) if registry is not None else None
        claim = None if known is None else known.catalog.claim
        return claim is not None and claim.created == self.cluster.admin.topic_info(topic).created

    def offloaded(self, topic: TopicName) -> bool:
        """Whether all that can be delivered is committed."""
        last, registry = self.last(topic), self.app.registry
        known = registry.topics.get(topic) if registry is not None else None
        if known is None or known.gone or known.catalog.claim is None:
            return False
        begin: Position = known.catalog.claim.begin
        if last is None or last < (begin.ledger, begin.entry):
            return True  # written before anybody kept it
        end = known.catalog.end
        return end is not None and (end.ledger, end.entry) >= last

    def waiting(self, topic: TopicName) -> float:
        """For how many seconds the topic's oldest entry that is not committed has waited; 0: there is none."""
        registry = self.app.registry
        known = registry.topics.get(topic) if registry is not None else None
        end = known.catalog.end if known is not None else None
        done = (-1, -1) if end is None else (end.ledger, end.entry)
        written = self._written.get(topic, [])
        while written and written[0][0] <= done:
            written.pop(0)
        return (self.scheduler.now - written[0][1]) / SECOND if written else 0.0

    def at_rest(self) -> bool:
        """Nothing is open, everything is committed and acknowledged."""
        app = self.app
        alone = sum(not s.process.dead for s in self.starts) == 1
        if app.registry is None or app.context is None or not alone:
            return False
        living = [t for t in self.topics if self.cluster.exists(t)]
        if any(t not in app.registry.topics for t in living) or set(app.registry.topics) - set(living):
            return False
        if any(s.unfinished or s.abandoned for s in app.context.journal.topics.values()):
            return False
        if not all(
            self.knows(t) and self.offloaded(t) and acknowledged(app.context, app.registry.topics[t]) for t in living
        ):
            return False
        return not any(
            s.unfinished for s in self.journal().values()
        )  # a record is there before the process hears of it

    def rest(self, seconds: float = 3_600) -> None:
        """Wait until nothing is left to do."""
        self.until(self.at_rest, seconds, step=2)

    def check(
        self, *, at_rest: bool = True, allowed: frozenset[FindingKind] = HARMLESS | {FindingKind.STRAY_OBJECT}
    ) -> None:
        """What must always hold."""
        truths = {t: truth_of_cluster(self.cluster, t) for t in self.topics}
        if self.kept:
            losses = {str(t): found for t in self.topics if (found := self.catalog(t).losses)}
            assert not losses, f"everything was kept, and yet something is recorded as lost: {losses}"
        for start in self.starts:
            start.check()
        check_invariants(
            self.bucket.plain, truths, at_rest=at_rest, allowed=allowed, paces=[s.seen.pace for s in self.starts]
        )

    def check_idle(self, seconds: float = 240, most: int = 25) -> None:
        """Without new entries few records are written: one more segment at most. A loop would write thousands."""
        before = len(self.scheduler.events)
        self.sleep(seconds)
        writes = [event for event in self.scheduler.events[before:] if _RECORD_WRITE.search(event)]
        assert len(writes) <= most, f"{len(writes)} records in {seconds} s without entries: {writes[-4:]}"

    # Weather

    def weather(self, **so: object) -> None:
        """How the store is from now on."""
        self.scheduler.log(f"weather {sorted(so)}")
        self.bucket.weather = Weather(**so)

    def heal(self) -> None:
        """Everything is well again."""
        self.scheduler.log("heal")
        self.bucket.weather = Weather()
        self.ingress.lie, self.ingress.hangs, self.ingress.elsewhere = None, False, None
        self.brokers.bytes_per_second.clear()
        for broker in self.brokers.all:
            if not broker.up or broker.hangs:
                self.brokers.start(broker)
        for start in self.starts:
            if start.process.paused:
                self.scheduler.resume(start.process)

    # For reports

    def write_events(self) -> str:
        """Where the world's events are written."""
        folder = Path(os.environ.get("OFFLOADER_WORLD_EVENTS", tempfile.gettempdir()))
        path = folder / f"world-{self.seed}.log"
        path.write_text("\n".join(self.scheduler.events) + "\n")
        return str(path)

    def _gone(self, start: Start) -> None:
        """Others notice that a process is gone: most brokers at once, some only when it does not answer."""
        late = 0 if self.rng.random() < 0.7 else KEEP_ALIVE

        def notice() -> None:
            self.scheduler.sleep(late)
            if start.pins is not None:
                start.pins.connection_lost()

        self.meanwhile("keep-alive", notice)
        if start.spark is not None:
            start.spark.end(self.rng.choice([0.1, 1, 15]))

    def _how_it_stands(self) -> str:
        app = self.app
        if app.context is None or app.registry is None:
            return f"{app.process.name} has not begun"
        states = {str(t): s for t, s in app.context.journal.topics.items()}
        trouble = [(str(t), x.committed.catalog_error, x.gone, x.poll.error) for t, x in app.registry.topics.items()]
        return f"code={app.code} error={app.error!r} states={states} refused={app.registry.refused} trouble={trouble}"
