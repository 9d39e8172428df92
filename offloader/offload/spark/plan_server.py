"""Plans for Spark's reader processes, over a local socket.

Spark asks for offsets and partitions in processes of its own; they decide nothing. The main process publishes one plan
of each lane here. An offset is only `{run, lane, plan number}`; an unknown run or number has no partitions."""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Self

from offloader.model import Lane
from offloader.offload.core.plans import Plan

log = logging.getLogger(__name__)

NO_PLAN = 0
HANDSHAKE_SECONDS = 30.0  # on one machine it takes a millisecond
# Where no connection can be accepted, most likely since this process has too many open files or threads.
ACCEPT_AGAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class PlanAddress:
    """Where the plan server listens; `key` keeps other users of the machine out. It travels in a file that only we may
    read: what Spark is told stands in its plans and logs."""

    host: str
    port: int
    key: bytes = field(repr=False)

    def write(self, path: str) -> None:
        """Make the file."""
        told = json.dumps({"host": self.host, "port": self.port, "key": self.key.hex()})
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(told)

    @classmethod
    def read(cls, path: str) -> Self:
        """What `write` wrote."""
        told = json.loads(Path(path).read_text())
        return cls(told["host"], told["port"], bytes.fromhex(told["key"]))


class PlanServer:
    """Serves the newest published plan of each lane, to whoever proves in `handshake` seconds to have the key."""

    def __init__(self, run: str, *, handshake: float = HANDSHAKE_SECONDS) -> None:
        self.run = run
        self._handshake = handshake
        self._key = secrets.token_bytes(32)
        self._listener = Listener(("127.0.0.1", 0))
        self._changed = threading.Condition()
        self._plans: dict[Lane, Plan] = {}
        self._closed = False
        threading.Thread(target=self._accept, name="plan-server", daemon=True).start()

    @property
    def address(self) -> PlanAddress:
        host, port = self._listener.address
        return PlanAddress(host, port, self._key)

    def publish(self, plan: Plan) -> None:
        """Make a plan the newest one of its lane."""
        with self._changed:
            self._plans[plan.lane] = plan
            self._changed.notify_all()

    def withdraw(self, plan: Plan) -> None:
        """Its receipts are in: a query that is started again does not run it again."""
        with self._changed:
            if self._plans.get(plan.lane) == plan:
                del self._plans[plan.lane]

    def close(self) -> None:
        """Stop listening; waiting readers get no new plan."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._listener.close()

    def _accept(self) -> None:
        told = False
        while not self._closed:
            try:
                self._accept_one()
            except (OSError, EOFError, RuntimeError) as error:
                if not (told or self._closed):
                    log.warning(
                        "plan server: no connection can be accepted, tried again: %s",
                        error,
                        extra={"see": "plan-connections"},
                    )
                told = True
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, ACCEPT_AGAIN_SECONDS)
            else:
                told = False

    def _accept_one(self) -> None:
        """Raises OSError, EOFError; RuntimeError where no thread can be started."""
        connection = self._listener.accept()
        try:
            threading.Thread(target=self._serve, args=(connection,), name="plan-connection", daemon=True).start()
        except RuntimeError:
            connection.close()  # whoever it is tries again
            raise

    def _serve(self, connection: Connection) -> None:
        with connection:
            try:
                with _ended_after(self._handshake, connection):
                    known = self._knows_key(connection)
            except (OSError, RuntimeError) as error:  # too many open files, or threads
                log.warning("plan server: a connection was let go: %s", error, extra={"see": "plan-connections"})
                return
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
            log.warning("plan server: a process with a wrong key was refused", extra={"see": "wrong-key"})
            return False
        except (EOFError, OSError):
            return False
        return True

    def _answer(self, request: tuple[str, str, Lane, int, float]) -> object:
        """`("latest", run, lane, after, wait)` -> number of the lane's newest plan after `after`, or `after`;
        `("plan", run, lane, number, 0)` -> that plan, or None."""
        what, run, lane, number, wait = request
        if run != self.run:
            return NO_PLAN if what == "latest" else None
        if what == "latest":
            return self._wait_for_newer(lane, number, wait)
        with self._changed:
            plan = self._plans.get(lane)
            return plan if plan is not None and plan.number == number else None

    def _wait_for_newer(self, lane: Lane, after: int, wait: float) -> int:
        def newest() -> int:
            return self._plans[lane].number if lane in self._plans else NO_PLAN

        with self._changed:
            self._changed.wait_for(lambda: self._closed or newest() > after, wait)
            return max(newest(), after)


@contextmanager
def _ended_after(seconds: float, connection: Connection) -> Iterator[None]:
    """End the connection where this takes longer, with EOFError or OSError: its own calls know no time-out."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.setblocking(True)  # a default time-out of the process would be one of the connection's, too
        timer = threading.Timer(seconds, _end, (same,))
        timer.name, timer.daemon = "plan-handshake", True
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

    def __init__(self, address: PlanAddress, run: str, lane: Lane) -> None:
        self._address = address
        self._run = run
        self._lane = lane
        self._connection: Connection | None = None

    def latest(self, after: int, wait: float) -> int:
        """The newest plan's number after `after`, waiting up to `wait` seconds for one; `after` when there is none."""
        answer = self._ask(("latest", self._run, self._lane, after, wait))
        return answer if isinstance(answer, int) else after

    def plan(self, run: str, number: int) -> Plan | None:
        """A published plan; None for any other run or number."""
        answer = self._ask(("plan", run, self._lane, number, 0.0))
        return answer if isinstance(answer, Plan) else None

    def _ask(self, request: tuple[str, str, Lane, int, float]) -> object:
        try:
            return self._send(request)
        except (EOFError, OSError):
            self._connection = None
            return self._send(request)

    def _send(self, request: tuple[str, str, Lane, int, float]) -> object:
        if self._connection is None:
            self._connection = Client((self._address.host, self._address.port), authkey=self._address.key)
        self._connection.send(request)
        return self._connection.recv()
