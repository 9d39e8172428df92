"""A stock broker's own, ledger-based offloader, triggered by the admin REST."""

from __future__ import annotations

import time

from benchmarks.pulsar import Cluster
from offloader.errors import BrokerUnavailableError
from offloader.model import TopicName
from offloader.ports.admin import TopicInfo

OFFLOAD_SECONDS = 600
POLL_SECONDS = 0.05


def close_ledgers(cluster: Cluster, topic: str) -> tuple[TopicInfo, tuple[int, int]]:
    """All ledgers that there are; one more follows them. The topic as it was before, and the only entry of the one that
    follows."""
    name = TopicName.parse(topic)
    cluster.standalone.admin("PUT", f"{name.rest_path}/unload")
    before = cluster.admin.topic_info(name)
    client = cluster.client()
    client.create_producer(topic).send(b"behind the end")
    client.close()
    return before, cluster.admin.topic_info(name).last_confirmed or (-1, -1)


def offload_by_the_broker(cluster: Cluster, topic: str, before: TopicInfo, behind: tuple[int, int]) -> float:
    """The ledgers of a topic as it was `before`, which is all that lies before the ledger of `behind`. Seconds that it
    took."""
    path, admin = TopicName.parse(topic).rest_path, cluster.standalone.admin
    begun = time.perf_counter()
    admin("PUT", f"{path}/offload", {"ledgerId": behind[0], "entryId": behind[1]})
    deadline = time.monotonic() + OFFLOAD_SECONDS
    while (status := admin("GET", f"{path}/offload").json())["status"] != "SUCCESS":
        if time.monotonic() > deadline or status["status"] == "ERROR":
            raise BrokerUnavailableError(f"the broker's own offload of {topic} did not end: {status}")
        time.sleep(POLL_SECONDS)
    seconds = time.perf_counter() - begun
    offloaded = cluster.admin.topic_info(TopicName.parse(topic)).offloaded
    kept = [ledger for ledger, (entries, _) in before.sizes.items() if entries and ledger not in offloaded]
    if kept:
        raise BrokerUnavailableError(f"the broker's own offloader left ledgers {kept} of {topic}")
    return seconds
