"""Starts a store's server as a process of this machine."""

from __future__ import annotations

import itertools
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from botocore.config import Config

from dev.embedded.settings import free_ports
from offloader.errors import FatalError
from offloader.ports.object_store import ObjectStore
from offloader.storage.open import open_store
from offloader.storage.s3 import S3Store
from offloader.storage.s3_client import new_client
from offloader.storage.settings import StoreSettings

ACCESS_KEY, SECRET_KEY, REGION, BUCKET = "access", "secret-secret", "us-east-1", "bucket"
START_SECONDS = 240.0  # after which it hangs

_names = itertools.count()


@dataclass(frozen=True)
class S3Server:
    """A server that has a bucket."""

    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def fresh_root(self) -> str:
        """A prefix that nobody uses."""
        return f"s3://{BUCKET}/root-{next(_names)}"

    def settings(self, root: str, *, endpoint: str | None = None, **options: str) -> StoreSettings:
        return StoreSettings(root, endpoint or self.url, REGION, ACCESS_KEY, SECRET_KEY, tuple(options.items()))

    def create_bucket(self, name: str = BUCKET) -> None:
        client = new_client(self.settings(""), Config())
        client.create_bucket(Bucket=name)
        client.close()

    def bucket_beside(self) -> StoreSettings:
        """Another bucket, without a prefix, that nobody uses."""
        name = f"beside-{next(_names)}"
        self.create_bucket(name)
        return self.settings(f"s3://{name}")


class Stores:
    """Opens stores and closes them all at the end."""

    def __init__(self) -> None:
        self._opened: list[ObjectStore] = []

    def open(self, settings: StoreSettings) -> ObjectStore:
        self._opened.append(open_store(settings))
        return self._opened[-1]

    def close(self) -> None:
        for store in self._opened:
            store.close()


class Clients(NamedTuple):
    """The two clients of a store: what they send is seen by their events."""

    signed: Any
    unsigned: Any  # of parts, whose bodies are not signed

    @classmethod
    def of(cls, store: S3Store) -> Clients:
        return cls(store._client, store._unsigned)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody gets who asks the kernel for any: until our server has started, it stays free."""
    (port,) = free_ports(1, random.SystemRandom())
    return port


@contextmanager
def moto_server(folder: Path) -> Iterator[S3Server]:
    """moto's server: the shape of S3's API, in memory."""
    port = free_port()
    program = str(Path(__file__).with_name("moto_program.py"))
    with serving([sys.executable, program, str(port)], port, folder / "log") as server:
        yield server


@contextmanager
def serving(command: Sequence[str], port: int, log: Path, *, bucket: bool = True) -> Iterator[S3Server]:
    """The server of this command, once it accepts connections and has a bucket, where it is to have one."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            _wait_for(process, port, log)
            server = S3Server("127.0.0.1", port)
            if bucket:
                server.create_bucket()
            yield server
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError as e:
            if process.poll() is not None or time.monotonic() > deadline:
                raise FatalError(f"the server did not start: {log.read_text()[-2000:]}") from e
            time.sleep(0.02)
        else:
            return
