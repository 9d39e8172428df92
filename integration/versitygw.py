"""versitygw, an S3 server over a folder: built once with Go into the user's cache, started per test session."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.storage.servers import ACCESS_KEY, SECRET_KEY, S3Server, free_port, serving

VERSION = "v1.8.0"
MODULE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
BUILD_SECONDS = 900


def binary() -> Path:
    """The server's program. Fails the test where it is not there and cannot be built."""
    return built("versitygw", MODULE, VERSION)


def built(name: str, module: str, version: str) -> Path:
    """A Go program, built if it is not in the user's cache yet (some minutes)."""
    folder = program_folder()
    program = folder / f"{name}-{version}"
    if not program.exists():
        _build(folder, program, name, module)
    return program


def program_folder() -> Path:
    """Where built programs are kept: in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pulsar-offloader" / "bin"


def _build(folder: Path, program: Path, name: str, module: str) -> None:
    if shutil.which("go") is None:
        pytest.fail(
            f"{name} has to be built: install Go, or set OFFLOADER_SKIP_VERSITYGW=1 to do without", pytrace=False
        )
    # Built beside its place and moved: another session may build at the same time, or this one be ended.
    scratch = folder / f"building-{os.getpid()}"
    scratch.mkdir(parents=True)
    try:
        environment = {**os.environ, "GOBIN": str(scratch)}
        done = subprocess.run(
            ["go", "install", "-p", "2", module],
            env=environment,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            pytest.fail(f"{name} could not be built: {done.stderr[-2000:]}", pytrace=False)
        (scratch / name).replace(program)
    finally:
        shutil.rmtree(scratch)


@contextmanager
def running(folder: Path) -> Iterator[S3Server]:
    """A server whose buckets are in `folder`."""
    port = free_port()
    data = folder / "data"
    data.mkdir(parents=True)
    command = [str(binary()), "--port", f"127.0.0.1:{port}", "--access", ACCESS_KEY, "--secret", SECRET_KEY, "--quiet"]
    with serving([*command, "posix", str(data)], port, folder / "log") as server:
        yield server
