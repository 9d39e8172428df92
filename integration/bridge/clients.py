"""Stock clients, each in a process of its own: Python's, Java's, and in soaks Go's, which takes a minute to build once.

Each reads requests from standard input, a JSON object a line, and writes what it receives into the file `to`: a JSON
object a message, in order, and at last {"end": …}. `end` is "count" where just so many messages came as were asked for,
"patience" where one did not come, "more: …" where a `whole` reading went on, and else an error.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dev.embedded.commands import JavaCommands
from dev.embedded.jars import fetch_lock
from dev.embedded.lock import PULSAR
from integration.processes import HANGS
from integration.programs import program_folder
from offloader.java import find_java
from offloader.model import TopicName

HERE = Path(__file__).parent
GO_CLIENT = "v0.19.0"
_JAVA_OPTIONS = (
    "-Xmx256m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dio.netty.tryReflectionSetAccessible=true",
)


class Received(NamedTuple):
    """A message as a stock client saw it."""

    ledger: int
    entry: int
    batch: int
    key: str
    properties: tuple[tuple[str, str], ...]
    published: int
    event: int
    size: int
    sha256: str

    @property
    def place(self) -> tuple[int, int, int]:
        """The same for all clients: some number a message that is alone in its entry 0, others -1."""
        return self.ledger, self.entry, max(self.batch, 0)


@dataclass(frozen=True)
class Reading:
    """What came. `left`: what was received and not acknowledged."""

    messages: tuple[Received, ...]
    left: tuple[Received, ...]
    end: str


class Request:
    """One that is under way."""

    def __init__(self, client: StockClient, to: Path) -> None:
        self._client, self._to = client, to

    def result(self, seconds: float = HANGS) -> Reading:
        deadline = time.monotonic() + seconds
        while not self._to.exists():
            assert self._client.process.poll() is None, f"{self._client.name} has ended: {self._client.tail()}"
            assert time.monotonic() < deadline, f"{self._client.name} does not answer"
            time.sleep(0.01)
        *lines, last = [json.loads(line) for line in self._to.read_text().splitlines()]
        messages = [(_received(line), bool(line["acknowledged"])) for line in lines]
        left = tuple(message for message, acknowledged in messages if not acknowledged)
        return Reading(tuple(message for message, _ in messages), left, str(last["end"]))


class StockClient:
    """A running process. Requests run side by side. `drops`: it silently leaves out what it cannot unpack."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self.drops = name == "go"
        self._folder = folder
        self._numbers = itertools.count()
        self._log = folder / f"{name}.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, cwd=HERE.parent.parent
            )

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def read(
        self,
        topic: TopicName,
        count: int,
        *,
        start: tuple[int, int, int] | None = None,
        whole: bool = True,
        compacted: bool = False,
        key: Path | None = None,
        patience: float = HANGS,
    ) -> Request:
        """A Reader from the earliest message, or from `start` (with it). `key`: decrypts."""
        more = {} if start is None else {"start": start}
        return self._ask(topic, count, key, patience, whole=whole, compacted=compacted, **more)

    def consume(
        self,
        topic: TopicName,
        subscription: str,
        count: int,
        *,
        kind: str = "Shared",
        every: int = 0,
        whole: bool = True,
        key: Path | None = None,
        patience: float = HANGS,
    ) -> Request:
        """A durable consumer. `every`: it acknowledges the messages of all but each so-manieth entry; 0: none."""
        asked = {"subscription": subscription, "type": kind, "every": every, "compacted": False}
        return self._ask(topic, count, key, patience, whole=whole, **asked)

    def _ask(self, topic: TopicName, count: int, key: Path | None, patience: float, **request: Any) -> Request:
        to = self._folder / f"{self.name}-{next(self._numbers)}"
        keyed = {} if key is None else {"key": str(key)}
        asked = {"to": str(to), "topic": str(topic), "count": count, "patience": int(patience), **keyed, **request}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asked).encode() + b"\n")
        self.process.stdin.flush()
        return Request(self, to)

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


@contextmanager
def stock_clients(folder: Path, service_url: str, *, go: bool) -> Iterator[tuple[StockClient, ...]]:
    """Python's, Java's and, if so said, Go's."""
    folder.mkdir(parents=True, exist_ok=True)
    commands: dict[str, Sequence[str]] = {
        "python": [sys.executable, "-m", "integration.bridge.python_client", service_url],
        "java": _java(folder, service_url),
    }
    if go:
        commands["go"] = [str(go_program()), service_url]
    with ExitStack() as stack:
        clients = []
        for name, command in commands.items():
            clients.append(StockClient(name, command, folder))
            stack.callback(clients[-1].end)
        yield tuple(clients)


def go_program(name: str = "pulsar-stock-reader", source: Path = HERE / "go") -> Path:
    """A program with the Go client, built where the user's cache does not have it yet."""
    folder = program_folder()
    program = folder / f"{name}-{GO_CLIENT}"
    if not program.exists() or program.stat().st_mtime < (source / "main.go").stat().st_mtime:
        folder.mkdir(parents=True, exist_ok=True)
        scratch = folder / f"{name}-{os.getpid()}"
        command = ["go", "build", "-p", "2", "-o", str(scratch), "."]
        done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        scratch.replace(program)
    return program


def _java(folder: Path, service_url: str) -> Sequence[str]:
    commands = JavaCommands(find_java(), fetch_lock(PULSAR), folder)
    classes = folder / "classes"
    compiler = commands.java.executable.with_name("javac")
    assert compiler.exists(), f"{commands.java.executable} has no javac beside it: these tests need a JDK"
    jars = os.pathsep.join(str(jar) for jar in commands.jars)
    source = str(HERE / "StockReader.java")
    command = [str(compiler), "-proc:none", "-nowarn", "-cp", jars, "-d", str(classes), source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    behind = JavaCommands(commands.java, commands.jars, folder, [classes])
    return behind.program("java-client", _JAVA_OPTIONS, ("StockReader", service_url))


def _received(line: Mapping[str, Any]) -> Received:
    properties = tuple(sorted(line["properties"].items()))
    rest = {name: line[name] for name in Received._fields if name != "properties"}
    return Received(**rest, properties=properties)
