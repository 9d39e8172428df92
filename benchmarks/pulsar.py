"""A real Pulsar with topics full of messages, and the ways to read one of them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Self

import pulsar

from benchmarks.clients import Client, connected
from dev.embedded.settings import OffloaderSettings
from dev.embedded.standalone import PulsarStandalone
from offloader.bookkeeper.connect import BookKeeperSettings, connect
from offloader.errors import BrokerUnavailableError
from offloader.model import KIB, MIB, TopicName
from offloader.ports.admin import TopicInfo
from offloader.ports.entry_source import EntrySource, Extent
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.settings import PulsarSettings

MESSAGE = KIB
PER_BATCH = 100
FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
READ_SECONDS = 30.0


class Cluster:
    """An embedded Pulsar in `folder`; a context manager. With `zookeeper` its bookie can be read directly."""

    def __init__(
        self,
        folder: Path,
        *,
        configuration: Mapping[str, str] | None = None,
        offloader: OffloaderSettings | None = None,
        zookeeper: bool = False,
    ) -> None:
        self.standalone = PulsarStandalone(
            folder, zookeeper=zookeeper, configuration=configuration or {}, offloader=offloader, java_options=()
        )
        self.metadata_uri = f"zk://{self.standalone.zookeeper_address}/ledgers" if zookeeper else ""

    def __enter__(self) -> Self:
        self.standalone.start()
        self.settings = PulsarSettings(self.standalone.service_url, self.standalone.admin_url)
        self.admin = AdminClient(self.settings)
        return self

    def __exit__(self, *_: object) -> None:
        self.admin.close()
        self.standalone.stop()
        self.standalone.web.close()

    def namespace(self, name: str) -> str:
        """Create a namespace whose messages are kept."""
        self.standalone.create_namespace(name)
        self.standalone.admin("POST", f"namespaces/{name}/retention", FOREVER)
        return name

    def client(self) -> pulsar.Client:
        return connected(self.standalone.service_url)

    def fill(self, topic: str, size: int, *, batched: bool) -> TopicInfo:
        """Produce `size` bytes of 1 KiB messages, in batches of 100 or one by one."""
        client = self.client()
        producer = client.create_producer(
            topic,
            batching_enabled=batched,
            batching_max_messages=PER_BATCH,
            batching_max_publish_delay_ms=1000,
            batching_max_allowed_size_in_bytes=2 * PER_BATCH * MESSAGE,
            block_if_queue_full=True,
            max_pending_messages=5000,
        )
        payload = os.urandom(MESSAGE)
        for _ in range(size // MESSAGE):
            producer.send_async(payload, _ignore)
        producer.flush()
        client.close()
        return self.admin.topic_info(TopicName.parse(topic))


def _ignore(_result: object, _position: object) -> None:
    pass


def stored(info: TopicInfo) -> int:
    """The topic's bytes in BookKeeper."""
    return sum(size for _, size in info.sizes.values())


def raw_reader(cluster: Cluster, topic: str, info: TopicInfo) -> float:
    """Read everything with our own reader; MB/s."""
    with closing(BrokerSource(cluster.settings)) as source:
        return _read_all(source, topic, info)


def stored_reader(cluster: Cluster, topic: str, info: TopicInfo) -> float:
    """The same straight from the bookie."""
    with closing(connect(BookKeeperSettings(cluster.metadata_uri))) as source:
        return _read_all(source, topic, info)


def _read_all(source: EntrySource, topic: str, info: TopicInfo) -> float:
    begun = time.perf_counter()
    at, last = (-1, -1), info.last_confirmed or (-1, -1)
    start, extent = info.ledgers.spans[0].ledger, Extent(info.ledgers, last)
    reader = source.open(TopicName.parse(topic), start, 0, max_bytes=16 * MIB, extent=extent)
    while at < last:
        entries = reader.read(READ_SECONDS)
        if not entries:
            raise BrokerUnavailableError(f"{topic}: nothing arrived within {READ_SECONDS} s")
        at = (entries[-1].ledger, entries[-1].entry)
    seconds = time.perf_counter() - begun
    reader.close()
    return stored(info) / seconds / 1e6


def client_rate(cluster: Cluster, topic: str, info: TopicInfo, way: Client) -> float:
    """Read everything with pulsar-client; MB/s of what the topic has in BookKeeper."""
    client = cluster.client()
    messages = way(client, topic)
    begun = time.perf_counter()
    at, last = (-1, -1), info.last_confirmed or (-1, -1)
    while at < last:
        for message in messages.more():
            message.data()
            position = message.message_id()
            at = (position.ledger_id(), position.entry_id())
    seconds = time.perf_counter() - begun
    messages.end()
    client.close()
    return stored(info) / seconds / 1e6
