"""One broker in a process of its own: started, killed, paused, brought back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from dev.embedded.commands import JavaCommands
from dev.embedded.process import JavaProcess
from dev.embedded.settings import properties
from integration.lifecycle.proxy import FreezingProxy
from integration.patient import BUSY, DONE, PAUSE
from integration.processes import HANGS, suspend

_OPENED = ("java.lang", "java.nio", "java.util", "jdk.internal.misc", "jdk.internal.platform", "sun.net")
JAVA_OPTIONS = (
    "-Xmx384m",
    "-XX:MaxDirectMemorySize=256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # it does not live long enough for more
    "-XX:+ExitOnOutOfMemoryError",
    "-Dio.netty.tryReflectionSetAccessible=true",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.management/sun.management=ALL-UNNAMED",
)


class Broker:
    """A broker that reaches ZooKeeper through the proxy. Its ports survive its restarts."""

    def __init__(
        self,
        number: int,
        ports: tuple[int, int],
        proxy: FreezingProxy,
        commands: JavaCommands,
        settings: Mapping[str, str],
        environment: Mapping[str, str],
    ) -> None:
        self.name = f"broker-{number}"
        self.service_url = f"pulsar://127.0.0.1:{ports[0]}"
        self.admin_url = f"http://127.0.0.1:{ports[1]}"
        self.log = commands.directory / f"{self.name}.log"
        self.web = httpx.Client(base_url=f"{self.admin_url}/admin/v2/", timeout=HANGS, follow_redirects=True)
        self._proxy = proxy
        self._commands = commands
        self._settings = {**settings, "brokerServicePort": str(ports[0]), "webServicePort": str(ports[1])}
        self._environment = environment
        self._process: JavaProcess | None = None
        self._paused = False

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def running(self) -> bool:
        return self._process is not None and not self._process.ended_within(0)

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    def launch(self) -> None:
        """Start it; `await_ready` waits for it."""
        file = self._commands.directory / f"{self.name}.conf"
        file.write_text(properties(self._settings))
        program = ("org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", str(file))
        command = self._commands.program(self.name, JAVA_OPTIONS, program)
        self._process = JavaProcess(command, self._commands.directory, self.log, self._environment)

    def await_ready(self) -> None:
        """Until it serves. Raises FatalError that names its log."""
        assert self._process is not None, f"{self.name} does not run"
        self._process.await_ready(self._serves, HANGS)

    def _serves(self) -> bool:
        try:
            return self.web.get("brokers/ready", timeout=5.0).is_success
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """End it at once. Nothing that it had not sent to ZooKeeper, or that the proxy held, gets there; its sessions
        end at once, too, and not only when they expire."""
        if self._process is None:
            return
        self.pause()
        with self._proxy.burying(local_ports(self.pid)):
            self._process.kill()
        self._process, self._paused = None, False

    def pause(self) -> None:
        """Let it stand still, as a long garbage collection would."""
        if not self._paused:
            suspend(self.pid)
        self._paused = True

    def resume(self) -> None:
        """Go on after `pause`."""
        if self._paused and self.running:
            os.kill(self.pid, signal.SIGCONT)
        self._paused = False

    def end(self) -> None:
        """End it, and do not care what becomes of its sessions."""
        if self._process is not None:
            self.resume()
            self._process.kill()
            self._process = None
        self.web.close()

    def answer(self, method: str, path: str, json: Any = None) -> httpx.Response:
        """What it says to a call below /admin/v2/, whatever that is, once. Raises httpx.TransportError."""
        return self.web.request(method, path, json=json)

    def admin(self, method: str, path: str, json: Any = None) -> httpx.Response:
        """The same once it is not busy: topics move when brokers die. Asserts that it succeeds."""
        deadline, repeated = time.monotonic() + HANGS, False
        while True:
            response = self.answer(method, path, json)
            if response.is_success or (repeated and (method, response.status_code) in DONE):
                return response
            said = f"{method} {path}: {response.status_code} {response.text}"
            assert response.status_code in BUSY, said
            assert time.monotonic() < deadline, said
            repeated = True
            time.sleep(PAUSE)


def local_ports(pid: int) -> set[int]:
    """The local ports of a process's connections."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
        except FileNotFoundError:
            continue
    rows = [
        row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[9] in inodes}
