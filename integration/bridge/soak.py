"""Rounds of the bridge under traffic, hundreds of them, with kills at every step; prints a block for docs/testing.md.

python -m integration.bridge.soak --rounds 200
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice, takewhile
from pathlib import Path

from integration.bridge.clients import stock_clients
from integration.bridge.place import Place, place
from integration.bridge.rounds import SET, STEPS, WHEN, Rounds, rounds
from integration.bridge.traffic import Traffic, digest, stored
from integration.pulsar.waiting import until
from offloader.model import KIB, TopicName

SMALL_LEDGERS = {
    "managedLedgerMaxEntriesPerLedger": "200",
    # A broker keeps a buffer for each ledger that it has read from a bucket, for ten minutes. With the default of 1 MiB
    # our small broker runs out of memory once three clients have read some 400 ledgers.
    "managedLedgerOffloadReadBufferSizeInBytes": str(64 * KIB),
}


@dataclass(frozen=True)
class Line:
    """What came of all windows of one kind. Pauses in seconds."""

    what: str
    windows: int
    median: float
    worst: float
    delivered_again: int
    stored_twice: int


def plan(found: Rounds, seed: int) -> Iterator[Callable[[], None]]:
    """What happens, without end: each step in turn, each party in turn."""
    choice = random.Random(seed)
    steps = [*STEPS, SET]
    choice.shuffle(steps)
    for step, when in cycle([(step, when) for step in steps for when in WHEN]):
        yield found.undisturbed
        yield partial(found.ours_killed, step, when)
        if step != SET:
            yield partial(found.broker_killed if choice.random() < 0.5 else found.store_down, step, when)


def run(
    here: Place, count: int, alone: int, seed: int, *, go: bool = False, seconds: float = float("inf")
) -> list[str]:
    """That many rounds, or as many as begin within these seconds, and unloads alone before; what is wrong, in words."""
    namespace = here.new_namespace()
    topic = here.new_topic(namespace, "rounds")
    with ExitStack() as stack:
        found = stack.enter_context(rounds(here, topic, namespace))
        traffic = stack.enter_context(Traffic(here.service_url, topic))
        for _ in range(alone):
            found.unloaded()
        found.start()
        begun = time.monotonic()
        for step in takewhile(lambda _: time.monotonic() - begun < seconds, islice(plan(found, seed), count)):
            step()
        found.end()
        traffic.end_producing()
        until(traffic.is_drained)
        return _judge(here, topic, found, traffic, stack, go=go)


def _judge(here: Place, topic: TopicName, found: Rounds, traffic: Traffic, stack: ExitStack, *, go: bool) -> list[str]:
    wrong = list(traffic.wrong)
    here.unload(topic)
    code = found.world.new_application().run_until_caught_up(600.0)
    wrong += [f"until caught up: {code}"] if code else []
    gone = here.forget_bookkeepers_copies(topic)
    here.restart()
    total = sum(int(one["entries"]) for one in here.ledgers(topic))
    lines: list[Line] = []
    for client in stack.enter_context(stock_clients(here.folder / f"clients-{topic.name}", here.service_url, go=go)):
        read = client.read(topic, total).result()
        numbers = [int(dict(message.properties)["n"]) for message in read.messages]
        missing, twice = stored(numbers, traffic)
        wrong += [f"{client}: {read.end}"] if read.end != "count" else []
        wrong += [f"{client}: {len(missing)} messages are missing: {missing[:5]}"] if missing else []
        wrong += [
            f"{client}: {n} is damaged" for n, m in zip(numbers, read.messages, strict=True) if m.sha256 != digest(n)
        ]
        lines = [_line(what, found, traffic, twice) for what in dict.fromkeys(one.what for one in found.windows)]
    _report(lines, traffic, len(gone), found.finished())
    return wrong


def _line(what: str, found: Rounds, traffic: Traffic, twice: dict[int, int]) -> Line:
    windows = [one for one in found.windows if one.what == what]
    pauses = [traffic.pause(one.begin, one.end) for one in windows]
    again = sum(traffic.delivered_again(one.begin, one.end) for one in windows)
    sent = [n for n in twice if any(one.begin <= traffic.sent[n] < one.end for one in windows)]
    stored_twice = sum(twice[n] for n in sent)
    return Line(what, len(windows), statistics.median(pauses), max(pauses), again, stored_twice)


def _report(lines: list[Line], traffic: Traffic, ledgers: int, finished: int) -> None:
    print("\n| what | windows | pause, median | worst | delivered again | stored twice |")
    print("| --- | --- | --- | --- | --- | --- |")
    for one in lines:
        pauses = f"{one.median:.2f} s | {one.worst:.2f} s"
        print(f"| {one.what} | {one.windows} | {pauses} | {one.delivered_again} | {one.stored_twice} |")
    print(f"\n{len(traffic.confirmed)} messages, {ledgers} ledgers bridged in {finished} rounds")


def main() -> int:
    """0: nothing was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--alone", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no round begins later")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--go", action="store_true")
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        here = stack.enter_context(place(folder, settings=SMALL_LEDGERS))
        wrong = run(
            here, arguments.rounds, arguments.alone, arguments.seed, go=arguments.go, seconds=60 * arguments.minutes
        )
    print(f"wrong: {len(wrong)}")
    for one in wrong[:20]:
        print(f"  {one}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
