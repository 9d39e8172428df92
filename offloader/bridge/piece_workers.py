"""Who sends parts and reads blocks back: threads of this process, or (`offloader/offload/spark/piece_jobs.py`) Spark's
executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from offloader.ahead import map_ahead, unawaited_pool
from offloader.bridge.piece_tasks import (
    BridgeStores,
    CheckBlocks,
    CheckedBlocks,
    SendPart,
    SentPart,
    check_blocks,
    send_part,
)

THREADS = 4


class PieceWorkers(Protocol):
    """Results come in the tasks' order. Raises what the first task that failed raised; whether others were done nobody
    knows. Memory: a part for each task that is under way."""

    def send(self, stores: BridgeStores, tasks: Sequence[SendPart]) -> Iterator[SentPart]: ...

    def check(self, stores: BridgeStores, tasks: Sequence[CheckBlocks]) -> Iterator[CheckedBlocks]: ...


@dataclass(frozen=True, slots=True)
class PieceThreads:
    """`PieceWorkers` in this process."""

    threads: int = THREADS

    def send(self, stores: BridgeStores, tasks: Sequence[SendPart]) -> Iterator[SentPart]:
        with unawaited_pool(self.threads, "bridge-send") as pool:
            yield from map_ahead(pool, partial(send_part, stores=stores), tasks, self.threads)

    def check(self, stores: BridgeStores, tasks: Sequence[CheckBlocks]) -> Iterator[CheckedBlocks]:
        with unawaited_pool(self.threads, "bridge-check") as pool:
            yield from map_ahead(pool, partial(check_blocks, stores=stores), tasks, self.threads)
