"""Connections by broker, shared by everyone in a process."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from offloader.errors import BrokerUnavailableError, OffloadError, TopicMovedError
from offloader.pulsar.auth import authentication
from offloader.pulsar.connection import BrokerConnection
from offloader.pulsar.settings import HostPort, PulsarSettings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where a broker is reached: at `host`, or through a proxy there that is told to forward to `behind_proxy`."""

    host: HostPort
    behind_proxy: HostPort | None = None


@dataclass
class _Slot:
    """One connection's place; its lock keeps two threads from connecting at once. `failure`: of its last opening."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: BrokerConnection | None = None
    failure: OffloadError | None = None
    failed_at: float = 0.0


class ConnectionPool:
    """Hands out living connections and makes new ones in place of dead ones. Thread safe."""

    def __init__(self, settings: PulsarSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._clock = clock
        self._authentication = authentication(settings)
        self._lock = threading.Lock()
        self._slots: dict[tuple[BrokerAddress, int], _Slot] = {}
        self._turn = itertools.count()
        self._service = 0  # the host of the service URL that answered last
        self._closed = False

    def get(self, address: BrokerAddress) -> BrokerConnection:
        """A connection to that broker, taken in turn if several are allowed. Raises as `BrokerConnection.open`. A
        thread that waited while another failed to connect gets the same error, and does not try again."""
        asked_at = self._clock()
        number = next(self._turn) % self.settings.connections_per_broker
        with self._lock:
            slot = self._slots.setdefault((address, number), _Slot())
        with slot.lock:
            if self._closed:
                raise BrokerUnavailableError("the connections were closed")
            if slot.connection is not None and slot.connection.alive:
                return slot.connection
            if slot.failure is not None and slot.failed_at > asked_at:
                raise type(slot.failure)(str(slot.failure))
            return self._open(slot, address)

    def _open(self, slot: _Slot, address: BrokerAddress) -> BrokerConnection:
        try:
            slot.connection = BrokerConnection.open(
                self.settings, self._authentication, address.host, address.behind_proxy
            )
        except OffloadError as error:
            slot.failure, slot.failed_at = error, self._clock()
            raise
        slot.failure = None
        return slot.connection

    def service(self) -> tuple[BrokerAddress, BrokerConnection]:
        """A connection to one of the service URL's hosts: the one that answered last, or the next that does."""
        return self.ask_service(lambda address, connection: (address, connection))

    def ask_service(self, question: Callable[[BrokerAddress, BrokerConnection], T]) -> T:
        """The answer of one of the service URL's hosts: of the one that answered last, else of the others in turn.

        A host that answers ServiceNotReady may itself be unwell.
        """
        hosts = self.settings.service_hosts
        first = self._service
        errors: list[BrokerUnavailableError | TopicMovedError] = []
        for number in range(first, first + len(hosts)):
            address = BrokerAddress(hosts[number % len(hosts)])
            try:
                answer = question(address, self.get(address))
            except (BrokerUnavailableError, TopicMovedError) as error:
                errors.append(error)
                continue
            self._service = number % len(hosts)
            return answer
        raise type(errors[-1])("; ".join(map(str, errors)))

    def close(self) -> None:
        """End all connections."""
        self._closed = True
        with self._lock:
            slots = list(self._slots.values())
        for slot in slots:
            with slot.lock:
                if slot.connection is not None:
                    slot.connection.close()
