"""All that one metadata store refers to, read from its nodes.

What we may not read is not there for us, and whoever reads here must know: `PatientNodes.refused`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from sys import intern

from offloader.bookkeeper.managed_ledgers import PENDING_ACK_SUFFIX, decoded
from offloader.bookkeeper.nodes import Node
from offloader.lifecycle.ledgers.again import LookAgain
from offloader.lifecycle.ledgers.decoding import read_cursor, read_list, read_locator
from offloader.lifecycle.ledgers.kinds import COMPACTION, ledger_of
from offloader.lifecycle.ledgers.named import packed
from offloader.lifecycle.ledgers.patient import PatientNodes
from offloader.lifecycle.ledgers.references import (
    CursorNode,
    LastEntry,
    ListNode,
    LocatorNode,
    References,
    UnreadableNode,
)

MANAGED_LEDGERS, SCHEMAS, POLICIES, CLUSTERS = "/managed-ledgers", "/schemas", "/admin/policies", "/admin/clusters"
PACKAGES = "/pulsar/functions"
_PERSISTENT = "persistent"
_SEGMENTS = "<default>/ledgers"  # DistributedLog's: one node for each ledger of a log
_SAID = 1_000
_DEEPEST = 12  # of a package's path

LastEntriesOf = Callable[[Mapping[str, int]], Mapping[str, LastEntry | UnreadableNode]]
"""Reads the last entries of cursors' ledgers, by managed ledger."""
Said = Callable[[str, int], None]
"""Progress: what is read, and how many of it so far."""

