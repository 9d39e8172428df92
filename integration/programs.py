"""Programs of others that tests run: built once with Go, or fetched with npm, into the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

BUILD_SECONDS = 900


def built(name: str, module: str, version: str) -> Path:
    """A Go program, built if it is not in the user's cache yet (some minutes)."""
    folder = program_folder()
    program = folder / f"{name}-{version}"
    if not program.exists():
        _build(folder, program, name, module)
    return program


def fetched(name: str, version: str) -> Path:
    """The folder of an npm package and of those that it needs, fetched if it is not in the user's cache yet."""
    folder = program_folder() / f"{name}-{version}"
    if not folder.exists():
        _fetch(folder, name, version)
    return folder / "node_modules" / name


def program_folder() -> Path:
    """Where built programs are kept: in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pulsar-offloader" / "bin"


def _build(folder: Path, program: Path, name: str, module: str) -> None:
    if shutil.which("go") is None:
        pytest.fail(f"{name} has to be built: install Go", pytrace=False)
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


def _fetch(folder: Path, name: str, version: str) -> None:
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    if missing:
        pytest.fail(f"{name} needs {missing[0]}: install Node.js and npm", pytrace=False)
    # Beside its place and moved, as what is built. What packages want to run at their installation does not run.
    scratch = folder.with_name(f"fetching-{name}-{os.getpid()}")
    scratch.mkdir(parents=True)
    try:
        command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(scratch)]
        done = subprocess.run(
            [*command, f"{name}@{version}"], capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
        if done.returncode != 0:
            pytest.fail(f"{name} could not be fetched: {done.stderr[-2000:]}", pytrace=False)
        with suppress(OSError):  # another session was first
            scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
