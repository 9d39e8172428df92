"""One broker in a process of its own: started, killed, paused, brought back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from dev.embedded.commands import JavaCommands
from integration.java_server import JavaServer
from integration.lifecycle.proxy import FreezingProxy
from integration.patient import BUSY, DONE, PAUSE
from integration.processes import HANGS

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


class Broker(JavaServer):
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
        own = {"brokerServicePort": str(ports[0]), "webServicePort": str(ports[1])}
        super().__init__(f"broker-{number}", commands, {**settings, **own}, environment)
        self.service_url = f"pulsar://127.0.0.1:{ports[0]}"
        self.admin_url = f"http://127.0.0.1:{ports[1]}"
        self.web = httpx.Client(base_url=f"{self.admin_url}/admin/v2/", timeout=HANGS, follow_redirects=True)
        self._proxy = proxy

    def launch(self) -> None:
        """Start it; `await_ready` waits for it."""
        self._begin("org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", JAVA_OPTIONS)

    def serves(self) -> bool:
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
