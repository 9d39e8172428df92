"""One HTTP client: a request, its answer as brokers give it, the next request. On the loop; nothing here blocks it."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote

import h11

from offloader.errors import OffloadError
from offloader.gateway.protocol.answers import PROXIED, Address
from offloader.gateway.server.limits import ClientLimits, ConnectionLimits, UnreadAnswers
from offloader.gateway.server.ports import Gatekeeper, ServedTopics
from offloader.gateway.server.requests import topic_of
from offloader.gateway.values import ErrorCode, RefusedError, client_text
from offloader.model import KIB
from offloader.ports.admin import TopicSchema

log = logging.getLogger(__name__)

MOST_HEADERS = 32 * KIB  # a token has half of it at most
MOST_BODY = 64 * KIB  # of which nothing is used: a GET has none
_NAMESPACE = r"(?P<namespace>[^/]+/[^/]+)"
_TOPIC = rf"{_NAMESPACE}/(?P<name>[^/]+)"
_QUESTIONS = (
    ("partitions", re.compile(rf"/admin/v2/persistent/{_TOPIC}/partitions")),
    ("lookup", re.compile(rf"/lookup/v2/topic/persistent/{_TOPIC}")),
    ("topics", re.compile(rf"/admin/v2/namespaces/{_NAMESPACE}/topics")),
    ("topics", re.compile(rf"/admin/v2/(?P<domain>persistent|non-persistent)/{_NAMESPACE}")),  # pulsar-admin's
    ("schema", re.compile(rf"/admin/v2/schemas/{_TOPIC}/schema(?:/(?P<version>[0-9]{{1,18}}))?")),
)
_NOT_PERSISTENT = {"NON_PERSISTENT", "non-persistent"}
_STATUSES = {
    ErrorCode.AUTHENTICATION: 401,
    ErrorCode.AUTHORIZATION: 403,
    ErrorCode.TOPIC_NOT_FOUND: 404,
    ErrorCode.NOT_ALLOWED: 405,
    ErrorCode.METADATA: 412,
    ErrorCode.TOO_MANY_REQUESTS: 429,
    ErrorCode.NOT_READY: 503,
}


class HttpQuestion(NamedTuple):
    """What clients with an `http://` service URL and `pulsar-admin topics list` ask. `kind`: `partitions`, `lookup`,
    `topics` or `schema`. `topic`: its full name, empty with `topics`."""

    kind: str
    namespace: str
    topic: str = ""
    version: int | None = None
    persistent: bool = True


def question_of(target: str) -> HttpQuestion | None:
    """By a request's target; None: nothing is there."""
    path, _, query = target.partition("?")
    for kind, pattern in _QUESTIONS:
        if (found := pattern.fullmatch(path)) is not None:
            said = found.groupdict()
            namespace, name = unquote(said["namespace"]), unquote(said.get("name") or "")
            topic = f"persistent://{namespace}/{name}" if name else ""
            version = said.get("version")
            wanted = said.get("domain") or parse_qs(query).get("mode", ["ALL"])[-1]
            persistent = wanted not in _NOT_PERSISTENT
            return HttpQuestion(kind, namespace, topic, int(version) if version else None, persistent)
    return None


