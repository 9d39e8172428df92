"""Java 17 or 21 with all its modules, or one line that says what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from pwd import getpwall

import pytest

from offloader.errors import FatalError
from offloader.java import check_user, find_java

MODULES = "java.base@17.0.15\njdk.incubator.vector@17.0.15\n"


def described(version: str, modules: str = MODULES) -> str:
    return f"Property settings:\n    java.home = /opt/jdk\n    java.specification.version = {version}\n\n{modules}"


@pytest.mark.parametrize("version", ["17", "21"])
def test_17_and_21_serve(tmp_path: Path, version: str) -> None:
    java = find_java({"PATH": str(_install(tmp_path).parent)}, lambda _: described(version))
    assert (java.home, java.version) == (Path("/opt/jdk"), int(version))


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        (described("1.8"), "is Java 8"),
        (described("25"), "is Java 25"),
        (described("17", "java.base@17.0.15\n"), "has no module jdk.incubator.vector"),
        ("", "does not tell its version"),
        ("java.vm.specification.version = 17\nno java", "does not tell its version"),
    ],
)
def test_others_are_refused(tmp_path: Path, description: str, reason: str) -> None:
    with pytest.raises(FatalError, match=reason):
        find_java({"PATH": str(_install(tmp_path).parent)}, lambda _: description)


def _install(folder: Path) -> Path:
    """A java command that `find_java` can find; what it says comes from the test."""
    (folder / "bin").mkdir(parents=True)
    command = folder / "bin" / "java"
    command.write_text("#!/bin/sh\nexit 1\n")
    command.chmod(0o755)
    return command


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, path = _install(tmp_path / "home"), _install(tmp_path / "path")
    environment = {"JAVA_HOME": str(home.parent.parent), "PATH": str(path.parent)}
    assert find_java(environment, lambda _: described("21")).executable == home


def test_a_wrong_java_home_is_passed_over(tmp_path: Path) -> None:
    home, path = _install(tmp_path / "home"), _install(tmp_path / "path")
    environment = {"JAVA_HOME": str(home.parent.parent), "PATH": str(path.parent)}
    assert find_java(environment, lambda java: described("25" if java == home else "17")).executable == path


def test_only_wrong_ones_name_each_of_them_in_one_line(tmp_path: Path) -> None:
    home, path = _install(tmp_path / "home"), _install(tmp_path / "path")
    environment = {"JAVA_HOME": str(home.parent.parent), "PATH": str(path.parent)}
    with pytest.raises(FatalError, match="install OpenJDK 17 or 21") as failure:
        find_java(environment, lambda java: described("25" if java == home else "1.8"))
    assert f"{home} is Java 25; {path} is Java 8" in str(failure.value)
    assert "\n" not in str(failure.value)


def test_none_at_all(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="no Java found"):
        find_java({"PATH": str(tmp_path)})


def test_a_java_that_says_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="does not tell its version"):
        find_java({"PATH": str(_install(tmp_path).parent)})


def test_a_java_that_does_not_run_is_refused(tmp_path: Path) -> None:
    damaged = _install(tmp_path)
    damaged.write_bytes(b"\x7fELF")
    with pytest.raises(FatalError, match="does not run"):
        find_java({"PATH": str(damaged.parent)})


def test_who_has_no_name_is_told_before_spark_ends_with_a_trace() -> None:
    nameless = next(number for number in range(123_456, 1_000_000) if number not in {one.pw_uid for one in getpwall()})
    with pytest.raises(FatalError, match=f"user {nameless} has no name in /etc/passwd"):
        check_user(nameless)
    check_user(0)


def test_a_setup_without_java_is_told_in_one_line_what_to_install(tmp_path: Path) -> None:
    """By a Python into which nothing is installed yet."""
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-S", "-m", "offloader.java"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: no Java found in JAVA_HOME or PATH: install OpenJDK 17 or 21"), line
