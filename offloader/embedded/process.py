"""One Java process in a process group of its own, which does not outlive us."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_LAUNCH = Path(__file__).with_name("launch.py")


class JavaProcess:
    """Runs `command` in `directory`; its output is appended to the file `log`."""

    def __init__(self, command: Sequence[str], directory: Path, log: Path, environment: Mapping[str, str] | None = None) -> None:
        with log.open("ab") as output:
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
