"""One bookie: started, stopped, killed, paused, brought back."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Protocol

from dev.embedded.commands import JavaCommands
from dev.embedded.process import JavaProcess
from dev.embedded.settings import properties
from integration.bookkeeper.settings import JAVA_OPTIONS, bookie_configuration
from integration.processes import HANGS, suspend

_STOP_SECONDS = 15.0


class Registrations(Protocol):
    """What the metadata service knows of bookies."""

    def is_registered(self, bookie: str) -> bool: ...

    def unregister(self, bookie: str) -> None: ...

    def forget_cookie(self, bookie: str) -> None: ...


class Bookie:
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
        self.name = f"bookie-{number}"
        self.port = port
        self.directory = commands.directory / self.name
        self.log = commands.directory / f"{self.name}.log"
        self._settings = {**bookie_configuration(number, port, metadata_uri, self.directory), **overrides}
        self.id = self._settings.get("bookieId", f"127.0.0.1:{port}")
        self._commands = commands
        self._registrations = registrations
        self._process: JavaProcess | None = None
        self._paused = False

    def __repr__(self) -> str:
        return f"<{self.name} {self.id}>"

    @property
    def running(self) -> bool:
        """Whether it has a process, which may be paused; one may have ended by itself."""
        return self._process is not None and not self._process.ended_within(0)

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    def launch(self) -> None:
        """Start it; `await_ready` waits for it."""
        self.kill()
        # It would wait for its predecessor's session to end.
        self._registrations.unregister(self.id)
        file = self._commands.directory / f"{self.name}.conf"
        file.write_text(properties(self._settings))
        program = ("org.apache.bookkeeper.server.Main", "--conf", str(file))
        command = self._commands.program(self.name, JAVA_OPTIONS, program)
        self._process = JavaProcess(command, self._commands.directory, self.log)

    def await_ready(self) -> None:
        """Until it serves and is registered. Raises FatalError that names its log."""
        assert self._process is not None, f"{self.name} does not run"
        self._process.await_ready(self._serves, HANGS)

    def _serves(self) -> bool:
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

    def pause(self) -> None:
        """Let it stand still: it takes connections and requests, and answers none."""
        suspend(self.pid)
        self._paused = True

    def resume(self) -> None:
        """Go on after `pause`."""
        if self._paused and self.running:
            os.kill(self.pid, signal.SIGCONT)
        self._paused = False

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
