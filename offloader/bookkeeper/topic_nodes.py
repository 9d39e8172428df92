"""The nodes of managed ledgers and their cursors, page by page: no topic is loaded for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from offloader.bookkeeper.nodes import Node
from offloader.model import TopicName
from offloader.state.names import decoded, topic_of

PAGE = 200  # managed ledgers whose own nodes are in memory at once, and the cursors' of one
PERSISTENT = "persistent"
_NOT_NODES = {".", ".."}

ManagedLedgerNode = tuple[str, Node, Mapping[str, Node]]
"""A managed ledger's name, its node, and its cursors' nodes by their subscriptions, in order of their paths."""


class ManyNodes(Protocol):
    """As much of `Nodes` as reads many at a time; it bounds the requests in flight."""

    def children(self, path: str, /) -> list[str] | None: ...

    def get_each(self, paths: Iterable[str], /) -> Iterator[tuple[str, Node | None]]: ...

    def children_of_each(self, paths: Iterable[str], /) -> Iterator[tuple[str, list[str] | None]]: ...


def below_each(nodes: ManyNodes, paths: Iterable[str]) -> Iterator[str]:
    """The paths of all nodes below these, in order."""
    return (f"{path}/{name}" for path, names in nodes.children_of_each(paths) for name in sorted(names or ()))


@dataclass(frozen=True, slots=True)
class TopicTree:
    """The managed ledgers below `root`. All calls raise what `nodes` raise."""

    nodes: ManyNodes
    root: str  # …/managed-ledgers

    def domains(self, *, with_clusters: bool = False) -> Iterator[str]:
        """`tenant/namespace/persistent` of all that have managed ledgers. `with_clusters`: and those of the old form,
        with a cluster between tenant and namespace.

        A topic may have the name `persistent` as well: then what is below it is read both ways."""
        tenants = [f"{self.root}/{tenant}" for tenant in sorted(self.nodes.children(self.root) or ())]
        for path, names in self.nodes.children_of_each(list(below_each(self.nodes, tenants))):
            if PERSISTENT in (names or ()):
                yield f"{path}/{PERSISTENT}".removeprefix(f"{self.root}/")
            deeper = [f"{path}/{name}" for name in names or ()] if with_clusters else []
            for below, inner in self.nodes.children_of_each(deeper):
                if PERSISTENT in (inner or ()):
                    yield f"{below}/{PERSISTENT}".removeprefix(f"{self.root}/")

    def namespaces(self) -> list[str]:
        """All `tenant/namespace` that have managed ledgers; none of the old form."""
        return [domain.rpartition("/")[0] for domain in self.domains()]

    def names(self, domain: str) -> list[str]:
        """The managed ledgers of a domain, in order."""
        names = self.nodes.children(f"{self.root}/{domain}") or ()
        return [f"{domain}/{name}" for name in sorted(names) if name not in _NOT_NODES]

    def topics(self, namespace: str) -> list[TopicName]:
        """Whatever has a managed ledger there: topics, partitions as topics of their own, Pulsar's own ones."""
        return sorted(map(topic_of, self.names(f"{namespace}/{PERSISTENT}")))

    def read(self, names: Iterable[str]) -> Iterator[ManagedLedgerNode]:
        """Those managed ledgers that are there, in their order. A cursor that is deleted meanwhile is left out."""
        left = iter(names)
        while page := list(islice(left, PAGE)):
            yield from self._read(page)

    def _read(self, names: list[str]) -> Iterator[ManagedLedgerNode]:
        paths = [f"{self.root}/{name}" for name in names]
        found = {path: node for path, node in self.nodes.get_each(paths) if node is not None}
        below = [(path, sorted(cursors or ())) for path, cursors in self.nodes.children_of_each(found)]
        nodes = self.nodes.get_each(f"{path}/{cursor}" for path, cursors in below for cursor in cursors)
        for path, cursors in below:
            owned = zip(cursors, islice(nodes, len(cursors)), strict=True)
            there = {decoded(cursor): node for cursor, (_, node) in owned if node is not None}
            yield path.removeprefix(f"{self.root}/"), found[path], there
