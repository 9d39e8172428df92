"""One client: its handshake, its requests, its consumers. On the loop; nothing here blocks it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Any

from offloader._proto.pulsar_wire_pb2 import BaseCommand, Connect
from offloader.errors import OffloadError, ProtocolError
from offloader.gateway.protocol import answers
from offloader.gateway.protocol.topic_lists import topics_hash
from offloader.gateway.server.consumer import ClientConsumer
from offloader.gateway.server.limits import LARGE_FRAME, ClientLimits, ConnectionLimits, LargeFrames, UnreadAnswers
from offloader.gateway.server.ports import Gatekeeper, ServedTopics
from offloader.gateway.traffic import ConnectionTraffic
from offloader.gateway.values import ASKS_WHETHER_IT_LIVES, ErrorCode, RefusedError, client_text
from offloader.pulsar import commands
from offloader.pulsar.frames import FrameBuffer, encode

log = logging.getLogger(__name__)

TURN = 0.005  # seconds of work for one client, before others have their turn
WRITE_AT_ONCE = 256 * 1024  # bytes that are joined before they are written
READ_AT_ONCE = 16 * 1024  # bytes: most clients say little, and there may be many of them


class Pause(Enum):
    """Why nothing is read of a client."""

    OTHERS = "others have their turn"
    REQUESTS = "enough of its requests are under way"
    TAKING = "it does not take what it is given"
    LINE = "large frames of others come first"


class Connection(asyncio.BufferedProtocol):
    """`closed`: is told once, when the connection is over. `buffered_bytes`: what may wait for its socket, about."""

    def __init__(
        self,
        topics: ServedTopics,
        gatekeeper: Gatekeeper,
        limits: ConnectionLimits,
        handle: Callable[[Connection, BaseCommand], None],
        closed: Callable[[Connection], None],
        traffic: ConnectionTraffic,
        buffered_bytes: int,
        large: LargeFrames,
        client_limits: ClientLimits,
        unread_answers: UnreadAnswers,
    ) -> None:
        self.topics = topics
        self.traffic = traffic
        self.limits = limits
        self.buffered_bytes = buffered_bytes
        self.role = ""
        self.consumers: dict[int, ClientConsumer] = {}
        self.watchers: dict[int, asyncio.Task[None]] = {}
        self.takes_broker_metadata = False
        self.writable = True
        self.peer = "a client"
        self.address = ""
        self._gatekeeper = gatekeeper
        self._handle = handle
        self._closed = closed
        self._frames = FrameBuffer(0, peer="a client", chunk=READ_AT_ONCE, trusted=False)  # no CONNECT is large
        self.client_limits = client_limits
        self._unread_answers = unread_answers
        self._answers: deque[tuple[int, int]] = deque()  # where each ends in what was written, and its bytes
        self._unread = 0
        self._large = large
        self._held = 0  # bytes of `large`
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._output: list[bytes | memoryview] = []
        self._output_bytes = 0
        self._flushing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_line: set[asyncio.Task[None]] = set()
        self._line = asyncio.Semaphore(limits.requests)
        self._connected = False
        self._takes_challenges = False
        self._heard_at = self._loop.time()
        self._heard = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._expires: asyncio.TimerHandle | None = None
        self._good_until: float | None = None  # its token; seconds since 1970
        self._patterns = asyncio.Lock()
        self._pauses: set[Pause] = set()
        self._written = 0  # bytes, with those that wait for its socket
        self._waited = (0, 0)  # bytes that waited at the last PING, and those that its socket had taken
        self._steps: Iterator[None] = iter(())
        self._ended = False

    @property
    def is_known(self) -> bool:
        """Whether it has said who it is."""
        return self._connected

    @property
    def heard_at(self) -> float:
        """When something of it came."""
        return self._heard_at

    # What asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there, and has some seconds for its CONNECT."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.peer = str(peer)
        self.address = f"/{peer[0]}:{peer[1]}" if peer else ""  # as brokers write it; without one it is gone already
        transport.set_write_buffer_limits(high=self.buffered_bytes)
        self._timer = self._loop.call_later(self.limits.handshake, self._handshake_is_late)
        if self._ended:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Its consumers leave."""
        log.debug("gateway: %s is gone: %s", self.peer, exc)
        self._ended = True
        self._leave()
        if self._timer is not None:
            self._timer.cancel()
        self._unread_answers.forget(self)
        self._closed(self)

    def _leave(self) -> None:
        """Nothing is done for it any more."""
        self._large.forget(self)
        self._steps = iter(())
        self._expire_no_more()
        for task in (*self._tasks, *self._in_line, *self.watchers.values()):
            task.cancel()
        self.watchers.clear()
        leaving = deque(self.consumers.values())
        self.consumers.clear()
        self._let_leave(leaving)

    def _let_leave(self, leaving: deque[ClientConsumer]) -> None:
        """Each of them, for some ms at a time: there may be thousands."""
        until = self._loop.time() + TURN
        while leaving:
            leaving.popleft().leave()
            if self._loop.time() > until:
                self._loop.call_soon(self._let_leave, leaving)
                return

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Where the next bytes go."""
        return self._frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        """So many have come."""
        self._frames.received(nbytes)
        self._heard_at = self._loop.time()
        self._heard.set()
        if not self._pauses:
            self._go_on()
        self._tell_memory()

    def _tell_memory(self) -> None:
        held = 0 if self._ended else self._frames.memory
        if held != self._held:
            self._held = held
            self._large.holds(self, held)

    def _go_on(self) -> None:
        """With what has come, for some ms."""
        until = self._loop.time() + TURN
        try:
            for _ in self._work():
                if self._loop.time() > until:
                    self._pause(Pause.OTHERS)
                    self._loop.call_soon(self._resume, Pause.OTHERS)
                if Pause.OTHERS in self._pauses or self._ended:
                    return
        except ProtocolError as error:
            self.end(str(error))

    def _work(self) -> Iterator[None]:
        """Step by step: others may have their turn after each. What has begun ends also where nothing more is taken:
        others wait for that."""
        yield from self._rest_of_steps()
        self._large.done(self)
        frames = self._frames.frames()
        while self._may_take_another() and (frame := next(frames, None)) is not None:
            self._took(frame.command)
            del frame
            yield
            yield from self._rest_of_steps()
            self._large.done(self)

    def _rest_of_steps(self) -> Iterator[None]:
        for _ in self._steps:  # which go on later where this is left in between
            yield

    def _may_take_another(self) -> bool:
        if self._pauses:
            self._large.waive(self)
            return False
        if self._frames.next_size > LARGE_FRAME and not self._large.begin(self):
            self._pause(Pause.LINE)
            return False
        return True

    def has_turn(self) -> None:
        """Its large frame."""
        self._loop.call_soon(self._resume, Pause.LINE)

    def in_turns(self, steps: Iterator[None]) -> None:
        """Do something long: between its steps others have their turn. The client's next command comes behind it."""
        self._steps = steps

    def _pause(self, why: Pause) -> None:
        self._pauses.add(why)
        if self._transport is not None:
            self._transport.pause_reading()

    def _resume(self, why: Pause) -> None:
        self._pauses.discard(why)
        if Pause.OTHERS in self._pauses or self._ended:
            return
        self._go_on()
        self._tell_memory()
        if not self._pauses and self._transport is not None:
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """The client takes nothing: nothing more is given to it, and nothing more is asked by it."""
        self.writable = False
        self._pause(Pause.TAKING)

    def resume_writing(self) -> None:
        """It does again."""
        self.writable = True
        self._resume(Pause.TAKING)
        for consumer in list(self.consumers.values()):
            consumer.pass_permits_on()

    # What is sent

    @property
    def buffered(self) -> int:
        """Bytes that the socket has not taken."""
        return self._output_bytes + (self._transport.get_write_buffer_size() if self._transport else 0)

    def send(self, command: BaseCommand) -> None:
        """Behind what was sent before."""
        if self._ended:
            return
        frame = encode(command)
        self.write((frame,), len(frame))
        self._answers.append((self._written, len(frame)))
        self._unread += len(frame)
        self._unread_answers.holds(self, self.unread)

    @property
    def unread(self) -> int:
        """Bytes of answers that the socket has not taken."""
        taken = self._written - self.buffered
        while self._answers and self._answers[0][0] <= taken:
            self._unread -= self._answers.popleft()[1]
        return self._unread

    def write(self, pieces: Iterable[bytes | memoryview], size: int) -> None:
        """Of frames, which have `size` bytes together."""
        if self._ended:
            return
        self._output.extend(pieces)
        self._output_bytes += size
        self._written += size
        if self._output_bytes >= WRITE_AT_ONCE:
            self._flush()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    async def matching(self, names: Sequence[str], pattern: str) -> list[str]:
        """In a thread, one pattern of a client at a time. Raises RefusedError."""
        async with self._patterns:
            return await self.topics.matching(names, pattern)

    def watch(self, watcher: int, namespace: str, pattern: str, known: Sequence[str]) -> None:
        """Tell the client of topics that come and go. `known`: those that there were. Raises RefusedError."""
        self.end_watch(watcher)
        if len(self.watchers) >= self.limits.watchers:
            most = f"a connection has {self.limits.watchers} watchers at most"
            raise RefusedError(ErrorCode.TOO_MANY_REQUESTS, most)
        self.watchers[watcher] = self._loop.create_task(self._watch_topics(watcher, namespace, pattern, known))

    def end_watch(self, watcher: int) -> None:
        """Tell it no more."""
        task = self.watchers.pop(watcher, None)
        if task is not None:
            task.cancel()

    async def _watch_topics(self, watcher: int, namespace: str, pattern: str, known: Sequence[str]) -> None:
        async for names in self.topics.changes(namespace, self.role):
            if names is known:
                continue
            try:
                new = await self.matching(sorted(set(names) - set(known)), pattern)
                deleted = await self.matching(sorted(set(known) - set(names)), pattern)
                if new or deleted:
                    found = await self.matching(names, pattern)
                    self.send(answers.topics_changed(watcher, new, deleted, topics_hash(found)))
            except RefusedError as error:
                self.end(str(error))
                return
            known = names

    @property
    def consumer_bytes(self) -> int:
        """What may wait for the socket of one consumer's entries."""
        return self.buffered_bytes // max(len(self.consumers), 1)

    def forget(self, consumer: ClientConsumer) -> None:
        """It was closed."""
        if self.consumers.get(consumer.number) is consumer:
            del self.consumers[consumer.number]

    def _flush(self) -> None:
        self._flushing = False
        data, self._output, self._output_bytes = b"".join(self._output), [], 0
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def end(self, why: str) -> None:
        """Close it, once what was sent has gone out; the client has some seconds to take that."""
        if self._ended:
            return
        log.info("gateway: the connection of %s ends: %s", self.peer, why)
        self._flush()
        self._ended = True
        self._leave()
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.close()
            self._timer = self._loop.call_later(self.limits.handshake, self._transport.abort)

    def end_at_once(self, why: str) -> None:
        """The same; what was sent is lost."""
        self.end(why)
        if self._transport is not None:
            self._transport.abort()

    # Requests

    def answer_in_time(
        self,
        work: Coroutine[Any, Any, BaseCommand],
        refuse: Callable[[RefusedError], BaseCommand],
        not_now: ErrorCode = ErrorCode.NOT_READY,
    ) -> None:
        """Do something that only looks, then send what it gives; `not_now` where the store does not answer: the client
        is told so, and is heard again. Too many at a time, and nothing more is read."""
        self._begin(self._tasks, work, self._answered(work, refuse, not_now, self.limits.look))

    def answer_in_line(
        self,
        work: Coroutine[Any, Any, BaseCommand | None],
        refuse: Callable[[RefusedError], BaseCommand],
        not_now: ErrorCode,
    ) -> None:
        """The same of what may wait long for a store: as many wait in a line as there may be consumers, and the client
        is heard meanwhile. One whose PING is not answered would leave, with all of its consumers."""

        async def in_line() -> None:
            async with self._line:
                await self._answered(work, refuse, not_now)

        self._begin(self._in_line, work, in_line())

    def answer_later(
        self,
        work: Coroutine[Any, Any, BaseCommand | None],
        refuse: Callable[[RefusedError], BaseCommand],
        not_now: ErrorCode = ErrorCode.NOT_READY,
    ) -> None:
        """The same of what waits for something that others wait for, too, and costs nothing meanwhile."""
        self._begin(self._in_line, work, self._answered(work, refuse, not_now))

    def _begin(
        self,
        among: set[asyncio.Task[None]],
        work: Coroutine[Any, Any, BaseCommand | None],
        answered: Coroutine[Any, Any, None],
    ) -> None:
        task = self._loop.create_task(answered)
        among.add(task)
        task.add_done_callback(self._done)
        task.add_done_callback(lambda _: work.close())  # it may have ended before it began
        if self._has_enough:
            self._pause(Pause.REQUESTS)

    @property
    def _has_enough(self) -> bool:
        return len(self._tasks) >= self.limits.requests or len(self._in_line) >= self.limits.consumers

    async def _answered(
        self,
        work: Awaitable[BaseCommand | None],
        refuse: Callable[[RefusedError], BaseCommand],
        not_now: ErrorCode,
        within: float | None = None,
    ) -> None:
        try:
            answer = await asyncio.wait_for(work, within)
        except TimeoutError:
            late = RefusedError(not_now, f"the store has not answered within {within} s")
            answer = self.refused(late, refuse)
        except RefusedError as error:
            answer = self.refused(error, refuse)
        except OffloadError as error:
            log.info("gateway: a request of %s failed: %s", self.peer, error)
            answer = self.refused(RefusedError(not_now, client_text(error)), refuse)
        if answer is not None:
            self.send(answer)

    def refused(self, error: RefusedError, refuse: Callable[[RefusedError], BaseCommand]) -> BaseCommand:
        """The answer; counted."""
        self.traffic.refused[error.code.name.lower()] += 1
        return refuse(error)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._in_line.discard(task)
        if Pause.REQUESTS in self._pauses and not self._has_enough:
            self._resume(Pause.REQUESTS)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("gateway: a request of %s failed", self.peer, exc_info=error, extra={"see": "gateway-defect"})
            self.end("a defect of ours")

    def _took(self, command: BaseCommand) -> None:
        if command.HasField("connect") and not self._connected:
            self._connect(command)
        elif not self._connected:
            raise ProtocolError("a client did not begin with CONNECT")
        elif command.HasField("auth_response"):
            self._answered_challenge(command)
        elif command.HasField("ping"):
            self.send(commands.PONG)
        else:
            self._handle(self, command)

    # Handshake, and whether the client is still there

    def _connect(self, command: BaseCommand) -> None:
        said = command.connect
        if said.client_version == ASKS_WHETHER_IT_LIVES:
            if self.topics.answers_gateways:  # else another gateway may have what this one has
                self.send(answers.connected(said.protocol_version, self.limits.max_message))
            return
        if self._is_proxied(said):
            self._turn_away(RefusedError(ErrorCode.AUTHENTICATION, answers.PROXIED))
            return
        if not self._admit(said.auth_method_name, said.auth_data):
            return
        self._connected = True
        self._frames.allow(self.limits.max_message)
        self._takes_challenges = said.feature_flags.supports_auth_refresh
        self.takes_broker_metadata = said.feature_flags.supports_broker_entry_metadata
        self.send(answers.connected(said.protocol_version, self.limits.max_message))
        # Nothing more before the client speaks: what came in the same packet would be read in the midst of this answer
        # by a Java client, which then forgets the protocol's version and all that goes with it.
        self._look_after_later()

    def _is_proxied(self, said: Connect) -> bool:
        """Whether a Pulsar Proxy connects for a client: the role of its token is the proxy's."""
        by_proxy = said.original_principal or said.original_auth_data or said.original_auth_method
        return bool(by_proxy or (said.proxy_version and self._gatekeeper.method))

    def _admit(self, method: str, data: bytes) -> bool:
        try:
            role, until = self._gatekeeper.role_of(method, data, time.time())
            if self._connected and role != self.role:
                raise RefusedError(
                    ErrorCode.AUTHENTICATION, f"a connection stays one role's: this one is {self.role}'s"
                )
            if not self._connected and (full := self.client_limits.refuses_connection(role)):
                raise RefusedError(ErrorCode.TOO_MANY_REQUESTS, full)
        except RefusedError as error:
            self._turn_away(error)
            return False
        self.role = role
        self._expire_no_more()
        self._good_until = until
        self.clock_was_set()
        return True

    def _turn_away(self, error: RefusedError) -> None:
        self.send(self.refused(error, partial(answers.refused, answers.OF_NO_REQUEST)))
        self.end(str(error))

    def clock_was_set(self) -> None:
        """Its token is good until a moment of the clock as it is now."""
        if self._good_until is not None and not self._ended:
            self._expire_no_more()
            self._expires = self._loop.call_later(max(self._good_until - time.time(), 0), self.ask_again)

    def ask_again(self) -> None:
        """Its token is good no more. The client may show another one, where it can."""
        if not self._connected:
            return
        if not self._takes_challenges:
            self.end("its token is good no more")
            return
        self._expire_no_more()
        self._good_until = None
        self.send(answers.challenge(self._gatekeeper.method))
        self._expires = self._loop.call_later(self.limits.handshake, lambda: self.end("it showed no new token"))

    def _expire_no_more(self) -> None:
        if self._expires is not None:
            self._expires.cancel()
        self._expires = None

    def _answered_challenge(self, command: BaseCommand) -> None:
        shown = command.auth_response.response
        self._admit(shown.auth_method_name, shown.auth_data)

    def _handshake_is_late(self) -> None:
        self.end("no CONNECT came")

    def _look_after(self) -> None:
        """PING, and an end where nothing was heard since the PING before."""
        (waited, before), self._waited = self._waited, (self.buffered, self._written - self.buffered)
        takes = waited > 0 and self._waited[1] > before
        if not self._pauses <= {Pause.TAKING} or takes:  # it is not heard, or takes what it is given
            self._heard_at = self._loop.time()
        if self._loop.time() - self._heard_at > 2 * self.limits.ping:
            self.end("nothing was heard of it")
            return
        self.send(commands.PING)
        self._look_after_later()

    def _look_after_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self.limits.ping, self._look_after)

    async def is_alive(self) -> bool:
        """Whether it answers within some seconds; where it does not, the connection ends."""
        if self._ended:
            return False
        if not self._pauses <= {Pause.TAKING}:
            return True  # it is not heard because of us
        self._heard.clear()
        self.send(commands.PING)
        try:
            await asyncio.wait_for(self._heard.wait(), self.limits.alive)
        except TimeoutError:
            self.end("it did not answer a PING, and another consumer wants its place")
            return False
        return True
