"""`memory`: what the application's processes hold while it offloads a large topic: it must not grow with what has
passed through."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter

from benchmarks import processes
from benchmarks.figures import Figure, Report
from benchmarks.offloading import Offloading
from benchmarks.options import Options
from benchmarks.pulsar import Cluster
from offloader.errors import FatalError
from offloader.model import MIB

EVERY = 0.5  # seconds
GROWTH = 1.1


def run(options: Options) -> Report:
    with Cluster(options.folder / "pulsar-memory") as cluster:
        namespace = cluster.namespace("public/memory")
        cluster.fill(f"persistent://{namespace}/topic", options.batched_bytes, batched=True)
        offloading = Offloading(cluster, namespace, options.folder / "memory")
        with offloading.running("--until-caught-up", "--timeout", "600s") as process:
            samples = _samples(process, offloading)
        if process.returncode != 0:
            raise FatalError(f"the application ended with {process.returncode}, see {offloading.log}")
    middle = len(samples) // 2
    first, second = _peaks(samples[:middle]), _peaks(samples[middle:])
    figures = [_figure(role, first[role], second[role]) for role in sorted(second)]
    title = (
        f"PSS by role over {options.batched_bytes // MIB} MiB, {len(samples)} samples from the first batch to the last"
    )
    return Report(
        "memory", title, figures, ("value: the most in the second half; ratio: to the most in the first half",)
    )


def _samples(process: subprocess.Popen[bytes], offloading: Offloading) -> list[Counter[str]]:
    """Memory by role and in total, from the first committed batch to the last (then workers end, and shared pages count
    for the others)."""
    samples: list[tuple[float, Counter[str]]] = []
    pause = threading.Event()
    while process.poll() is None:
        used = processes.memory(process.pid)
        samples.append((time.time(), used + Counter({"total": used.total()})))
        pause.wait(EVERY)
    first, *_, last = offloading.batches()
    return [used for at, used in samples if first.at <= at <= last.at]


def _peaks(samples: list[Counter[str]]) -> Counter[str]:
    peaks: Counter[str] = Counter()
    for sample in samples:
        peaks |= sample
    return peaks


def _figure(role: str, first: int, second: int) -> Figure:
    ratio = second / first if first else 0.0
    return Figure(role, second / MIB, "MiB", ratio, "first half", f"<= {GROWTH}", ratio <= GROWTH)
