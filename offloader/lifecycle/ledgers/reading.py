"""All that one metadata store refers to, read from its nodes.

What we may not read is not there for us, and whoever reads here must know: `PatientNodes.refused`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from sys import intern
from typing import Any

from offloader.bookkeeper.nodes import Node
from offloader.bookkeeper.topic_nodes import TopicTree, below_each
from offloader.lifecycle.ledgers.again import LookAgain
from offloader.lifecycle.ledgers.decoding import decode_locator, decode_references, or_unreadable
from offloader.lifecycle.ledgers.kinds import COMPACTION
from offloader.lifecycle.ledgers.named import packed
from offloader.lifecycle.ledgers.patient import PatientNodes
from offloader.lifecycle.ledgers.references import LocatorNode, References, UnreadableNode
from offloader.state.managed_ledger import ManagedLedger
from offloader.state.managed_ledger_codec import decode_managed_ledger
from offloader.state.names import PENDING_ACK_SUFFIX
from offloader.state.subscription import CursorState, ledger_of

MANAGED_LEDGERS, SCHEMAS, POLICIES, CLUSTERS = "/managed-ledgers", "/schemas", "/admin/policies", "/admin/clusters"
PACKAGES = "/pulsar/functions"
_SEGMENTS = "<default>/ledgers"  # DistributedLog's: one node for each ledger of a log
_SAID = 1_000
_DEEPEST = 12  # of a package's path

LastEntriesOf = Callable[[Mapping[str, int]], Mapping[str, CursorState | UnreadableNode]]
"""Reads the last entries of cursors' ledgers, by managed ledger."""
Said = Callable[[str, int], None]
"""Progress: what is read, and how many of it so far."""


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A metadata store that is read. `configuration`: where its clusters and policies are, and below which root."""

    name: str
    nodes: PatientNodes
    root: str
    configuration: PatientNodes
    configuration_root: str

    def path(self, below: str) -> str:
        """The whole path of a node below the store's root."""
        return self.root + below

    @property
    def sessions(self) -> tuple[PatientNodes, ...]:
        """Those that are used here, each once."""
        return (self.nodes,) if self.configuration is self.nodes else (self.nodes, self.configuration)

    def empty(self) -> tuple[str, ...]:
        """What must have nodes below it, and has none."""
        asked = (
            (self.nodes, self.path(MANAGED_LEDGERS)),
            (self.configuration, self.configuration_root + CLUSTERS),
        )
        return tuple(f"{path} of {self.name}" for nodes, path in asked if not nodes.children(path))

    def sync(self) -> None:
        """What is read from now on is as new as this call."""
        for session in self.sessions:
            session.sync(self.root or "/")


