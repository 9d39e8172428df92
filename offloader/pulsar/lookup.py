"""Which broker serves a topic."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from offloader._proto.pulsar_wire_pb2 import LookupResponse
from offloader.errors import BrokerUnavailableError, ProtocolError, TopicMovedError
from offloader.model import TopicName
from offloader.pulsar import commands
from offloader.pulsar.connection import BrokerConnection
from offloader.pulsar.pool import BrokerAddress, ConnectionPool
from offloader.pulsar.server_errors import server_error
from offloader.pulsar.settings import DEFAULT_PORTS, HostPort, parse_hosts

T = TypeVar("T")

MAX_REDIRECTS = 20


class TopicLookup:
    """Asks the brokers, and remembers the answer until somebody finds it wrong. Thread safe."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self.timeout = pool.settings.operation_timeout
        self._lock = threading.Lock()
        self._addresses: dict[TopicName, BrokerAddress] = {}

    def connection(self, topic: TopicName) -> BrokerConnection:
        """A connection to the broker that serves the topic. Raises TopicNotFoundError, BrokerUnavailableError, ..."""
        with self._lock:
            address = self._addresses.get(topic)
        if address is None:
            address = self._ask(topic)
            with self._lock:
                self._addresses[topic] = address
        try:
            return self._pool.get(address)
        except BrokerUnavailableError:
            self.forget(topic)
            raise

    def attach(self, topic: TopicName, begin: Callable[[BrokerConnection], T]) -> T:
        """Begin something on the connection to the topic's broker; once more where the topic has moved meanwhile."""
        try:
            return begin(self.connection(topic))
        except TopicMovedError:  # the address was remembered from before the move
            self.forget(topic)
            return begin(self.connection(topic))

    def forget(self, topic: TopicName) -> None:
        """What was remembered is wrong."""
        with self._lock:
            self._addresses.pop(topic, None)

    def partitions(self, topic: TopicName) -> int:
        """How many partitions a topic has, 0 if it is not partitioned."""
        return self._pool.ask_service(lambda _, connection: self._partitions(connection, topic))

    def _partitions(self, connection: BrokerConnection, topic: TopicName) -> int:
        what = f"partitions of {topic}"
        command = connection.call(lambda n: commands.partitioned_metadata(n, str(topic)), self.timeout, what)
        response = command.partitioned_metadata_response
        if response.HasField("error"):
            raise server_error(response.error, response.message, what)
        return response.partitions

    def _ask(self, topic: TopicName) -> BrokerAddress:
        responder, response = self._pool.ask_service(
            lambda address, connection: (address, self._lookup(connection, topic))
        )
        for _ in range(MAX_REDIRECTS - 1):
            if response.response == LookupResponse.CONNECT:
                break
            responder = self._target(response, responder, topic)
            response = self._lookup(self._pool.get(responder), topic, authoritative=response.authoritative)
        if response.response != LookupResponse.CONNECT:
            raise BrokerUnavailableError(f"{topic}: {MAX_REDIRECTS} brokers in a row said that another one serves it")
        return self._target(response, responder, topic)

    def _lookup(self, connection: BrokerConnection, topic: TopicName, *, authoritative: bool = False) -> LookupResponse:
        what = f"looking up {topic}"
        build = lambda n: commands.lookup(n, str(topic), authoritative=authoritative)  # noqa: E731
        response = connection.call(build, self.timeout, what).lookup_response
        if response.response == LookupResponse.FAILED or response.HasField("error"):
            raise server_error(response.error, response.message, what)
        return response

    def _target(self, response: LookupResponse, responder: BrokerAddress, topic: TopicName) -> BrokerAddress:
        url = response.broker_service_url_tls if self._pool.settings.tls else response.broker_service_url
        if not url:
            raise ProtocolError(
                f"looking up {topic}: the broker named none{' that speaks TLS' if self._pool.settings.tls else ''}"
            )
        broker = one_host(url)
        if response.proxy_through_service_url:
            return BrokerAddress(responder.host, behind_proxy=broker)
        return BrokerAddress(broker)


def one_host(url: str) -> HostPort:
    """The host of a broker's URL."""
    return parse_hosts(url, DEFAULT_PORTS, "the broker's URL")[0]
