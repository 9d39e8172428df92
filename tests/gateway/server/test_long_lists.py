"""A long list of acknowledgements is taken in steps, between which anything may happen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

from offloader._proto.pulsar_wire_pb2 import Ack, MessageIdData
from offloader.gateway.server.connection import Connection
from offloader.gateway.server.requests import handle
from offloader.pulsar.commands import command
from tests.gateway.topics.served import Served

AT_ONCE = 200


def test_what_is_left_of_a_list_is_nothing_to_who_has_sought_meanwhile() -> None:
    async def work(served: Served) -> None:
        consumer, other = await served.subscribe(), await served.subscribe(permits=0)
        places = await consumer.has(len(served.world.entries))
        steps = list[Iterator[None]]()
        client = SimpleNamespace(consumers={0: consumer}, in_turns=steps.append)
        first, left = places[0], places[1]
        named = [first] * AT_ONCE + [left] * AT_ONCE
        ids = [MessageIdData(ledger_id=ledger, entry_id=entry) for ledger, entry in named]
        handle(cast("Connection", client), command(ack=Ack(consumer_id=0, type=Ack.INDIVIDUAL, message_id=ids)))
        next(steps[0])
        assert other.subscribed is not None
        await other.subscribed.seek((-1, -1), None)
        assert consumer.is_closed
        client.consumers.clear()  # as a connection does it
        for _ in steps[0]:
            """To the end."""
        again = await served.subscribe()
        await served.is_at_end()
        assert again.places == places
        served.close()

    asyncio.run(work(Served()))
