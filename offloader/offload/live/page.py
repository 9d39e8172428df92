"""The page of the running application, from the last view that the driver has published, and what the manual says of
each alarm."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import groupby

import offloader.metrics.definitions as d
from offloader.errors import ConfigError, RetryableError
from offloader.metrics import Metrics
from offloader.metrics.recent import MINUTES, Minute
from offloader.model import TopicName
from offloader.offload.live.status import LATE, Filling, Need, Trouble
from offloader.offload.live.view import NEEDS_YOU, LiveView, Ordered, TopicsPage
from offloader.pages.access import PageAccess
from offloader.pages.plots import WIDTH, Bar, Tick, columns
from offloader.pages.rendering import Renderer, bytes_text, count_text, duration_text
from offloader.pages.site import PageAnswer, PageRequest, Site

REFRESH = 5  # seconds
OLD_VIEW_MS = 30_000
OLD_WORK = 60.0  # seconds: work that has waited for longer is named
_WORDS = {Need.DANGER: "danger", Need.TROUBLE: "trouble", Need.LATE: "late", Need.NONE: ""}
_MINUTE_TICKS = (45, 30, 15)  # ago


@dataclass(frozen=True, slots=True)
class AlarmText:
    """A row of the manual's tables; `…` stands for what varies."""

    name: str
    section: str
    line: str
    meaning: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Running:
    """What the page asks of the application. `view`: the last one, None before the first. `ending`: why it stops;
    "": it does not. `clock_ms`: that of the views."""

    application: str
    version: str
    metrics: Metrics
    view: Callable[[], LiveView | None]
    ending: Callable[[], str]
    clock_ms: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Share:
    """A bar: `width` of 100, and what it says. `kind`: its class in CSS."""

    width: float
    text: str
    kind: str


def site(running: Running, access: PageAccess) -> Site:
    """The page, behind who may see it."""
    page = LivePage(running)
    paths = {"/": page.overview, "/topic": page.topic, "/alarms": page.alarms}
    return Site(paths, page.renderer, access)


class LivePage:
    """Renders. Thread safe."""

    def __init__(self, running: Running) -> None:
        self.renderer = Renderer("offloader.offload.live", shared={"brand": "offloader", "words": _WORDS})
        self._running = running
        self._started = running.clock_ms()
        self._ordered: Ordered | None = None
        self._ordering = threading.Lock()

    def overview(self, request: PageRequest) -> PageAnswer:
        """Everything; of the topics one page."""
        ordered = self._now()
        part, state = request.get("q"), request.get("state")
        chosen = ordered.chosen(part, state)
        minutes = self._running.metrics.recent.minutes()
        return self._answer(
            "live.html",
            ordered,
            page=TopicsPage.of(chosen, request.number("page", 1, most=10**6)),
            q=part,
            state=state,
            needs_you=NEEDS_YOU,
            minutes=minutes,
            uploaded=sum(minute.size for minute in minutes),
            most=max(minute.size for minute in minutes),
            bars=throughput(minutes),
            ticks=[Tick((MINUTES - ago) / MINUTES * WIDTH, f"{ago} min ago") for ago in _MINUTE_TICKS],
            segments=self._running.metrics.recent.segments(),
            waiting=self._waiting(),
            ends=self._ends(),
        )

    def topic(self, request: PageRequest) -> PageAnswer:
        """One topic. Raises ConfigError where there is none of this name."""
        ordered = self._now()
        try:
            name = str(TopicName.parse(request.get("name")))
        except ValueError as error:
            raise ConfigError(str(error)) from error
        status = ordered.find(name)
        if status is None:
            raise ConfigError(f"{name}: this application does not offload it, or has not found it yet")
        return self._answer("live_topic.html", ordered, status=status)

    def alarms(self, request: PageRequest) -> PageAnswer:  # noqa: ARG002 (a page's signature)
        """What the manual says of all alarms."""
        return PageAnswer(self.renderer.render("alarms.html", sections=sections(), pieces=pieces))

    def _answer(self, template: str, ordered: Ordered, **values: object) -> PageAnswer:
        running, now = self._running, self._running.clock_ms()
        alive, ready = running.metrics.health.alive(), running.metrics.health.ready()
        ending, old = running.ending(), now - ordered.view.at > OLD_VIEW_MS
        stood_in = int(sum(running.metrics.told(d.SHARDS_STOOD_IN).values()))
        body = self.renderer.render(
            template,
            refresh=REFRESH,
            application=running.application,
            version=running.version,
            uptime=now - self._started,
            ending=ending,
            stuck="" if alive.good else alive.text,
            not_ready="" if ready.good else ready.text,
            ordered=ordered,
            summary=ordered.summary,
            view=ordered.view,
            now=ordered.view.at,
            age=now - ordered.view.at,
            old=old,
            stood_in=stood_in,
            hindered=bool(ending or old or stood_in or not alive.good or not ready.good),
            remedy_of=remedy_of,
            pieces=pieces,
            shares=shares,
            **values,
        )
        return PageAnswer(body)

    def _now(self) -> Ordered:
        """The last view, in order. Raises RetryableError before there is one."""
        view = self._running.view()
        if view is None:
            raise RetryableError("the application is starting: Spark and the journal come first; try again soon")
        with self._ordering:
            if self._ordered is None or self._ordered.view is not view:
                self._ordered = Ordered.of(view)
            return self._ordered

    def _waiting(self) -> list[tuple[str, float]]:
        """Kinds of work that have waited for long, and for how many seconds."""
        ages = self._running.metrics.told(d.WORK_AGE)
        return sorted(((label, age) for (label,), age in ages.items() if age > OLD_WORK), key=lambda pair: -pair[1])

    def _ends(self) -> list[tuple[str, str, float]]:
        """What is told of the bridge, of deletions and of subscriptions, where there is any: of which part, what, and
        how much."""
        found = []
        for part, definition in (
            ("bridge", d.BRIDGE_TOPICS),
            ("deletions", d.DELETION_PENDING),
            ("removals of subscriptions", d.CURSOR_REMOVALS_PENDING),
        ):
            told = self._running.metrics.told(definition)
            found += [(part, " ".join(labels), number) for labels, number in sorted(told.items()) if number]
        return found


