"""Whether the topic's broker delivers what was bridged: the first and the last entry of each ledger, byte for byte.

A reader gets no entry that is hidden: markers, aborted transactions. So the first one is the first that arrives, and
whatever should have come before or behind is to be explained by the broker, which reads it for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from offloader.bridge.core.swap_steps import LedgersProven, NotProven
from offloader.errors import OffloadError
from offloader.metadata.bridges import BridgedLedger
from offloader.model import MIB, EntryRange, TopicName
from offloader.ports.entry_source import EntrySource, RawEntry

READ_SIZE = 8 * MIB
PATIENCE = 3.0  # seconds; then the broker is asked whether anything is to come
_STEPS = (1, 16, 256, 4096)  # so many of a ledger's last entries are asked for, as long as none of them arrives
_EXPLAINED = 64  # entries at a time


class ArchivedEntries(Protocol):
    """What the broker must deliver."""

    def entry(self, one: BridgedLedger, entry: int) -> bytes:
        """An entry's bytes. Raises IntegrityError where there are none."""
        ...


class LedgerProof(Protocol):
    """Of ledgers whose topic is loaded."""

    def prove(
        self, topic: TopicName, ledgers: Iterable[BridgedLedger], archived: ArchivedEntries
    ) -> LedgersProven | NotProven:
        """Raises BrokerUnavailableError, TopicMovedError and whatever else a reader raises."""
        ...


class BrokerProof:
    """`LedgerProof` through a broker's own reader, non-durable. `timeout`: seconds for an entry that does not come."""

    def __init__(self, source: EntrySource, timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._timeout = timeout
        self._clock = clock

    def prove(
        self, topic: TopicName, ledgers: Iterable[BridgedLedger], archived: ArchivedEntries
    ) -> LedgersProven | NotProven:
        """See `LedgerProof`. Ends with the first ledger that fails."""
        evidence = []
        for one in ledgers:
            said = self._ledger(topic, one, archived)
            if isinstance(said, NotProven):
                return said
            evidence.append(said)
        return LedgersProven(tuple(evidence))

    def _ledger(self, topic: TopicName, one: BridgedLedger, archived: ArchivedEntries) -> str | NotProven:
        first = self._first(topic, one)
        if isinstance(first, NotProven):
            return first
        if first is None:
            return f"ledger {one.ledger}: no entry is for readers, and the broker has read the first ones to say so"
        last = self._last(topic, one)
        if not isinstance(last, RawEntry):
            return last or NotProven(f"ledger {one.ledger}: entry {first.entry} arrives, and none from its end")
        for found in (first, last):
            if found.data != archived.entry(one, found.entry):
                return NotProven(f"ledger {one.ledger}: entry {found.entry} arrives with other bytes than we have")
        return f"ledger {one.ledger}: entries {first.entry} and {last.entry} of 0 to {one.last} arrive as we have them"

    def _first(self, topic: TopicName, one: BridgedLedger) -> RawEntry | NotProven | None:
        """None: brokers explain that none is to come."""
        found = self._arrived(topic, one, 0, only_first=True)
        if found or self._hidden(topic, one, 0, min(one.last + 1, _EXPLAINED)):
            return found[0] if found else None
        found = self._arrived(topic, one, 0, only_first=True, timeout=self._timeout)
        return found[0] if found else _absent(one, 0, self._timeout)

    def _last(self, topic: TopicName, one: BridgedLedger) -> RawEntry | NotProven | None:
        for count in _STEPS:
            begin = max(one.last + 1 - count, 0)
            found = self._arrived(topic, one, begin)
            if not found and not self._hidden(topic, one, begin, min(one.last + 1, begin + _EXPLAINED)):
                found = self._arrived(topic, one, begin, timeout=self._timeout)
                if not found:
                    return _absent(one, begin, self._timeout)
            if found:
                return found[-1]
            if begin == 0:
                return None
        return None

    def _arrived(
        self, topic: TopicName, one: BridgedLedger, begin: int, *, only_first: bool = False, timeout: float = PATIENCE
    ) -> list[RawEntry]:
        """The entries of the ledger that arrive from there on, up to its end."""
        reader = self._source.open(topic, one.ledger, begin, max_bytes=READ_SIZE)
        arrived: list[RawEntry] = []
        until = self._clock() + min(timeout, self._timeout)
        try:
            while (left := until - self._clock()) > 0:
                some = reader.read(left)
                arrived += (entry for entry in some if entry.ledger == one.ledger)
                if not some or (arrived[-1:] and (only_first or arrived[-1].entry >= one.last)):
                    break
                if any(entry.ledger != one.ledger for entry in some):
                    break
        finally:
            reader.close()
        return arrived

    def _hidden(self, topic: TopicName, one: BridgedLedger, begin: int, after: int) -> bool:
        """Whether the broker, which reads them for that, says that none of these is for readers."""
        with suppress(OffloadError):  # it cannot read them, or not now: then nothing explains them
            gaps, missing = self._source.explain(topic, EntryRange(one.ledger, begin, after), limit=_EXPLAINED)
            return bool(gaps) and missing is None
        return False


def _absent(one: BridgedLedger, entry: int, timeout: float) -> NotProven:
    return NotProven(f"ledger {one.ledger}: entry {entry} has not arrived through the broker within {timeout:g} s")
