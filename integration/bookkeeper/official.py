"""BookKeeper's own client in a process of its own, driven from here."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dev.embedded.commands import JavaCommands
from dev.embedded.process import JavaProcess
from integration.bookkeeper.contents import Contents
from integration.processes import HANGS, suspend

SOURCES = sorted(Path(__file__).parent.glob("*.java"))
JAVA_OPTIONS = (
    "-Xmx128m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dio.netty.tryReflectionSetAccessible=true",
)
HURRIED = 3.0
"""Seconds that a client gives a bookie which may be away for good.

Others are given as long as one that hangs: a slow one is not away."""


class OfficialError(Exception):
    """What the official client raised; `kind` is the name of its exception's class, `Gone` where the process has
    ended."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Shape:
    """What a ledger is created with. `digest`: MAC, CRC32, CRC32C, DUMMY. `wire`: the protocol its writer speaks, 2 or
    3."""

    ensemble: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2
    digest: str = "CRC32C"
    password: str = ""
    format: int = 3
    wire: int = 3

    @property
    def request(self) -> dict[str, Any]:
        return {
            "ensemble": self.ensemble,
            "write quorum": self.write_quorum,
            "ack quorum": self.ack_quorum,
            "format": self.format,
            **self.access,
        }

    @property
    def access(self) -> dict[str, Any]:
        """What opening it needs."""
        return {"digest": self.digest, "password": self.password, "wire": self.wire}


class ReadEntry(NamedTuple):
    """An entry as the official client returned it; `length`: payload bytes of the ledger up to its end."""

    entry: int
    length: int
    payload: bytes


