"""Brokers' copies, read whole right before the segments go that have the same entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256

from crc32c import crc32c

from offloader.bookkeeper.managed_ledgers import managed_ledger_name
from offloader.errors import DamagedObjectError, ObjectNotFoundError
from offloader.format.reader import entries, read_blocks
from offloader.lifecycle.ledgers.copies import CopiedLedger
from offloader.lifecycle.ledgers.references import OffloadedCopy
from offloader.lifecycle.ledgers.stock_copies import is_whole
from offloader.metadata.bridged import HandedLedger
from offloader.metadata.deletions import BrokersCopy
from offloader.metadata.layout import data_key as segment_key
from offloader.metadata.stock_keys import data_key
from offloader.model import EntryRange, Part, Segment, TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import naming, read_ranges


class SecondLook:
    """What one second look has read of a topic's copies: none is read twice. `archive`: the store of its segments.
    `own`: copies that brokers have made by themselves and that are right, by ledger."""

    def __init__(self, archive: ObjectStore, topic: TopicName) -> None:
        self._archive = archive
        self._topic = topic
        self._sound: set[tuple[str, ...]] = set()  # an object's key, and the uuids of the segments that it was for
        self._part: tuple[str, bytes] = "", b""  # the last one that was read: it may hold many small ledgers
        self.own: dict[int, BrokersCopy] = {}

    def fault(self, store: ObjectStore, handed: HandedLedger, segments: Sequence[Segment]) -> str:
        """What is wrong with a ledger's copy; "": it has what the segments have, byte for byte. Raises what the stores
        raise."""
        data = data_key(handed.ledger.uuid, handed.ledger.ledger)
        compared = (data, *(segment.uuid for segment in segments))
        if compared not in self._sound:
            why = self._of_brokers(store, handed, segments) if handed.by_brokers else _of_ours(store, data, handed)
            if why:
                return f"{data} {why}"
            self._sound.add(compared)
        if handed.by_brokers:
            self.own[handed.ledger.ledger] = handed.copy
        return ""

    def _of_brokers(self, store: ObjectStore, handed: HandedLedger, segments: Sequence[Segment]) -> str:
        """Nobody knows its sum: it is compared entry by entry."""
        ledger, same = handed.ledger, tuple(segment for segment in segments if segment.brokers is None)
        if any(each.brokers.uuid != ledger.uuid for each in segments if each.brokers is not None):
            return "is another copy than the one that the archive refers to"
        theirs = _Theirs(held for segment in same for held in _held(segment, ledger.ledger))
        copy = OffloadedCopy(ledger.uuid, complete=True, bookkeeper_deleted=False)
        one = CopiedLedger(ledger.ledger, managed_ledger_name(self._topic), copy, ledger.last, ledger.length)
        if not is_whole(store, one, theirs.take):
            return "is not whole"
        try:
            ours = self._digest(same, ledger.ledger)
        except (DamagedObjectError, ObjectNotFoundError) as error:
            return f"cannot be compared: {error}"
        return "" if theirs.digest == ours else "has other entries than the segments"

    def _digest(self, segments: Sequence[Segment], ledger: int) -> str:
        digest = sha256()
        for segment in segments:
            for part in segment.parts:
                if any(held.ledger == ledger for held in part.ledgers):
                    for entry, data in self._entries(segment, part, ledger):
                        digest.update(_framed(entry, data))
        return digest.hexdigest()

    def _entries(self, segment: Segment, part: Part, ledger: int) -> Iterator[tuple[int, bytes]]:
        key = segment_key(self._topic, segment.uuid)
        with naming(key):
            for block in read_blocks(self._bytes_of(key, part), part.offset):
                of = segment.v1_ledger if block.header.ledger is None else block.header.ledger
                for one in entries(block) if of == ledger else ():
                    yield one.entry, one.data

    def _bytes_of(self, key: str, part: Part) -> bytes:
        name = f"{key} {part.offset}"
        if self._part[0] != name:
            data, _ = self._archive.read(key, part.offset, part.size)
            if crc32c(data) != part.crc32c:
                raise DamagedObjectError(f"offset {part.offset}: the part has other bytes than its record says")
            self._part = name, data
        return self._part[1]


class _Theirs:
    """The sum of those entries of an object that segments have, too."""

    def __init__(self, wanted: Iterator[EntryRange]) -> None:
        self._wanted = wanted
        self._due = next(wanted, None)
        self._sum = sha256()

    def take(self, entry: int, data: bytes) -> None:
        """The object's next entry."""
        while self._due is not None and entry >= self._due.after:
            self._due = next(self._wanted, None)
        if self._due is not None and entry >= self._due.first:
            self._sum.update(_framed(entry, data))

    @property
    def digest(self) -> str:
        return self._sum.hexdigest()


def _held(segment: Segment, ledger: int) -> Iterator[EntryRange]:
    """What a segment's object has of a ledger."""
    gaps = [gap for gap in segment.gaps if gap.ledger == ledger]
    for held in segment.ledgers:
        if held.ledger == ledger:
            yield from EntryRange(ledger, held.first, held.after).without(gaps)


def _framed(entry: int, data: bytes) -> bytes:
    return entry.to_bytes(8, "big") + len(data).to_bytes(4, "big") + data


def _of_ours(store: ObjectStore, key: str, handed: HandedLedger) -> str:
    """Its sum was recorded when it was built. Read piece by piece."""
    crc = 0
    try:
        for piece in read_ranges(store, key, 0, handed.ledger.size):
            crc = crc32c(piece, crc)
    except (ObjectNotFoundError, DamagedObjectError):
        return "has other bytes than when it was built"  # it went meanwhile, or is shorter by now
    return "" if crc == handed.ledger.crc32c else "has other bytes than when it was built"