@dataclass
class ReferenceReader:
    """Reads a store whole, or some of its nodes again. `last_entries`: from bookies. `with_ledgers`: they are in the
    same ZooKeeper, whose transactions have one order."""

    store: StorePlace
    last_entries: LastEntriesOf
    said: Said = field(default=lambda _what, _count: None)
    with_ledgers: bool = False
    _counts: Counter[str] = field(default_factory=Counter, init=False)

    def read(self) -> References:
        """All of it. Raises MetadataUnavailableError."""
        namespaces = frozenset(self._namespaces())
        lists: dict[str, ManagedLedger | UnreadableNode] = {}
        cursors: dict[str, dict[str, CursorState | UnreadableNode]] = {}
        for domain in self._topics.domains(with_clusters=True):
            self._read_lists(self._topics.names(domain), lists, cursors)
        return References(
            store=self.store.name,
            namespaces=namespaces,
            lists=lists,
            cursors=cursors,
            schemas=dict(self._schemas()),
            views=self.last_entries(_view_ledgers(cursors)),
            packages=frozenset(self._packages()),
        )

    def read_again(self, before: References, again: LookAgain) -> References:
        """The same, with what is looked at again as it is now. Raises MetadataUnavailableError."""
        names = again.managed_ledgers
        lists = {name: node for name, node in before.lists.items() if name not in names}
        cursors = {name: node for name, node in before.cursors.items() if name not in names}
        schemas = {name: node for name, node in before.schemas.items() if name not in again.schemas}
        views = {name: last for name, last in before.views.items() if name not in names}
        fresh: dict[str, dict[str, CursorState | UnreadableNode]] = {}
        self._read_lists(sorted(names), lists, fresh)
        schemas.update(self._locators((self.store.path(f"{SCHEMAS}/{one}") for one in sorted(again.schemas)), []))
        views.update(self.last_entries(_view_ledgers(fresh)))
        return replace(
            before,
            namespaces=before.namespaces - set(self._without_policies(again.namespaces & before.namespaces)),
            lists=lists,
            cursors=cursors | fresh,
            schemas=schemas,
            views=views,
            packages=frozenset(self._packages()) if again.packages else before.packages,
        )

    @property
    def _topics(self) -> TopicTree:
        return TopicTree(self.store.nodes, self.store.path(MANAGED_LEDGERS))

    # Namespaces

    def _namespaces(self) -> Iterator[str]:
        """Those that have policies; of the old form, with a cluster, too."""
        nodes, root = self.store.configuration, self.store.configuration_root + POLICIES
        two = list(below_each(nodes, list(below_each(nodes, [root]))))
        for path, node in nodes.get_each((*two, *below_each(nodes, two))):
            if node is not None and node.value:  # one without a value is above others
                yield intern(path.removeprefix(f"{root}/"))

    def _without_policies(self, namespaces: Iterable[str]) -> Iterator[str]:
        root = f"{self.store.configuration_root}{POLICIES}/"
        for path, node in self.store.configuration.get_each(root + one for one in sorted(namespaces)):
            if node is None or not node.value:
                yield path.removeprefix(root)

    # Managed ledgers

    def _read_lists(
        self,
        names: Iterable[str],
        lists: dict[str, ManagedLedger | UnreadableNode],
        cursors: dict[str, dict[str, CursorState | UnreadableNode]],
    ) -> None:
        for read, node, owned in self._topics.read(names):
            self._count("ledger lists")
            name = intern(read)
            listed = or_unreadable(
                partial(decode_managed_ledger, node.value, node.version, **self._made(node)), node.version
            )
            lists[name] = listed if name.endswith(PENDING_ACK_SUFFIX) else _compact(listed)  # told with their sizes
            for cursor, at in owned.items():
                self._count("cursors")
                found = or_unreadable(partial(decode_references, at.value, at.version, **self._made(at)), at.version)
                cursors.setdefault(name, {})[intern(cursor)] = found

    # Schemas

    def _schemas(self) -> Iterator[tuple[str, LocatorNode | UnreadableNode]]:
        """At `tenant/namespace/topic`. A node without a value there is a namespace of the old form, with a cluster."""
        nodes = self.store.nodes
        two = list(below_each(nodes, list(below_each(nodes, [self.store.path(SCHEMAS)]))))
        folders: list[str] = []
        yield from self._locators(below_each(nodes, two), folders)
        yield from self._locators(below_each(nodes, folders), [])

    def _locators(self, paths: Iterable[str], folders: list[str]) -> Iterator[tuple[str, LocatorNode | UnreadableNode]]:
        """`folders` gets what has no value."""
        root = self.store.path(SCHEMAS) + "/"
        for path, node in self.store.nodes.get_each(paths):
            if node is not None and node.value:
                self._count("schemas")
                read = partial(decode_locator, node.value, node.version, **self._made(node))
                yield intern(path.removeprefix(root)), or_unreadable(read, node.version)
            elif node is not None:
                folders.append(path)

    def _made(self, node: Node) -> dict[str, Any]:
        return {"created_ms": node.created_ms, "born": node.born if self.with_ledgers else None}

    def _count(self, what: str) -> None:
        self._counts[what] += 1
        if self._counts[what] % _SAID == 0:
            self.said(what, self._counts[what])

    # Functions' packages

    def _packages(self) -> Iterator[int]:
        """The ledgers of DistributedLog's logs, at whatever depth."""
        folders = [self.store.path(PACKAGES)]
        for _ in range(_DEEPEST):
            logs = [f"{path}/{_SEGMENTS}" for path in folders]
            for _path, node in self.store.nodes.get_each(list(below_each(self.store.nodes, logs))):
                yield from _ledger_of_segment(node)
            folders = [path for path in below_each(self.store.nodes, folders) if not path.endswith("/<default>")]
            if not folders:
                return


def _ledger_of_segment(node: Node | None) -> Iterator[int]:
    """`version;ledger;…`: the second field."""
    fields = node.value.decode("ascii", "replace").split(";", 2) if node is not None else []
    ledger = ledger_of(fields[1].strip()) if len(fields) > 1 else None
    if ledger is not None:
        yield ledger


def _view_ledgers(cursors: Mapping[str, Mapping[str, CursorState | UnreadableNode]]) -> dict[str, int]:
    """The ledgers of the cursors named `__compaction`, by managed ledger."""
    found = ((name, named.get(COMPACTION)) for name, named in cursors.items())
    return {
        name: one.cursor_ledger for name, one in found if isinstance(one, CursorState) and one.cursor_ledger is not None
    }


def _compact(node: ManagedLedger | UnreadableNode) -> ManagedLedger | UnreadableNode:
    return packed(node) if isinstance(node, ManagedLedger) else node