class OfficialClient:
    """The program of OfficialClient.java. Calls may come from several threads; `kill` it whenever you like.

    `acknowledged`: by ledger, the last entry that an ensemble has acknowledged to this client, as far as heard here.
    """

    def __init__(self, commands: JavaCommands, classes: Path, metadata_uri: str, name: str) -> None:
        self.acknowledged: dict[int, int] = {}
        self._ids = itertools.count()
        self._waiting: dict[int, Future[Any]] = {}
        self._changed = threading.Condition()
        self._gone = False
        with socket.create_server(("127.0.0.1", 0)) as server:
            program = ("OfficialClient", metadata_uri, str(server.getsockname()[1]))
            behind = JavaCommands(commands.java, commands.jars, commands.directory, [classes])
            command = behind.program(name, JAVA_OPTIONS, program)
            self._process = JavaProcess(command, commands.directory, commands.directory / f"{name}.log")
            try:
                self._socket = self._accept(server)
            except BaseException:
                self._process.kill()
                raise
        self._listener = threading.Thread(target=self._listen, name=name)
        self._listener.start()

    def _accept(self, server: socket.socket) -> socket.socket:
        accepted: list[socket.socket] = []

        def ready() -> bool:
            with contextlib.suppress(TimeoutError):
                accepted.append(server.accept()[0])
            return bool(accepted)

        server.settimeout(0.05)
        self._process.await_ready(ready, HANGS)
        accepted[0].settimeout(None)
        return accepted[0]

    # Requests

    def begin(self, do: str, **request: Any) -> Future[Any]:
        """Send a request; its answer to come. Fails with OfficialError."""
        future: Future[Any] = Future()
        number = next(self._ids)
        with self._changed:
            if self._gone:
                raise OfficialError("Gone", do)
            self._waiting[number] = future
            self._socket.sendall(json.dumps({"id": number, "do": do, "timeout": HANGS, **request}).encode() + b"\n")
        return future

    def call(self, do: str, **request: Any) -> Any:
        """Send a request and wait for its answer. Raises OfficialError."""
        return self.begin(do, **request).result(HANGS)

    def create(
        self,
        shape: Shape,
        *,
        ledger: int | None = None,
        custom: Mapping[str, str] | None = None,
        timeout: float = HANGS,
    ) -> int:
        """A new ledger's id, chosen by BookKeeper unless `ledger` says it. `timeout`: seconds for a bookie's answer to
        an add."""
        chosen = {"timeout": timeout} if ledger is None else {"timeout": timeout, "ledger": ledger}
        return int(self.call("create", custom=dict(custom or {}), **shape.request, **chosen)["ledger"])

    def add(self, ledger: int, count: int, contents: Contents, *, window: int = 100) -> Future[Any]:
        """Add entries with up to `window` in flight; done when all are acknowledged, or as soon as one fails."""
        sizes = {"seed": contents.seed, "smallest": contents.smallest, "largest": contents.largest}
        return self.begin("add", ledger=ledger, count=count, window=window, **sizes)

    def write(self, shape: Shape, count: int, contents: Contents, **create: Any) -> int:
        """A new, closed ledger with these entries; its id."""
        ledger = self.create(shape, **create)
        if count:
            self.add(ledger, count, contents).result(HANGS)
        self.close_ledger(ledger)
        return ledger

    def close_ledger(self, ledger: int) -> dict[str, Any]:
        """Close a ledger that this client writes; its metadata."""
        return dict(self.call("close", ledger=ledger))

    def recover(self, ledger: int, shape: Shape, *, parallel: bool = False, timeout: float = HANGS) -> Future[Any]:
        """Open with recovery: fence, find the end, close; its metadata then.

        `parallel`: it asks all bookies of an entry at once, which is not the default. `timeout`: seconds for a bookie's
        answer.
        """
        way = {"timeout": timeout, **({"parallel": True} if parallel else {})}
        return self.begin("open", ledger=ledger, recovery=True, **shape.access, **way)

    def open(self, ledger: int, shape: Shape) -> dict[str, Any]:
        """Open without recovery; its metadata, and "last confirmed"."""
        return dict(self.call("open", ledger=ledger, **shape.access))

    def read(self, ledger: int, first: int, last: int, shape: Shape) -> list[ReadEntry]:
        """Entries, opened without recovery; also those that nobody has confirmed."""
        rows = self.call("read", ledger=ledger, first=first, last=last, **shape.access)
        return [ReadEntry(entry, length, base64.b64decode(payload)) for entry, length, payload in rows]

    def metadata(self, ledger: int) -> dict[str, Any]:
        """What the metadata service holds of a ledger."""
        return dict(self.call("metadata", ledger=ledger))

    def ask(self, bookie: str, ledger: int, first: int, last: int) -> list[bytes | str]:
        """What one bookie has of each entry: the stored bytes, or the name of the official client's error."""
        rows = self.call("ask", bookie=bookie, ledger=ledger, first=first, last=last)
        return [base64.b64decode(stored) if error is None else str(error) for error, stored in rows]

    # Waiting and ending

    def await_acknowledged(self, ledgers: Sequence[int], entry: int, seconds: float = HANGS) -> None:
        """Until this entry of one of the ledgers has been acknowledged, or no more will be."""

        def reached() -> bool:
            return self._gone or any(self.acknowledged.get(ledger, -1) >= entry for ledger in ledgers)

        with self._changed:
            assert self._changed.wait_for(reached, seconds), (
                f"entry {entry} was not acknowledged within {seconds:.0f} s"
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """End it at once. What it had heard of is in `acknowledged` afterwards."""
        if self._listener.is_alive():
            self._process.kill()
            self._listener.join()
            self._socket.close()

    def pause(self) -> None:
        """Let it stand still, as a long garbage collection would."""
        suspend(self._process.pid)

    def resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def _listen(self) -> None:
        with self._socket.makefile("rb") as lines, contextlib.suppress(ConnectionResetError):
            for line in lines:
                if line.endswith(b"\n"):
                    self._heard(json.loads(line))
        with self._changed:
            self._gone = True
            waiting = list(self._waiting.values())
            self._waiting.clear()
            self._changed.notify_all()
        for future in waiting:
            future.set_exception(OfficialError("Gone", "the process has ended"))

    def _heard(self, message: dict[str, Any]) -> None:
        if "acknowledged" in message:
            with self._changed:
                self.acknowledged[message["ledger"]] = message["acknowledged"]
                self._changed.notify_all()
            return
        with self._changed:
            future = self._waiting.pop(message["id"])
        if "error" in message:
            future.set_exception(OfficialError(message["error"], message["message"]))
        else:
            future.set_result(message["answer"])


def compiled(commands: JavaCommands) -> Path:
    """The classes of the Java programs here, below the commands' directory."""
    classes = commands.directory / "classes"
    compiler = commands.java.executable.with_name("javac")
    assert compiler.exists(), f"{commands.java.executable} has no javac beside it: these tests need a JDK"
    jars = os.pathsep.join(str(jar) for jar in commands.jars)
    command = [str(compiler), "-proc:none", "-nowarn", "-cp", jars, "-d", str(classes), *map(str, SOURCES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return classes