class HttpConnection(asyncio.Protocol):
    """`http`: where this gateway answers. `closed`: is told once, when the connection is over."""

    def __init__(
        self,
        topics: ServedTopics,
        gatekeeper: Gatekeeper,
        limits: ConnectionLimits,
        http: Callable[[], Address],
        closed: Callable[[HttpConnection], None],
        client_limits: ClientLimits,
        unread_answers: UnreadAnswers,
    ) -> None:
        self.is_known = False
        self.role = ""
        self.consumers: tuple[()] = ()  # it has none, by HTTP
        self.peer = "a client"
        self._topics = topics
        self._gatekeeper = gatekeeper
        self._limits = limits
        self._where = http
        self._closed = closed
        self._client_limits = client_limits
        self._unread_answers = unread_answers
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEADERS)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._work: asyncio.Task[None] | None = None
        self._asked: h11.Request | None = None
        self._body = 0
        self._writable = True
        self._is_idle = False

    # What asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there, and has some seconds for its request."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer = str(transport.get_extra_info("peername"))
        transport.set_write_buffer_limits(high=0)
        self._within(self._limits.handshake)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody waits for an answer any more."""
        log.debug("gateway: %s is gone: %s", self.peer, exc)
        self._transport = None
        self._unread_answers.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._work is not None:
            self._work.cancel()
        self._closed(self)

    def data_received(self, data: bytes) -> None:
        """Of a request, or of the next one, which waits until this one is answered."""
        if self._is_idle:
            self._is_idle = False
            self._within(self._limits.handshake)
        try:
            self._http.receive_data(data)
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, str(error))
            return
        self._go_on()

    def eof_received(self) -> None:
        """asyncio closes the connection."""

    def pause_writing(self) -> None:
        """The client takes nothing: nothing more is read of it."""
        self._writable = False

    def resume_writing(self) -> None:
        """It does again."""
        self._writable = True
        self._go_on()

    def end(self, why: str) -> None:
        """Close it, once what was sent has gone out; the client has some seconds to take that."""
        log.debug("gateway: the connection of %s ends: %s", self.peer, why)
        if self._transport is not None:
            self._transport.close()
            self._within(self._limits.handshake)

    def end_at_once(self, why: str) -> None:
        """The same; what was sent is lost."""
        self.end(why)
        if self._transport is not None:
            self._transport.abort()

    @property
    def unread(self) -> int:
        """Bytes of its answer that the socket has not taken."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    # Requests

    def _within(self, seconds: float) -> None:
        """What the client does next it does within so many seconds, or its connection is over."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._timer = self._loop.call_later(seconds, self._transport.abort)

    def _go_on(self) -> None:
        """Read on in what has come."""
        try:
            while self._transport is not None and not self._transport.is_closing() and self._writable:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    self._transport.resume_reading()
                    return
                if event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                    return
                self._took(event)
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, str(error))

    def _took(self, event: object) -> None:
        if isinstance(event, h11.Request):
            self._asked, self._body = event, 0
        elif isinstance(event, h11.Data):
            self._body += len(event.data)
            if self._body > MOST_BODY:
                self._refuse(413, "a GET has no body")
        elif isinstance(event, h11.EndOfMessage) and self._asked is not None and self._transport is not None:
            self._transport.pause_reading()
            if self._timer is not None:
                self._timer.cancel()
            self._work = self._loop.create_task(self._answer(self._asked))

    async def _answer(self, asked: h11.Request) -> None:
        look = self._limits.look
        try:
            status, found = await asyncio.wait_for(self._found(asked), look)
        except TimeoutError:
            status, found = 503, _refusal(f"the store has not answered within {look:g} s")
        except RefusedError as error:
            status, found = _status_of(error.code), _refusal(str(error))
        except OffloadError as error:  # what the store says: not now
            log.info("gateway: a request of %s failed: %s", self.peer, error)
            status, found = 503, _refusal(client_text(error))
        except Exception:
            log.exception("gateway: a request of %s failed", self.peer, extra={"see": "gateway-defect"})
            status, found = 500, _refusal("a defect of the gateway")
        self._work = None
        self._send(status, found, head_only=asked.method == b"HEAD")

    async def _found(self, asked: h11.Request) -> tuple[int, Any]:
        role = self._role(asked)
        if not (self.is_known and role == self.role):
            if full := self._client_limits.refuses_connection(role):
                raise RefusedError(ErrorCode.TOO_MANY_REQUESTS, full)
            self.is_known, self.role = True, role
        question = question_of(asked.target.decode("latin-1"))
        if question is None:
            return 404, _refusal("the gateway answers lookups, partitions, lists of topics and schemas")
        if asked.method != b"GET":
            return 405, _refusal("this is an archive: nothing can be changed")
        return 200, await answer(question, self._topics, role, self._where())

    def _role(self, asked: h11.Request) -> str:
        """Raises RefusedError."""
        headers = dict(asked.headers)
        if headers.get(b"x-original-principal"):
            raise RefusedError(ErrorCode.AUTHENTICATION, PROXIED)
        scheme, _, shown = headers.get(b"authorization", b"").partition(b" ")
        method, data = ("token", shown) if scheme.lower() == b"bearer" else ("", b"")
        return self._gatekeeper.role_of(method, data, time.time())[0]

    def _refuse(self, status: int, why: str) -> None:
        """What is no request of HTTP."""
        if self._http.our_state is h11.IDLE or self._http.our_state is h11.SEND_RESPONSE:
            self._send(status, _refusal(why))
        self.end(why)

    def _send(self, status: int, value: Any, *, head_only: bool = False) -> None:
        if self._transport is None:
            return
        body = json.dumps(value, separators=(",", ":")).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
        if status == 401:
            headers.append(("www-authenticate", "Bearer"))
        parts = [h11.Response(status_code=status, headers=headers), h11.EndOfMessage()]
        if not head_only:
            parts.insert(1, h11.Data(body))
        self._transport.write(b"".join(self._http.send(part) or b"" for part in parts))
        self._unread_answers.holds(self, self.unread)
        if self._transport.is_closing():  # it was closed for the memory
            return
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            self.end("it asks for nothing more")
            return
        self._http.start_next_cycle()
        self._is_idle = True
        self._within(self._limits.idle)
        self._go_on()


async def answer(asked: HttpQuestion, topics: ServedTopics, role: str, http: Address) -> Any:
    """Raises RefusedError, and what the store raises. `http`: where this gateway answers such requests."""
    if asked.kind == "topics":
        names = await topics.topics(asked.namespace, role)
        return names if asked.persistent else []
    topic = topic_of(asked.topic)
    if asked.kind == "partitions":
        return _partitions(await topics.partitions(topic, role))
    if asked.kind == "lookup":
        return _looked_up(await topics.address(topic, role), http)
    return _schema(await topics.schema(topic, asked.version, role))


def _status_of(code: ErrorCode) -> int:
    """Of an answer that refuses."""
    return _STATUSES.get(code, 500)


def _refusal(reason: str) -> dict[str, Any]:
    """Why something is not answered."""
    return {"reason": reason}


def _partitions(count: int) -> dict[str, Any]:
    """0: it is not partitioned."""
    return {"partitions": count, "deleted": False}


def _looked_up(served: Address, http: Address) -> dict[str, Any]:
    """Where a topic is served, and where more can be asked about it. Old C++ clients want `brokerUrlSsl` to be there,
    though they do not use it."""
    found = {"brokerUrl": served.url, "httpUrl": http.url, "nativeUrl": served.url, "brokerUrlSsl": ""}
    tls = {"brokerUrlTls": served.tls, "httpUrlTls": http.tls}
    return found | {name: url for name, url in tls.items() if url}


def _schema(found: TopicSchema) -> dict[str, Any]:
    """One version of it."""
    return {
        "version": found.version,
        "type": found.type,
        "timestamp": found.timestamp,
        "data": found.data.decode(errors="replace"),
        "properties": dict(found.properties),
    }
