"""Looks now and then whether the objects of bridged ledgers are there: a few each minute, all of them by and by. What
is remembered is one place, however many ledgers are bridged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from offloader.metadata.bridge_log import BridgeLog, last_finished
from offloader.metadata.bridges import BridgedLedger, BridgeRound
from offloader.model import LedgerList, TopicName
from offloader.offload.driver.topic import Topic

EVERY_MS = 60_000
TURN_MS = 3_600_000  # all of them are looked at no more often than that
MOST_LEDGERS = 25  # at a time, each costs two requests
MOST_RECORDS = 10  # of a log, at a time


class InspectedPlace(NamedTuple):
    """Of a topic's log the record in `slot` is next, its ledgers behind `after`."""

    slot: int
    after: int = -1


class InspectionDue(NamedTuple):
    """Ledgers of a round that are to be looked at, and where to go on; None: the topic is done."""

    finished: BridgeRound | None
    ledgers: tuple[BridgedLedger, ...]
    following: InspectedPlace | None


@dataclass
class InspectionTurn:
    """Through all topics by their names, each from its newest round backwards."""

    name: str = ""
    place: InspectedPlace | None = None
    began: int = 0
    again_at: int = 0

    def next(self, topics: Iterable[Topic], now: int) -> tuple[Topic, InspectedPlace] | None:
        """Where to look now; None: nowhere."""
        if now < self.again_at <= now + TURN_MS:
            return None
        self.again_at = now + EVERY_MS
        them = [topic for topic in topics if _newest(topic) >= 0]
        if self.place is not None:
            found = next((topic for topic in them if str(topic.name) == self.name), None)
            if found is not None:
                return found, self.place
        behind = min((topic for topic in them if str(topic.name) > self.name), key=_name, default=None)
        if behind is None:
            self.name, self.place = "", None
            self.again_at = max(self.again_at, self.began + TURN_MS)
            return None
        if not self.name:
            self.began = now
        self.name, self.place = _name(behind), InspectedPlace(_newest(behind))
        return behind, self.place

    def went_on(self, place: InspectedPlace | None) -> None:
        """What `next` said is done; None: with all of its topic."""
        self.place = place


def inspection(
    log: BridgeLog, topic: TopicName, incarnation: int, listed: LedgerList, at: InspectedPlace
) -> InspectionDue:
    """The next ledgers of the topic that are bridged and listed. Raises DamagedRecordError, FormatVersionError."""
    first = listed.spans[0].ledger if listed.spans else 0
    place: InspectedPlace | None = at
    for _ in range(MOST_RECORDS):
        if place is None or place.slot < 0:
            return InspectionDue(None, (), None)
        state = log.finishing(topic, place.slot)
        finished = state.finished
        if state.incarnation != incarnation or (finished and finished.ledgers[-1].ledger < first):
            return InspectionDue(None, (), None)
        before = InspectedPlace(state.former) if state.former >= 0 else None
        after = place.after
        due = [one for one in (finished.ledgers if finished else ()) if one.ledger > after and one.ledger in listed]
        some, more = tuple(due[:MOST_LEDGERS]), len(due) > MOST_LEDGERS
        if some:
            return InspectionDue(finished, some, InspectedPlace(place.slot, some[-1].ledger) if more else before)
        place = before
    return InspectionDue(None, (), place)


def _name(topic: Topic) -> str:
    return str(topic.name)


def _newest(topic: Topic) -> int:
    """The slot of the last record that finishes a round or lets a ledger go; -1: none, or nobody knows."""
    return last_finished(topic.bridge.head) if topic.bridge.head is not None and topic.bridge_view.current else -1
