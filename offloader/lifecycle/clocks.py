"""Ages are computed with the earliest of several clocks: a clock that is ahead makes no data old."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from threading import Lock
from urllib.parse import urlsplit

from offloader.errors import AuthenticationFailedError, AuthorizationFailedError, BrokerUnavailableError
from offloader.storage.settings import StoreSettings

MOST_APART_MS = 5 * 60_000
READ_AGAIN_MS = 60_000
_CLOUDS = frozenset({"s3", "gs", "gcs", "az", "abfs", "abfss"})

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
Ask = Callable[[], int | None]
"""Milliseconds since the epoch; None: it does not say."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """What one clock says. `independent`: it is not the clock of this host."""

    name: str
    at_ms: int
    independent: bool = False


@dataclass(frozen=True, slots=True)
class ComparedClocks:
    """`now_ms`: the earliest of all readings. `doubt`: why no age may be computed with it; empty: it may. `differ`: one
    of them is wrong."""

    now_ms: int
    doubt: str = ""
    differ: bool = False


def compare(readings: Iterable[ClockReading]) -> ComparedClocks:
    """Compare the readings of one moment, of which there is at least one."""
    ordered = sorted(readings, key=lambda reading: reading.at_ms)
    first, last = ordered[0], ordered[-1]
    apart = last.at_ms - first.at_ms
    if apart > MOST_APART_MS:
        doubt = (
            f"{last.name} clock is {_length(apart)} ahead of {first.name}: set the wrong one right (NTP); what goes by "
            "its age waits until they differ by less than five minutes"
        )
    elif not any(reading.independent for reading in ordered):
        doubt = (
            f"only this host tells the time ({', '.join(reading.name for reading in ordered)} clock): what goes by its "
            "age waits until a store or a broker of another host tells it, too"
        )
    else:
        doubt = ""
    return ComparedClocks(first.at_ms, doubt, apart > MOST_APART_MS)


def host_ms() -> int:
    """This host's wall clock, as it is set now."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """A clock that nobody sets, and that goes on while a machine is suspended, where the system has one."""
    return time.clock_gettime_ns(_STEADY) // 1_000_000


@dataclass
class Clocks:
    """Thread safe. The host's clock is read each time, the others at most once a minute."""

    host_ms: Callable[[], int] = host_ms
    store_ms: Ask = lambda: None
    broker_ms: Ask = lambda: None
    store_is_independent: bool = False
    broker_is_independent: bool = False
    steady_ms: Callable[[], int] = steady_ms
    _others: tuple[ClockReading, ...] = field(default=(), init=False)
    _read_at: int | None = field(default=None, init=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def compare(self) -> ComparedClocks:
        """Compare all clocks now. Raises what the store raises."""
        with self._lock:
            steady = self.steady_ms()
            if self._read_at is None or steady - self._read_at >= READ_AGAIN_MS:
                self._others = tuple(self._read())
                self._read_at = steady = self.steady_ms()
            since = steady - self._read_at
            others = [replace(reading, at_ms=reading.at_ms + since) for reading in self._others]
        return compare([ClockReading("this host's", self.host_ms()), *others])

    def now_ms(self) -> int:
        """The earliest of all clocks. Raises what the store raises."""
        return self.compare().now_ms

    def _read(self) -> Iterable[ClockReading]:
        store, broker = self.store_ms(), _broker_time(self.broker_ms)
        if store is not None:
            yield ClockReading("the store's", store, self.store_is_independent)
        if broker is not None:
            yield ClockReading("the broker's", broker, self.broker_is_independent)


def has_own_clock(settings: StoreSettings) -> bool:
    """Whether the store's times are of another host than this one."""
    if settings.endpoint:
        return not is_this_host(urlsplit(settings.endpoint).hostname or "")
    if settings.scheme in _CLOUDS:
        return True
    host = urlsplit(settings.root).hostname
    return settings.scheme not in ("file", "memory") and bool(host) and not is_this_host(host or "")


def is_this_host(name: str) -> bool:
    """Whether an address of the name is one of this host's; also where the name has none now."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
    except OSError:
        return True
    return any(_is_ours(family, address) for family, _, _, _, address in found)


def _is_ours(family: int, address: tuple[object, ...]) -> bool:
    """Only an address of this host can be bound."""
    try:
        with closing(socket.socket(family, socket.SOCK_DGRAM)) as probe:
            probe.bind((address[0], 0, *address[2:]))
    except OSError:
        return False
    return True


def _broker_time(ask: Ask) -> int | None:
    """A broker that does not answer tells no time: then the store's must do."""
    try:
        return ask()
    except (BrokerUnavailableError, AuthenticationFailedError, AuthorizationFailedError):
        return None


def _length(ms: int) -> str:
    minutes = ms // 60_000
    if minutes >= 2 * 1_440:
        return f"{minutes // 1_440} days"
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} minutes"
