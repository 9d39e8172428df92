"""Scripts of what happens to a pin and its ledgers, for the in-memory cluster and a real Pulsar alike: both must tell
the same after each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

Place = tuple[int, int]

FULL = 500
"""Entries of a ledger, after which a broker opens the next one."""


class Told(NamedTuple):
    """What there is after a step: the ledgers that are listed, the pin's mark-delete."""

    ledgers: tuple[int, ...]
    mark: Place


class Cluster(Protocol):
    """What a script may do. Ledgers are numbered in the order in which they were seen."""

    def produce(self, count: int) -> None: ...

    def acknowledge(self, ledger: int, entry: int) -> None: ...

    def skip_all(self) -> None: ...

    def skip(self, count: int) -> None: ...

    def reset(self, ledger: int, entry: int) -> None: ...

    def expire(self) -> None: ...

    def unload(self) -> None: ...

    def trim(self) -> None: ...


Step = tuple[str, Callable[[Cluster], None]]


def produce(count: int) -> Step:
    return f"produce {count}", lambda cluster: cluster.produce(count)


def acknowledge(ledger: int, entry: int) -> Step:
    return f"acknowledge {ledger}:{entry}", lambda cluster: cluster.acknowledge(ledger, entry)


def skip(count: int) -> Step:
    return f"skip {count}", lambda cluster: cluster.skip(count)


def reset(ledger: int, entry: int) -> Step:
    return f"reset {ledger}:{entry}", lambda cluster: cluster.reset(ledger, entry)


skip_all: Step = ("skip all", lambda cluster: cluster.skip_all())
expire: Step = ("expire", lambda cluster: cluster.expire())
unload: Step = ("unload", lambda cluster: cluster.unload())
trim: Step = ("trim", lambda cluster: cluster.trim())

SCRIPTS: dict[str, Sequence[Step]] = {
    "acknowledged to the end of an open ledger that then fills up": [
        produce(3), acknowledge(0, 2), produce(FULL - 3), trim, produce(1), trim,
    ],
    (
        "acknowledged to the end of a full "
        "ledger"): [produce(FULL + 2), acknowledge(0, FULL - 1), trim, produce(1), unload, trim],
    "acknowledged as before the next ledger's first": [produce(FULL + 2), acknowledge(1, -1), trim, unload, trim],
    "acknowledged to the very end, then unloaded": [produce(3), acknowledge(0, 2), unload, trim, produce(1), trim],
    "skip all over full ledgers": [produce(2 * FULL + 3), skip_all, trim, produce(3), unload, trim],
    "skip all at the end of a full ledger": [produce(2 * FULL), skip_all, trim, produce(1), trim],
    "skip some": [produce(FULL + 3), skip(FULL + 1), trim, unload, trim],
    "reset forward into the middle": [produce(2 * FULL + 3), reset(2, 1), trim, unload, trim],
    "reset forward to a ledger's first entry": [produce(2 * FULL + 3), reset(2, 0), trim, unload, trim],
    "messages expire at the end of a full ledger": [produce(2 * FULL), expire, trim, unload, trim],
    "unloaded while empty": [unload, trim, produce(1), unload, trim],
}  # fmt: skip
