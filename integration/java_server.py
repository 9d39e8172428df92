"""A Java server in a process of its own, with a configuration file: what brokers and bookies have in common."""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from dev.embedded.commands import JavaCommands
from dev.embedded.process import JavaProcess
from dev.embedded.settings import properties
from integration.processes import HANGS, suspend


class JavaServer(ABC):
    """Started, paused, brought back. Its settings, and with them its ports, survive its restarts. `commands`: with the
    jars that its next start takes."""

    def __init__(
        self,
        name: str,
        commands: JavaCommands,
        settings: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = commands.directory / f"{name}.log"
        self.commands = commands
        self._settings = settings
        self._environment = environment
        self._process: JavaProcess | None = None
        self._paused = False

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def running(self) -> bool:
        """Whether it has a process, which may be paused; one may have ended by itself."""
        return self._process is not None and not self._process.ended_within(0)

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    @abstractmethod
    def serves(self) -> bool:
        """Whether it answers whoever asks now."""

    def configure(self, settings: Mapping[str, str]) -> None:
        """More lines of its file, from its next start on."""
        self._settings = {**self._settings, **settings}

    def await_ready(self) -> None:
        """Until it serves. Raises FatalError that names its log."""
        assert self._process is not None, f"{self.name} does not run"
        self._process.await_ready(self.serves, HANGS)

    def pause(self) -> None:
        """Let it stand still, as a long garbage collection would: it takes connections and requests, and answers
        none."""
        if not self._paused:
            suspend(self.pid)
        self._paused = True

    def resume(self) -> None:
        """Go on after `pause`."""
        if self._paused and self.running:
            os.kill(self.pid, signal.SIGCONT)
        self._paused = False

    def _begin(self, main_class: str, option: str, java_options: Sequence[str]) -> None:
        """Start its process. `option`: what its configuration file is passed with."""
        file = self.commands.directory / f"{self.name}.conf"
        file.write_text(properties(self._settings))
        command = self.commands.program(self.name, java_options, (main_class, option, str(file)))
        self._process = JavaProcess(command, self.commands.directory, self.log, self._environment)
