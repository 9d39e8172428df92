"""What the manual says of each alarm (docs/running.md), for people without it at hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import groupby

from offloader.offload.live.status import Trouble


@dataclass(frozen=True, slots=True)
class AlarmText:
    """A row of the manual's tables; `…` stands for what varies."""

    name: str
    section: str
    line: str
    meaning: str
    remedy: str


@cache
def sections() -> Mapping[str, tuple[AlarmText, ...]]:
    """All rows, by their table."""
    text = (resources.files(__package__) / "alarms.json").read_text(encoding="utf-8")
    rows = (AlarmText(**row) for row in json.loads(text))
    return {section: tuple(these) for section, these in groupby(rows, lambda row: row.section)}


@cache
def _by_name() -> Mapping[str, AlarmText]:
    rows = [row for these in sections().values() for row in these]
    return {row.name: row for row in reversed(rows)}  # the first of an alarm's rows


def remedy_of(trouble: Trouble) -> AlarmText | None:
    """What to do: by the kind of a failure, where there is one, else by its alarm."""
    by_kind = f"kind-{trouble.kind}" if trouble.kind is not None and trouble.alarm.endswith("-failed") else ""
    return _by_name().get(by_kind) or _by_name().get(trouble.alarm)
