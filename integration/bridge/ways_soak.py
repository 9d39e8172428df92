"""Migration there, back and there again, interrupted at each step; prints a block for docs/testing.md.

python -m integration.bridge.ways_soak
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
import traceback
from itertools import cycle, islice
from pathlib import Path

from integration.bridge.place import place
from integration.bridge.rounds import WHEN
from integration.bridge.ways import WAYS, migrate


def plan(seed: int) -> list[dict[str, tuple[str, str]]]:
    """Each step of each way once before and once behind; the shorter ways begin again."""
    choice = random.Random(seed)
    places = {way: [(step, when) for step in steps for when in WHEN] for way, steps in WAYS.items()}
    for found in places.values():
        choice.shuffle(found)
    longest = max(map(len, places.values()))
    columns = [islice(cycle(found), longest) for found in places.values()]
    return [dict(zip(places, row, strict=True)) for row in zip(*columns, strict=True)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Migration there, back, and there again.")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no topic begins later")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0, help="so many topics of the plan: an earlier run had them")
    arguments = parser.parse_args()
    begun, failed = time.monotonic(), list[str]()
    done: dict[str, set[tuple[str, str]]] = {way: set() for way in WAYS}
    rounds = 0
    with tempfile.TemporaryDirectory(prefix="ways-") as folder, place(Path(folder)) as here:
        for number, steps in islice(enumerate(plan(arguments.seed)), arguments.skip, None):
            if time.monotonic() - begun > 60 * arguments.minutes:
                break
            rounds += 1
            try:
                migrate(here, steps, open_one=number % 2 == 0)
            except Exception:  # noqa: BLE001 (the others are tried, too)
                traceback.print_exc()
                failed.append(str(steps))
                continue
            for way, step in steps.items():
                done[way].add(step)
    print(f"{rounds} topics went there, back, and there again in {(time.monotonic() - begun) / 60:.0f} min\n")
    print("| way | steps | interrupted before and behind | without a fault |\n| --- | --- | --- | --- |")
    for way, every in WAYS.items():
        print(f"| {way} | {len(every)} | {2 * len(every)} | {len(done[way])} |")
    for each in failed:
        print(f"failed: {each}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
