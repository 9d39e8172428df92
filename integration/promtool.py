"""promtool, which checks Prometheus' rules: that of the machine, or Debian's, fetched once into the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from integration.programs import program_folder

SECONDS = 300
MISSING = "promtool is needed: install Debian's package prometheus"


def promtool() -> Path:
    """The program. Fails the test where it is not there and cannot be fetched."""
    there = shutil.which("promtool")
    if there:
        return Path(there)
    program = program_folder() / "promtool"
    if not program.exists():
        _fetch(program)
    return program


def _fetch(program: Path) -> None:
    """Without installing: Debian's package starts a server where it is installed."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.fail(MISSING, pytrace=False)
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as scratch:
        if not _done(["apt-get", "download", "prometheus"], scratch):
            # Without lists of packages: a fresh machine's. Only root may fetch these.
            _done(["apt-get", "update"], scratch)
            if not _done(["apt-get", "download", "prometheus"], scratch):
                pytest.fail(MISSING, pytrace=False)
        (package,) = Path(scratch).glob("prometheus_*.deb")
        if not _done(["dpkg-deb", "-x", str(package), "unpacked"], scratch):
            pytest.fail(MISSING, pytrace=False)
        # Moved into its place whole: another session may fetch it at the same time.
        (Path(scratch) / "unpacked" / "usr" / "bin" / "promtool").replace(program)


def _done(command: list[str], folder: str) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    answer = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=SECONDS, check=False)
    return answer.returncode == 0
