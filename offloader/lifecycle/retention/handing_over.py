"""What brokers have of a topic, for those who decide whether its segments go: looked at once more, right before."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from crc32c import crc32c

from offloader.errors import DamagedObjectError, ObjectNotFoundError
from offloader.format.v1 import decode_ledger_index
from offloader.metadata.bridged import NOTHING_BRIDGED, BridgedLedgers, HandedLedger
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import Segment, TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import read_index, read_ranges


class Bridges(Protocol):
    """Bridge logs, as `BridgeReader` reads them."""

    def of(self, topic: TopicName) -> BridgedLedgers: ...

    def slot(self, topic: TopicName) -> int: ...


@dataclass(frozen=True)
class HandingOver:
    """`bridges`: what bridge logs say now. `open_bucket`: the store of a bucket, by its URL. `listed`: the ledgers that
    Pulsar lists of a topic now: a broker takes a ledger off its list first, and deletes its objects some time later.
    None: nobody is asked. Calls raise what these raise."""

    bridges: Bridges | None
    open_bucket: Callable[[str], ObjectStore]
    listed: Callable[[TopicName], Container[int]] | None = None

    def bridged(self, topic: TopicName) -> BridgedLedgers:
        """Which ledgers of a topic are bridged: reads what its bridge log has got since."""
        return NOTHING_BRIDGED if self.bridges is None else self.bridges.of(topic)

    def slot(self, topic: TopicName) -> int:
        """What changes with a topic's bridge log, for less than that takes."""
        return 0 if self.bridges is None else self.bridges.slot(topic)

    def listing(self, topic: TopicName) -> Container[int] | None:
        """What `listed` says, once for several segments."""
        return None if self.listed is None else self.listed(topic)

    def why_not(self, bridged: BridgedLedgers, segments: Iterable[Segment], sound: set[str] | None = None) -> str:
        """Why the only copy of these segments would not be with brokers; "": all of it is there. `sound`: the data is
        read, too; gets the keys of what was read and is right, which is not read again."""
        wanted: dict[int, int] = {}
        for segment in segments:
            for held in segment.ledgers:
                handed = bridged.ledgers.get(held.ledger)
                if handed is None or handed.incarnation != segment.start.incarnation or handed.ledger.last < held.last:
                    return f"ledger {held.ledger} is not bridged"
                wanted[held.ledger] = held.last
        faults = (fault for ledger in wanted for fault in self._faults(bridged.ledgers[ledger], sound))
        return next(faults, "")

    def _faults(self, handed: HandedLedger, sound: set[str] | None) -> Iterator[str]:
        """What is wrong with its objects. The time when they were built and compared may be long ago."""
        ledger, store = handed.ledger, self.open_bucket(handed.bucket)
        data, index = data_key(ledger.uuid, ledger.ledger), index_key(ledger.uuid, ledger.ledger)
        stat = store.stat(data)
        if stat is None:
            yield f"{data} is not there any more"
            return
        if stat.size != ledger.size:
            yield f"{data} has {stat.size} bytes, and had {ledger.size} when it was built"
        try:
            found = decode_ledger_index(read_index(store, index)[0], ledger.ledger)
        except (ObjectNotFoundError, DamagedObjectError) as error:
            yield f"{index}: {error}"
            return
        said = found.ledger_metadata
        if (found.data_length, said.lastEntryId, said.length) != (ledger.size, ledger.last, ledger.length):
            yield f"{index} is not of what was built"
            return
        if sound is not None and data not in sound:
            if _sum_of(store, data, ledger.size) != ledger.crc32c:
                yield f"{data} has other bytes than when it was built"
                return
            sound.add(data)


def _sum_of(store: ObjectStore, key: str, size: int) -> int | None:
    """The CRC32C of an object, read piece by piece; None: it went meanwhile, or is shorter by now."""
    crc = 0
    try:
        for piece in read_ranges(store, key, 0, size):
            crc = crc32c(piece, crc)
    except (ObjectNotFoundError, DamagedObjectError):
        return None
    return crc


def _no_bucket(url: str) -> ObjectStore:
    raise ObjectNotFoundError(f"nothing says how {url} is reached")


def off_list(listing: Container[int] | None, segments: Iterable[Segment]) -> str:
    """Which of their ledgers Pulsar has let go of, so that its copy is about to be deleted; "": none."""
    ledgers = () if listing is None else (held.ledger for each in segments for held in each.ledgers)
    gone = next((each for each in ledgers if listing is not None and each not in listing), None)
    return "" if gone is None else f"ledger {gone} is off Pulsar's list: its copy goes"


NOTHING_HANDED_OVER = HandingOver(None, _no_bucket)
