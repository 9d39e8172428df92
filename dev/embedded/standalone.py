"""A real Apache Pulsar 4.0.7: broker and bookie in one process, ZooKeeper in a second one where it is asked for.

Everything listens on 127.0.0.1 only and ends with the process that started it. Without ZooKeeper, metadata is in an
embedded store that nothing outside can read, which is enough for the broker source but not for the bookkeeper source.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from dev.embedded.commands import SHORT_LIVED, JavaCommands
from dev.embedded.jars import fetch_lock
from dev.embedded.lock import OFFLOADER, PULSAR
from dev.embedded.process import JavaProcess
from dev.embedded.settings import OffloaderSettings, ports_of, standalone_configuration
from dev.embedded.zookeeper import zookeeper_is_ready
from offloader.errors import BrokerUnavailableError, FatalError
from offloader.java import find_java

_STOP_SECONDS = 120.0  # after which it hangs


class PulsarStandalone:
    """A Pulsar in `directory`: started on entering the context, stopped on leaving it, its data kept.

    `configuration` overrides lines of standalone.conf. `offloader` also loads Pulsar's own offloader. The ports are
    free ones, chosen at the first start in a directory. `java_options`: of broker and bookie. `jars`: the lock list of
    another version. `web` is a client for calls below /admin/v2/.
    """

    def __init__(
        self,
        directory: Path,
        *,
        zookeeper: bool = False,
        configuration: Mapping[str, str] | None = None,
        offloader: OffloaderSettings | None = None,
        java_options: Sequence[str] = SHORT_LIVED,
        jars: str = PULSAR,
        startup_seconds: float = 240.0,
    ) -> None:
        self.directory = directory.resolve()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.ports = ports_of(self.directory)
        self.log = self.directory / "pulsar.log"
        self.service_url = f"pulsar://127.0.0.1:{self.ports.broker}"
        self.admin_url = f"http://127.0.0.1:{self.ports.web}"
        self.zookeeper_address = f"127.0.0.1:{self.ports.zookeeper}" if zookeeper else None
        self.web = httpx.Client(base_url=f"{self.admin_url}/admin/v2/", timeout=30.0)
        self._configuration = dict(configuration or {})
        self._offloader = offloader
        self._java_options = tuple(java_options)
        self._jars = jars
        self._startup_seconds = startup_seconds
        self._processes: dict[str, JavaProcess] = {}

    @property
    def pid(self) -> int:
        """The process id of broker and bookie. Raises FatalError where they do not run."""
        if "pulsar" not in self._processes:
            raise FatalError("Pulsar is not running")
        return self._processes["pulsar"].pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.web.close()

    def start(self) -> None:
        """Start and wait until it serves. Raises FatalError that names the log, which is kept."""
        commands = JavaCommands(find_java(), fetch_lock(self._jars), self.directory)
        settings = standalone_configuration(self.ports, self._configuration, self._offloader)
        if self._offloader is not None:
            install_offloader(self.directory)
        try:
            if self.zookeeper_address:
                port = self.ports.zookeeper
                self._run("zookeeper", commands.zookeeper(port), lambda: zookeeper_is_ready(port))
            metadata_url = f"zk:{self.zookeeper_address}" if self.zookeeper_address else None
            command = commands.pulsar(settings, self.ports.bookie, metadata_url, self._java_options)
            self._run("pulsar", command, self._is_ready)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut down in order (about 5 s), or by force where it hangs."""
        while self._processes:
            _, process = self._processes.popitem()
            process.stop(_STOP_SECONDS)

    def kill(self) -> None:
        """End everything at once, as a crash of the machine would. `start` brings it back.

        Without ZooKeeper `start` may fail: the dead bookie's registration outlives it in the embedded store, and the
        broker may then refuse the new one for ever.
        """
        while self._processes:
            _, process = self._processes.popitem()
            process.kill()

    def restart(self) -> None:
        """Stop and start again, on the same data and the same ports."""
        self.stop()
        self.start()

    def admin(self, method: str, path: str, json: Any = None) -> httpx.Response:
        """One REST call below /admin/v2/. Raises FatalError with Pulsar's reason for a status other than 2xx."""
        try:
            response = self.web.request(method, path, json=json)
        except httpx.TransportError as error:
            raise BrokerUnavailableError(f"{method} {path}: {str(error) or type(error).__name__}") from error
        if not response.is_success:
            raise FatalError(f"{method} {path}: {response.status_code} {response.text.strip()}")
        return response

    def create_namespace(self, name: str) -> str:
        """Create the namespace `tenant/namespace`; its name."""
        self.admin("PUT", f"namespaces/{name}")
        return name

    def log_tail(self, lines: int) -> list[str]:
        """The last lines of the log; none before the first start."""
        return self.log.read_text(errors="replace").splitlines()[-lines:] if self.log.exists() else []

    def _run(self, name: str, command: list[str], ready: Callable[[], bool]) -> None:
        environment = self._offloader.environment if self._offloader else None
        process = self._processes[name] = JavaProcess(
            command, self.directory, self.directory / f"{name}.log", environment
        )
        process.await_ready(ready, self._startup_seconds)

    def _is_ready(self) -> bool:
        try:
            namespaces = self.web.get("namespaces/public", timeout=5.0)
            return (
                namespaces.is_success
                and "public/default" in namespaces.json()
                and self.web.get("brokers/ready").is_success
            )
        except httpx.TransportError:
            return False


def install_offloader(directory: Path) -> None:
    """Put Pulsar's own offloader where a broker that runs in `directory` finds it."""
    (jar,) = fetch_lock(OFFLOADER)
    folder = directory / "offloaders"
    folder.mkdir(exist_ok=True)
    # in a Maven repository it is called .jar; Pulsar loads only what is called .nar
    shutil.copyfile(jar, folder / f"{jar.stem}.nar")
