"""Stock clients, each in a process of its own that does one thing after the other: a JSON object a line, and one back.

What is asked: {"do": …} and its arguments; "as": the name of a new reader or consumer, "of": the one that is meant. Ids
are [ledger, entry, partition, batch index]. The answer is {"answer": …}, or {"error": …} with the error's name."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dev.embedded.commands import JavaCommands
from dev.embedded.jars import fetch_lock
from dev.embedded.lock import PULSAR
from integration.bridge.clients import go_program
from integration.processes import HANGS
from offloader.java import find_java

HERE = Path(__file__).parent
_JAVA_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dio.netty.tryReflectionSetAccessible=true",
)


class StockClient:
    """A running process, connected to one address."""

    def __init__(self, name: str, command: Sequence[str], url: str, folder: Path) -> None:
        self.name = name
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / f"{name}.log"
        self._answers: queue.Queue[bytes] = queue.Queue()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=HERE.parent.parent,
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def ask(self, **asked: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        try:
            line = self._answers.get(timeout=HANGS)
        except queue.Empty:
            raise AssertionError(f"{self.name} does not answer {asked}: {self._tail()}") from None
        assert line, f"{self.name} has ended: {self._tail()}"
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _listen(self) -> None:
        """An empty line is the end."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(b"")

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def python_command() -> list[str]:
    return [sys.executable, "-m", "integration.gateway.python_client"]


def older_python_command(version: str, folder: Path) -> list[str]:
    """Of another version of `pulsar-client`, which is fetched into the folder."""
    named = f"pulsar-client=={version}"
    fetch = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), named]
    subprocess.run(fetch, check=True, timeout=HANGS)
    return ["env", f"PYTHONPATH={folder}", *python_command()]


def go_command() -> list[str]:
    """Built where the user's cache does not have it yet, which takes minutes the first time."""
    return [str(go_program("pulsar-stock-client", HERE / "go"))]


def java_command(folder: Path, lock: str = PULSAR) -> list[str]:
    """Of the embedded Pulsar's own client, or of that of another list of jars."""
    folder.mkdir(parents=True, exist_ok=True)
    commands = JavaCommands(find_java(), fetch_lock(lock), folder)
    classes = folder / "classes"
    compiler = commands.java.executable.with_name("javac")
    assert compiler.exists(), f"{commands.java.executable} has no javac beside it: these tests need a JDK"
    jars = os.pathsep.join(str(jar) for jar in commands.jars)
    source = str(HERE / "StockClient.java")
    command = [str(compiler), "-proc:none", "-nowarn", "-cp", jars, "-d", str(classes), source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    behind = JavaCommands(commands.java, commands.jars, folder, [classes])
    return behind.program("stock-client", _JAVA_OPTIONS, ("StockClient",))
