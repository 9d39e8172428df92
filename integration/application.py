"""The real application as a process of its own: started, watched, killed, stopped, and nothing of it left behind.

Needs /proc (Linux).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import yaml

from integration.launcher import program
from integration.processes import HANGS, suspend
from offloader.errors import RetryableError

MARKER = "OFFLOADER_TEST_PROCESS"


class RunningApplication:
    """`offloader run` with this configuration, in `workdir`. As a context manager it ends everything that it started.

    `env` is added to the environment; `faults`: see `tests.fakes.scripted`; `light`: without Spark.
    The configuration must name a metrics port.
    """

    def __init__(
        self,
        config_text: str,
        workdir: Path,
        env: Mapping[str, str] | None = None,
        faults: Iterable[Mapping[str, Any]] = (),
        *,
        light: bool = False,
    ) -> None:
        workdir.mkdir(parents=True)
        self._program = program(faults, light=light)
        self.config = workdir / "offloader.yaml"
        self.config.write_text(config_text)
        self.log = workdir / "log"
        self._ready_url = f"http://127.0.0.1:{yaml.safe_load(config_text)['metrics']['port']}/readyz"
        self._marker = str(uuid.uuid4())
        self._environment = {**os.environ, "TMPDIR": str(workdir), **(env or {}), MARKER: self._marker}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._process is not None:
            print(f"--- the end of {self.log}:", *self.log_lines()[-40:], sep="\n")
        self.end()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The driver. Its JVM and Spark's Python workers are its descendants."""
        assert self._process is not None, "not started"
        return self._process

    def start(self, *arguments: str) -> Self:
        """Start `offloader run`; returns at once."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._program, "--config", self.config, *arguments],
                cwd=self.config.parent,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def run_until_caught_up(self, timeout: float) -> int:
        """`offloader run --until-caught-up`; the exit code."""
        self.start("--until-caught-up", "--timeout", f"{timeout:.0f}s")
        return self.exit_code(timeout + HANGS)

    def wait_ready(self, seconds: float = HANGS) -> Self:
        """Until `/readyz` says so: the store and Pulsar have answered."""
        self.until(self._is_ready, "ready", seconds)
        return self

    def until(self, check: Callable[[], object], what: str, seconds: float = HANGS) -> None:
        """Wait for a condition while the driver runs."""
        deadline = time.monotonic() + seconds
        while not _holds(check):
            assert self.process.poll() is None, f"the driver ended with {self.process.returncode} before it was {what}"
            assert time.monotonic() < deadline, f"not {what} within {seconds:.0f} s"
            time.sleep(0.05)

    def exit_code(self, seconds: float = HANGS) -> int:
        """Wait for the driver's end."""
        return self.process.wait(seconds)

    def kill(self) -> None:
        """SIGKILL to the driver alone: the JVM and the workers live on until they notice."""
        self.process.kill()
        self.process.wait()

    def crash(self) -> None:
        """SIGKILL to the JVM and the driver at once, as a crash of their machine: nobody ends the workers any more."""
        for pid in self._with(b"org.apache.spark"):
            _send(pid, signal.SIGKILL)
        self.kill()

    def kill_worker(self, choice: random.Random) -> bool:
        """SIGKILL to a Python process of Spark's that reads slices, plans or looks up data sources; whether there was
        one."""
        processes = [*self.workers(b""), *self._with(b"python_streaming_source_runner")]
        return bool(processes) and _send(choice.choice(processes), signal.SIGKILL)

    def workers(self, module: bytes = b"pyspark.worker") -> list[int]:
        """The Python workers that run slices: what Spark's daemon for this module has forked."""
        daemons = set(self._with(b"daemon\0" + module))
        return sorted(pid for pid in daemons if _parent(pid) in daemons)

    def suspend(self) -> None:
        """SIGSTOP to the driver."""
        suspend(self.process.pid)

    def resume(self) -> None:
        """SIGCONT to the driver."""
        self.process.send_signal(signal.SIGCONT)

    @property
    def suspended(self) -> bool:
        """Whether a SIGSTOP has stopped the driver."""
        return _status(self.process.pid)[:1] == ["T"]

    def stop(self, seconds: float = HANGS) -> int:
        """SIGTERM; the exit code."""
        self.process.terminate()
        return self.exit_code(seconds)

    def end(self) -> None:
        """Kill whatever is left of it."""
        deadline = time.monotonic() + HANGS
        while left := self.living():
            assert time.monotonic() < deadline, f"{left} cannot be killed"
            for pid in left:
                _send(pid, signal.SIGKILL)
            if self._process is not None:
                self._process.poll()
            time.sleep(0.02)
        if self._process is not None:
            self._process.wait()

    def living(self) -> list[int]:
        """Everything that carries our mark and is not dead yet."""
        mark = f"{MARKER}={self._marker}".encode()
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [
            pid for pid in pids if mark in _read(pid, "environ").split(b"\0") and _status(pid)[:1] not in ([], ["Z"])
        ]

    def log_lines(self) -> list[str]:
        """What it has logged so far."""
        return self.log.read_text(errors="replace").splitlines() if self.log.exists() else []

    def logged(self, text: str) -> bool:
        """Whether a line with this text was logged."""
        return any(text in line for line in self.log_lines())

    def _with(self, text: bytes) -> list[int]:
        return [pid for pid in self.living() if text in _read(pid, "cmdline")]

    def _is_ready(self) -> bool:
        try:
            return httpx.get(self._ready_url, timeout=5.0).is_success
        except httpx.TransportError:
            return False


def _holds(check: Callable[[], object]) -> bool:
    """Not yet, where Pulsar or a store cannot say at this moment."""
    try:
        return bool(check())
    except RetryableError:
        return False


def _send(pid: int, number: signal.Signals) -> bool:
    """Whether the process was still there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _read(pid: int, name: str) -> bytes:
    """A file of a process, empty where the process is gone or not ours."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _status(pid: int) -> list[str]:
    """State, parent, and so on, as proc(5) has them after the command's name."""
    return _read(pid, "stat").decode(errors="replace").rpartition(")")[2].split()


def _parent(pid: int) -> int:
    status = _status(pid)
    return int(status[1]) if status else 0
