"""PIP-81's settings of a gateway: what a subscription has acknowledged one by one is in memory up to a bound, or all of
it."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.config.gateway import Gateway
from offloader.cursors.durable import DurableCursor
from offloader.gateway.application import GatewayApplication
from offloader.gateway.traffic import Traffic
from tests.gateway.topics.served import Served, whole


@pytest.mark.parametrize("bounded", [True, False])
def test_ledgers_beyond_the_bound_are_in_the_bucket_alone_where_it_is_kept(bounded: bool) -> None:
    settings = Gateway.model_validate(
        {
            "listen": "127.0.0.1:0",
            "metricsListen": "",
            "durableSubscriptions": True,
            "maxIndividualAckCacheBytesPerCursor": 1,
            "enableLruCacheMaxUnackedRanges": bounded,
        }
    )

    async def work() -> tuple[int, int]:
        """Of the subscription's ledgers how many are in memory, and how many in the bucket alone."""
        served, tokens = Served(), itertools.count()
        application = GatewayApplication(
            OpenArchive(Stores.of(served.store)), settings, lambda: f"g{next(tokens)}", lambda _: None
        )
        served.topic = application._served(served.workers, served.entries, Traffic())
        consumer = await served.subscribe()
        places = await consumer.has(len(served.world.entries))
        assert consumer.subscribed is not None
        consumer.subscribed.acknowledge(whole(places[1::2]))
        await served.flush()
        cursor = served.topic.subscriptions["s"]._acks.cursor
        assert isinstance(cursor, DurableCursor)
        served.close()
        return len(cursor._cursor._loaded), len(cursor._cursor.swapped_out)

    in_memory, in_the_bucket = asyncio.run(work())
    assert in_memory + in_the_bucket >= 3
    assert (in_memory, in_the_bucket > 0) == (1, True) if bounded else in_the_bucket == 0
