"""A topic as the metadata service has it, or as its broker reports it: its managed ledger and its subscriptions.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from offloader.model import TopicName
from offloader.state.managed_ledger import ListedLedger, ManagedLedger
from offloader.state.subscription import CursorState


class NewestLedger(NamedTuple):
    """The newest ledger of a list, which has no counts there yet: by BookKeeper's metadata, or by its broker.

    `created_ms`, `changed_ms`: of its node, by the metadata service's clock. A closed one was closed at the latter.
    """

    closed: bool
    entries: int  # BookKeeper has no count before it is closed: then it is 0
    size: int
    created_ms: int
    changed_ms: int


@dataclass(frozen=True, slots=True)
class PulsarTopic:
    """`newest` None: the list is empty, BookKeeper has no such ledger, or the record was read alone."""

    topic: TopicName
    list: ManagedLedger
    newest: NewestLedger | None
    cursors: Mapping[str, CursorState] = field(default_factory=dict, hash=False)

    @property
    def ledgers(self) -> tuple[ListedLedger, ...]:
        """The list, its newest ledger with the size that BookKeeper knows."""
        listed = tuple(self.list.ledgers)
        if not listed or self.newest is None or not self.newest.closed:
            return listed
        return (*listed[:-1], listed[-1]._replace(entries=self.newest.entries, size=self.newest.size))
