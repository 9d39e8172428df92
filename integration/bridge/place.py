"""Where the bridge is proven: ZooKeeper, a bookie and stock brokers with Pulsar's own offloader, beside an S3 server.

with place(folder) as here:
    topic = here.new_topic("mixed")
    here.unload(topic)
    here.trim(topic)      # the broker deletes BookKeeper's copy of what is offloaded
    here.restart()
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from dev.embedded.settings import ENTRY_METADATA, OffloaderSettings
from integration.bridge.store import BROKERS_BUCKET, SharedStore, shared_store
from integration.lifecycle.broker import Broker
from integration.lifecycle.cluster import PulsarCluster
from integration.processes import HANGS
from integration.pulsar.waiting import until
from integration.world import KEEP
from offloader.bookkeeper.api import LedgerMetadataStore
from offloader.bookkeeper.zookeeper import connect
from offloader.errors import LedgerNotFoundError
from offloader.model import MIB, TopicName
from tests.storage.servers import ACCESS_KEY, SECRET_KEY

ENTRIES_PER_LEDGER = 60
LARGEST_MESSAGE = 2 * MIB
_NAMES = itertools.count()
_ONE_BOOKIE = {f"managedLedgerDefault{name}": "1" for name in ("EnsembleSize", "WriteQuorum", "AckQuorum")}


@dataclass(frozen=True)
class Place:
    """Servers, and what an operator does to them."""

    cluster: PulsarCluster
    store: SharedStore
    folder: Path

    @property
    def broker(self) -> Broker:
        return self.cluster.brokers[0]

    @property
    def service_url(self) -> str:
        return self.broker.service_url

    @property
    def admin_url(self) -> str:
        return self.broker.admin_url

    @property
    def metadata_uri(self) -> str:
        """Beside the proxy that brokers reach ZooKeeper through."""
        return f"zk:{self.cluster.books.zookeeper_address}"

    def admin(self, method: str, path: str, json: Any = None) -> httpx.Response:
        """One call below /admin/v2/, once the broker is not busy."""
        return self.cluster.admin(method, path, json)

    # Names

    def new_namespace(self, *, kept: bool = True) -> str:
        name = f"public/bridge-{next(_NAMES)}"
        self.admin("PUT", f"namespaces/{name}")
        if kept:
            self.admin("POST", f"namespaces/{name}/retention", KEEP)
        return name

    def new_topic(self, namespace: str, making: str, partitions: int = 0) -> TopicName:
        topic = TopicName.parse(f"{namespace}/{making}-{next(_NAMES)}")
        if partitions:
            self.admin("PUT", f"{topic.rest_path}/partitions", partitions)
        else:
            self.admin("PUT", topic.rest_path)
        return topic

    # What operators do

    def stats(self, topic: TopicName) -> Mapping[str, Any]:
        """`internalStats`; loads the topic."""
        return dict(self.admin("GET", f"{topic.rest_path}/internalStats").json())

    def unload(self, topic: TopicName) -> None:
        self.admin("PUT", f"{topic.rest_path}/unload")

    def trim(self, topic: TopicName) -> None:
        self.admin("POST", f"{topic.rest_path}/trim")

    def offload(self, topic: TopicName) -> None:
        """Let the stock broker offload all closed ledgers by itself."""
        path = topic.rest_path
        ledger, _, entry = self.stats(topic)["lastConfirmedEntry"].partition(":")
        self.admin("PUT", f"{path}/offload", {"ledgerId": int(ledger), "entryId": int(entry)})
        until(lambda: self.admin("GET", f"{path}/offload").json()["status"] != "RUNNING")
        status = self.admin("GET", f"{path}/offload").json()
        assert status["status"] == "SUCCESS", status

    def restart(self, **settings: str) -> None:
        """Kill the broker and bring it back, with `settings` that are other than before."""
        self.broker.kill()
        self.broker.configure(settings)
        self.broker.launch()
        self.broker.await_ready()

    def metadata(self) -> LedgerMetadataStore:
        """A session. Close it."""
        return connect(self.metadata_uri, timeout=HANGS)

    # What there is

    def ledgers(self, topic: TopicName) -> list[dict[str, Any]]:
        """The topic's list as its broker has loaded it, in the order of the ledgers' ids."""
        return sorted(self.stats(topic)["ledgers"], key=lambda one: int(one["ledgerId"]))

    def offloaded(self, topic: TopicName) -> list[int]:
        return [one["ledgerId"] for one in self.ledgers(topic) if one["offloaded"]]

    def forget_bookkeepers_copies(self, topic: TopicName) -> list[int]:
        """Have the broker delete what is offloaded from BookKeeper, until it has; the ledgers."""
        gone = self.offloaded(topic)
        deadline = time.monotonic() + HANGS
        with closing(self.metadata()) as metadata:
            while left := [ledger for ledger in gone if _is_there(metadata, ledger)]:
                assert time.monotonic() < deadline, left
                self.trim(topic)
                time.sleep(0.2)
        return gone


@contextmanager
def place(
    folder: Path, *, brokers: int = 1, direct: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[Place]:
    """Started. `settings` of the brokers go over ours. `direct`: these reach the store beside the proxy, to be
    measured."""
    with shared_store(folder / "store") as store:
        offloader = OffloaderSettings(
            store.server.url if direct else store.brokers.url, BROKERS_BUCKET, ACCESS_KEY, SECRET_KEY
        )
        configuration = {
            **_ONE_BOOKIE,
            **ENTRY_METADATA,
            "managedLedgerMaxEntriesPerLedger": str(ENTRIES_PER_LEDGER),
            "exposingBrokerEntryMetadataToClientEnabled": "true",
            "managedLedgerOffloadDeletionLagMs": "0",
            "acknowledgmentAtBatchIndexLevelEnabled": "true",
            "maxMessageSize": str(LARGEST_MESSAGE),
            **(settings or {}),
        }
        with PulsarCluster(
            folder / "cluster", bookies=1, brokers=brokers, offloader=offloader, configuration=configuration
        ) as cluster:
            yield Place(cluster, store, folder)


def _is_there(metadata: LedgerMetadataStore, ledger: int) -> bool:
    try:
        metadata.read(ledger)
    except LedgerNotFoundError:
        return False
    return True
