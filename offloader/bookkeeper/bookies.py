"""Bookies over the network: requests by bookie id, connections made when they are needed and again when they broke."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection
from concurrent.futures import Future
from typing import Any, NamedTuple

from offloader.bookkeeper.api import LastConfirmed
from offloader.bookkeeper.connection import fail
from offloader.bookkeeper.links import Link, Resolve, Way
from offloader.bookkeeper.model import NO_ENTRY
from offloader.bookkeeper.requests import Add, BatchRead, EntryRead, ListEntries, ReadLac, Request, WriteLac
from offloader.bookkeeper.settings import BookieSettings
from offloader.bookkeeper.status import Answer, answer
from offloader.bookkeeper.v2 import V2
from offloader.bookkeeper.v3 import V3
from offloader.errors import BookieUnavailableError, FatalError


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
