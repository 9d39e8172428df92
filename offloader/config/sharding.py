"""The section `shards`: several applications over one root."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from offloader.config.problems import ConfigProblem
from offloader.config.section import Section
from offloader.config.units import Wait, format_time

MOST = 256


class Shards(Section):
    """Several processes share the application's topics (docs/scaling.md)."""

    count: int = Field(1, ge=1, le=MOST, description="How many shards the application has; the same for all of them.")
    index: int | None = Field(
        None,
        ge=0,
        lt=MOST,
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
