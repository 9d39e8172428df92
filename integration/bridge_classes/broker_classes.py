"""A version of Pulsar's offloader classes in a process of its own, driven from here."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from dev.embedded.commands import JavaCommands
from dev.embedded.jars import fetch_lock
from dev.embedded.lock import PULSAR
from integration.compiling import compiled
from integration.processes import HANGS
from offloader.java import find_java

_SOURCE = Path(__file__).with_name("BridgedReader.java")
_OPTIONS = ("-Xmx512m", "-XX:MaxDirectMemorySize=256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_NAMED = (
    "tiered-storage-",
    "jclouds-",
    "managed-ledger-",
    "bookkeeper-",
    "netty-",
)  # by the source: javac looks no further
_READ_BUFFER = 1024 * 1024  # Pulsar's default


class StockReadError(Exception):
    """What Pulsar's classes raised; `no answer` where a read did not end."""


class InstalledOffloader:
    """The offloader of a lock list, with what it bundles in front of a broker's jars: as its class loader has it."""

    def __init__(self, lock: str, directory: Path) -> None:
        directory.mkdir(parents=True)
        (nar,) = fetch_lock(lock)
        jars = [nar, *_bundled(nar, directory / "bundled"), *fetch_lock(PULSAR)]
        self._numbers = count()
        self._commands = JavaCommands(find_java(), [_compiled(jars, directory / "classes"), *jars], directory)

    def reading(self, objects: Path, *, timeout: int = int(HANGS * 1000)) -> BrokerClasses:
        """Start it on the objects of a folder. `timeout`: milliseconds of a read."""
        name = f"reader{next(self._numbers)}"
        program = ("BridgedReader", str(objects), str(_READ_BUFFER), str(timeout))
        command = self._commands.program(name, _OPTIONS, program)
        return BrokerClasses(command, self._commands.directory / f"{name}.log")


class BrokerClasses:
    """A process that reads with them."""

    def __init__(self, command: Sequence[str], log_file: Path) -> None:
        with log_file.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=log_file.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def open(self, ledger: int, key: str) -> tuple[int, int]:
        """A new handle, for all reads that follow; the ledger's last entry and its length."""
        last, length = self._ask("open", ledger, key).split()
        return int(last), int(length)

    def read(self, first: int, last: int) -> str:
        """The digest of these entries, see `digest_of`. Raises StockReadError."""
        return self._ask("read", first, last)

    def _ask(self, *words: object) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            kind, _, answer = line.rstrip().partition(" ")
            if kind == "ok":
                return answer
            if kind == "error":
                raise StockReadError(answer)
        raise StockReadError("the process has ended")


def digest_of(entries: Sequence[bytes], first: int, last: int) -> str:
    """Of a ledger's entries, what `BrokerClasses.read` must give."""
    found = hashlib.sha256()
    for entry in range(first, last + 1):
        found.update(f"{entry} {len(entries[entry])}\n".encode() + entries[entry])
    return found.hexdigest()


def _bundled(nar: Path, folder: Path) -> list[Path]:
    """The jars in a NAR."""
    with zipfile.ZipFile(nar) as packed:
        names = [name for name in packed.namelist() if name.startswith("META-INF/bundled-") and name.endswith(".jar")]
        return [Path(packed.extract(name, folder)) for name in names]


def _compiled(jars: Sequence[Path], folder: Path) -> Path:
    return compiled(_SOURCE, [jar for jar in jars if jar.name.startswith(_NAMED)], folder)
