"""What the metadata service says of one topic: its ledger list, its last ledger, its cursors. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from offloader.bookkeeper.api import ManagedCursor
from offloader.bookkeeper.managed_ledgers import decode_record
from offloader.bookkeeper.model import LedgerMetadata, LedgerState
from offloader.bookkeeper.nodes import Node
from offloader.errors import DamagedRecordError
from offloader.model import TopicName

SHADOW_SOURCE = "PULSAR.SHADOW_SOURCE"
"""The property of a topic whose list is a copy of another one's."""


class DatedLedger(NamedTuple):
    """One ledger of a list. `timestamp_ms`: when it was finished there, 0 until then; `size` likewise."""

    ledger: int
    entries: int
    size: int
    timestamp_ms: int


class TailLedger(NamedTuple):
    """What BookKeeper says of a list's last ledger. `entries`, `size`: 0 until it is closed.

    `created_ms`, `changed_ms`: of its node, by the metadata service's clock. A closed one was closed at the latter.
    """

    state: LedgerState
    entries: int
    size: int
    created_ms: int
    changed_ms: int

    @property
    def closed(self) -> bool:
        return self.state is LedgerState.CLOSED


@dataclass(frozen=True, slots=True)
class LedgerListNode:
    """A topic's ledger list. `written_ms`: its last change, by the metadata service's clock: every load is one."""

    ledgers: tuple[DatedLedger, ...]
    version: int
    written_ms: int
    terminated: bool = False
    shadow_of: str = ""

    @property
    def last(self) -> DatedLedger | None:
        return self.ledgers[-1] if self.ledgers else None


@dataclass(frozen=True, slots=True)
class TopicNodes:
    """One topic's nodes. `tail` None: the list is empty, or BookKeeper has no such ledger."""

    topic: TopicName
    list: LedgerListNode
    tail: TailLedger | None
    cursors: Mapping[str, ManagedCursor] = field(default_factory=dict, hash=False)

    @property
    def ledgers(self) -> tuple[DatedLedger, ...]:
        """The list, its last ledger with the size that BookKeeper knows."""
        listed = self.list.ledgers
        if not listed or self.tail is None or not self.tail.closed:
            return listed
        return (*listed[:-1], listed[-1]._replace(entries=self.tail.entries, size=self.tail.size))


def read_list_node(node: Node) -> LedgerListNode:
    """The value of /managed-ledgers/…; empty where it was only just created. Raises DamagedRecordError."""
    info = decode_record(node.value)
    ledgers = tuple(sorted(DatedLedger(x.ledgerId, x.entries, x.size, x.timestamp) for x in info.ledgerInfo))
    if any(min(one) < 0 for one in ledgers) or len({one.ledger for one in ledgers}) < len(ledgers):
        raise DamagedRecordError("no managed ledger can have such a list")
    properties = {one.key: one.value for one in info.properties}
    return LedgerListNode(
        ledgers, node.version, node.modified_ms, info.HasField("terminatedPosition"), properties.get(SHADOW_SOURCE, "")
    )


def tail_of(metadata: LedgerMetadata, node: Node) -> TailLedger:
    """The last ledger, by its metadata and their node."""
    entries, size = (metadata.last_entry + 1, metadata.length) if metadata.closed else (0, 0)
    return TailLedger(metadata.state, max(entries, 0), max(size, 0), node.created_ms, node.modified_ms)
