"""Pulsar's own offloader, beside the in-memory Pulsar: it writes whole ledgers into a bucket of its own."""

from __future__ import annotations

from offloader.metadata import stock_keys
from offloader.model import TopicName
from offloader.storage.memory import MemoryStore
from tests.archive.ledgers.support import objects
from tests.fakes.cluster import MemoryCluster
from tests.format.stock import write_blocks

BLOCK = 4096


def offload(
    cluster: MemoryCluster, bucket: MemoryStore, topic: TopicName, ledger: int, *, complete: bool = True
) -> str:
    """As a broker does it; returns the object's key. Not `complete`: the attempt failed half way."""
    created = cluster.admin.topic_info(topic).created
    held = [e.data for e in cluster.entries(topic) if (e.created, e.ledger) == (created, ledger)]
    uuid = f"00000000-0000-4000-9000-{ledger:012d}"
    data = b"".join(write_blocks(held, BLOCK))
    key = stock_keys.data_key(uuid, ledger)
    bucket.put(key, data if complete else data[: len(data) // 2])
    if complete:
        bucket.put(stock_keys.index_key(uuid, ledger), objects(ledger, held, topic, BLOCK)[1])
        cluster.offload_stock(topic, ledger, uuid)
    return key


def closed_ledgers(cluster: MemoryCluster, topic: TopicName) -> list[int]:
    """Those that are not empty."""
    return [s.ledger for s in cluster.ledgers(topic).spans if s.last is not None and s.last >= 0]
