"""What keeps shards apart is needed: variants without it are caught in the same worlds in which the product holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

import pytest

from offloader.errors import OffloadError, RetryableError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.journal_start import JournalStart, Started
from offloader.metadata.state import CatalogHead
from offloader.model import TopicName
from offloader.offload.core.topic import Topic
from offloader.offload.driver import retiring
from offloader.offload.driver.context import Context
from offloader.offload.driver.passing_on import PassingOn
from offloader.offload.driver.registry import TopicRegistry
from offloader.offload.driver.request_handler import RequestHandler
from offloader.offload.driver.work import WorkKind
from offloader.offload.fleet import Fleet
from tests.examples import few
from tests.world.application import Setup
from tests.world.scheduler import SECOND
from tests.world.shards import ShardWorld
from tests.world.test_shards import TOPICS, begin, produce
from tests.world.world import live_in

LATE = 90  # seconds


class Slowly(PassingOn):
    """What claims a topic for another shard is long on its way: it arrives whatever has become of its process."""

    world: PausedWorld

    def _claim(self, name: TopicName, to: str) -> None:
        context = self._context
        context.journal.check_from_beside()
        head = context.catalogs.head(name)
        self.world.claiming.append(name)
        self.world.meanwhile("late write", lambda: self.world.arrives_late(head, context.application, to))
        self.world.scheduler.sleep(LATE * SECOND)
        context.catalogs.pass_on(context.catalogs.head(name), to, context.clock_ms())
        context.catalogs.unmark(name)
        context.pins.drop(name)


class ClaimsFirst(Slowly):
    """The journal is not told before."""

    def _pass_on(self, strangers: Iterable[Topic], most: int) -> None:
        context = self._context
        for topic in strangers:
            owner = context.deal.owner_of(topic.name)
            if self._agrees(owner):
                retiring.goes_elsewhere(context, topic)
                if self._is_over(topic):
                    call = partial(self._claim, topic.name, owner)
                    context.work.post(WorkKind.CLAIM, topic.name, call, partial(self._first, topic.name))

    def _first(self, name: TopicName, error: OffloadError | None) -> None:
        if error is None:
            self._registry.let_go(name)


class PausedWorld(ShardWorld):
    kind: type[Slowly] = Slowly

    def __post_init__(self) -> None:
        super().__post_init__()
        self.claiming: list[TopicName] = []
        self.agreed = True

    def arrives_late(self, head: CatalogHead, application: str, to: str) -> None:
        self.sleep(LATE)
        with suppress(RetryableError):
            Catalogs(self.bucket.plain, application).pass_on(head, to, 1)

    def passing_on(
        self, context: Context, registry: TopicRegistry, fleet: Fleet, requests: RequestHandler
    ) -> PassingOn:
        made = self.kind(context, registry, lambda name: self.agreed and fleet.agrees(name), requests.is_asked)
        made.world = self
        return made


def paused_while_it_claims(world: PausedWorld) -> None:
    """Shard 0 stands still in the middle of it, another process runs it and goes on with its topics, and it wakes."""
    world.create(*TOPICS)
    only = world.start_shard(0, 1)
    world.until(lambda: len(world.owners()) == len(TOPICS))
    world.stop(only)
    first = world.start_shard(0, 2)
    world.start_shard(1, 2)
    produce(world)
    world.until(lambda: bool(world.claiming), step=0.2)
    world.agreed = False  # who runs it next sees nobody whom it would pass topics on to
    world.pause(first, 100)
    for _ in range(60):
        world.sleep(2)
        produce(world, 1)
    world.agreed = True
    world.rest_all(600)
    world.check()


def live(scenario: Callable[[PausedWorld], None], kind: type[Slowly] = Slowly, seed: int = 1) -> None:
    world = PausedWorld(seed, setup=Setup(shards=2, roll="200s", executors=1))
    world.kind = kind
    live_in(world, scenario)


@pytest.mark.parametrize("seed", few(range(3), 1))
def test_a_process_that_is_paused_between_its_record_and_the_claim_harms_nobody(seed: int) -> None:
    live(paused_while_it_claims, seed=seed)


@pytest.mark.large
def test_claiming_before_the_journal_says_so_is_caught() -> None:
    with pytest.raises(AssertionError):
        live(paused_while_it_claims, ClaimsFirst)


def without_fence(self: JournalStart, new_token: Callable[[], str], taken_over_by: str = "") -> Started:
    """A start that begins its epoch beside the former one, which nobody stops."""
    loaded = self.load()
    return self._begin(loaded, new_token(), taken_over_by)


def test_running_a_shard_without_a_fence_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that was paused wakes, finds its journal as it was, and goes on."""

    def scenario(world: ShardWorld) -> None:
        begin(world, 2)
        produce(world)
        world.sleep(5)
        still = world.process_of(1)
        assert still is not None
        world.pause(still, 100)
        for _ in range(60):
            world.sleep(2)
            produce(world, 1)
        assert still.code is None
        world.rest_all(600)
        world.check()

    monkeypatch.setattr(JournalStart, "new_epoch", without_fence)
    with pytest.raises(AssertionError):
        live_in(ShardWorld(1, setup=Setup(shards=2, roll="20s", executors=1)), scenario)
