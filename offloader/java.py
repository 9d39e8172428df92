"""Finds the Java that Pulsar and Spark run on, and looks whether Spark would start in it.

Both support 17 and 21. Spark 4 also needs the module `jdk.incubator.vector`, which trimmed runtimes lack.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from offloader.errors import FatalError

VERSIONS = (17, 21)
_MODULE = "jdk.incubator.vector"
_ADVICE = "install OpenJDK 17 or 21 (not a trimmed runtime) and let JAVA_HOME name its folder"
_TIMEOUT = 60.0

Describe = Callable[[Path], str]


@dataclass(frozen=True, slots=True)
class Java:
    """A usable Java: the folder for JAVA_HOME, the command, its version (17 or 21)."""

    home: Path
    executable: Path
    version: int


def describe_java(executable: Path) -> str:
    """A Java's properties and modules, as it prints them. Raises FatalError where it does not run."""
    command = [str(executable), "-XshowSettings:properties", "--list-modules"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FatalError(f"{executable} does not run: {error}") from error
    return answer.stderr + answer.stdout


def find_java(environment: Mapping[str, str] | None = None, describe: Describe = describe_java) -> Java:
    """The first usable Java of JAVA_HOME and PATH. Raises FatalError that says why each was refused."""
    candidates = _candidates(os.environ if environment is None else environment)
    if not candidates:
        raise FatalError(f"no Java found in JAVA_HOME or PATH: {_ADVICE}")
    refusals = []
    for executable in candidates:
        try:
            return check_java(executable, describe(executable))
        except FatalError as refusal:
            refusals.append(str(refusal))
    raise FatalError(f"{'; '.join(refusals)}: {_ADVICE}")


def check_user(number: int | None = None) -> None:
    """Spark asks Java who it is, and Java has names alone. Raises FatalError where our user has none."""
    number = os.getuid() if number is None else number
    try:
        pwd.getpwuid(number)
    except KeyError as error:
        raise FatalError(
            f"user {number} has no name in /etc/passwd, without which Spark does not start: run as one that has a "
            "name (in our image: 10001), or add a line to /etc/passwd"
        ) from error


def _candidates(environment: Mapping[str, str]) -> list[Path]:
    home = environment.get("JAVA_HOME")
    found = [shutil.which("java", path=str(Path(home) / "bin")) if home else None]
    found.append(shutil.which("java", path=environment.get("PATH", os.defpath)))
    return [Path(path) for path in dict.fromkeys(found) if path]


def check_java(executable: Path, description: str) -> Java:
    """The Java of a description. Raises FatalError for a wrong version or a trimmed runtime."""
    version = parse_version(description)
    if version is None:
        raise FatalError(f"{executable} does not tell its version")
    if version not in VERSIONS:
        raise FatalError(f"{executable} is Java {version}")
    if re.search(rf"^{re.escape(_MODULE)}(@|$)", description, re.MULTILINE) is None:
        raise FatalError(f"{executable} has no module {_MODULE}")
    home = re.search(r"^\s*java\.home = (.+?)\s*$", description, re.MULTILINE)
    return Java(Path(home[1]) if home else executable.resolve().parent.parent, executable, version)


def parse_version(description: str) -> int | None:
    """The feature version (17 for 17.0.15, 8 for 1.8) in a description; None without one."""
    match = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)\s*$", description, re.MULTILINE)
    return int(match[1]) if match else None


if __name__ == "__main__":  # `make setup` asks
    try:
        find_java()
    except FatalError as error:
        sys.exit(f"error: {error}")
