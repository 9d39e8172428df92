"""The way to a bookie: connected when something is to be sent, and again when the connection broke. Connecting is the
socket, TLS (START_TLS on the plain connection), and proving who we are."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple

from offloader.bookkeeper.api import BookieAddress
from offloader.bookkeeper.connection import BookieConnection, fail
from offloader.bookkeeper.requests import Request
from offloader.bookkeeper.settings import BookieAuthentication, BookieSettings
from offloader.bookkeeper.v2 import V2
from offloader.bookkeeper.v3 import V3, accepts_tls, encode_start_tls
from offloader.errors import AuthenticationFailedError, BookieUnavailableError, FatalError, OffloadError

Resolve = Callable[[str], BookieAddress]
# What a bookie without authentication answers, whatever the plugin: nothing more is to be proven.
DISABLED = "AuthDisabledPlugin"


class Way(NamedTuple):
    """A bookie, and the version of the protocol in which it is spoken to: never two on one connection."""

    bookie: str
    version: type[V2 | V3]


class Link:
    """The way to one bookie in one version: a connection, or requests that wait for one. For the loop's thread only."""

    def __init__(self, settings: BookieSettings, resolve: Resolve, way: Way) -> None:
        self._settings = settings
        self._resolve = resolve
        self._way = way
        self._connection: BookieConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: list[tuple[Request, Future[Any]]] = []

    def queue(self, request: Request, future: Future[Any]) -> None:
        """Take a request; `flush` sends it, or connects first."""
        if self._connection is not None and self._connection.failure is None:
            self._connection.queue(request, future)
        else:
            self._waiting.append((request, future))

    def flush(self) -> None:
        """Send what was queued."""
        if self._connection is not None and self._connection.failure is None:
            self._connection.flush()
        elif self._waiting and self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def close(self) -> None:
        """End the connection; whoever waits hears BookieUnavailableError."""
        why = BookieUnavailableError("the client was closed")
        if self._connecting is not None:
            self._connecting.cancel()
            with suppress(asyncio.CancelledError):
                await self._connecting
        if self._connection is not None:
            self._connection.fail(why)
        self._give_up(why)

    async def _connect(self) -> None:
        try:
            address = await asyncio.get_running_loop().run_in_executor(None, self._resolve, self._way.bookie)
            self._connection = await connect(self._settings, self._way, address)
        except OffloadError as error:
            self._give_up(error)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._give_up(BookieUnavailableError(f"connecting to {self._way.bookie} failed ({error!r})"))
            raise
        finally:
            self._connecting = None
        waiting, self._waiting = self._waiting, []
        for request, future in waiting:
            self.queue(request, future)
        self.flush()

    def _give_up(self, why: OffloadError) -> None:
        waiting, self._waiting = self._waiting, []
        for request, future in waiting:
            fail(future, type(why)(f"{request}: {why}"))


async def connect(settings: BookieSettings, way: Way, address: BookieAddress) -> BookieConnection:
    """A connection that is ready for requests.

    Raises BookieUnavailableError, AuthenticationFailedError, FatalError (certificate, no TLS there), ConfigError.
    """
    made: list[BookieConnection] = []

    def make() -> BookieConnection:
        dialect = way.version(way.bookie)
        made.append(BookieConnection(way.bookie, dialect, settings.request_timeout, settings.max_entry))
        return made[-1]

    try:
        async with asyncio.timeout(settings.connect_timeout):
            _, connection = await asyncio.get_running_loop().create_connection(make, address.host, address.port)
            if settings.tls:
                await _start_tls(settings, connection, address)
            if settings.authentication is not None:
                await _authenticate(settings.authentication(), connection)
            return connection
    except BaseException as error:
        why = _explained(error, f"{way.bookie} at {address.host}:{address.port}", settings.connect_timeout)
        for connection in made:
            connection.fail(why)
        if isinstance(error, OSError | OffloadError):
            raise why from error
        raise


def _explained(error: BaseException, where: str, timeout: float) -> OffloadError:
    match error:
        case TimeoutError():
            return BookieUnavailableError(f"{where} did not answer within {timeout:g} s")
        case ssl.SSLCertVerificationError():
            return FatalError(
                f"{where}: its certificate is not trusted ({error.verify_message}); set the bookies' trusted "
                "certificates"
            )
        case OffloadError():
            return type(error)(f"{where}: {error}")
        case _:
            return BookieUnavailableError(f"{where} cannot be reached ({error})")


async def _start_tls(settings: BookieSettings, connection: BookieConnection, address: BookieAddress) -> None:
    if not accepts_tls(memoryview(await connection.exchange(encode_start_tls()))):
        raise FatalError("the bookie does not speak TLS")
    assert connection.transport is not None
    connection.transport = await asyncio.get_running_loop().start_tls(
        connection.transport, connection, settings.ssl_context(), server_hostname=address.host
    )


async def _authenticate(authentication: BookieAuthentication, connection: BookieConnection) -> None:
    """Say what the bookie's plugin asks for until neither has more to say."""
    payload: bytes | None = authentication.first()
    while payload is not None:
        answer = await connection.exchange(connection.dialect.encode_auth(authentication.plugin, payload))
        plugin, challenge = connection.dialect.decode_auth(memoryview(answer))
        if plugin == DISABLED:
            return
        if plugin != authentication.plugin:
            raise AuthenticationFailedError(f"the bookie asks for {plugin}, we have {authentication.plugin}")
        payload = authentication.next(challenge)
