"""Ledgers that brokers were proven to read and list no more. Not in the driver's thread."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from offloader.bridge.swapping import StaleOrFine
from offloader.errors import FatalError, RetryableError
from offloader.metadata.bridges import BridgeHead, BridgeRound
from offloader.model import TopicName
from offloader.offload.driver.bridge_ports import BridgeParts

log = logging.getLogger(__name__)


class Repaired(NamedTuple):
    """`head`: with a round recorded, where one is to put contexts in again. `sound`: the ledgers that need not be
    listed as offloaded. `loaded`: the broker did not know its record, and was made to load it."""

    head: BridgeHead
    sound: frozenset[int]
    loaded: bool = False


@dataclass(frozen=True)
class BridgeRepairs:
    """`still_ours`: raises OvertakenError where another process owns the application by now. `unloads`: how often each
    topic was unloaded, until somebody takes that away."""

    parts: BridgeParts
    application: str
    clock_ms: Callable[[], int]
    still_ours: Callable[[], None]
    unloads: Counter[TopicName] = field(default_factory=Counter)

    def repair(self, topic: TopicName, head: BridgeHead, found: frozenset[int], *, wanted: bool) -> Repaired:
        """What becomes of ledgers that are listed as not offloaded.

        A broker that does not know its record is made to load it. Where the record lacks what was proven, somebody has
        taken it out: it is put in again, since BookKeeper's copy goes, or has gone. Where brokers are not to read it
        any more, only what they cannot read from BookKeeper."""
        ours = self.proven(topic, found)
        if not ours or head.state is None:
            return Repaired(head, found)
        sound = found - {each.ledger for finished in ours for each in finished.ledgers}
        log.warning(
            "bridge topic=%s: %d ledgers that brokers can read are not listed as offloaded, the first is %d",
            topic, len(found - sound), min(found - sound), extra={"see": "bridge-stale"},
        )  # fmt: skip
        self.still_ours()
        match self.look(topic):
            case StaleOrFine.UNKNOWN:
                raise RetryableError(f"{topic}: whether its broker knows its record cannot be told now")
            case StaleOrFine.STALE:
                raise FatalError(f"{topic}: its broker does not know its record, in spite of an unload")
            case StaleOrFine.REPAIRED:
                return Repaired(head, sound, loaded=True)
        if head.state.round is not None:  # it is looked at again once that is over
            return Repaired(head, sound)
        missing = self.parts.swaps().missing(topic, [each for finished in ours for each in finished.ledgers])
        for finished in reversed(ours):  # what was bridged first is first gone from BookKeeper
            ledgers = tuple(x for x in finished.ledgers if x.ledger in missing and (wanted or not missing[x.ledger]))
            if ledgers:
                state = head.state.repairing(ledgers, finished.bucket, self.application, self.clock_ms())
                return Repaired(self.parts.log.append(head, state), sound)
        return Repaired(head, sound)

    def look(self, topic: TopicName) -> StaleOrFine:
        """Whether the topic's broker knows its record; where not, it is unloaded once."""
        found = self.parts.swaps().look(topic)
        self.unloads[topic] += found in (StaleOrFine.REPAIRED, StaleOrFine.STALE)
        return found

    def proven(self, topic: TopicName, found: frozenset[int]) -> list[BridgeRound]:
        """Rounds that were proven, each with only those of its ledgers that are asked for."""
        rounds, lowest = list[BridgeRound](), min(found)
        for state in self.parts.log.finished_rounds(topic):
            finished = state.finished
            ledgers = tuple(each for each in finished.ledgers if each.ledger in found) if finished else ()
            if finished and ledgers:
                rounds.append(replace(finished, ledgers=ledgers))
            if finished and finished.ledgers[0].ledger <= lowest:
                break
        return rounds
