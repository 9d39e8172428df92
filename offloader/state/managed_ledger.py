"""A managed ledger: a topic's ledgers in order, and where brokers read those that are offloaded. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from offloader.model import Place

SHADOW_SOURCE = "PULSAR.SHADOW_SOURCE"
"""The property of a shadow topic (PIP-180) that names its source. A partition has it from its partitioned topic."""


class OffloadContext(NamedTuple):
    """What a managed ledger says of a ledger's copy in tiered storage."""

    uuid: str = ""  # of an attempt as long as it is not complete; empty: none is named
    complete: bool = False
    bookkeeper_deleted: bool = False
    properties: tuple[tuple[str, str], ...] = ()  # of the driver, in the order in which they are written
    driver: str = ""  # its name as the brokers are configured
    timestamp_ms: int = 0  # brokers count the deletion lag from there

    @property
    def bucket(self) -> str:
        """Empty where none is named."""
        return next((value for key, value in self.properties if key == "bucket"), "")


NO_CONTEXT = OffloadContext()


class ListedLedger(NamedTuple):
    """One ledger of the list. `entries`, `size` and `timestamp_ms` are 0 until it is closed there."""

    ledger: int
    entries: int = 0
    size: int = 0
    timestamp_ms: int = 0
    context: OffloadContext | None = None

    @property
    def copy(self) -> OffloadContext:
        """Its context, or one that names no copy."""
        return self.context or NO_CONTEXT


@dataclass(frozen=True, slots=True)
class ManagedLedger:
    """A topic's ledgers, in the order of their ids; none where its node was only just created."""

    ledgers: Sequence[ListedLedger] = ()
    version: int = 0  # of its node
    terminated: Place | None = None  # the last position of a topic that is terminated
    says_more: bool = False  # it has a field that this version does not know
    created_ms: int | None = None  # when its very node was made, by the metadata service's clock; None: not known
    born: int | None = None  # by which transaction of the service that has the ledgers, too; None: not known
    modified_ms: int = 0  # its node's last change, by the metadata service's clock: every load is one
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def greatest(self) -> int | None:
        """The id of the newest ledger."""
        return self.ledgers[-1].ledger if self.ledgers else None

    @property
    def shadow_of(self) -> str:
        """The topic whose data it shows as its own; empty: it is no shadow."""
        return self.properties.get(SHADOW_SOURCE, "")

    @property
    def copies(self) -> dict[int, str]:
        """The uuids of complete copies by ledger."""
        return {one.ledger: one.copy.uuid for one in self.ledgers if one.copy.complete and one.copy.uuid}

    def get(self, ledger: int) -> ListedLedger | None:
        """One of its ledgers; None: it is not listed."""
        at = bisect_left(self.ledgers, ledger, key=attrgetter("ledger"))
        return self.ledgers[at] if at < len(self.ledgers) and self.ledgers[at].ledger == ledger else None

    def last_entry(self, listed: ListedLedger) -> int | None:
        """The last entry of one of its ledgers; -1: it is empty; None: it is open. The newest one has no count before
        it is closed; one behind the end of a terminated topic is empty."""
        if listed.entries or listed.ledger != self.greatest:
            return listed.entries - 1
        return None if self.terminated is None or self.terminated >= (listed.ledger, 0) else -1
