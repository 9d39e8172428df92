"""`python -m benchmarks [NAME…]`: runs them and prints one table each."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from benchmarks import (
    application,
    bookkeeper,
    bridged,
    bridging,
    cursors,
    cutter,
    deletion_rate,
    forgotten,
    gateway,
    historical,
    history,
    idle,
    ledger_scan,
    lifecycle_idle,
    local_disk,
    memory,
    reading,
    rounds,
    shards,
    shards_simulated,
    slots,
    stores,
    whole,
)
from benchmarks.figures import Report
from benchmarks.options import Options
from offloader.errors import OffloadError
from offloader.model import MIB

BENCHMARKS: dict[str, Callable[[Options], Report]] = {
    "cutter": cutter.run,
    "local-disk": local_disk.run,
    "stores": stores.run,
    "application": application.run,
    "memory": memory.run,
    "idle": idle.run,
    "reading": reading.run,
    "bridged": bridged.run,
    "history": history.run,
    "historical": historical.run,
    "bookkeeper": bookkeeper.run,
    "offload": whole.run,
    "offload-batches": whole.run_batches,
    "slots": slots.run,
    "scan": ledger_scan.run,
    "deletion": deletion_rate.run,
    "lifecycle": lifecycle_idle.run,
    "bridging": bridging.run,
    "rounds": rounds.run,
    "shards": shards.run,
    "shards-simulated": shards_simulated.run,
    "cursors": cursors.run,
    "gateway": gateway.run,
    "forgotten": forgotten.run,
}


def main() -> int:
    arguments = _parser().parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140, stderr=arguments.output == "json", highlight=False)
    reports: list[Report] = []
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="bench-", dir=arguments.folder) as folder:
        options = Options(
            folder=Path(folder),
            rounds=arguments.rounds,
            batched_bytes=arguments.batched * MIB,
            unbatched_bytes=arguments.unbatched * MIB,
            idle_topics=arguments.idle_topics,
            idle_seconds=arguments.idle_seconds,
            shard_topics=arguments.shard_topics,
            simulated_topics=arguments.simulated_topics,
            payload_signing=arguments.payload_signing,
            ledgers=arguments.ledgers,
            deletions=arguments.deletions,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )
        try:
            for name in arguments.names or BENCHMARKS:
                options.say(f"{name}: load average {os.getloadavg()[0]:.1f} at its start")
                reports.append(BENCHMARKS[name](options))
                reports[-1].show(console)
        except OffloadError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    if arguments.output == "json":
        about = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "cores": os.cpu_count()}
        print(json.dumps({**about, "reports": [r.as_json() for r in reports]}, indent=2))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        choices=[*BENCHMARKS, []],
        metavar="NAME",
        help=f"of {', '.join(BENCHMARKS)}; all by default",
    )
    parser.add_argument("--output", choices=["text", "json"], default="text")
    parser.add_argument(
        "--folder", type=Path, default=Path("bench-data"), help="where data goes; the disk that is measured"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--batched", type=int, default=2048, metavar="MIB", help="size of the topic of 100 x 1 KiB batches"
    )
    parser.add_argument(
        "--unbatched", type=int, default=300, metavar="MIB", help="size of the topic of single 1 KiB messages"
    )
    parser.add_argument("--idle-topics", type=int, default=1000)
    parser.add_argument("--idle-seconds", type=int, default=60)
    parser.add_argument("--shard-topics", type=int, default=1_000, help="idle topics over two processes (shards)")
    parser.add_argument("--simulated-topics", type=int, default=10_000, help="of rounds and shards-simulated")
    parser.add_argument("--payload-signing", default="auto", help="ours with storage.options.payload_signing (offload)")
    parser.add_argument("--ledgers", type=int, default=1_000_000, help="of the cluster that is scanned (scan)")
    parser.add_argument("--deletions", type=int, default=500, help="marked ledgers, one in a hundred (deletion)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
