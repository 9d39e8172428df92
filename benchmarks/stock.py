"""A stock broker's own, ledger-based offloader, triggered by the admin REST."""

from __future__ import annotations

import time

from benchmarks.pulsar import Cluster
from offloader.errors import BrokerUnavailableError
from offloader.model import TopicName
from offloader.pulsar.api import TopicInfo

OFFLOAD_SECONDS = 600
POLL_SECONDS = 0.05


def offload_by_the_broker(cluster: Cluster, topic: str) -> tuple[TopicInfo, float]:
    """All ledgers that there are: the stock offloader takes those before a given entry, so one more follows them.

    The topic as it was before that, and the seconds that it took.
    """
    name, admin = TopicName.parse(topic), cluster.standalone.admin
    admin("PUT", f"{name.rest_path}/unload")
    before = cluster.admin.topic_info(name)
    client = cluster.client()
    client.create_producer(topic).send(b"behind the end")
    client.close()
    ledger, entry = cluster.admin.topic_info(name).last_confirmed or (-1, -1)
    begun = time.perf_counter()
    admin("PUT", f"{name.rest_path}/offload", {"ledgerId": ledger, "entryId": entry})
    deadline = time.monotonic() + OFFLOAD_SECONDS
    while (status := admin("GET", f"{name.rest_path}/offload").json())["status"] != "SUCCESS":
        if time.monotonic() > deadline or status["status"] == "ERROR":
            raise BrokerUnavailableError(f"the broker's own offload of {topic} did not end: {status}")
        time.sleep(POLL_SECONDS)
    seconds = time.perf_counter() - begun
    offloaded = cluster.admin.topic_info(name).offloaded
    kept = [ledger for ledger, (entries, _) in before.sizes.items() if entries and ledger not in offloaded]
    if kept:
        raise BrokerUnavailableError(f"the broker's own offloader left ledgers {kept} of {topic}")
    return before, seconds
