"""What the command line says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """Sizes, and a folder on the disk to measure that is removed at the end. `say`: progress for whoever waits."""

    folder: Path
    rounds: int
    batched_bytes: int
    unbatched_bytes: int
    idle_topics: int
    idle_seconds: int
    shard_topics: int
    simulated_topics: int
    payload_signing: str
    ledgers: int
    deletions: int
    say: Callable[[str], None]
