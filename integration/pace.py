"""The pace of a whole application, from what it logs at DEBUG."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from offloader.config import Config
from offloader.model import Lane, TopicName
from offloader.testing.pace import PaceLog

PLANNED = re.compile(r" planned plan=\d+ lane=(?P<lane>\w+) at=(?P<at>\d+) slices=\d+ tasks=\d+ topics=(?P<topics>\S+)$")
BATCH = re.compile(
    r" batch plan=\d+ lane=(?P<lane>\w+) slices=\d+ bytes=\d+ took=(?P<took>\d+) ms longest slice=(?P<longest>\d+) ms$"
)
BACK_OFF = re.compile(r" back-off topic=(?P<topic>\S+) attempts=\d+ until=(?P<until>\d+)$")
QUERY_STARTS_AGAIN = re.compile(r" Spark's query (ended|could not be started): ")

Stops = Sequence[tuple[int, int]]


def longest_batch_ms(config: Config, retry_deadline: float) -> int:
    """Of the fast lane: the slice time budget, plus one part, plus the retry deadlines of the store and of Pulsar."""
    waits = int(1000 * retry_deadline) + config.pulsar.operation_timeout_ms
    return config.limits.slice.time_budget_ms + config.limits.slice.hard_limit_ms + waits


def pace_of(lines: Iterable[str], pace: PaceLog, stops: Stops) -> PaceLog:
    """Tell `pace` what the lines say. `stops`: from when to when, in ms since the epoch, the process was stopped by a signal.

    The first batch of a query waits for Spark's start: of that one, the longest slice counts. What the slow lane takes is its own.
    """
    first, planned_at = True, 0
    for line in lines:
        if found := PLANNED.search(line):
            at = int(found["at"])
            for topic in found["topics"].split(","):
                pace.planned(TopicName.parse(topic), at)
            if found["lane"] == Lane.FAST:
                planned_at = at
        elif found := BACK_OFF.search(line):
            pace.failed(TopicName.parse(found["topic"]), int(found["until"]))
        elif (found := BATCH.search(line)) and found["lane"] == Lane.FAST:
            took = int(found["took"])
            pace.batch(int(found["longest"]) if first else took - _stopped(stops, planned_at, planned_at + took))
            first = False
        elif QUERY_STARTS_AGAIN.search(line):
            first = True
    return pace


def _stopped(stops: Stops, begin: int, end: int) -> int:
    """How long a process was stopped between two times."""
    return sum(max(0, min(end, until) - max(begin, since)) for since, until in stops)
