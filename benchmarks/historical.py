"""`historical`: one topic with much history in closed ledgers, offloaded by 1, 2 and 4 Spark tasks at a time."""

from __future__ import annotations

import json
import re
import shutil

from benchmarks.figures import Figure, Report
from benchmarks.offloading import Offloading
from benchmarks.options import Options
from benchmarks.pulsar import Cluster, stored
from offloader.errors import FatalError
from offloader.model import KIB, MIB

SLOTS = (1, 2, 4)
SEGMENTS = 8  # that the topic fills
LEDGERS = 12
ENTRY = 100 * KIB  # a batch
SECONDS = 30  # in which one reader has all of it, where each is limited as by a network
PLANNED = re.compile(r"planned plan=\d+")
OFFLOADED = re.compile(r"offloaded topic=")


def run(options: Options) -> Report:
    figures: list[Figure] = []
    with Cluster(
        options.folder / "pulsar-historical",
        configuration={"managedLedgerMaxEntriesPerLedger": str(options.batched_bytes // ENTRY // LEDGERS)},
    ) as cluster:
        namespace = cluster.namespace("public/historical")
        info = cluster.fill(f"persistent://{namespace}/topic", options.batched_bytes, batched=True)
        size = stored(info)
        limited = options.batched_bytes // SECONDS
        for limit, name in ((limited, f"{limited / MIB:.0f} MiB/s a reader"), (0, "as fast as it comes")):
            found = {slots: _measured(options, cluster, namespace, slots, limit) for slots in SLOTS}
            for slots, seconds in found.items():
                options.say(f"historical: {name}: {slots}: {seconds:.1f} s")
                speed = size / seconds / 1e6
                ratio = found[1] / seconds
                figures.append(Figure(f"{name}, {slots} at a time", speed, "MB/s", ratio, "one after the other"))
    title = f"{size / MIB:.0f} MiB in {len(info.sizes)} ledgers, {SEGMENTS} segments"
    return Report("historical", title, figures, ("from the first plan to the last commit, to local disk",))


def _measured(options: Options, cluster: Cluster, namespace: str, slots: int, limit: int) -> float:
    """Seconds."""
    folder = options.folder / f"historical-{slots}-{limit}"
    value = {"role": "worker", "source": "bytes_per_second", "topic": "/topic", "value": limit}
    offloading = Offloading(
        cluster,
        namespace,
        folder,
        spark=json.dumps({"master": f"local[{slots + 1}]", "trigger": "500ms"}),
        limits=f"historySegments: {slots}",
        policies=f"maxOffloadSegmentSizeInBytes: {options.batched_bytes // SEGMENTS}",
        faults=[value] if limit else [],
    )
    offloading.until_caught_up()
    seconds = _seconds(offloading)
    shutil.rmtree(offloading.archive)
    _forget(cluster, namespace)
    return seconds


def _seconds(offloading: Offloading) -> float:
    lines = list(offloading.lines())
    begun = [at for at, line in lines if PLANNED.match(line)]
    ended = [at for at, line in lines if OFFLOADED.match(line)]
    if not begun or not ended:
        raise FatalError(f"nothing was offloaded, see {offloading.log}")
    return ended[-1] - begun[0]


def _forget(cluster: Cluster, namespace: str) -> None:
    """The next run begins at the topic's begin again."""
    for topic in cluster.admin.topics(namespace):
        cluster.standalone.admin("DELETE", f"{topic.rest_path}/subscription/__offloader?force=true")
