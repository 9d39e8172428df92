"""What becomes of entries that should be there and are not: reading ends with an error, or passes over them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from offloader.archive.items import Missing
from offloader.archive.object_range import PlanItem
from offloader.errors import DataLostError
from offloader.model import Place, Position, TopicName

log = logging.getLogger(__name__)

UNPROVEN = "unproven"  # so reasons begin
MOST_TOLD = 1000  # ranges of which it is remembered that they are in the log


class OnMissing(StrEnum):
    """What a loss does, a deletion behind what was read, or damage."""

    FAIL = "fail"
    SKIP = "skip"


class Absence(NamedTuple):
    """Something missing that was a message, or may have been one. `at_begin`: deleted, and nothing is left before it.
    That is no loss for whoever begins with what there is."""

    missing: Missing
    at_begin: bool


def covered_by(missing: Missing) -> Place:
    """The last place that is missing. Of a junction that nothing proves both ends are there."""
    return missing.end.previous_entry.place if is_junction(missing) else missing.end.place


def is_junction(missing: Missing) -> bool:
    """Whether it lies between two entries that are there: nothing proves that the one follows the other."""
    return missing.why.startswith(UNPROVEN) and missing.start.ledger != missing.end.ledger


def absences(items: Iterable[PlanItem], *, at_begin: bool) -> Iterator[Absence]:
    """Of what is planned. `at_begin`: from the topic's begin on."""
    for item in items:
        if not isinstance(item, Missing):
            at_begin = at_begin and not item.split_points
        elif item.kind is None:
            yield Absence(item, item.deleted and at_begin)


def _public_reason(missing: Missing) -> str:
    """The reason; of objects that cannot be used only the kind, as their reasons name keys."""
    if missing.damaged:
        return "damaged"
    if missing.why.startswith(UNPROVEN) and not is_junction(missing):
        return "nothing proves what was there"
    return missing.why


class Passing:
    """What reading a topic does with what is missing. `ranges` counts what was passed over, each time; `fails`: nothing
    is passed over. Threads may share it."""

    def __init__(self, topic: TopicName, on_missing: OnMissing) -> None:
        self.ranges = 0
        self._topic = topic
        self.fails = on_missing is OnMissing.FAIL
        self._told: set[Position] = set()  # the ends: who begins inside a range hears of the rest
        self._lock = threading.Lock()

    def sentence(self, missing: Missing) -> str:
        """For clients: what is missing, and why, without keys of the store."""
        return self._sentence(missing, _public_reason(missing))

    def _sentence(self, missing: Missing, why: str) -> str:
        return f"{self._topic}: {missing.start}..{missing.end} is missing: {why}"

    def meet(self, missing: Missing) -> None:
        """Go on behind it. Raises DataLostError where a consumer is to be told."""
        if self.fails:
            raise missing.as_error() if missing.damaged else DataLostError(self.sentence(missing))
        with self._lock:
            self.ranges += 1
            known = missing.end in self._told
            if len(self._told) < MOST_TOLD:
                self._told.add(missing.end)
        if not known:
            log.warning("%s", self._sentence(missing, missing.why), extra={"see": "missing"})
