"""Whole-application tests: a Pulsar, a store, applications between them, and the check of what must always hold."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import httpx

from dev.embedded.standalone import PulsarStandalone
from integration.application import RunningApplication
from integration.pace import longest_batch_ms, pace_of
from integration.processes import HANGS
from integration.pulsar.waiting import until
from integration.sharing import driver_options
from offloader.archive.findings import FindingKind
from offloader.config import Config
from offloader.logs import LEVEL_VARIABLE
from offloader.metadata.catalog import Catalogs
from offloader.metadata.journal_reading import applications, read_journals
from offloader.metadata.state import TopicCatalog, TopicState
from offloader.model import Position, TopicName
from offloader.offload.core.evidence import pin_target
from offloader.ports.object_store import ObjectStore
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.pin import BrokerPins
from offloader.pulsar.settings import PulsarSettings
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.invariants import HARMLESS, PaceLog, check_invariants
from tests.storage.servers import free_port
from tests.truth import Truth, TruthCollector

PIN = "__offloader"
WITNESS = "witness"
KEEP = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


class Servers(Protocol):
    """A Pulsar that runs."""

    @property
    def service_url(self) -> str: ...

    @property
    def admin_url(self) -> str: ...

    def admin(self, method: str, path: str, json: Any = None) -> httpx.Response: ...

    def restart(self) -> None: ...


@dataclass
class World:
    """One archive of some namespaces. A context manager; its end ends all applications that were made here.

    `see` reads the topics. Where nothing else keeps what applications offload meanwhile, call it before they run: it
    keeps with a subscription of its own what it has not read.
    """

    pulsar: Servers
    storage: StoreSettings
    folder: Path
    namespaces: list[str]
    policies: dict[str, Any] = field(default_factory=dict)
    topic_policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    application: str = "tests"
    connection: dict[str, Any] = field(default_factory=dict)  # more of the section `pulsar`
    spark: dict[str, Any] = field(default_factory=dict)  # and of `spark`
    lifecycle: dict[str, Any] = field(default_factory=dict)
    bridge: dict[str, Any] = field(default_factory=dict)
    shards: dict[str, Any] = field(default_factory=dict)
    light: bool = False  # without Spark, which has no part in what is shown

    def __post_init__(self) -> None:
        settings = PulsarSettings(
            service_url=self.pulsar.service_url, admin_url=self.pulsar.admin_url, subscription=WITNESS
        )
        self._stack = ExitStack()
        self._paced: list[tuple[RunningApplication, int, dict[TopicName, int]]] = []
        self.admin = AdminClient(settings)
        self._stack.callback(self.admin.close)
        self._source = BrokerSource(settings)
        self._stack.callback(self._source.close)
        self._witness = BrokerPins(settings)
        self._stack.callback(self._witness.close)
        self.store: ObjectStore = open_store(self.storage)
        self._stack.callback(self.store.close)
        self._truths: dict[TopicName, TruthCollector] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def new_application(
        self, *, faults: Iterable[Mapping[str, Any]] = (), shard: int | None = None, **policies: Any
    ) -> RunningApplication:
        """An application, or one shard of it, that is not started yet; `policies` go over those of the world."""
        config = {
            "application": self.application,
            "pulsar": {
                "serviceUrl": self.pulsar.service_url,
                "adminUrl": self.pulsar.admin_url,
                "subscription": PIN,
                **self.connection,
            },
            "storage": self._storage(),
            "spark": {"master": "local[2]", "trigger": "500ms", "conf": driver_options(), **self.spark},
            "metrics": {"port": free_port()},
            "discoveryInterval": "2s",
            "limits": self.limits,
            "lifecycle": self.lifecycle,
            "bridge": self.bridge,
            **({} if shard is None else {"shards": {**self.shards, "index": shard}}),
            "policies": {**self.policies, **policies},
            "namespaces": {name: self._namespace(name) for name in self.namespaces},
        }
        environment = self._credentials() | {LEVEL_VARIABLE: "DEBUG"}
        text = json.dumps(config, indent=1)
        folder = self.folder / f"run-{len(self._paced) + 1}"
        run = RunningApplication(text, folder, environment, faults, light=self.light)
        self._paced.append((run, longest_batch_ms(Config.parse(text), self.store.retry_deadline), self._held()))
        return self._stack.enter_context(run)

    def catch_up(self, timeout: float = HANGS, **policies: Any) -> RunningApplication:
        """Run an application until everything is offloaded."""
        application = self.new_application(**policies)
        code = application.run_until_caught_up(timeout)
        assert code == 0, f"exit code {code}:\n" + "\n".join(application.log_lines()[-30:])
        return application

    def topics(self) -> list[TopicName]:
        """All topics and partitions of the namespaces."""
        return [topic for name in self.namespaces for topic in self.admin.topics(name)]

    def catalog(self, topic: TopicName) -> TopicCatalog:
        """What is offloaded of a topic."""
        return Catalogs(self.store, self.application).load(topic)

    def state(self, topic: TopicName) -> TopicState:
        """What a journal says of a topic."""
        journals = read_journals(self.store, applications(self.store))
        return next((state for _, state in journals.of(topic)), TopicState(topic))

    def see(self, timeout: float = 10.0) -> None:
        """Learn what the topics hold now. Not safe from several threads."""
        (topics,) = until(lambda: [self.topics()])
        for topic in topics:
            until(lambda seen=topic: self._see(seen, timeout))  # type: ignore[misc]

    def _see(self, topic: TopicName, timeout: float) -> bool:
        """What brokers can say again, they may fail to say at first."""
        collector = self._truths.setdefault(topic, TruthCollector(self._source, self.admin, topic))
        self._witness.open(topic)
        if collector.read(timeout):
            self._witness.acknowledge(topic, Position(0, *max(collector.truth(None).entries)))
        return True

    def mark_delete(self, topic: TopicName) -> tuple[int, int]:
        """Where the pin stands."""
        cursors = self.pulsar.admin("GET", f"{topic.rest_path}/internalStats").json()["cursors"]
        ledger, _, entry = cursors[PIN]["markDeletePosition"].partition(":")
        return int(ledger), int(entry)

    def check(self, *, timeout: float = 10.0, allowed: Collection[FindingKind] = HARMLESS) -> dict[TopicName, Truth]:
        """Check what must hold once everything is offloaded and no application runs; what the topics held."""
        truths = self.truths(timeout)
        paces = self.paces()
        assert sum(pace.batches for pace in paces), "no application has said how long its batches took"
        check_invariants(self.store, truths, at_rest=True, allowed=allowed, paces=paces)
        return truths

    def truths(self, timeout: float = 10.0) -> dict[TopicName, Truth]:
        """What the topics hold, and where their pins stand."""
        self.see(timeout)
        return {topic: collector.truth(self.mark_delete(topic)) for topic, collector in self._truths.items()}

    def paces(self) -> list[PaceLog]:
        """The pace of each application so far."""
        return [pace_of(run.log_lines(), PaceLog(longest, dict(held))) for run, longest, held in self._paced]

    def at_rest(self) -> bool:
        """Whether everything that was seen of the topics is offloaded and acknowledged."""
        return all(self.at_rest_in(topic) for topic in self._truths)

    def at_rest_in(self, topic: TopicName) -> bool:
        """The same of one topic."""
        seen = self._truths[topic].truth(None).entries
        delivered = [place for place, entry in seen.items() if entry.sha256 is not None]
        last = max(delivered, default=(-1, -1))
        catalog = self.catalog(topic)
        end = catalog.end
        if not delivered and end is None:
            return True
        if end is None or (end.ledger, end.entry) < last or self.state(topic).open is not None:
            return False
        target, mark = pin_target(catalog.head) or end, self.mark_delete(topic)
        return not any(mark < place <= (target.ledger, target.entry) for place in seen)

    def _held(self) -> dict[TopicName, int]:
        """Until when topics wait that have failed, says the journal."""
        states = read_journals(self.store, [self.application]).states[self.application]
        return {topic: state.failure.retry_at for topic, state in states.items() if state.failure is not None}

    def _namespace(self, name: str) -> dict[str, Any]:
        topics = {t: {"policies": p} for t, p in self.topic_policies.items() if f"//{name}/" in t}
        return {"enabled": True, "topics": topics}

    def _storage(self) -> dict[str, Any]:
        named = {"root": self.storage.root, "endpoint": self.storage.endpoint, "region": self.storage.region}
        options = {"options": dict(self.storage.options)} if self.storage.options else {}
        return {name: value for name, value in named.items() if value} | options

    def _credentials(self) -> dict[str, str]:
        if not self.storage.access_key:
            return {}
        return {"AWS_ACCESS_KEY_ID": self.storage.access_key, "AWS_SECRET_ACCESS_KEY": self.storage.secret_key or ""}


def keep_everything(pulsar: PulsarStandalone, namespace: str) -> None:
    """Retention without end: what was offloaded can still be read at the test's end."""
    pulsar.admin("POST", f"namespaces/{namespace}/retention", json=KEEP)
