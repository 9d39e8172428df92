"""A random cluster written into nodes and bookies in memory, as brokers, bookies and functions keep it there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from offloader.bookkeeper.entry_codec import digest_for, encode, master_key
from offloader.bookkeeper.layout import Layout, ledger_path
from offloader.bookkeeper.model import StoredEntry
from offloader.lifecycle.ledgers.copies import CopiedLedger
from offloader.lifecycle.ledgers.objections import OperatorsWord
from offloader.lifecycle.ledgers.scanner import ClusterScanner
from offloader.lifecycle.ledgers.stores import StoreFinder
from tests.fakes.bookkeeper import SimulatedBookie, SimulatedCluster
from tests.fakes.cluster import MemoryCluster
from tests.fakes.ledger_metadata import ADDRESS

from .world import World

BOOKIE = "b:1"  # the one that the world's ledgers are on
NOW = 1_700_000_000_000


class Written:
    """A world, and what is read of it. `sync` brings the nodes up to the world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.bookkeeper = SimulatedCluster(1, 0, prompt=True)
        self.bookkeeper.bookies[BOOKIE] = SimulatedBookie()
        self.pulsar = MemoryCluster(name="memory")
        self.nodes = self.bookkeeper.metadata.nodes
        self.fill = self.bookkeeper.metadata.cluster
        self.fill.register(BOOKIE, None)
        self.fill.put_cookie(BOOKIE, b"cookie")
        self.fill.put_cluster("memory", "broker:8080")
        self._nodes: dict[str, tuple[bytes, int]] = {}
        self._ledgers: dict[int, Any] = {}
        self.verified: dict[int, CopiedLedger] = {}
        self.sync()

    def sync(self) -> None:
        for namespace in self.world.namespaces:
            if self.nodes.get(f"/admin/policies/{namespace}") is None:
                self.fill.put_namespace(namespace)
        for ledger in self.world.packages:
            if self.nodes.get(f"/pulsar/functions/t/n/f{ledger}") is None:
                self.fill.put_package(f"t/n/f{ledger}", ledger)
        for ledger in self._ledgers.keys() - self.world.ledgers.keys():
            self.fill.delete_ledger(ledger)
        for path in sorted(self._nodes.keys() - self.world.nodes.keys(), reverse=True):
            self.nodes.delete(path)
        there: list[int | str] = [*self.world.ledgers, *self.world.nodes]
        for what in sorted(there, key=lambda one: self.world.born.get(one, 0)):
            if isinstance(what, int):
                self._sync_ledger(what)
            elif self._nodes.get(what) != self.world.nodes[what]:
                self.nodes.put(what, self.world.nodes[what][0])
        self._nodes, self._ledgers = dict(self.world.nodes), dict(self.world.ledgers)

    def _sync_ledger(self, ledger: int) -> None:
        metadata = self.world.ledgers[ledger]
        if ledger not in self._ledgers or self._ledgers[ledger] != metadata:
            self.fill.put_ledger(ledger, b"" if metadata is None else metadata)
        payload = self.world.last_entries.get(ledger)
        if payload is not None and metadata is not None:
            self.bookkeeper.bookies[BOOKIE].memory.ledgers.pop(ledger, None)
            last = max(metadata.last_entry, 0)
            stored = encode(StoredEntry(ledger, last, last - 1, 9, payload), digest_for(metadata))
            self.bookkeeper.bookies[BOOKIE].memory.add(ledger, last, stored, master_key(b""))

    def scanner(self, *, alone: bool = True, nodes: Any = None, tries: int = 3, **more: Any) -> ClusterScanner:
        bookies, tree = self.bookkeeper.client()
        if nodes is not None:
            tree.nodes = nodes
        finder = StoreFinder(tree.nodes, ADDRESS, self.pulsar.admin, _nobody, tries=tries, **more)
        return ClusterScanner(
            *(tree, bookies, finder, OperatorsWord(alone)),
            clock_ms=lambda: NOW,
            bookie_timeout=0.01,
            verify_copies=self.verify_copies,
        )

    def verify_copies(self, ledgers: Collection[CopiedLedger]) -> dict[int, bool]:
        """As the world has them in the bucket."""
        self.verified = {one.ledger: one for one in ledgers}
        return {one: whole for one, whole in self.world.copies.items() if one in self.verified}

    def ledger_path(self, ledger: int) -> str:
        return "/ledgers" + ledger_path(Layout.HIERARCHICAL, ledger)


def _nobody(hosts: tuple[str, ...]) -> Any:
    raise AssertionError(f"{hosts}: nobody is to be connected to")


class Meanwhile:
    """Nodes in memory, and what happens between two requests. `before`: called with each path that is read."""

    def __init__(self, nodes: Any, before: Callable[[str], None]) -> None:
        self._nodes = nodes
        self._before = before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nodes, name)

    def get(self, path: str, *arguments: Any, **more: Any) -> Any:
        self._before(path)
        return self._nodes.get(path, *arguments, **more)

    def children(self, path: str, *arguments: Any) -> Any:
        self._before(path)
        return self._nodes.children(path, *arguments)

    def get_each(self, paths: Any, ahead: int = 1) -> Iterator[Any]:
        return ((path, self.get(path)) for path in paths)

    def children_of_each(self, paths: Any, ahead: int = 1) -> Iterator[Any]:
        return ((path, self.children(path)) for path in paths)

    def sync(self, path: str) -> None:
        self._before(f"sync {path}")
        self._nodes.sync(path)
