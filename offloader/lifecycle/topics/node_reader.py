"""Reads topics' nodes from the metadata service, many at a time, and loads none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from offloader.bookkeeper.api import ManagedCursor
from offloader.bookkeeper.managed_ledgers import decode_cursor, decoded, managed_ledger_name, topic_of
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.metadata_codec import decode_metadata
from offloader.bookkeeper.nodes import Node
from offloader.errors import DamagedRecordError, LedgerNotFoundError
from offloader.lifecycle.topics.topic_nodes import LedgerListNode, TailLedger, TopicNodes, read_list_node, tail_of
from offloader.model import TopicName

BATCH = 200  # topics whose nodes are in memory at once
_PERSISTENT = "persistent"
_NOT_NODES = {".", ".."}


@dataclass(frozen=True, slots=True)
class UnreadableTopic:
    """A topic with a node that is damaged: it is left alone."""

    topic: TopicName
    why: str


class TopicNodeReader:
    """All calls raise MetadataUnavailableError."""

    def __init__(self, tree: MetadataTree) -> None:
        self._tree = tree
        self._nodes = tree.nodes
        self._root = tree.uri.managed_ledgers

    def namespaces(self) -> list[str]:
        """All `tenant/namespace` that have ledger lists; none of the old form, which has a cluster in its name."""
        tenants = sorted(self._nodes.children(self._root) or [])
        folders = self._nodes.children_of_each(f"{self._root}/{tenant}" for tenant in tenants)
        below = [f"{path}/{name}" for path, names in folders for name in sorted(names or [])]
        kinds = self._nodes.children_of_each(below)
        return [path.removeprefix(f"{self._root}/") for path, names in kinds if _PERSISTENT in (names or [])]

    def topics(self, namespace: str) -> list[TopicName]:
        """Whatever has a ledger list there: topics, Pulsar's own ones, and what is left of some."""
        names = self._nodes.children(f"{self._root}/{namespace}/{_PERSISTENT}") or []
        return sorted(topic_of(f"{namespace}/{_PERSISTENT}/{name}") for name in names if name not in _NOT_NODES)

    def read(self, topics: Iterable[TopicName]) -> Iterator[TopicNodes | UnreadableTopic]:
        """Of those that are there, in their order."""
        left = iter(topics)
        while some := tuple(islice(left, BATCH)):
            yield from self._read(some)

    def read_again(self, topic: TopicName) -> TopicNodes | UnreadableTopic | None:
        """As new as the call. None: it has no ledger list any more."""
        self._nodes.sync(self._path(topic))
        return next(self._read([topic]), None)

    def _read(self, topics: Sequence[TopicName]) -> Iterator[TopicNodes | UnreadableTopic]:
        lists, cursors = self._lists(topics), self._cursors(topics)
        tails = self._tails([one.last.ledger for one in lists.values() if not isinstance(one, str) and one.last])
        for topic in topics:
            found, owned = lists.get(topic), cursors.get(topic, {})
            if found is None:
                continue
            tail = tails.get(found.last.ledger) if not isinstance(found, str) and found.last else None
            wrong = next((one for one in (found, owned, tail) if isinstance(one, str)), None)
            if wrong is not None or isinstance(found, str) or isinstance(owned, str) or isinstance(tail, str):
                yield UnreadableTopic(topic, wrong or "")
            else:
                yield TopicNodes(topic, found, tail, owned)

    def _lists(self, topics: Sequence[TopicName]) -> Mapping[TopicName, LedgerListNode | str]:
        by_path = {self._path(topic): topic for topic in topics}
        return {by_path[path]: _list(node) for path, node in self._nodes.get_each(by_path) if node is not None}

    def _cursors(self, topics: Sequence[TopicName]) -> Mapping[TopicName, dict[str, ManagedCursor] | str]:
        by_path = {self._path(topic): topic for topic in topics}
        places = {
            f"{path}/{name}": (by_path[path], decoded(name))
            for path, names in self._nodes.children_of_each(by_path)
            for name in sorted(names or [])
        }
        found: dict[TopicName, dict[str, ManagedCursor] | str] = {}
        for path, node in self._nodes.get_each(places):
            topic, cursor = places[path]
            owned = found.setdefault(topic, {})
            if node is None or isinstance(owned, str):
                continue  # deleted meanwhile, or damaged already
            try:
                owned[cursor] = decode_cursor(node.value)
            except DamagedRecordError as error:
                found[topic] = f"cursor {cursor}: {error}"
        return found

    def _tails(self, ledgers: Iterable[int]) -> Mapping[int, TailLedger | str]:
        found: dict[int, TailLedger | str] = {}
        places: dict[str, int] = {}
        for ledger in ledgers:
            try:
                places[self._tree.path_of(ledger)] = ledger
            except LedgerNotFoundError as error:
                found[ledger] = str(error)
        for path, node in self._nodes.get_each(places):
            if node is not None:
                found[places[path]] = _tail(places[path], node)
        return found

    def _path(self, topic: TopicName) -> str:
        return f"{self._root}/{managed_ledger_name(topic)}"


def _list(node: Node) -> LedgerListNode | str:
    try:
        return read_list_node(node)
    except DamagedRecordError as error:
        return f"ledger list: {error}"


def _tail(ledger: int, node: Node) -> TailLedger | str:
    try:
        return tail_of(decode_metadata(node.value), node)
    except DamagedRecordError as error:
        return f"ledger {ledger}: {error}"
