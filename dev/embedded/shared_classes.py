"""Loaded classes in a file that all JVMs of this machine map, instead of reading jars and verifying bytecode at each
start: it halves the processor time that a start takes.

A JVM that finds no such file, or another one than its own jars and version make, starts as without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from dev.embedded.jars import cache_directory
from offloader.java import Java

_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")  # of classes that cannot be shared there are hundreds


def shared_classes(java: Java, jars: Sequence[Path]) -> Path:
    """The file for this Java and these jars, in this order; whether it is there or not."""
    named = [java.executable.resolve(), *jars]
    told = "\n".join(f"{path} {path.stat().st_mtime_ns if path.exists() else None}" for path in named)
    return cache_directory().parent / "classes" / f"{hashlib.sha256(told.encode()).hexdigest()[:32]}.jsa"


def sharing(file: Path) -> tuple[str, ...]:
    """Java options of a program that uses what is there."""
    return (f"-XX:SharedArchiveFile={file}", *_QUIET) if file.exists() else ()


def make(file: Path, run: Callable[[Path, tuple[str, ...]], None]) -> None:
    """Make it where it is not there: `run` runs, in a folder, a program with the options that it is given, until that
    has ended by itself. Processes that want the same file wait for each other."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if file.exists():
            return
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            made = Path(folder) / file.name
            run(Path(folder), (f"-XX:ArchiveClassesAtExit={made}", *_QUIET))
            with contextlib.suppress(FileNotFoundError):  # a Java that cannot: everything goes on without it
                made.replace(file)
