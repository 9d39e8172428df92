"""A BookKeeper cluster on this machine: ZooKeeper and some bookies, each a process, from the embedded Pulsar's jars.

    with BookKeeperCluster(folder) as cluster:
        ledger = cluster.official.write(Shape(ensemble=4), 1000, Contents(seed=1))
        cluster.bookies[2].kill()

Everything listens on 127.0.0.1 and ends with the process that started it. Logs and configuration files stay in the
folder, the bookies' and ZooKeeper's data do not. Five JVMs for four bookies need about 1 GB.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from dev.embedded.commands import JavaCommands
from dev.embedded.jars import fetch_lock
from dev.embedded.lock import PULSAR
from dev.embedded.process import JavaProcess
from dev.embedded.settings import free_ports
from dev.embedded.zookeeper import ask_zookeeper, zookeeper_is_ready
from integration.bookkeeper.bookie import Bookie
from integration.bookkeeper.official import OfficialClient, compiled
from integration.processes import HANGS
from offloader.bookkeeper.settings import BookieSettings
from offloader.java import find_java

AGAIN = {
    "max_tries": -1,
    "max_delay": 0.5,
    "deadline": HANGS,
}  # what a session of kazoo does where a busy machine cuts it off
PATIENT = BookieSettings(connect_timeout=HANGS, request_timeout=HANGS)
_LIVELY_SECONDS = 3.0  # half of a session's time-out; a client is heard of every 2 s at the latest
_CONNECTIONS = re.compile(r"\bsid=0x([0-9a-f]+),.*?\blresp=(\d+)")


class BookKeeperCluster:
    """Started on entering the context, ended on leaving it.

    `layout`: hierarchical, longhierarchical or flat. `configuration` overrides lines of every bookie's file, `own`
    those of the first, the second and so on.
    `official`: BookKeeper's own client, for as long as the cluster runs. `zookeeper`: a session for looking at nodes.
    """

    def __init__(
        self,
        directory: Path,
        *,
        bookies: int = 4,
        layout: str = "hierarchical",
        configuration: Mapping[str, str] | None = None,
        own: Sequence[Mapping[str, str]] = (),
    ) -> None:
        self.directory = directory.resolve()
        self.directory.mkdir(parents=True, exist_ok=True)
        port, *ports = free_ports(1 + bookies, random.SystemRandom())
        self.zookeeper_port = port
        self.zookeeper_address = f"127.0.0.1:{port}"
        self.metadata_uri = f"zk+{layout}://{self.zookeeper_address}/ledgers"
        self.zookeeper = KazooClient(self.zookeeper_address, timeout=8.0, command_retry=AGAIN)
        self._commands = JavaCommands(find_java(), fetch_lock(PULSAR), self.directory)
        self._numbers = itertools.count()
        self._server: JavaProcess | None = None
        self._clients: list[OfficialClient] = []
        overrides = [{**(configuration or {}), **one} for one in (own or [{}] * bookies)]
        self.bookies = tuple(
            Bookie(n, p, self.metadata_uri, self._commands, self, overrides[n]) for n, p in enumerate(ports)
        )

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def bookie(self, identifier: str) -> Bookie:
        """The bookie that ledgers call so."""
        return next(bookie for bookie in self.bookies if bookie.id == identifier)

    def client(self, metadata_uri: str | None = None) -> OfficialClient:
        """One more process with BookKeeper's own client, to kill or to pause. It ends with the cluster.

        `metadata_uri`: of another cluster in the same ZooKeeper.
        """
        uri = metadata_uri or self.metadata_uri
        client = OfficialClient(self._commands, self._classes, uri, f"client-{next(self._numbers)}")
        self._clients.append(client)
        return client

    @property
    def pids(self) -> list[int]:
        """Of all processes that run for it."""
        servers = [self._server.pid] if self._server else []
        return [*servers, *(c.pid for c in self._clients), *(b.pid for b in self.bookies if b.running)]

    def all_back(self) -> None:
        """Every bookie running, whatever was done to it; those that were down start side by side."""
        down = [bookie for bookie in self.bookies if not bookie.running]
        for bookie in self.bookies:
            bookie.resume()
        for bookie in down:
            bookie.launch()
        for bookie in self.bookies:
            bookie.await_ready()

    def end(self) -> None:
        """End every process and delete their data."""
        for client in self._clients:
            client.kill()
        for bookie in self.bookies:
            bookie.kill()
        self.zookeeper.stop()
        self.zookeeper.close()
        if self._server is not None:
            self._server.kill()
        for folder in ("data", "tmp", "classes", *(bookie.name for bookie in self.bookies)):
            shutil.rmtree(self.directory / folder, ignore_errors=True)

    def _start(self) -> None:
        port = self.zookeeper_port
        self._server = JavaProcess(self._commands.zookeeper(port), self.directory, self.directory / "zookeeper.log")
        self._classes = compiled(self._commands)
        self._server.await_ready(lambda: zookeeper_is_ready(port), HANGS)
        self.zookeeper.start(HANGS)
        self.official = self.client()
        self.official.call("format")
        self.all_back()

    # What bookies ask of the metadata service

    def is_registered(self, bookie: str) -> bool:
        """Whether it is, and stays so: by a session that has just been heard of. One that stood still may be about to
        expire, although its bookie goes on: that registers again then."""
        node = self.zookeeper.retry(self.zookeeper.exists, f"/ledgers/available/{bookie}")
        return node is not None and self.silence_of(node.ephemeralOwner) < _LIVELY_SECONDS

    def silence_of(self, session: int) -> float:
        """How many seconds ago ZooKeeper last answered a session on the connection that it has now; infinity: not
        yet."""
        heard = [
            int(at)
            for sid, at in _CONNECTIONS.findall(ask_zookeeper(self.zookeeper_port, "cons"))
            if int(sid, 16) == session
        ]
        return time.monotonic() - max(heard) / 1000 if any(heard) else math.inf  # Java's clock is the same

    def unregister(self, bookie: str) -> None:
        with contextlib.suppress(NoNodeError):
            self.zookeeper.retry(self.zookeeper.delete, f"/ledgers/available/{bookie}")

    def forget_cookie(self, bookie: str) -> None:
        self.official.call("forget cookie", bookie=bookie)
