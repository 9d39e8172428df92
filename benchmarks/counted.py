"""Nodes and stores that count the requests that are made of them, by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from offloader.bookkeeper.nodes import AHEAD
from offloader.ports.object_store import ObjectStore
from offloader.storage.forwarding import ForwardingStore, Verb

T = TypeVar("T")


class CountedStore(ForwardingStore):
    """A store, and how many requests were made."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.asked: Counter[str] = Counter()

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        self.asked[verb] += 1
        return super()._call(verb, key, work)


class CountedNodes:
    """`asked`: gets, lists, writes."""

    def __init__(self, nodes: Any) -> None:
        self._nodes = nodes
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nodes, name)

    def get(self, path: str, *arguments: Any, **more: Any) -> Any:
        self.asked["gets"] += 1
        return self._nodes.get(path, *arguments, **more)

    def children(self, path: str, *arguments: Any) -> Any:
        self.asked["lists"] += 1
        return self._nodes.children(path, *arguments)

    def get_each(self, paths: Iterable[str], ahead: int = AHEAD) -> Iterator[Any]:
        return self._nodes.get_each(self._counted("gets", paths), ahead)  # type: ignore[no-any-return]

    def children_of_each(self, paths: Iterable[str], ahead: int = AHEAD) -> Iterator[Any]:
        return self._nodes.children_of_each(self._counted("lists", paths), ahead)  # type: ignore[no-any-return]

    def set(self, *arguments: Any, **more: Any) -> Any:
        self.asked["writes"] += 1
        return self._nodes.set(*arguments, **more)

    def multi(self, *arguments: Any, **more: Any) -> Any:
        self.asked["writes"] += 1
        return self._nodes.multi(*arguments, **more)

    def _counted(self, kind: str, paths: Iterable[str]) -> Iterator[str]:
        for path in paths:
            self.asked[kind] += 1
            yield path
