"""Durable subscriptions that keep what is not offloaded yet."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from uuid import uuid4

from offloader.errors import BrokerUnavailableError, FatalError, OffloadError
from offloader.model import Position, TopicName
from offloader.ports.pins import TopicEnd
from offloader.pulsar.commands import Subscription
from offloader.pulsar.failover import ReportedSoleConsumer
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.pin_consumer import PinConsumer
from offloader.pulsar.pool import ConnectionPool
from offloader.pulsar.rest import RestClient
from offloader.pulsar.settings import PulsarSettings
from offloader.pulsar.subscription_rest import PIN_PROPERTY

# Threads that subscribe again, all topics at once after a broker's restart.
RECONNECTS = 8
CLOSE_SECONDS = 5.0  # in which brokers confirm that we have let go; one that hangs finds out when the connection ends


class BrokerPins:
    """`Pins` over shared connections; one consumer a topic.

    Each consumer brings a new token. A subscription keeps the token that it was created with. `check_journal` raises
    where another process has the journal; it is asked where a subscription is not exclusive.
    """

    def __init__(
        self,
        settings: PulsarSettings,
        new_token: Callable[[], str] = lambda: str(uuid4()),
        check_journal: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._new_token = new_token
        self._pool = ConnectionPool(settings)
        self._lookup = TopicLookup(self._pool)
        self._rest = RestClient(settings)
        self._sole = ReportedSoleConsumer(self._rest, check_journal)
        self._lock = threading.Lock()
        self._held: dict[TopicName, PinConsumer] = {}
        self._disconnected: deque[TopicName] = deque()

    def open(self, topic: TopicName) -> TopicEnd:
        with self._lock:
            held = self._held.get(topic)
        pin = held or self._consumer(topic)
        if held is not None:  # a new consumer proves it by itself
            pin.prove()
        end = pin.end(*pin.ask_end(), self._settings.operation_timeout)
        with self._lock:
            self._held[topic] = pin
        return end

    def holds(self, topic: TopicName) -> bool:
        with self._lock:
            return topic in self._held

    def groups(self, topics: list[TopicName]) -> list[list[TopicName]]:
        """See `Pins.groups`: one for each connection; topics that must subscribe again, by the broker that had them."""
        with self._lock:
            held = {topic: self._held.get(topic) for topic in topics}
        places: dict[object, list[TopicName]] = {}
        for topic, pin in held.items():
            places.setdefault(None if pin is None else pin.place, []).append(topic)
        return list(places.values())

    def ends(self, topics: list[TopicName]) -> dict[TopicName, TopicEnd | Exception]:
        """See `Pins.ends`. Lasts no longer than about twice the operation time-out, whatever fails."""
        with self._lock:
            pins = {topic: self._held.get(topic) for topic in topics}
        found: dict[TopicName, TopicEnd | Exception] = {
            topic: FatalError(f"{topic}: the pin is not held; open it first")
            for topic, pin in pins.items()
            if pin is None
        }
        held = [pin for pin in pins.values() if pin is not None]
        found |= self._reconnect(pin for pin in held if not pin.connected)
        replies = {}
        for pin in held:
            if pin.topic not in found:
                try:
                    replies[pin] = pin.ask_end()
                except Exception as error:  # noqa: BLE001 (a topic's failure is its value, whatever it is)
                    found[pin.topic] = error
        deadline = time.monotonic() + self._settings.operation_timeout
        for pin, (connection, reply) in replies.items():
            try:
                found[pin.topic] = pin.end(connection, reply, max(0.0, deadline - time.monotonic()))
            except Exception as error:  # noqa: BLE001
                found[pin.topic] = error
        return found

    def take_disconnected(self) -> list[TopicName]:
        return [self._disconnected.popleft() for _ in range(len(self._disconnected))]

    def acknowledge(self, topic: TopicName, position: Position) -> None:
        """See `Pins.acknowledge`. The broker stores the position a little later: a crash may take it back."""
        self._pin(topic).acknowledge(position.ledger, position.entry)

    def release(self, topic: TopicName) -> None:
        self._pin(topic).unsubscribe()
        with self._lock:
            self._held.pop(topic, None)

    def drop(self, topic: TopicName) -> None:
        with self._lock:
            pin = self._held.pop(topic, None)
        if pin is not None:
            self._disconnect([pin], self._settings.operation_timeout)

    def close(self) -> None:
        with self._lock:
            pins, self._held = list(self._held.values()), {}
        self._disconnect(pins, CLOSE_SECONDS)
        self._pool.close()
        self._rest.close()

    def _disconnect(self, pins: list[PinConsumer], seconds: float) -> None:
        """Wait for the receipts, so that somebody else may subscribe at once. A lost connection has let go already."""
        replies = []
        for pin in pins:
            with suppress(BrokerUnavailableError):
                replies.append(pin.disconnect(for_good=True))
        deadline = time.monotonic() + seconds
        for reply in replies:
            if reply is not None:
                with suppress(OffloadError, TimeoutError, CancelledError):
                    reply.result(max(0.0, deadline - time.monotonic()))

    def _reconnect(self, pins: Iterable[PinConsumer]) -> dict[TopicName, TopicEnd | Exception]:
        """Subscribe again; returns the failures. Topics left over when time is up come first in the next round."""
        deadline = time.monotonic() + self._settings.operation_timeout
        todo = sorted(pins, key=lambda pin: pin.tried_at)
        if not todo:
            return {}
        with ThreadPoolExecutor(RECONNECTS, thread_name_prefix="pin") as pool:
            errors = pool.map(lambda pin: _connect(pin, deadline), todo)
            return {pin.topic: error for pin, error in zip(todo, errors, strict=True) if error is not None}

    def _consumer(self, topic: TopicName) -> PinConsumer:
        closed = partial(self._disconnected.append, topic)
        return PinConsumer(self._lookup, topic, partial(self._subscription, topic), closed, self._sole)

    def _subscription(self, topic: TopicName) -> Subscription:
        properties = {"application": self._settings.application} if self._settings.application else {}
        properties[PIN_PROPERTY] = token = self._new_token()
        return Subscription(
            str(topic),
            self._settings.subscription,
            durable=True,
            consumer_name=self._settings.application,
            properties=properties,
            token=token,
        )

    def _pin(self, topic: TopicName) -> PinConsumer:
        with self._lock:
            pin = self._held.get(topic)
        if pin is None:
            raise FatalError(f"{topic}: the pin is not held; open it first")
        return pin


def _connect(pin: PinConsumer, deadline: float) -> Exception | None:
    if time.monotonic() > deadline:
        return BrokerUnavailableError(f"{pin.topic}: there was no time left to subscribe again in this round")
    try:
        pin.connect()
    except Exception as error:  # noqa: BLE001
        return error
    return None
