"""Reading many nodes where the metadata service may be away for a while: what was read of a page is read once more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from offloader.bookkeeper.nodes import Node, Nodes
from offloader.errors import AccessDeniedError, MetadataUnavailableError

PAGE = 2_000  # nodes that are read again after a loss, and wait in memory
LISTS = 256  # the same of lists of children
IN_FLIGHT = 500  # requests; ZooKeeper holds a client up that has more than 1,000
TRIES = 30  # of one page; each waits as long as the client's time-out for the service to come back
REFUSALS = 1_000  # nodes that we may not read, before all is given up

T = TypeVar("T")


class PatientNodes:
    """A session, used for one scan by one thread.

    `interrupted`: how often a page had to be read again. `requests`: how many nodes were asked for. `refused`: those
    that we may not read; they are None like those that are not there. `newest_ms`: the latest time that any node had:
    the service's clock has been there.
    """

    def __init__(self, nodes: Nodes, *, tries: int = TRIES, ahead: int = IN_FLIGHT) -> None:
        self.nodes = nodes
        self.interrupted = 0
        self.requests = 0
        self.refused: dict[str, None] = {}
        self.newest_ms = 0
        self._tries = tries
        self._ahead = ahead

    def get(self, path: str) -> Node | None:
        """Raises MetadataUnavailableError; a node that we may not read is refused, and None."""
        return next(self.get_each([path]))[1]

    def children(self, path: str) -> list[str] | None:
        """The same for the names below a node."""
        return next(self.children_of_each([path]))[1]

    def sync(self, path: str) -> None:
        """See `Nodes.sync`."""
        self.again(lambda: self.nodes.sync(path))

    def get_each(self, paths: Iterable[str]) -> Iterator[tuple[str, Node | None]]:
        """See `Nodes.get_each`."""
        for page in _pages(paths, PAGE):
            for path, node in self._page(page, self.nodes.get_each):
                if node is not None:
                    self.newest_ms = max(self.newest_ms, node.created_ms, node.modified_ms)
                yield path, node

    def children_of_each(self, paths: Iterable[str]) -> Iterator[tuple[str, list[str] | None]]:
        """See `Nodes.children_of_each`."""
        for page in _pages(paths, LISTS):
            yield from self._page(page, self.nodes.children_of_each)

    def again(self, read: Callable[[], T]) -> T:
        """What it gives, sooner or later. Raises MetadataUnavailableError after as many tries as are allowed."""
        for _ in range(self._tries - 1):
            try:
                return read()
            except MetadataUnavailableError:
                self.interrupted += 1
        return read()

    def _page(
        self, paths: list[str], read: Callable[[list[str], int], Iterator[tuple[str, T | None]]]
    ) -> list[tuple[str, T | None]]:
        self.requests += len(paths)
        try:
            return self.again(lambda: list(read(paths, self._ahead)))
        except AccessDeniedError:
            return [self._one(path, read) for path in paths]

    def _one(self, path: str, read: Callable[[list[str], int], Iterator[tuple[str, T | None]]]) -> tuple[str, T | None]:
        try:
            return self.again(lambda: next(read([path], 1)))
        except AccessDeniedError:
            if len(self.refused) == REFUSALS:
                raise
            self.refused[path] = None
            return path, None


def _pages(paths: Iterable[str], size: int) -> Iterator[list[str]]:
    left = iter(paths)
    while page := list(islice(left, size)):
        yield page


def clock_by_reading(sessions: Iterable[PatientNodes], ours_ms: int) -> int:
    """ZooKeeper's clock. No request asks for it: only what is written shows it.

    As late as any node that was read, and no later than our own clock: what was created before it is at least as old as
    it looks. Brokers write their load every quarter of an hour at the latest, so it is not far behind."""
    return min([max((one.newest_ms for one in sessions), default=0), ours_ms])
