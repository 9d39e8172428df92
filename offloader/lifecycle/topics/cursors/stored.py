"""A topic's subscriptions as they are stored: values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from offloader.bookkeeper.cursor_state import CursorState
from offloader.lifecycle.ledgers.references import ListedData
from offloader.lifecycle.topics.cursors.held import HeldLedger
from offloader.model import TopicName


@dataclass(frozen=True, slots=True)
class StoredCursor:
    """A subscription as it is stored. `node` and `entry`: the bytes, whatever they say; `entry` None: there is none.

    `state` None: nothing of it could be read. `problem`: why it may not be all; empty: it is as stored.
    `modified_ms`: when the node was last written, by the metadata service's clock.
    """

    node: bytes = field(repr=False)
    version: int
    modified_ms: int
    state: CursorState | None
    entry: bytes | None = field(default=None, repr=False)
    problem: str = ""

    @property
    def complete(self) -> bool:
        """Whether all of it was read and understood."""
        return not self.problem and self.state is not None and self.state.complete


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic's list and its subscriptions, by name. `listed`: as the node has it; `created_ms`: when that was made."""

    topic: TopicName
    ledgers: tuple[HeldLedger, ...]
    listed: tuple[ListedData, ...]
    cursors: Mapping[str, StoredCursor]
    created_ms: int
