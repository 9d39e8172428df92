"""What the bridge's steps reach: objects in a bucket, brokers and their records, the bridge log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from offloader.bridge.core.swap_steps import SwapOutcome
from offloader.bridge.swapping import StaleOrFine
from offloader.metadata.bridge_log import BridgeLog
from offloader.metadata.bridges import BridgedLedger, BridgeRound, UnbridgedLedger
from offloader.model import TopicName


class Builds(Protocol):
    """Writes ledgers' objects into a bucket, and reads them back."""

    def build(self, topic: TopicName, ledger: BridgedLedger, bucket: str) -> BridgedLedger | UnbridgedLedger:
        """Both objects are there and right, or why they never will be. Safe to repeat."""
        ...

    def discard(self, bucket: str, ledgers: Iterable[BridgedLedger]) -> None:
        """Nothing is left of these objects, nor of their uploads. Safe to repeat."""
        ...


class Swaps(Protocol):
    """Has brokers read other objects. Each call ends with the topic unloaded behind whatever it has rewritten, or says
    that it is to be made again. `ours`: whether the round is still recorded as it was; OvertakenError passes."""

    def bridge(self, topic: TopicName, under_way: BridgeRound, ours: Callable[[], bool]) -> SwapOutcome: ...

    def withdraw(self, topic: TopicName, under_way: BridgeRound, ours: Callable[[], bool]) -> SwapOutcome: ...

    def look(self, topic: TopicName) -> StaleOrFine: ...

    def begun(self, topic: TopicName) -> Mapping[int, str]:
        """What brokers have begun to offload by themselves, and not ended: the uuids, by ledger."""
        ...

    def missing(self, topic: TopicName, ledgers: Iterable[BridgedLedger]) -> Mapping[int, bool]:
        """Those that are listed without any context, and of each whether BookKeeper has a copy."""
        ...

    def contexts(self, topic: TopicName) -> Mapping[int, str] | None:
        """The uuids that the topic's record has of offloaded ledgers; None: there is no record."""
        ...

    def broken(self, topic: TopicName, bucket: str, ledgers: Iterable[BridgedLedger]) -> Mapping[int, str]:
        """What is wrong with the objects of those that brokers list, by ledger."""
        ...


@dataclass(frozen=True)
class BridgeParts:
    """What a bridge reaches, opened when it is needed first. `bucket_of`: the URL of the bucket that brokers read a
    topic's objects from. `refusal`: why nothing is begun for a topic, for its operator; empty: it may be. `no_room`:
    why its record cannot take the contexts of more ledgers, whose objects are in a bucket; empty: it can."""

    log: BridgeLog
    builds: Callable[[], Builds]
    swaps: Callable[[], Swaps]
    bucket_of: Callable[[TopicName], str]
    refusal: Callable[[TopicName], str] = lambda _: ""
    no_room: Callable[[TopicName, Sequence[BridgedLedger], str], str] = lambda *_: ""
