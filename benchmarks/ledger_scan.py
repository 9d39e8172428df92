"""`scan`: all ledgers of a large cluster, from a real ZooKeeper: time, memory, requests.

`python -m benchmarks.ledger_scan ADDRESS` scans once in a process of its own and prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.counted import CountedNodes
from benchmarks.figures import Figure, Report
from benchmarks.ledger_tree import BROKER, EACH, RoomyZooKeeper
from benchmarks.options import Options
from offloader.model import MIB

SECONDS = 3_600


@dataclass(frozen=True, slots=True)
class ScanRun:
    """One scan. `peak`: the process's largest resident memory; `before`: what it had when it began, in bytes."""

    seconds: float
    peak: int
    before: int
    gets: int
    lists: int
    ledgers: int
    certain: int
    referenced: int


def run(options: Options) -> Report:
    count = options.ledgers
    with RoomyZooKeeper(options.folder / "zookeeper") as zookeeper:
        begun = time.monotonic()
        zookeeper.fill(count, options.say)
        options.say(f"scan: {count} ledgers were written in {time.monotonic() - begun:.0f} s")
        command = [sys.executable, "-m", "benchmarks.ledger_scan", zookeeper.address]
        answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=SECONDS).stdout
    found = ScanRun(**json.loads(answer.splitlines()[-1]))
    right = found.certain == count // EACH // EACH and found.certain + found.referenced == found.ledgers == count
    figures = [
        Figure("time", found.seconds, "s"),
        Figure("ledgers a second", found.ledgers / found.seconds, "1/s"),
        Figure("memory at its peak", found.peak / MIB, "MiB"),
        Figure("memory for each ledger", (found.peak - found.before) / found.ledgers, "bytes"),
        Figure("nodes read", found.gets, "", found.gets / found.ledgers, "ledgers"),
        Figure("lists of children read", found.lists, "", found.lists / found.ledgers, "ledgers"),
        Figure("orphans found", found.certain, "", target="all, and no other", met=right),
    ]
    title = f"{count} ledgers of {count // EACH} topics, one in {EACH * EACH} an orphan, over one connection"
    return Report("scan", title, figures, ("ZooKeeper is a process of its own on the same machine",))


def scan_once(address: str) -> ScanRun:
    """One scan of the tree there."""
    from offloader.bookkeeper.zookeeper import connect
    from offloader.config.lifecycle import Lifecycle
    from offloader.lifecycle.ledgers.evidence import Standing
    from offloader.lifecycle.ledgers.scanner import open_scanner
    from offloader.ports.admin import BrokerStores
    from tests.fakes.bookkeeper import SimulatedBookies, SimulatedCluster
    from tests.fakes.cluster import MemoryCluster

    pulsar = MemoryCluster(name="bench")
    pulsar.admin.stores = (BrokerStores(BROKER, f"zk:{address}"),)
    tree = connect(f"zk://{address}/ledgers", timeout=60.0)
    nodes = CountedNodes(tree.nodes)
    tree.nodes = nodes
    section = Lifecycle.model_validate({"bookkeeperIsNotShared": True})
    bookies = SimulatedBookies(SimulatedCluster(1, 0))
    before = _resident("VmRSS")
    begun = time.perf_counter()
    scan = open_scanner(section, tree, bookies, pulsar.admin, connect=_nobody, said=_say).scan()
    seconds = time.perf_counter() - begun
    peak = _resident("VmHWM")
    if scan.refusals or scan.missing:
        raise SystemExit(f"the scan is not what it should be: {scan.refusals} {scan.missing[:3]}")
    certain, referenced = scan.counts[Standing.CERTAIN], scan.counts[Standing.REFERENCED]
    asked = nodes.asked
    return ScanRun(seconds, peak, before, asked["gets"], asked["lists"], scan.ledgers, certain, referenced)


def _resident(which: str) -> int:
    """Of this process, in bytes: now (VmRSS) or at its peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{which}:"))


def _nobody(hosts: tuple[str, ...]) -> Any:
    raise SystemExit(f"{hosts}: nobody else is to be asked")


def _say(what: str, count: int) -> None:
    if count % 100_000 == 0:
        print(f"{time.perf_counter():.0f} scan: {what}: {count}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    print(json.dumps(asdict(scan_once(sys.argv[1]))), flush=True)
    os._exit(0)  # the session need not be ended
