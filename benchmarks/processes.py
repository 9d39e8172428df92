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


def cpu_seconds(driver: int) -> dict[int, tuple[str, float]]:
    """CPU seconds so far of each process: pid -> (role, seconds)."""
    found = {pid: (role, _stat(pid)) for pid, role in by_role(driver).items()}
    return {pid: (role, (int(fields[11]) + int(fields[12])) / TICK) for pid, (role, fields) in found.items() if fields}


def cpu_between(before: dict[int, tuple[str, float]], after: dict[int, tuple[str, float]]) -> dict[str, float]:
    """CPU seconds by role of the processes that lived at the end."""
    used: dict[str, float] = {}
    for pid, (role, seconds) in after.items():
        used[role] = used.get(role, 0.0) + seconds - before.get(pid, (role, 0.0))[1]
    return used


def _stat(pid: int) -> list[str]:
    """State, parent, and so on, as proc(5) has them after the command's name."""
    return _read(pid, "stat").decode(errors="replace").rpartition(")")[2].split()


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
