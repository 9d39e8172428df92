"""Containers of the built image, run with what Linux itself offers: no daemon, but root. The root file system is
read-only, the user and the environment are those of the image, no capability is left, the first process is its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dev.embedded import launch
from integration.processes import HANGS

SCRIPT = Path(__file__).with_name("container.sh")
LAUNCH = Path(launch.__file__)
WRITABLE = ("/tmp", "/var/lib/offloader")


@dataclass(frozen=True)
class Image:
    """A built image: its mounted file system, and what it says of how to run it."""

    root: Path
    config: Mapping[str, Any]
    layers: Sequence[str]  # digests, the base's first

    @property
    def user(self) -> tuple[str, str]:
        user, _, group = str(self.config["User"]).partition(":")
        return user, group

    @property
    def environment(self) -> list[str]:
        return [*self.config["Env"], f"HOME={self.config['WorkingDir']}"]


@dataclass
class Container:
    """One run of the image in `folder`. `binds`: folders of the machine that it sees, source to target and mode.

    As a context manager it ends everything in it.
    """

    image: Image
    folder: Path
    binds: Mapping[Path, tuple[str, str]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "root").mkdir(parents=True)
        self.log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(f"--- the end of {self.log}:", *self.text().splitlines()[-40:], sep="\n")
        if self._process is not None:
            self._process.kill()  # and with it, by --kill-child, the first process and so all others
            self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()

    def start(self, *arguments: str, entrypoint: Sequence[str] | None = None) -> Self:
        """Start the image's command, or these arguments of its entry point; returns at once."""
        first = self.image.config["Entrypoint"] if entrypoint is None else entrypoint
        user, group = self.image.user
        environment = {
            **os.environ,
            "IMAGE": str(self.image.root),
            "ROOT": str(self.folder / "root"),
            "WORKDIR": self.image.config["WorkingDir"],
            "WRITABLE": " ".join(WRITABLE),
            "BINDS": "".join(f"{source} {target} {mode}\n" for source, (target, mode) in self.binds.items()),
            "USER_ID": user,
            "GROUP_ID": group,
        }
        told = [f"{name}={value}" for name, value in self.environment.items()]
        command = [*self.image.environment, *told, *first, *(arguments or self.image.config["Cmd"])]
        with self.log.open("ab") as log:
            unshare = [str(shutil.which("unshare")), "--mount", "--pid", "--fork", "--kill-child", "sh", str(SCRIPT)]
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LAUNCH), *unshare, *command],  # does not outlive us
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self

    def run(self, *arguments: str, entrypoint: Sequence[str] | None = None) -> str:
        """The same to its end, which must be a good one; what it wrote."""
        code = self.start(*arguments, entrypoint=entrypoint).exit_code()
        assert code == 0, f"exit code {code}:\n{self.text()[-4000:]}"
        return self.text()

    def inside(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A further process in the running container, as its health check is one."""
        user, group = self.image.user
        entered = ["nsenter", "--target", str(self.first()), "--mount", "--pid", "--root", "--wd"]
        identity = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--bounding-set=-all"]
        return subprocess.run(
            [*entered, *identity, "env", "-i", *self.image.environment, *command],
            capture_output=True,
            text=True,
            timeout=HANGS,
            check=False,
        )

    def until(self, holds: Callable[[], object], what: str) -> None:
        """Wait for a condition while the container runs."""
        deadline = time.monotonic() + HANGS
        while not holds():
            assert self.process.poll() is None, f"the container ended with {self.process.returncode} before {what}"
            assert time.monotonic() < deadline, f"{what}: not within {HANGS:.0f} s"
            time.sleep(0.1)

    def stop(self) -> int:
        """The image's stop signal to the first process; the exit code."""
        os.kill(self.first(), getattr(signal, self.image.config["StopSignal"]))
        return self.exit_code()

    def exit_code(self) -> int:
        return self.process.wait(HANGS)

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def first(self) -> int:
        """The machine's number of the container's process 1."""
        with suppress(FileNotFoundError):
            for child in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
                numbers = re.findall(r"^NSpid:.*\t(\d+)$", Path(f"/proc/{child}/status").read_text(), re.MULTILINE)
                if numbers == ["1"]:
                    return int(child)
        raise AssertionError(f"the container has ended:\n{self.text()[-2000:]}")


def health_check(image: Image) -> list[str]:
    """The command of the image's health check."""
    kind, *command = image.config["Healthcheck"]["Test"]
    assert kind == "CMD"
    return command


def config_of(inspected: str) -> Mapping[str, Any]:
    """What `buildah inspect` says of how an image is run."""
    return json.loads(inspected)["Docker"]["config"]
