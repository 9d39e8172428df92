"""What `orphans` commands scan with, and how they say how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from offloader.cli.command import CommandSession
from offloader.cli.orphans.copies_on_spark import CopiesOnSpark
from offloader.cli.output import say
from offloader.errors import ConfigError, OffloadError
from offloader.lifecycle.ledgers.copies import VerifyCopies
from offloader.lifecycle.ledgers.references import References
from offloader.lifecycle.ledgers.scanner import ClusterScanner, open_scanner
from offloader.lifecycle.ledgers.stock_copies import stock_copies

BOOKIE_SECONDS = 10.0
_EVERY = 2.0  # seconds between two lines of progress


@contextmanager
def ledger_scanner(session: CommandSession, *, on_spark: bool = False) -> Iterator[ClusterScanner]:
    """Of the configured cluster. `on_spark`: where copies are read back. Raises ConfigError,
    MetadataUnavailableError."""
    tree, bookies = session.bookkeeper(BOOKIE_SECONDS)
    scanner = open_scanner(
        session.config.lifecycle,
        tree,
        bookies,
        session.admin,
        connect=session.dependencies.zookeeper,
        verify_copies=_copies(session, on_spark=on_spark),
        clock_ms=session.dependencies.clock_ms,
        bookie_timeout=2 * BOOKIE_SECONDS,  # connecting included
        said=ScanProgress(),
    )
    with closing(scanner):
        yield scanner


def _copies(session: CommandSession, *, on_spark: bool) -> VerifyCopies:
    bucket = session.config.lifecycle.stock_bucket
    if not on_spark:
        return stock_copies(bucket, session.storage)
    if not bucket:
        raise ConfigError("--on-spark reads copies back: set lifecycle.stockBucket, the bucket that has them")
    return CopiesOnSpark(session.config.spark, bucket, session.storage)


def lists_of(session: CommandSession) -> Callable[[], tuple[References, ...]]:
    """Reads all ledger lists of all metadata stores, when it is called; what it opens for that, it closes."""

    def read() -> tuple[References, ...]:
        with ledger_scanner(session) as scanner:
            return scanner.references()

    return read


def has_ledgers(session: CommandSession) -> bool:
    """Whether the configuration says where ledgers' metadata are."""
    return session.config.pulsar.metadata_service_uri is not None


def known_cluster(session: CommandSession) -> str | None:
    """The cluster that answers; None: nobody says, and the archive's own word must do."""
    try:
        return session.admin.cluster()
    except OffloadError:
        return None


class ScanProgress:
    """Lines on standard error, not more than one in some seconds: a small cluster's scan says nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()

    def __call__(self, what: str, count: int) -> None:
        if self._clock() - self._last >= _EVERY:
            self._last = self._clock()
            say(f"scan: {what}: {count}", err=True)
