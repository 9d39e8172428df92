"""Reads topics' nodes from the metadata service, many at a time, and loads none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.metadata_codec import decode_metadata
from offloader.bookkeeper.nodes import Node
from offloader.bookkeeper.topic_nodes import PAGE, TopicTree
from offloader.errors import DamagedRecordError, LedgerNotFoundError
from offloader.model import TopicName
from offloader.state.managed_ledger import ManagedLedger
from offloader.state.managed_ledger_codec import decode_managed_ledger
from offloader.state.names import managed_ledger_name, topic_of
from offloader.state.subscription import CursorState
from offloader.state.subscription_codec import decode_cursor_node
from offloader.state.topic import NewestLedger, PulsarTopic

_Nodes = tuple[ManagedLedger, dict[str, CursorState]]


@dataclass(frozen=True, slots=True)
class UnreadableTopic:
    """A topic with a node that is damaged: it is left alone."""

    topic: TopicName
    why: str


class TopicNodeReader:
    """All calls raise MetadataUnavailableError."""

    def __init__(self, tree: MetadataTree) -> None:
        self._tree = tree
        self._topics = TopicTree(tree.nodes, tree.uri.managed_ledgers)

    def namespaces(self) -> list[str]:
        """See `TopicTree.namespaces`."""
        return self._topics.namespaces()

    def topics(self, namespace: str) -> list[TopicName]:
        """See `TopicTree.topics`."""
        return self._topics.topics(namespace)

    def read(self, topics: Iterable[TopicName]) -> Iterator[PulsarTopic | UnreadableTopic]:
        """Of those that are there, in their order."""
        found = self._topics.read(map(managed_ledger_name, topics))
        decoded = ((topic_of(name), _decoded(node, cursors)) for name, node, cursors in found)
        while page := list(islice(decoded, PAGE)):
            yield from self._with_newest(page)

    def read_again(self, topic: TopicName) -> PulsarTopic | UnreadableTopic | None:
        """As new as the call. None: it has no ledger list any more."""
        self._tree.nodes.sync(f"{self._topics.root}/{managed_ledger_name(topic)}")
        return next(self.read([topic]), None)

    def _with_newest(self, page: Sequence[tuple[TopicName, _Nodes | str]]) -> Iterator[PulsarTopic | UnreadableTopic]:
        ids = (one[0].greatest for _, one in page if not isinstance(one, str))
        found = self._newest(ledger for ledger in ids if ledger is not None)
        for topic, one in page:
            if isinstance(one, str):
                yield UnreadableTopic(topic, one)
                continue
            listed, cursors = one
            newest = found.get(-1 if listed.greatest is None else listed.greatest)
            if isinstance(newest, str):
                yield UnreadableTopic(topic, newest)
            else:
                yield PulsarTopic(topic, listed, newest, cursors)

    def _newest(self, ledgers: Iterable[int]) -> Mapping[int, NewestLedger | str]:
        found: dict[int, NewestLedger | str] = {}
        places: dict[str, int] = {}
        for ledger in ledgers:
            try:
                places[self._tree.path_of(ledger)] = ledger
            except LedgerNotFoundError as error:
                found[ledger] = str(error)
        for path, node in self._tree.nodes.get_each(places):
            if node is not None:
                found[places[path]] = _newest(places[path], node)
        return found


def _decoded(node: Node, cursors: Mapping[str, Node]) -> _Nodes | str:
    """Why not, where one of them is damaged."""
    what = "ledger list"
    try:
        listed = decode_managed_ledger(node.value, node.version, modified_ms=node.modified_ms)
        states = {}
        for name, cursor in cursors.items():
            what = f"cursor {name}"
            states[name] = decode_cursor_node(cursor.value, cursor.version)
    except DamagedRecordError as error:
        return f"{what}: {error}"
    return listed, states


def _newest(ledger: int, node: Node) -> NewestLedger | str:
    try:
        metadata = decode_metadata(node.value)
    except DamagedRecordError as error:
        return f"ledger {ledger}: {error}"
    entries, size = (metadata.last_entry + 1, metadata.length) if metadata.closed else (0, 0)
    return NewestLedger(metadata.closed, entries, size, node.created_ms, node.modified_ms)
