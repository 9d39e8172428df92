"""The scanner of a cluster, by the configuration: whole scans, looks at a few ledgers that go by the scan before, and
all ledger lists."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from offloader.bookkeeper.api import Bookies
from offloader.bookkeeper.metadata import MetadataTree
from offloader.config.lifecycle import Lifecycle
from offloader.errors import AccessDeniedError
from offloader.lifecycle.ledgers.copies import VerifyCopies, no_copies
from offloader.lifecycle.ledgers.objections import OperatorsWord, objections, what_is_doubtful
from offloader.lifecycle.ledgers.places import parse_place
from offloader.lifecycle.ledgers.reading import ReferenceReader, Said
from offloader.lifecycle.ledgers.references import References
from offloader.lifecycle.ledgers.refusals import Refusal
from offloader.lifecycle.ledgers.scan import ClusterScan, KnownReferences
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.stores import Connect, StoreFinder
from offloader.ports.admin import Admin

KNOWN_FOR_MS = 60 * 60 * 1000
"""How long looks go by a scan before: no longer than the shortest quarantine."""

STORES = "lifecycle.metadataStores"


def open_scanner(
    section: Lifecycle,
    tree: MetadataTree,
    bookies: Bookies,
    admin: Admin,
    *,
    connect: Connect,
    verify_copies: VerifyCopies = no_copies,
    clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    bookie_timeout: float = 20.0,
    said: Said = lambda _what, _count: None,
) -> ClusterScanner:
    """To be closed; what is passed in is not closed with it. `connect`: to other ZooKeepers.

    Raises ConfigError.
    """
    others = [parse_place(text, STORES) for text in section.metadata_stores]
    finder = StoreFinder(tree.nodes, tree.uri, admin, connect, others)
    word = OperatorsWord(section.bookkeeper_is_not_shared, frozenset(section.cluster_names))
    return ClusterScanner(
        tree,
        bookies,
        finder,
        word,
        clock_ms=clock_ms,
        bookie_timeout=bookie_timeout,
        verify_copies=verify_copies,
        said=said,
    )


class ClusterScanner:
    """The `LedgerScanner` of a cluster. One scan at a time. `said`: progress. `clock_ms`: ours.

    `bookie_timeout`: seconds that a bookie may take for the last entry of a cursor's ledger. `verify_copies`: of
    ledgers that were offloaded and are said to be deleted.
    """

    def __init__(
        self,
        tree: MetadataTree,
        bookies: Bookies,
        finder: StoreFinder,
        word: OperatorsWord,
        *,
        clock_ms: Callable[[], int],
        bookie_timeout: float = 20.0,
        verify_copies: VerifyCopies = no_copies,
        said: Said = lambda _what, _count: None,
    ) -> None:
        self.tree = tree
        self.bookies = bookies
        self.finder = finder
        self.word = word
        self.clock_ms = clock_ms
        self.bookie_timeout = bookie_timeout
        self.verify_copies = verify_copies
        self.said = said
        self._known: KnownReferences | None = None

    def scan(self, only: Collection[int] | None = None) -> LedgerScan:
        """See `LedgerScanner`. A service that is away for a while is waited for.

        Raises MetadataUnavailableError, AccessDeniedError where there is hardly anything that we may read, ConfigError.
        """
        self._known = None  # it is as large as what refers to ledgers
        scan = ClusterScan(self, self.finder.locate(), None if only is None else frozenset(only))
        found = scan.run()
        self._known = None if only is None or found.refusals else scan.known
        return found

    def look_again(self, only: Collection[int], leftovers: Collection[str] = ()) -> LedgerScan | None:
        """See `LedgerScanner`. Raises MetadataUnavailableError, ConfigError."""
        known, self._known = self._known, None
        if known is None or not 0 <= self.clock_ms() - known.read_ms < KNOWN_FOR_MS:
            return None
        located = self.finder.locate()
        if [(one.name, one.root) for one in located.stores] != known.places:
            return None
        scan = ClusterScan(self, located, frozenset(only)).run_again(known, leftovers)
        self._known = None if scan.refusals else known
        return scan

    def prospects(self) -> tuple[Refusal, ...]:
        """Why nothing could be deleted, before anything is scanned; but for ledgers that lack copies, which only a scan
        can tell from orphans. Raises MetadataUnavailableError."""
        located = self.finder.locate()
        for store in located.stores:
            store.sync()
        return objections(located, self.tree.uri.root, self.word, orphans=None)

    def references(self) -> tuple[References, ...]:
        """The ledger lists of all metadata stores as they are now, for whoever asks which offloaded copies they name.
        No bookie is asked.

        Raises MetadataUnavailableError; AccessDeniedError where something may not be read: it might name any copy."""
        located = self.finder.locate()
        for store in located.stores:
            store.sync()
        found = tuple(ReferenceReader(store, lambda _: {}, self.said).read() for store in located.stores)
        doubts = what_is_doubtful(located)
        if doubts:
            raise AccessDeniedError(f"the ledger lists cannot be read as a whole: {doubts[0]}")
        return found

    def close(self) -> None:
        """End the sessions that were opened for other stores."""
        self._known = None
        self.finder.close()
