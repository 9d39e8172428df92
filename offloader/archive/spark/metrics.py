"""What reading has cost: each task logs it and, with option `metrics`, writes an object, anew when it is retried."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from contextlib import closing
from dataclasses import asdict, dataclass, fields

from offloader.errors import DamagedRecordError
from offloader.json_text import parse_json
from offloader.model import MIB
from offloader.storage.bounded_reads import read_whole
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings

PLAN = "plan.json"

log = logging.getLogger("offloader.archive.spark")


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """Of one task. `missing` counts gaps, losses and what damage has cost; `skipped` the positions of the last."""

    requests: int = 0
    bytes_read: int = 0
    entries: int = 0
    rows: int = 0
    missing: int = 0
    skipped: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{field.name} {getattr(self, field.name)}" for field in fields(self))


@dataclass(frozen=True, slots=True)
class PlanMetrics:
    """Of one query, or of one batch of a stream. `bytes_stored` is what the archive holds of the topics, in bytes."""

    bytes_stored: int
    bytes_planned: int
    tasks: int
    done: tuple[TaskMetrics, ...] = ()

    @property
    def bytes_read(self) -> int:
        return sum(task.bytes_read for task in self.done)

    @property
    def rows(self) -> int:
        return sum(task.rows for task in self.done)


class MetricsFolder:
    """A folder for metrics: any URL that a store can be opened from, the same for all executors."""

    def __init__(self, store: StoreSettings) -> None:
        self._settings = store

    def write_plan(self, plan: str, metrics: PlanMetrics) -> None:
        said = asdict(metrics)
        said.pop("done")
        self._write(f"{plan}/{PLAN}", said)

    def write_task(self, plan: str, number: int, metrics: TaskMetrics) -> None:
        self._write(f"{plan}/task-{number:06d}.json", asdict(metrics))

    def read(self) -> dict[str, PlanMetrics]:
        """Everything that was written, by plan."""
        plans: dict[str, dict[str, int]] = {}
        done: dict[str, list[TaskMetrics]] = defaultdict(list)
        with closing(open_store(self._settings)) as store:
            for key, _ in store.list(""):
                plan, _, name = key.partition("/")
                said = parse_json(read_whole(store, key, MIB, DamagedRecordError)[0])
                if name == PLAN:
                    plans[plan] = said
                else:
                    done[plan].append(TaskMetrics(**said))
        return {plan: PlanMetrics(**said, done=tuple(done[plan])) for plan, said in plans.items()}

    def _write(self, key: str, said: dict[str, int]) -> None:
        with closing(open_store(self._settings)) as store:
            store.put(key, json.dumps(said).encode())
