"""The pace of a whole application, from what it logs at DEBUG."""

from __future__ import annotations

import re
from collections.abc import Iterable

from offloader.config import Config
from offloader.model import Lane, TopicName
from tests.invariants import PaceLog

PLANNED = re.compile(
    r" planned plan=\d+ lane=(?P<lane>\w+) at=(?P<at>\d+) slices=\d+ tasks=\d+ topics=(?P<topics>\S+)$"
)
BATCH = re.compile(
    r" batch plan=\d+ lane=(?P<lane>\w+) slices=\d+ bytes=\d+ took=(?P<took>\d+) ms longest slice=(?P<longest>\d+) ms$"
)
BACK_OFF = re.compile(r" back-off topic=(?P<topic>\S+) attempts=\d+ until=(?P<until>\d+)$")


def longest_batch_ms(config: Config, retry_deadline: float) -> int:
    """What a slice of the fast lane may take: the slice time budget, plus one part, plus the retry deadlines of the
    store and of Pulsar."""
    waits = int(1000 * retry_deadline) + config.pulsar.operation_timeout_ms
    return config.limits.slice.time_budget_ms + config.limits.slice.hard_limit_ms + waits


def pace_of(lines: Iterable[str], pace: PaceLog) -> PaceLog:
    """Tell `pace` what the lines say.

    Of a batch, the longest slice counts: how long Spark and its new processes take on a busy machine, nobody here
    decides. What a whole batch takes, simulations check, whose time is their own. What the slow lane takes is its own.
    """
    for line in lines:
        if found := PLANNED.search(line):
            at = int(found["at"])
            for topic in found["topics"].split(","):
                pace.planned(TopicName.parse(topic), at)
        elif found := BACK_OFF.search(line):
            pace.failed(TopicName.parse(found["topic"]), int(found["until"]))
        elif (found := BATCH.search(line)) and found["lane"] == Lane.FAST:
            pace.batch(int(found["longest"]))
    return pace
