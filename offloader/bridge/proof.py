"""Whether a topic's brokers are set to read objects, asked before its record may name any, and whether they deliver
what was bridged: the first and the last entry of each ledger, byte for byte.

A reader gets no entry that is hidden: markers, aborted transactions. So the first one is the first that arrives, and
whatever should have come before or behind is to be explained by the broker, which reads it for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from offloader.bridge.core.rounds import BridgedLedger
from offloader.bridge.core.swap_steps import LedgersProven, NotProven
from offloader.bridge.objects import BridgedObjects
from offloader.errors import OffloadError
from offloader.model import MIB, EntryRange, TopicName
from offloader.ports.entry_source import EntrySource, RawEntry
from offloader.printable import printable
from offloader.pulsar.offloading import BrokerOffloading

READ_SIZE = 8 * MIB
PATIENCE = 3.0  # seconds; then the broker is asked whether anything is to come
_FURTHER = 16  # times as many of a ledger's last entries are asked for, as long as none of them arrives
_EXPLAINED = 64  # entries at a time
SKIPS = "autoSkipNonRecoverableData"
_FILES = "filesystem"


class _Arrived(NamedTuple):
    first: RawEntry
    last: RawEntry


class BrokerProof:
    """Of ledgers whose topic is loaded, through a broker's own reader, non-durable. `timeout`: seconds for an entry
    that does not come."""

    def __init__(self, source: EntrySource, timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._timeout = timeout
        self._clock = clock

    def prove(
        self, topic: TopicName, ledgers: Iterable[BridgedLedger], archived: BridgedObjects
    ) -> LedgersProven | NotProven:
        """Read each ledger's first and last entry, and compare them with what was built. Ends with the first ledger
        that fails. Raises BrokerUnavailableError, TopicMovedError and whatever else a reader raises."""
        evidence = []
        for one in ledgers:
            said = self._ledger(topic, one, archived)
            if isinstance(said, NotProven):
                return said
            evidence.append(said)
        return LedgersProven(tuple(evidence))

    def _ledger(self, topic: TopicName, one: BridgedLedger, archived: BridgedObjects) -> str | NotProven:
        first = self._first(topic, one)
        if isinstance(first, NotProven):
            return first
        if first is None:
            return f"ledger {one.ledger}: no entry is for readers, and the broker has read all of them to say so"
        last = self._last(topic, one, first.entry)
        if isinstance(last, NotProven):
            return last
        for found in (first, last):
            if found.data != archived.entry(one, found.entry):
                return NotProven(f"ledger {one.ledger}: entry {found.entry} arrives with other bytes than we have")
        return f"ledger {one.ledger}: entries {first.entry} and {last.entry} of 0 to {one.last} arrive as we have them"

    def _first(self, topic: TopicName, one: BridgedLedger) -> RawEntry | NotProven | None:
        """None: the broker says of each entry that it is not for readers."""
        found = self._arrived(topic, one, 0, only_first=True)
        if found is not None:
            return found.first
        for begin in range(0, one.last + 1, _EXPLAINED):
            if not self._hidden(topic, one, begin):
                found = self._arrived(topic, one, begin, only_first=True, timeout=self._timeout)
                return found.first if found is not None else _absent(one, begin, self._timeout)
        return None

    def _last(self, topic: TopicName, one: BridgedLedger, first: int) -> RawEntry | NotProven:
        """From further and further back, as long as nothing arrives: at the latest `first` does, once more."""
        for begin in _begins(first, one.last):
            found = self._arrived(topic, one, begin)
            if found is None and not self._hidden(topic, one, begin):
                found = self._arrived(topic, one, begin, timeout=self._timeout)
                if found is None:
                    return _absent(one, begin, self._timeout)
            if found is not None:
                return self._behind(topic, one, found.last)
        return NotProven(f"ledger {one.ledger}: entry {first} arrives, and none from its end")

    def _behind(self, topic: TopicName, one: BridgedLedger, last: RawEntry) -> RawEntry | NotProven:
        """The last one that arrives: what follows it is hidden, to the ledger's end, or the broker was silent for too
        long, and is waited for."""
        begin = last.entry + 1
        while begin <= one.last:
            if self._hidden(topic, one, begin):
                begin += _EXPLAINED
                continue
            found = self._arrived(topic, one, begin, timeout=self._timeout)
            if found is None:
                return _absent(one, begin, self._timeout)
            last, begin = found.last, found.last.entry + 1
        return last

    def _arrived(
        self, topic: TopicName, one: BridgedLedger, begin: int, *, only_first: bool = False, timeout: float = PATIENCE
    ) -> _Arrived | None:
        """What arrives of the ledger from there on, up to its end; None: nothing."""
        reader = self._source.open(topic, one.ledger, begin, max_bytes=READ_SIZE)
        arrived: _Arrived | None = None
        until = self._clock() + min(timeout, self._timeout)
        try:
            while (left := until - self._clock()) > 0:
                some = reader.read(left)
                theirs = [entry for entry in some if entry.ledger == one.ledger]
                if theirs:
                    arrived = _Arrived(arrived.first if arrived is not None else theirs[0], theirs[-1])
                if not some or len(theirs) < len(some):
                    break
                if only_first or (arrived is not None and arrived.last.entry >= one.last):
                    break
        finally:
            reader.close()
        return arrived

    def _hidden(self, topic: TopicName, one: BridgedLedger, begin: int) -> bool:
        """Whether the broker, which reads them for that, says that none of the next entries is for readers."""
        after = min(one.last + 1, begin + _EXPLAINED)
        with suppress(OffloadError):  # it cannot read them, or not now: then nothing explains them
            gaps, missing = self._source.explain(topic, EntryRange(one.ledger, begin, after), limit=_EXPLAINED)
            return bool(gaps) and missing is None
        return False


def _begins(first: int, last: int) -> Iterator[int]:
    """Of the last entry, of 16, of 256 and so on, and at last the first one."""
    count = 1
    while last + 1 - count > first:
        yield last + 1 - count
        count *= _FURTHER
    yield first


def _absent(one: BridgedLedger, entry: int, timeout: float) -> NotProven:
    return NotProven(f"ledger {one.ledger}: entry {entry} has not arrived through the broker within {timeout:g} s")


def not_ready(
    topic: TopicName,
    offloading: BrokerOffloading,
    configuration: Mapping[str, str] | None,
    version: Callable[[], str],
) -> str:
    """Why not, in one line that says what to set; empty: nothing is in the way. `configuration`: of the brokers, None
    where we may not read it. `version`: theirs, asked only where it matters; what it raises passes."""
    if not offloading.driver:
        return (
            f"{topic}: its brokers have no offloader: set managedLedgerOffloadDriver and offloadersDirectory in "
            "broker.conf"
        )
    if offloading.driver == _FILES:
        return f"{topic}: its brokers offload to a file system, and would look for the objects there"
    if not offloading.tiered_first:
        return (
            f"{topic}: its brokers read BookKeeper first, so nothing would be proven: set "
            "managedLedgerDataReadPriority=tiered-storage-first in broker.conf, or run pulsar-admin namespaces "
            f"set-offload-policies with --offloadedReadPriority tiered-storage-first for {topic.namespace}"
        )
    if configuration is not None and configuration.get(SKIPS, "").lower() == "true":
        return (
            f"{topic}: with {SKIPS}=true its brokers skip what they cannot read, without a word: set {SKIPS}=false in "
            "broker.conf"
        )
    lag = offloading.deletion_lag_ms
    if lag is not None and lag < 0 and offloading.kept_ms(said := version()) is not None:
        return (
            f"{topic}: its brokers ({printable(said[:40])}) take a deletion lag of {lag} for 0, and would delete "
            "BookKeeper's copy before what they read instead is proven: set managedLedgerOffloadDeletionLagMs in "
            "broker.conf, or the namespace's deletion lag, to some hours"
        )
    return ""
