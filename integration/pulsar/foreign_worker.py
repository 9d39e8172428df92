"""Somebody else's part of PIP-186, as a Java program: see ForeignWorker.java."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.embedded.commands import SHORT_LIVED, JavaCommands
from dev.embedded.jars import fetch_lock
from dev.embedded.lock import PULSAR
from offloader.java import find_java

SOURCE = Path(__file__).with_name("ForeignWorker.java")


class ForeignWorker:
    """A running one. `log`: what it says of itself."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def do(self, command: str) -> list[str]:
        """`send LEDGER`, or `work MESSAGES LEDGER LEAST`; what it has got."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        found: list[str] = []
        for line in self._process.stdout:
            if line == "DONE\n":
                return found
            found += [line.removeprefix("GOT ").rstrip()] * line.startswith("GOT ")
        said = self._log.read_text(errors="replace")[-4000:]
        raise AssertionError(f"it ended at {command!r}, after {found}:\n{said}")


@contextmanager
def foreign_worker(service_url: str, folder: Path) -> Iterator[ForeignWorker]:
    """Compiled and started; it ends with the context."""
    folder.mkdir(parents=True)
    jars = fetch_lock(PULSAR)
    compiler = str(find_java().executable.with_name("javac"))
    classpath = os.pathsep.join(str(jar) for jar in jars if jar.name.startswith("pulsar-client-api"))
    subprocess.run([compiler, "-proc:none", "-nowarn", "-cp", classpath, "-d", str(folder), str(SOURCE)], check=True)
    commands = JavaCommands(find_java(), jars, folder, [folder])
    command = commands.program("worker", ("-Xmx128m", *SHORT_LIVED), ("ForeignWorker", service_url))
    with (
        (folder / "worker.log").open("w") as log,
        subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            yield ForeignWorker(process, folder / "worker.log")
        finally:
            process.kill()
