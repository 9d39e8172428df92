"""What must hold of subscriptions at work when the store fails, or clients go in the middle of something."""

from __future__ import annotations

import asyncio

import pytest

from offloader.errors import OffloadError
from tests.gateway.topics.served import Served, ToldStore, whole


def test_what_is_confirmed_after_an_unsubscribing_that_failed_is_not_forgotten() -> None:
    async def work(store: ToldStore) -> None:
        served = Served(store)
        consumer = await served.subscribe()
        places = await consumer.has(5)
        store.fails = True
        assert consumer.subscribed is not None
        with pytest.raises(OffloadError):
            await consumer.subscribed.unsubscribe()
        await consumer.until(lambda one: one.is_closed)
        store.fails = False
        again = await served.subscribe()
        assert again.subscribed is not None
        again.subscribed.acknowledge(whole(places[:3]))
        await again.subscribed.durable()
        served.close()
        anew = Served(store)
        third = await anew.subscribe()
        await third.has(5)
        assert not set(third.places) & set(places[:3])
        anew.close()

    asyncio.run(work(ToldStore()))


def test_a_seek_whose_client_has_gone_is_done_or_is_not() -> None:
    async def work(served: Served) -> None:
        consumer = await served.subscribe()
        places = await consumer.has(len(served.world.entries))
        await served.is_at_end()
        assert consumer.subscribed is not None
        entries = served.entries
        with entries.held():
            consumer.subscribed.acknowledge(whole(places[:1]))
            await entries.until_held()
            consumer.subscribed.acknowledge(whole(places[1:2]))
            seek = asyncio.create_task(consumer.subscribed.seek((-1, -1), None))
            await consumer.until(lambda one: one.is_closed)
        with entries.held():
            await entries.until_held()
            seek.cancel()
            with pytest.raises(asyncio.CancelledError):
                await seek
        again = await served.subscribe()
        await again.has(len(served.world.entries))
        served.close()

    asyncio.run(work(Served()))
