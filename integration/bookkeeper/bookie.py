"""One bookie: started, stopped, killed, paused, brought back."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Mapping
from typing import Protocol

from dev.embedded.commands import JavaCommands
from dev.embedded.process import JavaProcess
from integration.bookkeeper.settings import JAVA_OPTIONS, bookie_configuration
from integration.java_server import JavaServer

_STOP_SECONDS = 15.0


class Registrations(Protocol):
    """What the metadata service knows of bookies."""

    def is_registered(self, bookie: str) -> bool: ...

    def unregister(self, bookie: str) -> None: ...

    def forget_cookie(self, bookie: str) -> None: ...


class Bookie(JavaServer):
    """A bookie and its disk, in `directory`. `id` is what ledgers call it; it survives restarts, as the port does."""

    def __init__(
        self,
        number: int,
        port: int,
        metadata_uri: str,
        commands: JavaCommands,
        registrations: Registrations,
        overrides: Mapping[str, str],
    ) -> None:
        name = f"bookie-{number}"
        self.port = port
        self.directory = commands.directory / name
        settings = {**bookie_configuration(number, port, metadata_uri, self.directory), **overrides}
        super().__init__(name, commands, settings)
        self.id = settings.get("bookieId", f"127.0.0.1:{port}")
        self._registrations = registrations

    def __repr__(self) -> str:
        return f"<{self.name} {self.id}>"

    def launch(self) -> None:
        """Start it; `await_ready` waits for it."""
        self.kill()
        # It would wait for its predecessor's session to end.
        self._registrations.unregister(self.id)
        self._begin("org.apache.bookkeeper.server.Main", "--conf", JAVA_OPTIONS)

    def serves(self) -> bool:
        """And is registered."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5.0):
                return self._registrations.is_registered(self.id)
        except OSError:
            return False

    def start(self) -> None:
        self.launch()
        self.await_ready()

    def stop(self) -> None:
        """Shut down in order. Nothing happens where it does not run."""
        self._end(lambda process: process.stop(_STOP_SECONDS))

    def kill(self) -> None:
        """End it at once, as a crash would. Its registration stays until its session ends, or until it is started
        again."""
        self._end(JavaProcess.kill)

    def _end(self, how: Callable[[JavaProcess], None]) -> None:
        if self._process is None:
            return
        self.resume()
        how(self._process)
        self._process = None

    def back(self) -> None:
        """Running again, whatever was done to it."""
        self.resume()
        if not self.running:
            self.start()

    def lose_disk(self) -> None:
        """What an operator does to get it to start with an empty disk: delete its cookie. It must not run."""
        assert self._process is None, f"{self.name} runs"
        shutil.rmtree(self.directory)
        self._registrations.forget_cookie(self.id)