def throughput(minutes: Sequence[Minute]) -> list[Bar]:
    """A column a minute."""
    titles = [
        f"{len(minutes) - number - 1} min ago: {bytes_text(minute.size / 60)}/s, {count_text(minute.entries)} entries"
        for number, minute in enumerate(minutes)
    ]
    return columns([float(minute.size) for minute in minutes], titles)


def shares(filling: Filling, now: int) -> tuple[Share, Share]:
    """How full an open segment is, by its size and by its age."""
    age = max(now - filling.opened_at, 0)
    by_size = min(filling.size / max(filling.max_size, 1), 1.0)
    by_age = min(age / max(filling.roll_ms, 1), 1.0)
    kind = "idle" if age <= LATE * filling.roll_ms else "warn"
    return (
        Share(by_size * 100, f"{bytes_text(filling.size)} of {bytes_text(filling.max_size)}", "good"),
        Share(by_age * 100, f"{duration_text(age)} of {duration_text(filling.roll_ms)}", kind),
    )


def pieces(text: str) -> list[tuple[bool, str]]:
    """A text of the manual in pieces: whether it is code, and what it says."""
    return [(piece.startswith("`"), piece.strip("`")) for piece in re.findall(r"`[^`]*`|[^`]+", text)]


@cache
def sections() -> Mapping[str, tuple[AlarmText, ...]]:
    """All rows of the manual (docs/running.md), by their table: for people without it at hand."""
    text = (resources.files(__package__) / "alarms.json").read_text(encoding="utf-8")
    rows = (AlarmText(**row) for row in json.loads(text))
    return {section: tuple(these) for section, these in groupby(rows, lambda row: row.section)}


@cache
def _by_name() -> Mapping[str, AlarmText]:
    rows = [row for these in sections().values() for row in these]
    return {row.name: row for row in reversed(rows)}  # the first of an alarm's rows


def remedy_of(trouble: Trouble) -> AlarmText | None:
    """What to do: by the kind of a failure, where there is one, else by its alarm."""
    by_kind = f"kind-{trouble.kind}" if trouble.kind is not None and trouble.alarm.endswith("-failed") else ""
    return _by_name().get(by_kind) or _by_name().get(trouble.alarm)
