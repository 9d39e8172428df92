"""Whether brokers deliver entries as they are archived, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace

from offloader.model import MIB, EntryRange, TopicName
from offloader.ports.entry_source import EntrySource

READ_AHEAD = 16 * MIB
MOST_LOOKUPS = 10_000

RawExpected = tuple[int, int, bytes | None]
"""Ledger, entry, and its bytes; None: it is not archived, whatever arrives is right."""


@dataclass(frozen=True, slots=True)
class DeliveryProof:
    """`equal`: entries that arrive as they are archived; `unseen`: those of which no client gets a message, as the
    archive or Pulsar says; `unarchived`: those that arrive and are not archived; `trimmed`: those that Pulsar has
    deleted meanwhile. `wrong`: the first thing that is not so; empty: all is."""

    equal: int = 0
    unseen: int = 0
    unarchived: int = 0
    trimmed: int = 0
    wrong: str = ""

    def __add__(self, other: DeliveryProof) -> DeliveryProof:
        return DeliveryProof(
            self.equal + other.equal,
            self.unseen + other.unseen,
            self.unarchived + other.unarchived,
            self.trimmed + other.trimmed,
            self.wrong or other.wrong,
        )


@dataclass(frozen=True)
class Delivery:
    """What brokers say of one topic's entries. `listed`: whether Pulsar lists a ledger now. `silence`: seconds after
    which nothing more comes. Raises what the source raises."""

    source: EntrySource
    topic: TopicName
    listed: Callable[[int], bool]
    silence: float

    def explained(self, entries: EntryRange) -> int:
        """How many of these, from the first on, no consumer gets."""
        if not entries.span:
            return 0
        _, unexplained = self.source.explain(self.topic, entries, limit=MOST_LOOKUPS)
        return entries.span if unexplained is None else unexplained - entries.first

    def passed_over(self, entries: EntryRange) -> DeliveryProof:
        """What has to be said of entries that did not arrive."""
        unseen = 0
        while entries.span:
            found = self.explained(entries)
            unseen += found
            entries = replace(entries, first=entries.first + found)
            if found == 0 and not self.listed(entries.ledger):
                return DeliveryProof(unseen=unseen, trimmed=entries.span)
            if found == 0:
                return DeliveryProof(unseen=unseen, wrong=f"brokers do not deliver {entries.ledger}:{entries.first}")
        return DeliveryProof(unseen=unseen)

    def prove(self, expected: Iterable[RawExpected]) -> DeliveryProof:
        """Read the topic from the first of these entries to the last, and compare their bytes. Holds no more of them
        than one."""
        following = iter(expected)
        waiting = next(following, None)
        if waiting is None:
            return DeliveryProof()
        passed = _Passed(self)
        with closing(self.source.open(self.topic, *waiting[:2], max_bytes=READ_AHEAD)) as reader:
            while waiting is not None and not passed.proof.wrong:
                arrived = reader.read(self.silence)
                if not arrived:
                    break
                for each in arrived:
                    place = (each.ledger, each.entry)
                    while waiting is not None and waiting[:2] < place:
                        passed.add(waiting[:2])
                        waiting = next(following, None)
                    if waiting is None or passed.proof.wrong:
                        break
                    passed.arrived(waiting, place, each.data)
                    waiting = next(following, None)
            while waiting is not None and not passed.proof.wrong:
                passed.add(waiting[:2])
                waiting = next(following, None)
        passed.settle()
        return passed.proof


class _Passed:
    """What did not arrive, as ranges, which are asked about as soon as they end."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._range: EntryRange | None = None
        self.proof = DeliveryProof()

    def add(self, place: tuple[int, int]) -> None:
        ledger, entry = place
        at = self._range
        if at is None or (at.ledger, at.after) != place:
            self.settle()
            at = EntryRange(ledger, entry, entry)
        self._range = replace(at, after=entry + 1)

    def settle(self) -> None:
        passed, self._range = self._range, None
        if passed is not None and not self.proof.wrong:
            self.proof += self._delivery.passed_over(passed)

    def arrived(self, expected: RawExpected, place: tuple[int, int], data: bytes) -> None:
        self.settle()
        told = f"{place[0]}:{place[1]}"
        if expected[:2] != place:
            self.proof += DeliveryProof(wrong=f"brokers deliver {told}, which is not archived")
        elif expected[2] is None:
            self.proof += DeliveryProof(unarchived=1)
        elif expected[2] != data:
            self.proof += DeliveryProof(wrong=f"brokers deliver other bytes for {told} than are archived")
        else:
            self.proof += DeliveryProof(equal=1)
