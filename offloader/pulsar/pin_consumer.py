"""One topic's durable subscription: a consumer that holds it and never lets the broker send anything."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from offloader._proto.pulsar_wire_pb2 import BaseCommand
from offloader.errors import BrokerUnavailableError, FatalError, OffloadError, OutcomeUnknownError
from offloader.model import TopicName
from offloader.ports.pins import TopicEnd
from offloader.pulsar import commands
from offloader.pulsar.commands import Subscription
from offloader.pulsar.connection import BrokerConnection
from offloader.pulsar.failover import SoleConsumer, exclusive_or_failover
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.session import Reply

log = logging.getLogger(__name__)

_NUMBERS = itertools.count(1)  # of attachments


class Attachment:
    """A `session.Consumer` on one connection, until the broker or the connection ends it. It never grants permits."""

    def __init__(
        self, connection: BrokerConnection, subscription: Subscription, closed: Callable[[], None] = lambda: None
    ) -> None:
        self.connection = connection
        self.subscription = subscription
        self._on_closed = closed
        self.consumer_id = connection.session.add_consumer(self)
        self.closed = False
        self.number = next(_NUMBERS)

    def on_entry(self, ledger: int, entry: int, data: bytes) -> None:
        """Never called: without permits nothing is sent."""

    def on_closed(self, error: OffloadError) -> None:  # noqa: ARG002 (the next call finds out by itself)
        if not self.closed:
            self.closed = True
            self._on_closed()

    def let_go(self) -> Reply | None:
        """Close the consumer. The reply is the broker's receipt, None if there is nothing to close any more."""
        if self.closed or not self.connection.alive:
            return None
        self.closed = True
        session = self.connection.session
        session.remove(self.consumer_id)
        try:
            return session.request(lambda n: commands.close_consumer(self.consumer_id, n))
        except BrokerUnavailableError:  # the connection was lost meanwhile, and the consumer with it
            return None


def attach(
    connection: BrokerConnection,
    subscription: Subscription,
    timeout: float,
    what: str,
    closed: Callable[[], None] = lambda: None,
) -> Attachment:
    """Subscribe. Raises what brokers raise."""
    attached = Attachment(connection, subscription, closed)
    build = lambda n: commands.subscribe(attached.consumer_id, n, subscription)  # noqa: E731
    try:
        connection.call(build, timeout, what)
    except OffloadError:
        attached.let_go()
        raise
    return attached