_NO_BUCKETS: Mapping[str, int] = {}


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
        lists: dict[str, ListNode | UnreadableNode] = {}
        cursors: dict[str, dict[str, CursorNode | UnreadableNode]] = {}
        for domain in self._domains():
            self._read_domain(domain, lists, cursors)
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
        fresh: dict[str, dict[str, CursorNode | UnreadableNode]] = {}
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

    # Namespaces

    def _namespaces(self) -> Iterator[str]:
        """Those that have policies; of the old form, with a cluster, too."""
        nodes, root = self.store.configuration, self.store.configuration_root + POLICIES
        tenants = [f"{root}/{tenant}" for tenant in nodes.children(root) or ()]
        two = [f"{path}/{name}" for path, names in nodes.children_of_each(tenants) for name in names or ()]
        three = [f"{path}/{name}" for path, names in nodes.children_of_each(two) for name in names or ()]
        for path, node in nodes.get_each((*two, *three)):
            if node is not None and node.value:  # one without a value is above others
                yield intern(path.removeprefix(f"{root}/"))

    def _without_policies(self, namespaces: Iterable[str]) -> Iterator[str]:
        root = f"{self.store.configuration_root}{POLICIES}/"
        for path, node in self.store.configuration.get_each(root + one for one in sorted(namespaces)):
            if node is None or not node.value:
                yield path.removeprefix(root)

    # Managed ledgers

    def _domains(self) -> Iterator[str]:
        """The folders named `persistent`, with a namespace above them, and perhaps a cluster above that.

        A topic may have that name as well: then what is below it is read both ways.
        """
        root, nodes = self.store.path(MANAGED_LEDGERS), self.store.nodes
        tenants = [f"{root}/{tenant}" for tenant in nodes.children(root) or ()]
        two = [f"{path}/{name}" for path, names in nodes.children_of_each(tenants) for name in names or ()]
        for path, names in nodes.children_of_each(two):
            three = [f"{path}/{name}" for name in names or ()]
            if _PERSISTENT in (names or ()):
                yield f"{path}/{_PERSISTENT}"
            for below, inner in nodes.children_of_each(three):
                if _PERSISTENT in (inner or ()):
                    yield f"{below}/{_PERSISTENT}"

    def _read_domain(
        self,
        domain: str,
        lists: dict[str, ListNode | UnreadableNode],
        cursors: dict[str, dict[str, CursorNode | UnreadableNode]],
    ) -> None:
        prefix = domain.removeprefix(self.store.path(MANAGED_LEDGERS) + "/")
        names = (f"{prefix}/{topic}" for topic in self.store.nodes.children(domain) or ())
        self._read_lists(names, lists, cursors)

    def _read_lists(
        self,
        names: Iterable[str],
        lists: dict[str, ListNode | UnreadableNode],
        cursors: dict[str, dict[str, CursorNode | UnreadableNode]],
    ) -> None:
        root, nodes = self.store.path(MANAGED_LEDGERS) + "/", self.store.nodes
        below: list[str] = []
        for path, node in nodes.get_each(root + name for name in names):
            if node is not None:
                self._count("ledger lists")
                name = intern(path.removeprefix(root))
                read = read_list(*self._read(node))
                lists[name] = read if name.endswith(PENDING_ACK_SUFFIX) else _compact(read)  # told with their sizes
                below.append(path)
        found = (f"{path}/{one}" for path, inner in nodes.children_of_each(below) for one in inner or ())
        for path, node in nodes.get_each(found):
            if node is not None:
                self._count("cursors")
                name, _, cursor = path.removeprefix(root).rpartition("/")
                found_there = _without_empty(read_cursor(*self._read(node)))
                cursors.setdefault(intern(name), {})[intern(decoded(cursor))] = found_there

    # Schemas

    def _schemas(self) -> Iterator[tuple[str, LocatorNode | UnreadableNode]]:
        """At `tenant/namespace/topic`. A node without a value there is a namespace of the old form, with a cluster."""
        root, nodes = self.store.path(SCHEMAS) + "/", self.store.nodes
        tenants = [root + tenant for tenant in nodes.children(root[:-1]) or ()]
        two = [f"{path}/{name}" for path, names in nodes.children_of_each(tenants) for name in names or ()]
        three = (f"{path}/{name}" for path, names in nodes.children_of_each(two) for name in names or ())
        folders: list[str] = []
        yield from self._locators(three, folders)
        four = (f"{path}/{name}" for path, names in nodes.children_of_each(folders) for name in names or ())
        yield from self._locators(four, [])

    def _locators(self, paths: Iterable[str], folders: list[str]) -> Iterator[tuple[str, LocatorNode | UnreadableNode]]:
        """`folders` gets what has no value."""
        root = self.store.path(SCHEMAS) + "/"
        for path, node in self.store.nodes.get_each(paths):
            if node is not None and node.value:
                self._count("schemas")
                yield intern(path.removeprefix(root)), read_locator(*self._read(node))
            elif node is not None:
                folders.append(path)

    def _read(self, node: Node) -> tuple[bytes, int, int, int | None]:
        return node.value, node.version, node.created_ms, node.born if self.with_ledgers else None

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
            segments = [
                f"{path}/{one}" for path, names in self.store.nodes.children_of_each(logs) for one in names or ()
            ]
            for _path, node in self.store.nodes.get_each(segments):
                yield from _ledger_of_segment(node)
            listed = self.store.nodes.children_of_each(folders)
            folders = [f"{path}/{one}" for path, names in listed for one in names or () if one != "<default>"]
            if not folders:
                return


def _ledger_of_segment(node: Node | None) -> Iterator[int]:
    """`version;ledger;…`: the second field."""
    fields = node.value.decode("ascii", "replace").split(";", 2) if node is not None else []
    ledger = ledger_of(fields[1].strip()) if len(fields) > 1 else None
    if ledger is not None:
        yield ledger


def _view_ledgers(cursors: Mapping[str, Mapping[str, CursorNode | UnreadableNode]]) -> dict[str, int]:
    """The ledgers of the cursors named `__compaction`, by managed ledger."""
    found = ((name, named.get(COMPACTION)) for name, named in cursors.items())
    return {name: one.ledger for name, one in found if isinstance(one, CursorNode) and one.ledger is not None}


def _compact(node: ListNode | UnreadableNode) -> ListNode | UnreadableNode:
    return packed(node) if isinstance(node, ListNode) else node


def _without_empty(node: CursorNode | UnreadableNode) -> CursorNode | UnreadableNode:
    """Cursors are many, and few have buckets."""
    return node if isinstance(node, UnreadableNode) or node.buckets else replace(node, buckets=_NO_BUCKETS)
