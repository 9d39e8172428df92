"""The page over views and metrics that a test makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from offloader.metrics import Metrics
from offloader.model import Lane, TopicName
from offloader.offload.live.page import Running, site
from offloader.offload.live.status import Filling, TopicStatus, Trouble
from offloader.offload.live.view import LaneStatus, LiveView
from offloader.pages.access import PageAccess
from offloader.pages.site import Site
from tests.pages.calling import Page, Reply, ask

NOW = 1_764_180_000_000
MINUTE = 60_000


def topic(name: str) -> TopicName:
    return TopicName.parse(f"public/orders/{name}")


def caught_up(name: str) -> TopicStatus:
    return TopicStatus(topic(name), "Caught up", 3, 1000, 10**6)


def opened(name: str, lag: int = 1000, age_ms: int = MINUTE, trouble: Trouble | None = None) -> TopicStatus:
    """With a segment that is open for so long, of the ten minutes that it may be."""
    filling = Filling(2**20, 2**30, NOW - age_ms, 10 * MINUTE)
    return TopicStatus(topic(name), "Assigned", 1, 10, 2**20, lag // 10, lag, lag, filling, trouble=trouble)


def view(*topics: TopicStatus, refused: tuple[tuple[TopicName, str], ...] = (), at: int = NOW) -> LiveView:
    return LiveView(at, topics, refused, tuple(LaneStatus(lane) for lane in Lane), settled=True)


@dataclass
class Shown:
    """An application's page. A test changes what it tells."""

    view: LiveView | None = None
    ending: str = ""
    seconds: float = 100_000.0
    access: PageAccess = field(default_factory=PageAccess)
    application: str = "orders"
    uptime_ms: int = 0

    def __post_init__(self) -> None:
        self.metrics = Metrics(clock=lambda: self.seconds)
        self.metrics.health.checked("store")
        self.metrics.health.checked("pulsar")

    @cached_property
    def site(self) -> Site:
        started = iter([NOW - self.uptime_ms])
        running = Running(
            self.application,
            "0.1.0",
            self.metrics,
            lambda: self.view,
            lambda: self.ending,
            lambda: next(started, NOW),
        )
        return site(running, self.access)

    def ask(self, target: str = "/", **environ: str) -> Reply:
        return ask(self.site, target, **environ)

    def page(self, target: str = "/") -> Page:
        reply = self.ask(target)
        assert reply.status == 200, reply.text
        return Page(reply.text)


def names(page: Page) -> list[str]:
    """The topics of its table, in their order."""
    prefix = "/topic?name="
    links = [found["href"] or "" for tag, found in page.elements if tag == "a" and "href" in found]
    return [link.rsplit("%2F", 1)[1] for link in links if link.startswith(prefix)]
