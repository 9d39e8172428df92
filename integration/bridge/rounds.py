"""Rounds of the bridge under traffic, with kills at a chosen step of ours, the broker's and the store's."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from integration.application import RunningApplication
from integration.bridge.place import Place
from integration.bridge.store import BROKERS_BUCKET
from integration.lifecycle.proxy import FreezingProxy
from integration.processes import HANGS
from integration.pulsar.waiting import until
from integration.world import World
from offloader.bridge.log import BridgeLog
from offloader.lifecycle.ledgers.references import list_path
from offloader.model import TopicName
from offloader.state.names import managed_ledger_name
from tests.storage.proxy import Proxy, Rule

STORE_DOWN_SECONDS = 2.0


@dataclass(frozen=True)
class HttpStep:
    """A request of ours: a record of the bridge, a part of an object, an unload."""

    method: str
    path: str  # a regular expression
    of_admin: bool = False
    after: int = 0  # so many that match pass before

    def matches(self, method: str, path: str) -> bool:
        return method == self.method and re.search(self.path, path) is not None


_RECORD, _BUCKET = r"/_bridge/", rf"^/{BROKERS_BUCKET}/"
STEPS: Mapping[str, HttpStep] = {
    "a round is recorded": HttpStep("PUT", _RECORD),
    "objects are recorded": HttpStep("PUT", _RECORD, after=1),
    "the end is recorded": HttpStep("PUT", _RECORD, after=2),
    "an upload begins": HttpStep("POST", _BUCKET + r".*\?uploads"),
    "a part is copied": HttpStep("PUT", _BUCKET + r".*partNumber="),
    "an upload is completed": HttpStep("POST", _BUCKET + r".*uploadId="),
    "an index is written": HttpStep("PUT", _BUCKET + r".*-index"),
    "an object is read back": HttpStep("GET", _BUCKET + r"[^?]*-ledger-\d+(\?|$)"),
    "the topic is unloaded": HttpStep("PUT", "/unload$", of_admin=True),
    "the topic is loaded": HttpStep("GET", "/internalStats", of_admin=True),
}
SET = "the managed ledger's record is set"
WHEN = ("before", "behind")


@dataclass
class Window:
    """Some time of the traffic in which one thing happened."""

    what: str
    begin: float
    end: float = 0.0
    steps: list[str] = field(default_factory=list)


class Rounds:
    """An application without Spark that bridges one topic again and again, between proxies that are ours."""

    def __init__(self, place: Place, world: World, topic: TopicName, admin: Proxy, zookeeper: FreezingProxy) -> None:
        self.place, self.world, self.topic = place, world, topic
        self.windows: list[Window] = []
        self._admin, self._zookeeper = admin, zookeeper
        self._log = BridgeLog(world.store, lambda: "looking")
        self._running: RunningApplication | None = None

    def start(self) -> None:
        self._running = self.world.new_application().start()

    def finished(self) -> int:
        """How many rounds are proven."""
        state = self._log.load(self.topic).state
        return 0 if state is None else state.rounds - (state.round is not None)

    def another(self, beyond: int | None = None) -> None:
        """Until a round more is proven."""
        before = self.finished() if beyond is None else beyond
        until(lambda: self._alive() and self.finished() > before)

    def end(self) -> None:
        if self._running is not None:
            self._running.end()
            self._running = None

    # Windows

    def unloaded(self) -> None:
        """An unload, and nothing else: no application runs."""
        with self._window("an unload alone"):
            self.place.unload(self.topic)
            time.sleep(1.0)

    def undisturbed(self) -> None:
        with self._window("a round"):
            self.another()

    def ours_killed(self, step: str, when: str) -> None:
        with self._window("ours killed", f"{when} {step}"):
            before = self.finished()
            if step == SET:
                self._kill_at_set(when)
            else:
                self._at(STEPS[step], when, self._kill)
            self.end()
            self.start()
            self.another(before)

    def broker_killed(self, step: str, when: str) -> None:
        with self._window("broker killed", f"{when} {step}"):
            before = self.finished()
            self._at(STEPS[step], when, self.place.broker.kill)
            self.place.restart()
            self.another(before)

    def store_down(self, step: str, when: str) -> None:
        with self._window("store down", f"{when} {step}"), ExitStack() as stack:
            before = self.finished()
            self._at(STEPS[step], when, lambda: stack.enter_context(self.place.store.down()), held=False)
            time.sleep(STORE_DOWN_SECONDS)
            stack.close()
            self.another(before)

    def _at(self, step: HttpStep, when: str, do: Callable[[], object], *, held: bool = True) -> None:
        """Do it when the next such request arrives, before it is passed on, or while nobody waits for its answer.

        `held`: nobody gets past the proxy meanwhile."""

        def matches(method: str, path: str) -> bool:
            if not step.matches(method, path):
                return False
            if rule.after == 0:
                at_step.set()
                if when == "before" and held:
                    done.wait(HANGS)
            return True

        at_step, done = threading.Event(), threading.Event()
        rule = Rule(matches, after=step.after, unsent=when == "before")
        (self._admin if step.of_admin else self.place.store.ours).add(rule)
        assert at_step.wait(HANGS), f"{step} did not happen"
        do()
        done.set()

    def _kill_at_set(self, when: str) -> None:
        path = list_path(managed_ledger_name(self.topic))
        with self._zookeeper.freezing(lambda asked: any(one.path == path for one in asked)) as frozen:
            frozen.wait(HANGS)
            if when == "behind":
                frozen.release()
                time.sleep(0.05)
            self._kill()
            frozen.drop()

    def _kill(self) -> None:
        assert self._running is not None
        self._running.kill()

    def _alive(self) -> bool:
        running = self._running
        if running is not None:
            code = running.process.poll()
            assert code is None, f"it ended with {code}:\n" + "\n".join(running.log_lines()[-20:])
        return True

    @contextmanager
    def _window(self, what: str, step: str = "") -> Iterator[None]:
        window = Window(what, time.monotonic(), steps=[step] if step else [])
        yield
        window.end = time.monotonic()
        self.windows.append(window)
        print(f"{len(self.windows)}. {what} {step}: {window.end - window.begin:.1f} s", flush=True)


@contextmanager
def between_proxies(
    place: Place, namespace: str, name: str, *, policies: Mapping[str, Any], **settings: Any
) -> Iterator[tuple[World, Proxy, FreezingProxy]]:
    """An application of one namespace in a folder called after `name`, and the proxies between it and the brokers'
    admin port and ZooKeeper."""
    port = int(place.admin_url.rpartition(":")[2])
    with ExitStack() as stack:
        admin = stack.enter_context(Proxy("127.0.0.1", port))
        zookeeper = stack.enter_context(FreezingProxy(place.cluster.books.zookeeper_port))
        uri = place.cluster.books.metadata_uri.replace(place.cluster.books.zookeeper_address, zookeeper.address)
        world = stack.enter_context(
            World(
                place,
                place.store.archive(namespace),
                place.folder / f"{name}-{namespace.rpartition('/')[2]}",
                [namespace],
                policies={"maxOffloadSegmentRolloverTimeInSeconds": "1s", **policies},
                connection={"metadataServiceUri": uri, "adminUrl": admin.url},
                light=True,
                **settings,
            )
        )
        yield world, admin, zookeeper


@contextmanager
def rounds(place: Place, topic: TopicName, namespace: str) -> Iterator[Rounds]:
    """Of an application that bridges whatever is closed, at once."""
    bridge = {"minInterval": "0s", "maxInterval": "0s", "unloadsAMinute": 1000, "ledgersAtOnce": 10}
    policies = {"brokerReadable": True}
    with between_proxies(place, namespace, "rounds", policies=policies, bridge=bridge) as (world, admin, zookeeper):
        found = Rounds(place, world, topic, admin, zookeeper)
        try:
            yield found
        finally:
            found.end()
