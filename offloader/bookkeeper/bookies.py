"""Bookies over the network: requests by bookie id, and the connections to bookies that carry them."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple

from offloader.bookkeeper.api import BookieAddress, LastConfirmed
from offloader.bookkeeper.connection import BookieConnection, fail
from offloader.bookkeeper.model import NO_ENTRY
from offloader.bookkeeper.requests import Add, BatchRead, EntryRead, ListEntries, ReadLac, Request, WriteLac
from offloader.bookkeeper.settings import BookieAuthentication, BookieSettings
from offloader.bookkeeper.status import Answer, answer
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


class _Sending(NamedTuple):
    way: Way
    request: Request
    future: Future[Any]


class BookieClient:
    """The `Bookies` of a cluster. One thread does all input and output.

    `resolve` says at each connect where a bookie id listens, and may block. Batches go by version 2 of the protocol,
    everything else by version 3.
    """

    def __init__(self, settings: BookieSettings, resolve: Resolve) -> None:
        self._settings = settings
        self._resolve = resolve
        self._lock = threading.Lock()
        self._outbox: list[_Sending] = []
        self._closed = False
        self._links: dict[Way, Link] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="bookies", daemon=True)
        self._thread.start()

    @property
    def batches(self) -> bool:
        return not self._settings.tls

    def read(self, bookie: str, ledger: int, entry: int, *, fence: bytes | None = None) -> Future[bytes]:
        return self._send(bookie, V3, EntryRead(ledger, entry, fence))

    def batch(self, bookie: str, ledger: int, first: int, *, count: int, size: int) -> Future[list[bytes]]:
        if not self.batches:
            refused: Future[list[bytes]] = Future()
            fail(refused, FatalError(f"{bookie}: version 2 of the protocol, and so batches, cannot be had over TLS"))
            return refused
        return self._send(bookie, V2, BatchRead(ledger, first, count, size))

    def fence(self, bookie: str, ledger: int, master_key: bytes) -> Future[bytes | None]:
        fenced: Future[bytes | None] = Future()
        reading = self.read(bookie, ledger, NO_ENTRY, fence=master_key)
        reading.add_done_callback(lambda done: _none_if_absent(done, fenced))
        return fenced

    def add(self, bookie: str, ledger: int, entry: int, stored: bytes, master_key: bytes) -> Future[None]:
        """Store an entry as the ledger's writer. Fails with FencedError once the ledger is fenced."""
        return self._send(bookie, V3, Add(ledger, entry, stored, master_key))

    def recovery_add(self, bookie: str, ledger: int, entry: int, stored: bytes, master_key: bytes) -> Future[None]:
        return self._send(bookie, V3, Add(ledger, entry, stored, master_key, recovery=True))

    def read_lac(self, bookie: str, ledger: int) -> Future[LastConfirmed]:
        return self._send(bookie, V3, ReadLac(ledger))

    def write_lac(self, bookie: str, ledger: int, last_confirmed: int, body: bytes, master_key: bytes) -> Future[None]:
        """Tell the bookie, as the ledger's writer, what is confirmed; `body` is `entry_codec.encode_lac`'s."""
        return self._send(bookie, V3, WriteLac(ledger, last_confirmed, body, master_key))

    def entries_of(self, bookie: str, ledger: int) -> Future[Collection[int]]:
        return self._send(bookie, V3, ListEntries(ledger))

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _send(self, bookie: str, version: type[V2 | V3], request: Request) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            if not self._closed:
                self._outbox.append(_Sending(Way(bookie, version), request, future))
                if len(self._outbox) == 1:
                    self._loop.call_soon_threadsafe(self._send_all)
                return future
        fail(future, BookieUnavailableError(f"{bookie}: {request}: the client was closed"))
        return future

    def _send_all(self) -> None:
        with self._lock:
            outbox, self._outbox = self._outbox, []
        touched = {}
        for way, request, future in outbox:
            link = self._links.get(way)
            if link is None:
                link = self._links[way] = Link(self._settings, self._resolve, way)
            link.queue(request, future)
            touched[way] = link
        for link in touched.values():
            link.flush()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._send_all()  # what came before `close`
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        for link in self._links.values():
            await link.close()
        await asyncio.sleep(0)  # transports that were aborted close their sockets in the loop's next round


class Link:
    """The way to one bookie in one version: a connection, or requests that wait for one. It connects when something is
    to be sent, and again when the connection broke. For the loop's thread only."""

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
    """A connection that is ready for requests. Connecting is the socket, TLS (START_TLS on the plain connection), and
    proving who we are.

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
        answered = await connection.exchange(connection.dialect.encode_auth(authentication.plugin, payload))
        plugin, challenge = connection.dialect.decode_auth(memoryview(answered))
        if plugin == DISABLED:
            return
        if plugin != authentication.plugin:
            raise AuthenticationFailedError(f"the bookie asks for {plugin}, we have {authentication.plugin}")
        payload = authentication.next(challenge)


def _none_if_absent(done: Future[bytes], fenced: Future[bytes | None]) -> None:
    """A fence's answer: `no such ledger` and `no such entry` are of a ledger that is fenced now, and has no entry."""
    if done.cancelled() or not fenced.set_running_or_notify_cancel():
        return
    error = done.exception()
    if error is None:
        fenced.set_result(done.result())
    elif answer(error) is Answer.NEGATIVE:
        fenced.set_result(None)
    else:
        fenced.set_exception(error)
