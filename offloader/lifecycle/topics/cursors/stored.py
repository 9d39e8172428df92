"""A topic's subscriptions as they are stored: values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from offloader.bookkeeper.cursor_state import CursorState
from offloader.lifecycle.ledgers.references import ListedData
from offloader.lifecycle.topics.cursors.held import HeldLedger
from offloader.model import TopicName


class CursorEntry(NamedTuple):
    """The newest entry of a cursor's ledger. `entry` -1: there is none. `metadata`: the version of the ledger's
    metadata. `closed`: nothing can be added to it."""

    ledger: int
    entry: int
    metadata: int
    closed: bool
    payload: bytes | None = None


@dataclass(frozen=True, slots=True)
class StoredCursor:
    """A subscription as it is stored. `node` and `entry`: the bytes, whatever they say; `entry` None: there is none.

    `state` None: nothing of it could be read. `problem`: why it may not be all; empty: it is as stored.
    `modified_ms`: when the node was last written, by the metadata service's clock. `born`: by which transaction it was
    made. `last`: where `entry` was read; None: from nowhere.
    """

    node: bytes = field(repr=False)
    version: int
    modified_ms: int
    state: CursorState | None
    entry: bytes | None = field(default=None, repr=False)
    problem: str = ""
    born: int = -1
    last: CursorEntry | None = None

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


def problem_of(cursor: StoredCursor) -> str:
    """Why one is not complete."""
    return cursor.problem or "; ".join(cursor.state.unknown if cursor.state else ()) or "its record does not say"
