"""One Java process in a process group of its own, which does not outlive us."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from offloader.errors import FatalError

_POLL_SECONDS = 0.1
_TROUBLE = re.compile(r"\bERROR\b|Exception\b|Error:|FATAL")
_LAUNCH = Path(__file__).with_name("launch.py")


class JavaProcess:
    """Runs `command` in `directory`; its output is appended to the file `log`."""

    def __init__(
        self, command: Sequence[str], directory: Path, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        with log.open("ab") as output:
            self._begin = output.tell()
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", "-S", str(_LAUNCH), *command],
                cwd=directory,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The id of the Java process, and of its group."""
        return self._process.pid

    def await_ready(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until `ready`. Raises FatalError with what the log, which it names, says of the trouble."""
        deadline = time.monotonic() + seconds
        while not ready():
            ended = self.ended_within(_POLL_SECONDS)
            if ended or time.monotonic() > deadline:
                problem = "ended while it started" if ended else f"did not start within {seconds:.0f} s"
                raise FatalError(f"{self._log.stem} {problem}, see {self._log}: {self._trouble()}")

    def ended_within(self, seconds: float) -> bool:
        """Whether the process has ended, waiting up to `seconds` for it."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, grace: float) -> None:
        """Ask it to end; after `grace` seconds, end it."""
        self._process.terminate()
        self.ended_within(grace)
        self.kill()

    def kill(self) -> None:
        """End it and its watchdog at once, as a crash would. Nothing happens where both are gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _trouble(self) -> str:
        with self._log.open("rb") as file:
            file.seek(self._begin)
            lines = file.read().decode(errors="replace").splitlines()
        return " | ".join([line.strip() for line in lines if _TROUBLE.search(line)][-3:] or lines[-3:])
