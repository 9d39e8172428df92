"""Classes that JVMs share: made once, used where they are there, and never a reason not to start."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.embedded.shared_classes import make, shared_classes, sharing
from offloader.java import Java

JAVA = Java(Path("/opt/jdk"), Path("/opt/jdk/bin/java"), 17)
A, B = Path("/cache/a.jar"), Path("/cache/b.jar")


def test_another_java_or_other_jars_or_another_order_is_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    newer = Java(Path("/opt/jdk21"), Path("/opt/jdk21/bin/java"), 21)
    jar = tmp_path / "a.jar"
    before = shared_classes(JAVA, [jar])
    jar.write_text("x")
    files = {shared_classes(JAVA, jars) for jars in ([A, B], [B, A], [A], [jar])} | {shared_classes(newer, [A]), before}
    assert len(files) == 6
    assert shared_classes(JAVA, [A, B]) in files
    assert all(file.is_relative_to(tmp_path) for file in files)


def test_they_are_made_once_and_used_from_then_on(tmp_path: Path) -> None:
    file, runs = tmp_path / "classes" / "x.jsa", []

    def run(folder: Path, options: tuple[str, ...]) -> None:
        runs.append(folder)
        assert not sharing(file)
        made = next(option for option in options if option.startswith("-XX:ArchiveClassesAtExit="))
        Path(made.partition("=")[2]).write_text("classes")

    assert sharing(file) == ()
    make(file, run)
    make(file, run)
    assert len(runs) == 1
    assert file.read_text() == "classes"
    assert sharing(file)[0] == f"-XX:SharedArchiveFile={file}"
    assert not runs[0].exists()


def test_a_program_that_fails_or_writes_nothing_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "x.jsa"

    def fails(folder: Path, options: tuple[str, ...]) -> None:
        (folder / "x.jsa").write_text("half")
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        make(file, fails)
    make(file, lambda folder, options: None)
    assert sharing(file) == ()
