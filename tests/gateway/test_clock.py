"""What is due at a moment of time is due then, also where the machine's clock is set meanwhile."""

from __future__ import annotations

import asyncio
import base64
import time
from types import SimpleNamespace

import pytest

from offloader._proto.pulsar_wire_pb2 import Connect
from offloader.gateway import application
from offloader.gateway.application import SetClock
from offloader.gateway.server import connection as connection_module
from offloader.gateway.topics import subscription as subscription_module
from offloader.pulsar.commands import command
from offloader.storage.memory import MemoryStore
from tests.gateway.access.tokens import SECRET, token
from tests.gateway.gateway import durable_gateway
from tests.gateway.raw import RawClient
from tests.gateway.topics.served import Served

CLOCK_STEP = 0.5

HOUR = 3600.0


class Clock:
    """A machine's. `at`: what it shows more than it did."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    for module in (application, connection_module, subscription_module):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=found.time, time_ns=time.time_ns))
    return found


def test_a_clock_that_was_set_is_noticed_once_and_one_that_goes_on_is_not() -> None:
    wall, steady = [100.0], [5.0]
    clock = SetClock(lambda: wall[0], lambda: steady[0])
    wall[0], steady[0] = 110.0, 15.0 + CLOCK_STEP / 2
    assert not clock.was_set()
    for wall[0] in (110.0 + HOUR, 110.0):
        assert clock.was_set()
        assert not clock.was_set()


def test_a_delayed_message_comes_when_its_time_has_come_by_a_clock_that_was_set(clock: Clock) -> None:
    async def live() -> None:
        served = Served()
        last = served.world.entries[-1]
        due = int((clock.time() + 3 * HOUR) * 1000)
        served.world.entries[-1] = last._replace(deliver_at=due)
        served.entries.refresh()
        consumer = await served.subscribe()
        rest = len(served.world.entries) - 1
        await consumer.has(rest)
        clock.ahead = 2 * HOUR
        served.topic.clock_was_set()
        await asyncio.sleep(0)
        assert len(consumer.given) == rest, "there is an hour left"
        clock.ahead = 3 * HOUR - 0.2
        served.topic.clock_was_set()
        assert (await consumer.has(rest + 1))[-1] == last.place
        served.close()

    asyncio.run(live())


def test_a_token_is_good_until_its_moment_by_a_clock_that_was_set(clock: Clock) -> None:
    key = base64.b64encode(SECRET).decode()
    with (
        durable_gateway(MemoryStore(), tokenSecretKey=key, roles={"reader": ["*"]}) as url,
        RawClient(url) as lasting,
        RawClient(url) as client,
    ):
        for one, hours in ((lasting, 9), (client, 3)):
            shown = token(exp=time.time() + hours * HOUR)
            one.send(command(connect=Connect(client_version="x", auth_method_name="token", auth_data=shown)))
            assert one.command().HasField("connected")
        clock.ahead = 4 * HOUR
        assert client.is_closed()
        lasting.send(command(ping={}))
        assert lasting.until("pong")
