"""Whether a client gets a topic as it is archived: each message as it shows it; where that cannot tell, each byte, as
brokers deliver the entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from offloader.model import MIB, EntryRange, TopicName
from offloader.ports.entry_source import EntrySource

READ_AHEAD = 16 * MIB
MOST_LOOKUPS = 10_000

MOST_DOUBTS = 100  # ranges that wait to be looked at
MOST_SILENT = 3  # entries in a row for which nothing comes
MOST_AT_ONCE = 1000  # entries that are asked about ahead
ALL = 2**31  # behind any message of an entry

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


class Shown(NamedTuple):
    """A message as a client shows it. `batch`: 0 where it is alone in its entry. Times in ms, 0 where there is none."""

    ledger: int
    entry: int
    batch: int
    value: bytes
    key: str
    properties: tuple[tuple[str, str], ...]
    published: int
    event: int


class ShowingReader(Protocol):
    """Reads a topic's messages in order, from its first one on."""

    def read(self, seconds: float) -> Shown | None:
        """The next message; None after so many seconds without one."""
        ...


class ExpectedEntry(NamedTuple):
    """An entry of the topic. `shown`: the messages that a client gets of it (of a marker, of an aborted transaction, of
    a chunk that is not the last one, none); None: the archive does not tell (encrypted), or does not have it."""

    ledger: int
    entry: int
    shown: tuple[Shown, ...] | None
    archived: bool = True


class MessageProof:
    """Compares what a client shows with what is archived.

    Whatever a client does not show just so is in doubt: it is read again as an entry, and compared by its bytes. `raw`:
    the entries of a range, with those bytes. Seconds: of silence, after `quiet` brokers are asked whether a client gets
    what is to come next, and after `patience` it is not waited for any more.
    """

    def __init__(
        self,
        reader: ShowingReader,
        delivery: Delivery,
        raw: Callable[[EntryRange], Iterable[RawExpected]],
        *,
        quiet: float,
        patience: float,
    ) -> None:
        self._messages = _Messages(reader)
        self._delivery, self._raw = delivery, raw
        self._quiet, self._patience = quiet, patience
        self._doubts: list[EntryRange] = []
        self._explained = EntryRange(-1, 0, 0)
        self._silent = 0
        self._proof = DeliveryProof()

    def of(self, expected: Iterable[ExpectedEntry]) -> DeliveryProof:
        """What comes of these entries, which are in order."""
        for each in expected:
            if each.shown == ():
                self._proof += DeliveryProof(unseen=1)
            else:
                self._compare(each, EntryRange.closed(each.ledger, each.entry, each.entry))
            for extra in self._messages.take_extras():
                self._look_at_extra(extra)
            if len(self._doubts) >= MOST_DOUBTS:
                self._settle()
            if self._proof.wrong:
                return self._proof
        self._settle()
        return self._proof

    def _compare(self, expected: ExpectedEntry, place: EntryRange) -> None:
        if self._explained.has(place):
            self._proof += DeliveryProof(unseen=1)
            return
        shown = self._shown(expected, place)
        if not shown and self._explained.has(place):
            self._proof += DeliveryProof(unseen=1)
        elif shown and not expected.archived:
            self._proof += DeliveryProof(unarchived=1)
        elif shown and expected.shown == shown:
            self._proof += DeliveryProof(equal=1)
        else:
            self._doubt(place)

    def _shown(self, expected: ExpectedEntry, place: EntryRange) -> tuple[Shown, ...]:
        """What the client shows of an entry; nothing: it has gone on without it, or nothing comes."""
        waited = 0.0
        while (found := self._messages.of(expected, self._quiet)) is None:
            if self._ask(place):
                return ()
            waited += self._quiet
            if waited >= self._patience:
                self._fall_silent(place)
                return ()
        self._silent = 0
        return found

    def _ask(self, place: EntryRange) -> bool:
        """Whether brokers say that no consumer gets it."""
        ahead = replace(place, after=place.first + MOST_AT_ONCE)
        self._explained = replace(place, after=place.first + self._delivery.explained(ahead))
        return self._explained.has(place)

    def _fall_silent(self, place: EntryRange) -> None:
        self._silent += 1
        if self._silent > MOST_SILENT:
            seconds = self._silent * self._patience
            wrong = f"for {seconds:.0f} s a client gets nothing more, up to {place.ledger}:{place.first}"
            self._proof += DeliveryProof(wrong=wrong)

    def _doubt(self, place: EntryRange) -> None:
        last = self._doubts[-1] if self._doubts else None
        if last is not None and (last.ledger, last.after) == (place.ledger, place.first):
            self._doubts[-1] = replace(last, after=place.after)
        else:
            self._doubts.append(place)

    def _settle(self) -> None:
        doubts, self._doubts = self._doubts, []
        for each in doubts:
            if not self._proof.wrong:
                self._proof += self._delivery.prove(self._raw(each))

    def _look_at_extra(self, place: tuple[int, int]) -> None:
        """What a client shows where nothing is archived that it could get: it counts already, or must not be there."""
        found = self._delivery.prove(self._raw(EntryRange.closed(*place, place[1])))
        if found == DeliveryProof():
            found = DeliveryProof(wrong=f"brokers deliver {place[0]}:{place[1]}, which is not archived")
        self._proof += DeliveryProof(wrong=found.wrong)


class _Messages:
    """A client's messages, entry by entry."""

    def __init__(self, reader: ShowingReader) -> None:
        self._reader = reader
        self._ahead: Shown | None = None
        self._last = (-1, -1, -1)  # what was taken; after a reconnect a client may show it again
        self._extras: list[tuple[int, int]] = []

    def of(self, expected: ExpectedEntry, seconds: float) -> tuple[Shown, ...] | None:
        """The messages of an entry, as many as are expected; none: the client shows what is behind it. None: nothing
        has come in time."""
        place, found = (expected.ledger, expected.entry), list[Shown]()
        wanted = len(expected.shown) if expected.shown else 1
        while (message := self._next(seconds)) is not None:
            if message[:2] > place:
                self._ahead = message
                return tuple(found)
            if message[:2] < place:
                self._extras.append(message[:2])
                self._last = (*message[:2], ALL)
                continue
            found.append(message)
            self._last = message[:3]
            if len(found) == wanted:
                if expected.shown is None:  # nobody knows how many there are
                    self._last = (*place, ALL)
                return tuple(found)
        return tuple(found) or None

    def take_extras(self) -> list[tuple[int, int]]:
        """Places where messages came that were not waited for."""
        extras, self._extras = self._extras, []
        return extras

    def _next(self, seconds: float) -> Shown | None:
        message, self._ahead = self._ahead, None
        while message is None or message[:3] <= self._last:
            message = self._reader.read(seconds)
            if message is None:
                return None
        return message
