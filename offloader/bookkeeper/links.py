"""The way to a bookie: connected when something is to be sent, and again when the connection broke."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple

from offloader.bookkeeper.api import BookieAddress
from offloader.bookkeeper.connection import BookieConnection, fail
from offloader.bookkeeper.requests import Request
from offloader.bookkeeper.settings import BookieSettings
from offloader.bookkeeper.transport import connect
from offloader.bookkeeper.v2 import V2
from offloader.bookkeeper.v3 import V3
from offloader.errors import BookieUnavailableError, OffloadError

Resolve = Callable[[str], BookieAddress]


class Way(NamedTuple):
    """A bookie, and the version of the protocol in which it is spoken to: never two on one connection."""

    bookie: str
    version: type[V2 | V3]


class Link:
    """The way to one bookie in one version: a connection, or requests that wait for one. Used by the loop's thread
    only."""

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
            self._connection = await connect(
                self._settings, self._way.bookie, address, self._way.version(self._way.bookie)
            )
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
