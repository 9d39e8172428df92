"""From the configuration to a scanner."""

from __future__ import annotations

import time
from collections.abc import Callable

from offloader.bookkeeper.api import Bookies
from offloader.bookkeeper.metadata import MetadataTree
from offloader.config.lifecycle import Lifecycle
from offloader.lifecycle.ledgers.copies import VerifyCopies, no_copies
from offloader.lifecycle.ledgers.objections import OperatorsWord
from offloader.lifecycle.ledgers.places import parse_place
from offloader.lifecycle.ledgers.reading import Said
from offloader.lifecycle.ledgers.scanner import ClusterScanner
from offloader.lifecycle.ledgers.stores import Connect, StoreFinder
from offloader.ports.admin import Admin

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
