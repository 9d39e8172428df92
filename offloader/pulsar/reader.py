"""Entries of one topic through a broker, byte for byte, with a bounded number of them in memory.

Permits count messages, the broker sends entries. With N permits left it sends at most N entries, since each has at
least one message. So we grant N permits where N entries of the size seen last have room, and count each entry's
messages as the broker does.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable

from google.protobuf.message import DecodeError

from offloader._proto.pulsar_wire_pb2 import MessageCount
from offloader.errors import OffloadError
from offloader.model import TopicName
from offloader.ports.entry_source import RawEntry
from offloader.pulsar import commands
from offloader.pulsar.commands import Subscription
from offloader.pulsar.connection import BrokerConnection
from offloader.pulsar.failover import exclusive_or_failover
from offloader.pulsar.lookup import TopicLookup

MAX_ENTRIES = 10_000
MAGIC_BROKER_METADATA = b"\x0e\x02"
MAGIC_CHECKSUM = b"\x0e\x01"


class Window:
    """What is granted, what is held, and what may be granted next."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._size = 0.0  # of an entry: the largest one, forgotten slowly
        self._trust = 1  # entries that may be outstanding: doubles as sizes become known
        self._permits = 0  # as the broker counts them; below 0 after a batch that had more
        self.held = 0

    def fits(self, size: int) -> bool:
        """Whether an entry can be kept; one that is alone always can."""
        return self.held == 0 or self.held + size <= self._max_bytes

    def arrived(self, size: int, messages: int) -> None:
        """An entry arrived and is kept."""
        self.held += size
        self._permits -= messages
        self._size = max(size, self._size - (self._size - size) / 64)
        self._trust = min(self._trust * 2, MAX_ENTRIES)

    def skipped(self, messages: int) -> None:
        """An entry arrived and is not kept."""
        self._permits -= messages

    def taken(self) -> None:
        """Everything that was held was handed over."""
        self.held = 0

    def reset(self) -> None:
        """A new subscription: it has no permits yet."""
        self._permits = 0
        self._trust = 1

    def grant(self) -> int:
        """How many permits to give now; 0 while that is not worth a command."""
        room = self._room()
        wanted = room - self._permits
        if room == 0 or wanted < max(1, room / 2):
            return 0
        self._permits += wanted
        return wanted

    def _room(self) -> int:
        if self._size == 0:
            return self._trust
        fitting = int((self._max_bytes - self.held) / max(self._size, 1))
        if self.held == 0:
            fitting = max(fitting, 1)
        return max(0, min(fitting, self._trust))


def message_count(entry: bytes) -> int:
    """Messages in the entry's batch, 1 if it is none, as the broker counts them. The entry need not be sound."""
    at = 0
    if entry.startswith(MAGIC_BROKER_METADATA):
        at = 6 + int.from_bytes(entry[2:6])
    if entry.startswith(MAGIC_CHECKSUM, at):
        at += 6
    size = int.from_bytes(entry[at : at + 4])
    try:
        return max(1, MessageCount.FromString(entry[at + 4 : at + 4 + size]).num_messages_in_batch)
    except DecodeError:
        return 1


class Inbox:
    """A `session.Consumer`, filled by the connection's I/O thread, that holds what the window allows. An entry that
    does not fit ends the subscription: `overflowed`, to go on at `next`."""

    def __init__(
        self, window: Window, start: tuple[int, int], grant: Callable[[int], None], stop: Callable[[], None]
    ) -> None:
        self.next = start
        self.overflowed = False
        self._window = window
        self._grant = grant
        self._stop = stop
        self._changed = threading.Condition(threading.Lock())
        self._entries: list[RawEntry] = []
        self._error: OffloadError | None = None

    @property
    def exhausted(self) -> bool:
        """Overflowed, and everything that did fit was taken."""
        return self.overflowed and not self._entries

    def open(self) -> None:
        """Grant the first permits."""
        with self._changed:
            self._grant_more()

    def take(self, timeout: float) -> list[RawEntry]:
        """Everything that has arrived; nothing after `timeout` seconds. Raises why the subscription ended, once it is
        empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._entries or self._error or self.overflowed, timeout)
            if not self._entries and self._error is not None:
                raise self._error
            entries, self._entries = self._entries, []
            self._window.taken()
            self._grant_more()
            return entries

    def on_entry(self, ledger: int, entry: int, data: bytes) -> None:
        messages = message_count(data)
        with self._changed:
            if self.overflowed:
                return
            if (ledger, entry) < self.next:  # before the start, where that lies behind the topic's end
                self._window.skipped(messages)
            elif self._window.fits(len(data)):
                self._keep(RawEntry(ledger, entry, data), messages)
            else:
                self.overflowed = True
                self._stop()
                return
            self._grant_more()

    def on_closed(self, error: OffloadError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify()

    def _keep(self, entry: RawEntry, messages: int) -> None:
        self.next = (entry.ledger, entry.entry + 1)
        self._window.arrived(len(entry.data), messages)
        self._entries.append(entry)
        self._changed.notify()

    def _grant_more(self) -> None:
        permits = 0 if self.overflowed or self._error else self._window.grant()
        if permits:
            self._grant(permits)


class BrokerEntryReader:
    """An `EntryReader` on a non-durable subscription with a random name, which pins nothing and has no other consumer.

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
        self._window.reset()
        # The start is the position behind which a non-durable cursor begins.
        wanted = Subscription(
            str(self._topic), f"offloader-{secrets.token_hex(8)}", durable=False, after=(start[0], start[1] - 1)
        )
        return exclusive_or_failover(lambda subscription: self._begin(connection, start, subscription), wanted)

    def _begin(
        self, connection: BrokerConnection, start: tuple[int, int], wanted: Subscription
    ) -> tuple[BrokerConnection, int, Inbox]:
        session = connection.session
        inbox = Inbox(
            self._window,
            start,
            grant=lambda permits: session.send(commands.flow(consumer_id, permits)),
            stop=lambda: _let_go(connection, consumer_id),
        )
        consumer_id = session.add_consumer(inbox)
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
