"""Plans for Spark's reader processes, over a local socket.

Spark asks for offsets and partitions in processes of its own; they decide nothing. The application's main process publishes one plan at
a time here; an offset is only `{run, plan number}`, and an unknown run or number has no partitions.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge

from offloader.streaming.planner import Plan

log = logging.getLogger(__name__)

NO_PLAN = 0
HANDSHAKE_SECONDS = 30.0  # on one machine it takes a millisecond


@dataclass(frozen=True, slots=True)
class PlanAddress:
    """Where the plan server listens; `key` keeps other users of the machine out. Picklable."""

    host: str
    port: int
    key: bytes


class PlanServer:
    """Serves the newest published plan. Who does not prove to have the key in `handshake` seconds is let go."""

    def __init__(self, run: str, *, handshake: float = HANDSHAKE_SECONDS) -> None:
        self.run = run
        self._handshake = handshake
        self._key = secrets.token_bytes(32)
        self._listener = Listener(("127.0.0.1", 0))
        self._changed = threading.Condition()
        self._plan: Plan | None = None
        self._closed = False
        threading.Thread(target=self._accept, name="plan-server", daemon=True).start()

    @property
    def address(self) -> PlanAddress:
        host, port = self._listener.address
        return PlanAddress(host, port, self._key)

    def publish(self, plan: Plan) -> None:
        """Make a plan the newest one."""
        with self._changed:
            self._plan = plan
            self._changed.notify_all()

    def close(self) -> None:
        """Stop listening; waiting readers get no new plan."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except (OSError, EOFError):
                if self._closed:
                    return
                continue
            threading.Thread(target=self._serve, args=(connection,), name="plan-connection", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with connection:
            with _ended_after(self._handshake, connection):
                known = self._knows_key(connection)
            if not known:
                return
            while True:
                try:
                    connection.send(self._answer(connection.recv()))
                except (EOFError, OSError):
                    return

    def _knows_key(self, connection: Connection) -> bool:
        """The handshake, in the connection's own thread: one that says nothing keeps nobody else waiting."""
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
        except AuthenticationError:
            log.warning("plan server: a process with a wrong key was refused")
            return False
        except (EOFError, OSError):
            return False
        return True

    def _answer(self, request: tuple[str, str, int, float]) -> object:
        """`("latest", run, after, wait)` -> number of the newest plan after `after`, or `after`;
        `("plan", run, number, 0)` -> that plan, or None."""
        what, run, number, wait = request
        if run != self.run:
            return NO_PLAN if what == "latest" else None
        if what == "latest":
            return self._wait_for_newer(number, wait)
        with self._changed:
            return self._plan if self._plan and self._plan.number == number else None

    def _wait_for_newer(self, after: int, wait: float) -> int:
        def newer() -> bool:
            return self._closed or (self._plan is not None and self._plan.number > after)

        with self._changed:
            self._changed.wait_for(newer, wait)
            return self._plan.number if self._plan and self._plan.number > after else after


@contextmanager
def _ended_after(seconds: float, connection: Connection) -> Iterator[None]:
    """End the connection where this takes longer: what waits for it gets EOFError or OSError. Its own calls know no time-out."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.setblocking(True)  # a default time-out of the process would be one of the connection's, too
        timer = threading.Timer(seconds, _end, (same,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


def _end(connection: socket.socket) -> None:
    with suppress(OSError):  # the other side was faster
        connection.shutdown(socket.SHUT_RDWR)


class PlanClient:
    """A reader process's side. Reconnects once when the connection was lost."""

    def __init__(self, address: PlanAddress, run: str) -> None:
        self._address = address
        self._run = run
        self._connection: Connection | None = None

    def latest(self, after: int, wait: float) -> int:
        """The newest plan's number after `after`, waiting up to `wait` seconds for one; `after` when there is none."""
        answer = self._ask(("latest", self._run, after, wait))
        return answer if isinstance(answer, int) else after

    def plan(self, run: str, number: int) -> Plan | None:
        """A published plan; None for any other run or number."""
        answer = self._ask(("plan", run, number, 0.0))
        return answer if isinstance(answer, Plan) else None

    def _ask(self, request: tuple[str, str, int, float]) -> object:
        try:
            return self._send(request)
        except (EOFError, OSError):
            self._connection = None
            return self._send(request)

    def _send(self, request: tuple[str, str, int, float]) -> object:
        if self._connection is None:
            self._connection = Client((self._address.host, self._address.port), authkey=self._address.key)
        self._connection.send(request)
        return self._connection.recv()
