"""One connection to a bookie: requests out, answers matched, time-outs. Used by its event loop's thread only."""

from __future__ import annotations

import asyncio
import struct
from concurrent.futures import Future
from itertools import takewhile
from typing import Any, NamedTuple

from offloader.bookkeeper.frames import BookieFrameBuffer
from offloader.bookkeeper.requests import WRITES, Dialect, Request
from offloader.errors import BookieUnavailableError, OffloadError, OutcomeUnknownError


class _Pending(NamedTuple):
    """A request that was sent and is not answered yet."""

    request: Request
    future: Future[Any]
    sent_at: float


class BookieConnection(asyncio.BufferedProtocol):
    """Pipelines requests in one version of the protocol. `failure`: why it is over, None while it is not.

    A request whose answer does not come in time fails by itself; if nothing at all came since it was sent, the
    connection is given up.
    """

    def __init__(self, bookie: str, dialect: Dialect, request_timeout: float, max_entry: int) -> None:
        self.failure: OffloadError | None = None
        self.dialect = dialect
        self._bookie = bookie
        self._timeout = request_timeout
        self._loop = asyncio.get_running_loop()
        self._frames = BookieFrameBuffer(max_entry)
        self._pending: dict[int, _Pending] = {}  # in the order in which they were sent
        self._number = 0
        self._unsent: list[bytes] = []
        self._heard_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._handshake: asyncio.Future[bytes] | None = None
        self.transport: asyncio.Transport | None = None

    def queue(self, request: Request, future: Future[Any]) -> None:
        """Take a request; `flush` sends it with the others."""
        self._number += 1
        try:
            self._unsent.append(self.dialect.encode(self._number, request))
        except (
            OffloadError,
            ValueError,
            TypeError,
            struct.error,
        ) as error:  # the others: an id too large for its field
            self.dialect.forget(self._number)
            fail(future, error)
            return
        self._pending[self._number] = _Pending(request, future, self._loop.time())
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout, self._expire)

    def flush(self) -> None:
        """Send what was queued."""
        data, self._unsent = b"".join(self._unsent), []
        if self.transport is not None:
            self.transport.write(data)

    async def exchange(self, frame: bytes) -> bytes:
        """A step of the handshake: send, and wait for the next body. Raises BookieUnavailableError."""
        if self.failure is not None or self.transport is None:
            raise self.failure or BookieUnavailableError(f"{self._bookie} is not connected")
        self._handshake = self._loop.create_future()
        self.transport.write(frame)
        return await self._handshake

    def fail(self, error: OffloadError) -> None:
        """End it; whoever waits hears why. Only the first call counts."""
        if self.failure is not None:
            return
        self.failure = error
        if self._timer is not None:
            self._timer.cancel()
        if self.transport is not None:
            self.transport.abort()
        if self._handshake is not None and not self._handshake.done():
            self._handshake.set_exception(error)
        pending, self._pending = self._pending, {}
        for lost in pending.values():
            self._lose(lost, error)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        why = f"broke ({exc})" if exc else "was closed by the bookie"
        self.fail(BookieUnavailableError(f"the connection to {self._bookie} {why}"))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the interface's signature)
        return self._frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_at = self._loop.time()
        self._frames.received(nbytes)
        try:
            for body in self._frames.bodies():
                self._take(body)
                if self.failure is not None:
                    return
        except OffloadError as error:
            self._broken(error, self._frames.beginning)

    def _take(self, body: memoryview) -> None:
        if self._handshake is not None and not self._handshake.done():
            self._handshake.set_result(body.tobytes())
            return
        try:
            answers = self.dialect.decode(body)
        except OffloadError as nonsense:
            self._broken(nonsense, body)
            return
        for number, result, error in answers:
            pending = self._pending.pop(number, None)
            if pending is None or not pending.future.set_running_or_notify_cancel():
                continue
            if error is None:
                pending.future.set_result(result)
            else:
                pending.future.set_exception(error)

    def _broken(self, error: OffloadError, answer: memoryview) -> None:
        """The bookie broke the protocol. Only the request that it answered so failed: others may do well elsewhere."""
        number = self.dialect.whose(answer)
        if number is None and len(self._pending) == 1:
            (number,) = self._pending
        guilty = None if number is None else self._pending.pop(number, None)
        if guilty is not None:
            self._lose(guilty, error)
        if self._handshake is not None and not self._handshake.done():
            self.fail(type(error)(f"{self._bookie}: {error}"))
        why = f"the connection was given up, because the bookie broke the protocol ({error})"
        self.fail(BookieUnavailableError(why))

    def _expire(self) -> None:
        self._timer = None
        due = self._loop.time() - self._timeout
        overdue = [number for number, _ in takewhile(lambda item: item[1].sent_at <= due, self._pending.items())]
        late = BookieUnavailableError(f"no answer within {self._timeout:g} s")
        if overdue and self._heard_at <= self._pending[overdue[0]].sent_at:
            self.fail(late)
            return
        for number in overdue:
            self.dialect.forget(number)
            self._lose(self._pending.pop(number), late)
        for waiting in self._pending.values():
            self._timer = self._loop.call_at(waiting.sent_at + self._timeout, self._expire)
            break

    def _lose(self, pending: _Pending, why: OffloadError) -> None:
        what = f"{self._bookie}: {pending.request}"
        if isinstance(pending.request, WRITES):
            fail(pending.future, OutcomeUnknownError(f"{what}: it may have happened ({why})"))
        else:
            fail(pending.future, type(why)(f"{what}: {why}"))


def fail(future: Future[Any], error: Exception) -> None:
    """Set the error, unless nobody waits any more."""
    if future.set_running_or_notify_cancel():
        future.set_exception(error)
