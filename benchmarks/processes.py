"""Memory and CPU of the application's processes by role: driver, JVM, Spark's Python processes. Needs /proc (Linux)."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def by_role(driver: int) -> dict[int, str]:
    """The driver and its descendants: pid -> role."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = {driver: "driver"}, list(children.get(driver, ()))
    while todo:
        pid = todo.pop()
        found[pid] = _role(pid)
        todo += children.get(pid, ())
    return found


def _role(pid: int) -> str:
    command = _read(pid, "cmdline").split(b"\0")
    return "jvm" if command[0].endswith(b"java") else "spark-python"


def memory(driver: int) -> Counter[str]:
    """Bytes by role: the proportional set size (shared pages counted once)."""
    used: Counter[str] = Counter()
    for pid, role in by_role(driver).items():
        lines = _read(pid, "smaps_rollup").decode().splitlines()
        used[role] += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return used


def cpu_seconds(driver: int) -> Counter[str]:
    """CPU seconds so far by role, those of children that have ended included."""
    used: Counter[str] = Counter()
    for pid, role in by_role(driver).items():
        fields = _stat(pid)
        if fields:
            used[role] += sum(int(n) for n in fields[11:15]) / TICK  # type: ignore[assignment]
    return used


def _stat(pid: int) -> list[str]:
    """State, parent, and so on, as proc(5) has them after the command's name."""
    return _read(pid, "stat").decode(errors="replace").rpartition(")")[2].split()


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
