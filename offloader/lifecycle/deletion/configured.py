"""From the section `lifecycle` to what deletion goes by, and to a cluster's side of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from offloader.bookkeeper.api import Bookies
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.nodes import Nodes
from offloader.config.lifecycle import Lifecycle
from offloader.lifecycle.deletion.bookkeeper_side import BookKeeperSide
from offloader.lifecycle.deletion.leftover_side import LeftoverSide
from offloader.lifecycle.deletion.owners import LoadedTopics
from offloader.lifecycle.deletion.side import DeletionSide
from offloader.lifecycle.deletion.timing import DeletionBounds, DeletionTiming
from offloader.lifecycle.ledgers.copies import VerifyCopies, no_copies
from offloader.lifecycle.ledgers.references import References
from offloader.lifecycle.ledgers.scanned import LedgerScanner
from offloader.lifecycle.rescue.evidence import RescueEvidence
from offloader.ports.admin import Admin

if TYPE_CHECKING:
    from offloader.lifecycle.ledgers.scanner import ClusterScanner


def timing_of(section: Lifecycle) -> DeletionTiming:
    """When deletions go on."""
    return DeletionTiming(
        delay=section.quarantine_ms,
        longest_compaction=section.longest_compaction_ms,
        reconsume_later=section.reconsume_later_ms,
        max_tries=section.two_phase_deletion_max_retry_delete_count,
        kept=section.record_retention_ms,
        floor=section.quarantine_floor_ms,
    )


def bounds_of(section: Lifecycle) -> DeletionBounds:
    """How much may go at once."""
    return DeletionBounds(section.limits.number, section.limits.percent, section.limits.a_round)


def cluster_scanner(
    section: Lifecycle,
    tree: MetadataTree,
    bookies: Bookies,
    admin: Admin,
    clock_ms: Callable[[], int],
    verify_copies: VerifyCopies = no_copies,
) -> ClusterScanner:
    """What looks at ledgers. Raises ConfigError."""
    from offloader.lifecycle.ledgers.scanner import open_scanner

    def connect(hosts: tuple[str, ...]) -> Nodes:
        from offloader.bookkeeper.zookeeper import ZooKeeper  # kazoo is an extra

        return ZooKeeper(hosts)

    return open_scanner(
        *(section, tree, bookies, admin), connect=connect, verify_copies=verify_copies, clock_ms=clock_ms
    )


def lists_of_all_stores(
    section: Lifecycle,
    clients: Callable[[], tuple[MetadataTree, Bookies]],
    admin: Admin,
    clock_ms: Callable[[], int],
) -> tuple[References, ...]:
    """All ledger lists of all metadata stores, as they are now; what is opened for that is closed. Raises ConfigError,
    MetadataUnavailableError, AccessDeniedError."""
    with ExitStack() as stack:
        tree, bookies = clients()
        stack.callback(tree.close)
        stack.callback(bookies.close)
        scanner = cluster_scanner(section, tree, bookies, admin, clock_ms)
        stack.callback(scanner.close)
        return scanner.references()


def close_scanner(scanner: LedgerScanner) -> None:
    """End the sessions that it has opened for other stores, if it has any."""
    close = getattr(scanner, "close", None)
    if close is not None:
        close()


OpenSide = Callable[[ExitStack], DeletionSide]
"""Opens a side; what must be closed is left with the stack. Raises OffloadError."""


def bookkeeper_side(
    section: Lifecycle,
    clients: Callable[[], tuple[MetadataTree, Bookies]],
    admin: Admin,
    clock_ms: Callable[[], int],
    verify_copies: VerifyCopies = no_copies,
    rescues: RescueEvidence | None = None,
) -> Callable[[ExitStack], BookKeeperSide]:
    """BookKeeper's, by the configuration. `clients`: connects."""
    return lambda stack: _opened(stack, section, clients, admin, clock_ms, verify_copies, rescues)


def cluster_sides(
    section: Lifecycle,
    clients: Callable[[], tuple[MetadataTree, Bookies]],
    admin: Admin,
    clock_ms: Callable[[], int],
    verify_copies: VerifyCopies = no_copies,
    rescues: RescueEvidence | None = None,
) -> tuple[OpenSide, OpenSide]:
    """BookKeeper's, and that of left-over managed ledgers: what one of them opens, and reads of everything, serves
    both. They are ended together."""
    once = _OpenedOnce(bookkeeper_side(section, clients, admin, clock_ms, verify_copies, rescues))
    return once, lambda stack: leftovers_beside(once(stack))


def leftovers_beside(ledgers: BookKeeperSide) -> LeftoverSide:
    """Left-over managed ledgers of the same cluster."""
    return LeftoverSide(ledgers.tree, ledgers.scanner, ledgers.loaded)


@dataclass
class _OpenedOnce:
    open_side: Callable[[ExitStack], BookKeeperSide]
    _side: BookKeeperSide | None = None

    def __call__(self, stack: ExitStack) -> BookKeeperSide:
        if self._side is None:
            self._side = self.open_side(stack)
            stack.callback(self._forget)
        return self._side

    def _forget(self) -> None:
        self._side = None


def _opened(
    stack: ExitStack,
    section: Lifecycle,
    clients: Callable[[], tuple[MetadataTree, Bookies]],
    admin: Admin,
    clock_ms: Callable[[], int],
    verify_copies: VerifyCopies = no_copies,
    rescues: RescueEvidence | None = None,
) -> BookKeeperSide:
    tree, bookies = clients()
    stack.callback(tree.close)
    stack.callback(bookies.close)
    scanner = cluster_scanner(section, tree, bookies, admin, clock_ms, verify_copies)
    stack.callback(close_scanner, scanner)
    return BookKeeperSide(tree, bookies, scanner, LoadedTopics.of(admin), rescues=rescues)
