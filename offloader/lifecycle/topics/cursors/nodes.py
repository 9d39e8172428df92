"""Topics' subscriptions from their nodes and from bookies: no topic is loaded for it, and no ledger fenced."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from offloader.bookkeeper.api import Bookies, LastConfirmed
from offloader.bookkeeper.entry_codec import decode, digest_for
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.model import LedgerMetadata, StoredEntry
from offloader.bookkeeper.nodes import Node
from offloader.bookkeeper.status import NoEntryError, NoLedgerError
from offloader.bookkeeper.topic_nodes import TopicTree
from offloader.errors import (
    BookieUnavailableError,
    DamagedRecordError,
    IntegrityError,
    LedgerNotFoundError,
    OffloadError,
    TopicNotFoundError,
)
from offloader.lifecycle.topics.cursors.held import HeldLedger
from offloader.lifecycle.topics.cursors.stored import StoredCursor, StoredTopic
from offloader.model import TopicName
from offloader.state.managed_ledger import ManagedLedger
from offloader.state.managed_ledger_codec import decode_managed_ledger
from offloader.state.names import encoded, managed_ledger_name
from offloader.state.subscription import CursorState, whole_state
from offloader.state.subscription_codec import decode_cursor_entry, decode_cursor_node

SILENCE = 60.0  # seconds for which a bookie that did not answer is not asked again
_AGAIN = 3  # a broker may switch a cursor's ledger while we look


@dataclass(frozen=True, slots=True)
class StoredTopics:
    """What the metadata service and the bookies have of topics' subscriptions."""

    tree: MetadataTree
    bookies: Bookies
    timeout: float  # seconds for one answer of a bookie
    silent: dict[str, float] = field(default_factory=dict, compare=False)  # bookies, and until when none asks them

    @property
    def tree_of_topics(self) -> TopicTree:
        """Which topics there are."""
        return TopicTree(self.tree.nodes, self.tree.uri.managed_ledgers)

    def read(self, topic: TopicName) -> StoredTopic:
        """Raises TopicNotFoundError, DamagedRecordError, MetadataUnavailableError."""
        self.tree.nodes.sync(self.tree.topic_path(topic))
        found = next(self.tree_of_topics.read([managed_ledger_name(topic)]), None)
        if found is None:
            raise TopicNotFoundError(f"{topic} has no managed ledger in {self.tree.uri}")
        _, node, cursors = found
        try:
            listed = decode_managed_ledger(node.value, node.version)
        except DamagedRecordError as error:
            raise DamagedRecordError(f"{topic}: {error}") from error
        return StoredTopic(
            topic,
            tuple(self._held(listed)),
            tuple(listed.ledgers),
            {name: self._cursor(topic, name, one) for name, one in cursors.items()},
            node.created_ms,
        )

    def cursor(self, topic: TopicName, subscription: str) -> StoredCursor | None:
        """One of them, as new as the call; None: there is no such node."""
        node = self.tree.nodes.get(self._cursor_path(topic, subscription), latest=True)
        return None if node is None else self._cursor(topic, subscription, node)

    def _held(self, listed: ManagedLedger) -> Iterator[HeldLedger]:
        """A ledger's count is in the list once the broker has closed it there; until then BookKeeper may have it."""
        for one in listed.ledgers:
            entries, size = (one.entries, one.size) if one.timestamp_ms or one.entries else self._counted(one.ledger)
            yield HeldLedger(one.ledger, entries, size)

    def _counted(self, ledger: int) -> tuple[int | None, int | None]:
        try:
            metadata = self.tree.read(ledger).metadata
        except (LedgerNotFoundError, DamagedRecordError):
            return None, None
        return (metadata.last_entry + 1, metadata.length) if metadata.closed else (None, None)

    def _cursor(self, topic: TopicName, subscription: str, node: Node) -> StoredCursor:
        for _ in range(_AGAIN):
            try:
                state = decode_cursor_node(node.value)
            except DamagedRecordError as error:
                return _stored(node, None, str(error))
            if state.cursor_ledger is None:
                return _stored(node, state)
            try:
                entry = self._last_entry(state.cursor_ledger)
            except LedgerNotFoundError:
                again = self.tree.nodes.get(self._cursor_path(topic, subscription), latest=True)
                if again is None or again.version == node.version:
                    return _stored(node, state, f"its ledger {state.cursor_ledger} is gone from BookKeeper")
                node = again
                continue
            except OffloadError as error:
                return _stored(node, state, f"its ledger {state.cursor_ledger} cannot be read: {error}")
            return _with_entry(node, state, entry)
        return _stored(node, None, "it changes all the time")

    def _last_entry(self, ledger: int) -> bytes | None:
        """The newest entry that any of its bookies has; None: there is none. An entry that is not confirmed yet is
        true all the same: the broker had that state in memory."""
        metadata = self.tree.read(ledger).metadata
        if metadata.closed:
            return self._entry(ledger, metadata)
        ensemble = metadata.fragments[-1].ensemble
        asked = [
            (bookie, None if self._is_silent(bookie) else self.bookies.read_lac(bookie, ledger)) for bookie in ensemble
        ]
        found = [self._answered(*one, ledger, metadata) for one in asked]
        stored = max((one for one in found if isinstance(one, StoredEntry)), key=lambda one: one.entry, default=None)
        failed = [one for one in found if isinstance(one, OffloadError)]
        if failed and (stored is None or len(failed) > metadata.ack_quorum - 1):
            raise failed[0]
        if stored is not None:
            return stored.payload
        before = metadata.fragments[-1].first_entry - 1  # -1: of the only fragment
        return self._entry(ledger, replace(metadata, last_entry=before))

    def _answered(
        self, bookie: str, asked: Future[LastConfirmed] | None, ledger: int, metadata: LedgerMetadata
    ) -> StoredEntry | OffloadError | None:
        if asked is None:
            return BookieUnavailableError(f"{bookie} did not answer a moment ago")
        try:
            stored = asked.result(self.timeout).last_entry
            return None if stored is None else decode(stored, digest_for(metadata), ledger)
        except (NoEntryError, NoLedgerError):
            return None
        except (BookieUnavailableError, TimeoutError) as error:
            return self._silence(bookie, error)
        except OffloadError as error:
            return error

    def _is_silent(self, bookie: str) -> bool:
        """One that hangs is not waited for again with each of thousands of cursors."""
        return self.silent.get(bookie, 0.0) > time.monotonic()

    def _silence(self, bookie: str, error: Exception) -> BookieUnavailableError:
        self.silent[bookie] = time.monotonic() + SILENCE
        why = str(error) or f"it did not answer within {self.timeout:g} s"
        return BookieUnavailableError(f"{bookie}: {why}")

    def _entry(self, ledger: int, metadata: LedgerMetadata) -> bytes | None:
        if metadata.last_entry < 0:
            return None
        failure: OffloadError = IntegrityError(f"ledger {ledger} names no bookies")
        for bookie in metadata.write_set(metadata.last_entry):
            if self._is_silent(bookie):
                failure = BookieUnavailableError(f"{bookie} did not answer a moment ago")
                continue
            try:
                stored = self.bookies.read(bookie, ledger, metadata.last_entry).result(self.timeout)
                return decode(stored, digest_for(metadata), ledger, metadata.last_entry).payload
            except (BookieUnavailableError, TimeoutError) as error:
                failure = self._silence(bookie, error)
            except OffloadError as error:
                failure = error
        raise failure

    def _cursor_path(self, topic: TopicName, subscription: str) -> str:
        return f"{self.tree.topic_path(topic)}/{encoded(subscription)}"


def _stored(node: Node, state: CursorState | None, problem: str = "", entry: bytes | None = None) -> StoredCursor:
    return StoredCursor(node.value, node.version, node.modified_ms, state, entry, problem)


def _with_entry(node: Node, state: CursorState, entry: bytes | None) -> StoredCursor:
    try:
        newest = None if entry is None else decode_cursor_entry(entry)
    except DamagedRecordError as error:
        return _stored(node, state, str(error), entry)
    return _stored(node, whole_state(state, newest), "", entry)
