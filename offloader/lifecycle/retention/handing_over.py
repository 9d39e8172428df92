"""What brokers have of a topic, for those who decide whether its segments go: looked at once more, right before."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from offloader.errors import DamagedObjectError, ObjectNotFoundError
from offloader.format.v1 import decode_ledger_index
from offloader.lifecycle.retention.own_copies import NOTHING_READABLE, OwnCopies, ReadableLedgers, readable
from offloader.lifecycle.retention.second_look import SecondLook
from offloader.metadata.bridged import NOTHING_BRIDGED, BridgedLedgers, HandedLedger
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import Segment, TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import read_index


class Bridges(Protocol):
    """Bridge logs, as `BridgeReader` reads them."""

    def of(self, topic: TopicName) -> BridgedLedgers: ...

    def slot(self, topic: TopicName) -> int: ...


@dataclass(frozen=True)
class HandingOver:
    """`bridges`: what bridge logs say now. `open_bucket`: the store of a bucket, by its URL. `listed`: the ledgers that
    Pulsar lists of a topic now: a broker takes a ledger off its list first, and deletes its objects some time later.
    None: nobody is asked. `own`: what brokers have offloaded, by Pulsar's record; None: nobody can read that. Calls
    raise what these raise."""

    bridges: Bridges | None
    open_bucket: Callable[[str], ObjectStore]
    listed: Callable[[TopicName], Container[int]] | None = None
    own: OwnCopies | None = None

    def bridged(self, topic: TopicName) -> BridgedLedgers:
        """Which ledgers of a topic are bridged: reads what its bridge log has got since."""
        return NOTHING_BRIDGED if self.bridges is None else self.bridges.of(topic)

    def readable(self, topic: TopicName) -> ReadableLedgers:
        """Which ledgers of a topic can be read from brokers' objects: those that are bridged, and those that the bridge
        has passed because brokers have offloaded them by themselves."""
        bridged = self.bridged(topic)
        if bridged.state is None:
            return NOTHING_READABLE
        return readable(bridged, {} if self.own is None or bridged.state.up_to is None else self.own(topic))

    def slot(self, topic: TopicName) -> int:
        """What changes with a topic's bridge log, for less than that takes."""
        return 0 if self.bridges is None else self.bridges.slot(topic)

    def listing(self, topic: TopicName) -> Container[int] | None:
        """What `listed` says, once for several segments."""
        return None if self.listed is None else self.listed(topic)

    def why_not(self, found: ReadableLedgers, segments: Iterable[Segment], look: SecondLook | None = None) -> str:
        """Why the only copy of these segments would not be with brokers; "": all of it is there. `look`: the data is
        read, too."""
        faults = (fault for ledger, of in _by_ledger(segments) for fault in self._of(found, ledger, of, look))
        return next(faults, "")

    def _of(
        self, found: ReadableLedgers, ledger: int, segments: list[Segment], look: SecondLook | None
    ) -> Iterator[str]:
        last = max(held.last for each in segments for held in each.ledgers if held.ledger == ledger)
        handed = found.ledgers.get(ledger)
        if handed is None or handed.incarnation != segments[0].start.incarnation or handed.ledger.last < last:
            yield found.unfit.get(ledger, f"ledger {ledger} is not bridged")
            return
        store = self.open_bucket(handed.bucket)
        yield from _faults(store, handed)
        if look is not None and (why := look.fault(store, handed, segments)):
            yield why


def _by_ledger(segments: Iterable[Segment]) -> Iterator[tuple[int, list[Segment]]]:
    """Each ledger, and those of these segments that hold it, which come in order."""
    holding: dict[int, list[Segment]] = {}
    for segment in segments:
        for ledger in [each for each in holding if each < segment.start.ledger]:
            yield ledger, holding.pop(ledger)
        for held in segment.ledgers:
            holding.setdefault(held.ledger, []).append(segment)
    yield from holding.items()


def _faults(store: ObjectStore, handed: HandedLedger) -> Iterator[str]:
    """What is wrong with its objects. The time when they were built and compared may be long ago."""
    ledger = handed.ledger
    data, index = data_key(ledger.uuid, ledger.ledger), index_key(ledger.uuid, ledger.ledger)
    stat = store.stat(data)
    if stat is None:
        yield f"{data} is not there any more"
        return
    size = stat.size if handed.by_brokers else ledger.size
    if stat.size != size:
        yield f"{data} has {stat.size} bytes, and had {size} when it was built"
    try:
        found = decode_ledger_index(read_index(store, index)[0], ledger.ledger)
    except (ObjectNotFoundError, DamagedObjectError) as error:
        yield f"{index}: {error}"
        return
    said = found.ledger_metadata
    if (found.data_length, said.lastEntryId, said.length) != (size, ledger.last, ledger.length):
        yield f"{index} is not of what {'Pulsar lists' if handed.by_brokers else 'was built'}"


def _no_bucket(url: str) -> ObjectStore:
    raise ObjectNotFoundError(f"nothing says how {url} is reached")


def off_list(listing: Container[int] | None, segments: Iterable[Segment]) -> str:
    """Which of their ledgers Pulsar has let go of, so that its copy is about to be deleted; "": none."""
    ledgers = () if listing is None else (held.ledger for each in segments for held in each.ledgers)
    gone = next((each for each in ledgers if listing is not None and each not in listing), None)
    return "" if gone is None else f"ledger {gone} is off Pulsar's list: its copy goes"


NOTHING_HANDED_OVER = HandingOver(None, _no_bucket)
