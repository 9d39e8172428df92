"""A Pulsar cluster of separate processes: ZooKeeper, bookies, brokers; and the proxy through which brokers reach
ZooKeeper.

    with PulsarCluster(folder) as cluster:
        broker = cluster.broker()           # one that runs
        broker.kill()                       # another serves its topics at once
        cluster.collect()                   # every bookie drops what has no metadata

Each broker that is asked for a topic that nobody owns takes it. Ledgers have ten entries; nothing is retained but in
namespaces that say so.
"""

from __future__ import annotations

import random
import subprocess
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from dev.embedded.commands import JavaCommands
from dev.embedded.jars import fetch_lock
from dev.embedded.lock import PULSAR
from dev.embedded.settings import OffloaderSettings, free_ports, offloader_configuration
from dev.embedded.standalone import install_offloader
from integration.bookkeeper.cluster import BookKeeperCluster
from integration.lifecycle.broker import Broker
from integration.lifecycle.proxy import FreezingProxy
from integration.processes import HANGS
from offloader.java import find_java

CLUSTER = "real"
LEDGER_ENTRIES = 10
_HTTP = "org.apache.bookkeeper.http.vertx.VertxHttpServer"
_SETUP_OPTIONS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class PulsarCluster:
    """Started on entering the context, ended on leaving it. `books`: ZooKeeper and the bookies.

    `collections`: seconds between two garbage collections of a bookie. By default they are only those that `collect`
    asks for. `offloader` also loads Pulsar's own offloader. `configuration` overrides lines of every broker's file.
    """

    def __init__(
        self,
        directory: Path,
        *,
        bookies: int = 2,
        brokers: int = 2,
        collections: int = 1800,
        offloader: OffloaderSettings | None = None,
        configuration: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory.resolve()
        self._stack = ExitStack()
        self._configuration = dict(configuration or {})
        self._count = brokers
        self.offloader = offloader
        self._http_ports = free_ports(bookies, random.SystemRandom())
        settings = {"gcWaitTime": str(collections * 1000), "httpServerEnabled": "true", "httpServerClass": _HTTP}
        own = [{"httpServerPort": str(port)} for port in self._http_ports]
        self.books = BookKeeperCluster(self.directory, bookies=bookies, configuration=settings, own=own)
        self.brokers: tuple[Broker, ...] = ()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.books)
            self.proxy = stack.enter_context(FreezingProxy(self.books.zookeeper_port))
            self.metadata_uri = f"zk:{self.proxy.address}"
            commands = JavaCommands(find_java(), fetch_lock(PULSAR), self.directory)
            ports = free_ports(2 * self._count, random.SystemRandom())
            self._set_up(commands, ports)
            settings, environment = dict(broker_settings(self.metadata_uri)), {}
            if self.offloader is not None:
                install_offloader(self.directory)
                settings |= offloader_configuration(self.offloader)
                environment = dict(self.offloader.environment)
            settings |= self._configuration
            self.brokers = tuple(
                Broker(n, (ports[2 * n], ports[2 * n + 1]), self.proxy, commands, settings, environment)
                for n in range(self._count)
            )
            for broker in self.brokers:
                stack.callback(broker.end)
                broker.launch()
            for broker in self.brokers:
                broker.await_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def all_back(self) -> None:
        """Every broker running: the product asks all that are registered."""
        self.broker()
        for broker in self.brokers:
            broker.await_ready()

    def broker(self) -> Broker:
        """One that runs; the others are being started, if they do not."""
        for broker in self.brokers:
            if not broker.running:
                broker.launch()
        serving = [broker for broker in self.brokers if broker.serves()]
        if not serving:
            self.brokers[0].await_ready()
            return self.brokers[0]
        return serving[0]

    def admin(self, method: str, path: str, json: Any = None) -> httpx.Response:
        """Of a broker that runs."""
        return self.broker().admin(method, path, json)

    def collect(self, bookies: int | None = None) -> None:
        """Have every bookie, or the first so many, drop now what has no metadata."""
        threads = [threading.Thread(target=_collect, args=(port,)) for port in self._http_ports[:bookies]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _set_up(self, commands: JavaCommands, ports: list[int]) -> None:
        program = ["org.apache.pulsar.PulsarClusterMetadataSetup", "--cluster", CLUSTER]
        program += ["--metadata-store", self.metadata_uri, "--configuration-metadata-store", self.metadata_uri]
        program += ["--web-service-url", f"http://127.0.0.1:{ports[1]}"]
        program += ["--broker-service-url", f"pulsar://127.0.0.1:{ports[0]}"]
        program += ["--initial-num-transaction-coordinators", "1", "--default-namespace-bundle-number", "1"]
        program += ["--existing-bk-metadata-service-uri", self.books.metadata_uri]
        done = subprocess.run(
            commands.program("setup", _SETUP_OPTIONS, program),
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=HANGS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _collect(port: int) -> None:
    """Two passes: one that runs already may have listed the metadata before."""
    url = f"http://127.0.0.1:{port}/api/v1/bookie/gc"
    for _ in range(2):
        httpx.put(url, timeout=HANGS).raise_for_status()
        _until_collected(url)


def _until_collected(url: str) -> None:
    while True:
        answer = httpx.get(url, timeout=HANGS)
        answer.raise_for_status()
        if "false" in answer.text.lower():
            return


def broker_settings(metadata_uri: str) -> Mapping[str, str]:
    """What all brokers are told: small ledgers, nothing that happens by itself, everything that makes ledgers."""
    return {
        "clusterName": CLUSTER,
        "metadataStoreUrl": metadata_uri,
        "configurationMetadataStoreUrl": metadata_uri,
        "metadataStoreSessionTimeoutMillis": "8000",
        "bindAddress": "127.0.0.1",
        "advertisedAddress": "127.0.0.1",
        "managedLedgerDefaultEnsembleSize": "2",
        "managedLedgerDefaultWriteQuorum": "2",
        "managedLedgerDefaultAckQuorum": "2",
        "managedLedgerMaxEntriesPerLedger": str(LEDGER_ENTRIES),
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "managedLedgerOffloadDeletionLagMs": "0",
        "defaultNumberOfNamespaceBundles": "1",
        "loadBalancerEnabled": "false",
        "systemTopicEnabled": "true",
        "topicLevelPoliciesEnabled": "true",
        "transactionCoordinatorEnabled": "true",
        "brokerDeleteInactiveTopicsEnabled": "false",
        "forceDeleteNamespaceAllowed": "true",
        "brokerShutdownTimeoutMs": "6000",
        "retentionCheckIntervalInSeconds": "3600",
        "delayedDeliveryTrackerFactoryClassName": (
            "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory"
        ),
        "delayedDeliveryMinIndexCountPerBucket": "5",
        "numIOThreads": "4",
        "numHttpServerThreads": "8",
        "numExecutorThreadPoolSize": "4",
        "numCacheExecutorThreadPoolSize": "2",
        "bookkeeperNumberOfChannelsPerBookie": "2",
    }
