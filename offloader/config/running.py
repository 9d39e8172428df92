"""The sections `spark`, `metrics`, `limits` and `shards`: how the application runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from offloader.config.problems import ConfigProblem
from offloader.config.section import Section
from offloader.config.units import SIZE, Size, Time, Wait, at_least, format_time
from offloader.model import MIB

_LOCAL = re.compile(r"local(?:\[(?:[1-9][0-9]*|\*)(?:\s*,\s*[1-9][0-9]*)?\])?|local-cluster\[.+\]")
_OWNED = {"spark.master", "spark.task.maxFailures"}
_VISIBLE = "spark.executorEnv.OFFLOADER_"
MOST_SHARDS = 256


class Spark(Section):
    """The Spark application that moves the data."""

    master: str = Field(
        "local[2]",
        min_length=1,
        description="Spark's master URL. `local[N]` runs as `local[N+1,4]`: one task more, for the slow lane.",
    )
    trigger_ms: Wait = Field(
        5_000, gt=0, description="How often an idle application looks for work. Due work does not wait for it."
    )
    checkpoint: str | None = Field(
        None,
        description=(
            "Folder for Spark's checkpoints; each start uses a new one below it. A temporary folder by default."
        ),
    )
    conf: dict[str, str] = Field(
        default_factory=dict, repr=False, description="More Spark settings, passed on as they are."
    )

    @field_validator("master")
    @classmethod
    def _master(cls, value: str) -> str:
        if value.startswith("local") and _LOCAL.fullmatch(value) is None:
            raise ValueError(f"{value!r} is no master of Spark's; write for example local[2] or local[*]")
        return value

    @field_validator("conf", mode="before")
    @classmethod
    def _texts(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in value.items() if v is not None}

    @field_validator("conf")
    @classmethod
    def _not_ours(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not name.startswith("spark."):
                raise ValueError(f"{name!r} is not a Spark setting; its name begins with spark.")
            if name.startswith(_VISIBLE):
                raise ValueError(
                    f"{name} would stand in Spark's event log; set the variable where executors are started "
                    "(docs/spark.md)"
                )
            if name in _OWNED:
                raise ValueError(f"{name} is set by the application; spark.master in this file chooses the master")
        return value


class MetricsSettings(Section):
    """The HTTP endpoint with `/metrics`, `/healthz` and `/readyz`."""

    port: int | None = Field(9464, ge=0, le=65535, description="TCP port; 0 or nothing: no endpoint.")
    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address to listen on. Whoever reaches it may read `/metrics` and the probes.",
    )
    page_token: SecretStr | None = Field(
        None,
        min_length=16,
        description="Who has it may look at the page `/` from anywhere: in a form, or as `Authorization: Bearer`. "
        "Without it only this machine may, as `localhost` or `127.0.0.1`.",
    )
    max_topic_labels: int = Field(
        100,
        ge=0,
        le=10_000,
        description=(
            "So many topics, those that lag most, have series of their own; the rest are added up under `other`."
        ),
    )
    liveness_timeout_ms: Time = Field(
        60_000,
        gt=0,
        description="`/healthz` fails when the main loop has not turned for so long. What it waits for (the store, up "
        "to its retry deadline; its own pauses) does not count.",
    )
    batch_timeout_ms: Time = Field(
        1_800_000,
        gt=0,
        description=(
            "`/healthz` fails when a micro-batch has not ended so long after the time that its slices may take."
        ),
    )


class SliceLimits(Section):
    """What one topic may take of one micro-batch."""

    byte_budget: Annotated[Size, at_least(5 * MIB, SIZE)] = Field(
        1024 * MIB, description="Most object bytes of one slice."
    )
    time_budget_ms: Wait = Field(5_000, gt=0, description="A slice with at least one whole part ends after this.")
    hard_limit_ms: Wait = Field(
        15_000,
        gt=0,
        description="A slice ends after this also without a whole part, and at `timeBudget` where it will clearly "
        "have none by then; its topic then travels in the slow lane. What a broker has not delivered after so long, "
        "it never will.",
    )
    max_gap_lookups: int = Field(1_000, ge=1, description="Most REST calls of one slice that classify missing entries.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.hard_limit_ms < self.time_budget_ms:
            raise ValueError("hardLimit is below timeBudget; it is the longer of the two")
        return self


class SlowLane(Section):
    """The slow lane: topics that cannot fill a part in the time of the others."""

    threads: int = Field(
        8,
        ge=1,
        le=256,
        description="Slow topics that are read at a time, all in one Spark task. Each holds its part in memory.",
    )
    time_budget_ms: Wait = Field(
        300_000,
        gt=0,
        description="A slice with at least one whole part ends when another would not be whole after this.",
    )
    hard_limit_ms: Wait = Field(
        900_000,
        gt=0,
        description="A slice without a whole part ends after this, or after twice the time that its topic should need "
        "where that is longer; and after more each time that was not enough.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.hard_limit_ms < self.time_budget_ms:
            raise ValueError("hardLimit is below timeBudget; it is the longer of the two")
        return self


class Limits(Section):
    """How much is done at a time."""

    slice: SliceLimits = Field(default_factory=SliceLimits, description="What one topic may take of one micro-batch.")
    slow_lane: SlowLane = Field(
        default_factory=SlowLane, description="What topics may take that cannot fill a part in the time of the others."
    )
    tasks_per_core: int = Field(
        2, ge=1, le=16, description="Spark tasks into which a plan's slices are packed, per core."
    )
    threads_per_task: int = Field(
        4,
        ge=1,
        le=64,
        description="Slices that one task works on at a time. What each holds in memory is told below.",
    )
    history_segments: int = Field(
        8,
        ge=1,
        le=64,
        description="Segments of one topic's history that are read at the same time, at most; never more than "
        "Spark has slots beside the slow lane's one. 1: one after the other, as the live end.",
    )
    history_span_ms: Time = Field(
        24 * 3_600_000,
        ge=0,
        description="Where history fills several segments, the entries of one are no further apart than this, as long "
        "as it keeps an eighth of its largest size; 0: whatever their age. So old segments can go, and whoever reads a "
        "day reads little else.",
    )
    upload_starters: int = Field(8, ge=1, le=64, description="Threads of the main process that begin uploads.")
    sealers: int = Field(4, ge=1, le=64, description="Threads of the main process that seal segments.")


class Shards(Section):
    """Several processes share the application's topics (docs/scaling.md)."""

    count: int = Field(
        1, ge=1, le=MOST_SHARDS, description="How many shards the application has; the same for all of them."
    )
    index: int | None = Field(
        None,
        ge=0,
        lt=MOST_SHARDS,
        description="Which of them this process is, from 0; `offloader run --shard` and OFFLOADER_SHARD say it, too.",
    )
    by: Literal["topic", "namespace"] = Field(
        "topic",
        description="What is dealt out as one: each topic by itself, and each partition; or all topics of a namespace.",
    )
    take_over_after_ms: Wait = Field(
        120_000,
        ge=5_000,
        description="A shard that has shown no sign of life for so long is run by another shard's process as well, "
        "until its own is back; at least twice `spark.trigger`. Only a hint of when to try: the journal decides.",
    )

    @model_validator(mode="after")
    def _within(self) -> Self:
        if self.index is not None and self.index >= self.count:
            raise ValueError(f"index {self.index} is not among {self.count} shards, which are counted from 0")
        return self


def too_soon(section: Shards | None, trigger_ms: int) -> Iterator[ConfigProblem]:
    """An idle application turns its loop, and so shows a sign of life, no more often than it looks for work."""
    least = 2 * trigger_ms
    if section is not None and section.take_over_after_ms < least:
        said = f"{format_time(section.take_over_after_ms)} is less than twice spark.trigger: write at least "
        yield ConfigProblem(("shards", "takeOverAfter"), f"{said}{format_time(least)}, or have it trigger more often")