class PinConsumer:
    """Subscribes when first needed, and again after an unload or a lost connection, until it is let go for good.
    Thread safe.

    `subscription` makes a new one for each time. `closed` is called, in any thread, when a broker or the end of a
    connection has closed the consumer. `sole`: asked before each use of one that is not exclusive.
    """

    def __init__(
        self,
        lookup: TopicLookup,
        topic: TopicName,
        subscription: Callable[[], Subscription],
        closed: Callable[[], None],
        sole: SoleConsumer,
    ) -> None:
        self.topic = topic
        self._sole = sole
        self._lookup = lookup
        self._subscription = subscription
        self._closed = closed
        self._lock = threading.RLock()
        self._attachment: Attachment | None = None
        self._over = False
        self._broker: str | None = None  # which one had the consumer last
        self.tried_at = 0.0  # when it last began to subscribe, on the monotonic clock
        self._mark_delete: tuple[int, int] | None = None

    @property
    def connected(self) -> bool:
        """Whether the broker has our consumer, as far as we know."""
        return self._attachment is not None and not self._attachment.closed

    @property
    def place(self) -> object:
        """The connection to the broker that has our consumer, else the name of the last one that had it."""
        attachment = self._attachment
        return self._broker if attachment is None or attachment.closed else attachment.connection

    def connect(self) -> Attachment:
        """Subscribe, unless we are. Raises SubscriptionBusyError, TopicNotFoundError, BrokerUnavailableError, ..."""
        with self._lock:
            if self._over:  # whoever was late would make the subscription anew, and nobody would ever delete it
                raise FatalError(f"{self.topic}: the pin was let go of")
            if self._attachment is not None and not self._attachment.closed:
                return self._attachment
            if self._attachment is not None:
                self._lookup.forget(self.topic)
            self.tried_at = time.monotonic()
            attached = self._lookup.attach(self.topic, self._subscribe)
            self._broker = attached.connection.name
            try:
                self._prove(attached)
            except Exception:
                attached.let_go()
                raise
            self._attachment = attached
            return attached

    def prove(self) -> None:
        """That no other consumer has the subscription. Raises SubscriptionBusyError."""
        self._prove(self.connect())

    def ask_end(self) -> tuple[Attachment, Reply]:
        """Ask for the topic's end; to be passed to `end`."""
        attached = self.connect()
        return attached, attached.connection.session.request(
            lambda n: commands.last_message_id(attached.consumer_id, n)
        )

    def end(self, attached: Attachment, reply: Reply, timeout: float) -> TopicEnd:
        """The answer to `ask_end`. If it fails, the next call subscribes again."""
        try:
            end = topic_end(attached.connection.wait(reply, timeout, f"the end of {self.topic}"))
        except OffloadError:
            self.disconnect()
            raise
        self._notice(end.mark_delete)
        return replace(end, subscribed=attached.number)

    def acknowledge(self, ledger: int, entry: int) -> None:
        """Cumulative. Raises OutcomeUnknownError when the receipt is missing."""
        self._write("acknowledging in", lambda consumer, n: commands.acknowledge(consumer, n, ledger, entry))

    def unsubscribe(self) -> None:
        """Delete the subscription. Raises OutcomeUnknownError when the receipt is missing."""
        self._write("unsubscribing from", commands.unsubscribe)
        self.disconnect(for_good=True)

    def disconnect(self, *, for_good: bool = False) -> Reply | None:
        """Let go of the consumer, keep the subscription."""
        with self._lock:
            self._over = self._over or for_good
            attached, self._attachment = self._attachment, None
        self._lookup.forget(self.topic)
        return None if attached is None else attached.let_go()

    def _subscribe(self, connection: BrokerConnection) -> Attachment:
        what = f"pinning {self.topic}"
        subscribe = partial(attach, connection, timeout=self._lookup.timeout, what=what, closed=self._closed)
        return exclusive_or_failover(subscribe, self._subscription())

    def _prove(self, attached: Attachment) -> None:
        if attached.subscription.type != commands.EXCLUSIVE:
            self._sole.prove(self.topic, attached.subscription)

    def _write(self, action: str, build: Callable[[int, int], BaseCommand]) -> None:
        attached = self.connect()
        self._prove(attached)
        what = f"{action} {self.topic}"
        try:
            attached.connection.call(lambda n: build(attached.consumer_id, n), self._lookup.timeout, what, write=True)
        except OutcomeUnknownError:
            self.disconnect()
            raise

    def _notice(self, mark_delete: tuple[int, int]) -> None:
        """A mark-delete goes back when a broker died before storing it, or when the subscription was deleted
        meanwhile."""
        before, self._mark_delete = self._mark_delete, mark_delete
        if before is not None and mark_delete < before:
            log.warning(
                "%s: the subscription went back from %s to %s: its broker died, or it was deleted and made again",
                self.topic,
                f"{before[0]}:{before[1]}",
                f"{mark_delete[0]}:{mark_delete[1]}",
                extra={"see": "pin-went-back"},
            )


def topic_end(answer: BaseCommand) -> TopicEnd:
    """What GET_LAST_MESSAGE_ID says. An empty topic's last message is -1:-1, or entry -1 of its open ledger."""
    response = answer.get_last_message_id_response
    if not response.HasField("consumer_mark_delete_position"):
        raise FatalError("the broker does not say where a subscription stands: it is too old for this")
    last = commands.position(response.last_message_id)
    mark_delete = commands.position(response.consumer_mark_delete_position)
    return TopicEnd(last if last[1] >= 0 else None, mark_delete)
