"""Java sources of tests, compiled by the JDK that also runs them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from offloader.java import find_java


def compiled(source: Path, jars: Iterable[Path], folder: Path) -> Path:
    """The folder with the classes. `jars`: those that the source names; javac looks no further."""
    compiler = find_java().executable.with_name("javac")
    assert compiler.exists(), f"{compiler} is missing: these tests need a JDK"
    classpath = os.pathsep.join(map(str, jars))
    command = [str(compiler), "-proc:none", "-nowarn", "-cp", classpath, "-d", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder
