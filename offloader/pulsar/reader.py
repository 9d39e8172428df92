"""Entries of one topic through a broker, byte for byte, with a bounded number of them in memory."""

from __future__ import annotations

import secrets

from offloader.errors import OffloadError
from offloader.model import TopicName
from offloader.ports.entry_source import RawEntry
from offloader.pulsar import commands
from offloader.pulsar.commands import Subscription
from offloader.pulsar.connection import BrokerConnection
from offloader.pulsar.inbox import Inbox
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.window import Window


class BrokerEntryReader:
    """An `EntryReader` on a non-durable, exclusive subscription with a random name: it pins nothing.

    Memory is bounded twice. Permits are granted for what fits, as far as sizes are known. If entries turn out to be
    larger, those that do not fit are dropped, and once the others are taken a new subscription begins at the first
    dropped one.
    """

    def __init__(self, lookup: TopicLookup, topic: TopicName, start: tuple[int, int], max_bytes: int) -> None:
        self._lookup = lookup
        self._topic = topic
        self._window = Window(max_bytes)
        self.restarts = 0
        self._connection, self._consumer_id, self._inbox = self._subscribe(start)

    def read(self, timeout: float) -> list[RawEntry]:
        if self._inbox.exhausted:
            self.restarts += 1
            self._connection, self._consumer_id, self._inbox = self._subscribe(self._inbox.next)
        try:
            return self._inbox.take(timeout)
        except OffloadError:
            self._lookup.forget(self._topic)
            raise

    def close(self) -> None:
        _let_go(self._connection, self._consumer_id)

    def _subscribe(self, start: tuple[int, int]) -> tuple[BrokerConnection, int, Inbox]:
        return self._lookup.attach(self._topic, lambda connection: self._subscribe_at(connection, start))

    def _subscribe_at(
        self, connection: BrokerConnection, start: tuple[int, int]
    ) -> tuple[BrokerConnection, int, Inbox]:
        session = connection.session
        self._window.reset()
        inbox = Inbox(
            self._window,
            start,
            grant=lambda permits: session.send(commands.flow(consumer_id, permits)),
            stop=lambda: _let_go(connection, consumer_id),
        )
        consumer_id = session.add_consumer(inbox)
        # The start is the position behind which a non-durable cursor begins.
        wanted = Subscription(
            str(self._topic), f"offloader-{secrets.token_hex(8)}", durable=False, after=(start[0], start[1] - 1)
        )
        what = f"reading {self._topic} from {start[0]}:{start[1]}"
        try:
            connection.call(lambda n: commands.subscribe(consumer_id, n, wanted), self._lookup.timeout, what)
        except OffloadError:
            _let_go(connection, consumer_id)
            raise
        inbox.open()
        return connection, consumer_id, inbox


def _let_go(connection: BrokerConnection, consumer_id: int) -> None:
    """Nobody waits for the answer: request id 0 is not used otherwise."""
    connection.session.remove(consumer_id)
    connection.session.send(commands.close_consumer(consumer_id, 0))
