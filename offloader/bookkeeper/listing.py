"""All ledgers of a cluster, page by page in the order of their ids, from the nodes of its metadata service."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from offloader.bookkeeper.layout import Layout, ledger_path
from offloader.bookkeeper.nodes import AHEAD, Node, Nodes
from offloader.errors import FatalError, LedgerNotFoundError

PAGE = 10_000  # so many have one node above them at most, where four digits are in the last name
LISTS_AHEAD = 8  # lists of children that are asked for or wait in memory, for each level of the tree

_LEGACY = (2, 4, 4)  # digits of each level
_LONG = (3, 4, 4, 4, 4)
_TREES = {
    Layout.LEGACY_HIERARCHICAL: (_LEGACY,),
    Layout.HIERARCHICAL: (_LEGACY, _LONG),  # in the order of the ids
    Layout.LONG_HIERARCHICAL: (_LONG,),
}
_FLAT = re.compile(r"L[0-9]{10,19}", re.ASCII)
_LEAF = re.compile(r"L[0-9]{4}", re.ASCII)
_FOLDER = re.compile(r"[0-9]+", re.ASCII)


class LedgerPage(NamedTuple):
    """Some ledgers, at most PAGE of them, in the order of their ids.

    `strangers`: paths of nodes beside them that are no ledger's: whatever they are, they are not ours to judge.
    """

    ledgers: tuple[int, ...]
    strangers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerListing:
    """The ledgers below `root`. `ahead`: how many of their nodes may be asked for at once.

    What is in memory does not grow with their number, except in the flat layout, whose ledgers are one node's children
    and so come in one answer.
    """

    nodes: Nodes
    root: str
    layout: Layout
    ahead: int = AHEAD

    def pages(self, start: int = 0) -> Iterator[LedgerPage]:
        """Every ledger that is there from beginning to end, once, from the id `start` on; of those that come or go
        meanwhile some. To go on after an error: from the id behind the last one; strangers may then come twice.

        Raises FatalError where there is no such node as the root, MetadataUnavailableError.
        """
        top = self.nodes.children(self.root)
        if top is None:
            raise FatalError(f"there is no BookKeeper cluster at {self.root}: no such node")
        pages = self._flat(top, start) if self.layout is Layout.FLAT else self._hierarchical(top, start)
        return (page for page in pages if page.ledgers or page.strangers)

    def read(self, ledgers: Sequence[int]) -> Iterator[tuple[int, Node | None]]:
        """The node of each ledger of a page; None: it is gone. Raises MetadataUnavailableError."""
        paths = (self.root + ledger_path(self.layout, ledger) for ledger in ledgers)
        found = self.nodes.get_each(paths, self.ahead)
        return ((ledger, node) for ledger, (_, node) in zip(ledgers, found, strict=True))

    def _flat(self, names: list[str], start: int) -> Iterator[LedgerPage]:
        whole = self._page(self.root, filter(_FLAT.fullmatch, names), start)
        yield LedgerPage((), whole.strangers)
        for begin in range(0, len(whole.ledgers), PAGE):
            yield LedgerPage(whole.ledgers[begin : begin + PAGE])

    def _hierarchical(self, top: list[str], start: int) -> Iterator[LedgerPage]:
        for levels in _TREES[self.layout]:
            folders = self._folders([(self.root, top)], levels, 0, start)
            for level in range(1, len(levels) - 1):
                folders = self._folders(self.nodes.children_of_each(folders, LISTS_AHEAD), levels, level, start)
            for folder, names in self.nodes.children_of_each(folders, LISTS_AHEAD):
                yield self._page(folder, names or (), start)

    def _folders(
        self, found: Iterable[tuple[str, list[str] | None]], levels: tuple[int, ...], level: int, start: int
    ) -> Iterator[str]:
        """The folders of a level that may hold ledgers from `start` on, in order."""
        for above, names in found:
            for name in sorted(names or ()):
                path = f"{above}/{name}"
                if len(name) == levels[level] and _FOLDER.fullmatch(name) and self._last(path, levels) >= start:
                    yield path

    def _last(self, folder: str, levels: tuple[int, ...]) -> int:
        """The greatest id that can be below a folder."""
        return int(self._digits(folder).ljust(sum(levels), "9"))

    def _page(self, folder: str, names: Iterable[str], start: int) -> LedgerPage:
        digits, all_are = self._digits(folder), self._has_only_ledgers(folder)
        ledgers, strangers = [], []
        for name in names:
            named = _LEAF.fullmatch(name) or _FLAT.fullmatch(name)
            ledger = int(digits + name[1:]) if named else -1
            if ledger < 0 or not ((all_are and len(name) == 5) or self._is_at(ledger, f"{folder}/{name}")):
                strangers.append(f"{folder}/{name}")
            elif ledger >= start:
                ledgers.append(ledger)
        return LedgerPage(tuple(sorted(ledgers)), tuple(sorted(strangers)))

    def _has_only_ledgers(self, folder: str) -> bool:
        """Whether all ids that can be below a folder belong there: it has its first and its last one."""
        return all(self._is_at(int(self._digits(folder) + end), f"{folder}/L{end}") for end in ("0000", "9999"))

    def _digits(self, folder: str) -> str:
        return folder.removeprefix(self.root).replace("/", "")

    def _is_at(self, ledger: int, path: str) -> bool:
        try:
            return self.root + ledger_path(self.layout, ledger) == path
        except LedgerNotFoundError:
            return False
