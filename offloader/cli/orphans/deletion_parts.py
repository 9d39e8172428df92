"""What the commands about orphans and deletions scan and work with, and how they show a deletion."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass

from offloader.bookkeeper.metadata import MetadataTree
from offloader.cli.command import CommandSession
from offloader.cli.orphans.bucket import stock_scanner
from offloader.cli.orphans.copies_on_spark import CopiesOnSpark
from offloader.cli.output import say
from offloader.errors import ConfigError, FatalError, OffloadError
from offloader.lifecycle.clocks import Clocks
from offloader.lifecycle.deletion.bookkeeper_side import BookKeeperSide
from offloader.lifecycle.deletion.machine import due_at
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import (
    DeletionState,
    LedgerType,
    PendingDeleteLedgerInfo,
    ledger_record_name,
    leftover_record_name,
    object_record_name,
)
from offloader.lifecycle.deletion.side import DeletionSide
from offloader.lifecycle.deletion.subscription_side import SubscriptionSide
from offloader.lifecycle.deletion.timing import DeletionTiming
from offloader.lifecycle.deletion.undo import BucketWayBack, WayBack, WayBackOf, ZooKeeperWayBack
from offloader.lifecycle.explaining.words import moment_text
from offloader.lifecycle.ledgers.copies import VerifyCopies
from offloader.lifecycle.ledgers.leftovers import is_pending_acks
from offloader.lifecycle.ledgers.references import References
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.scanner import ClusterScanner
from offloader.lifecycle.ledgers.stock_copies import stock_copies
from offloader.lifecycle.rescue.evidence import RescueEvidence
from offloader.lifecycle.topics.cursors.former import FormerRemoval, pending_former
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.lifecycle.topics.pace import pacing
from offloader.metadata.rescue_log import Rescues
from offloader.metadata.root import open_root, read_root
from offloader.runtime import deletion

BOOKIE_SECONDS = 10.0
_EVERY = 2.0  # seconds between two lines of progress
_RECORD = re.compile(r"[A-Z_]{1,20}-([0-9]{20}(-[0-9a-f-]{1,36})?|[0-9a-f]{40})(-[a-z]{1,10})?")


@contextmanager
def ledger_scanner(session: CommandSession, *, on_spark: bool = False) -> Iterator[ClusterScanner]:
    """Of the configured cluster. `on_spark`: where copies are read back. Raises ConfigError,
    MetadataUnavailableError."""
    copies, clock = _copies(session, on_spark=on_spark), session.dependencies.clock_ms
    with closing(deletion.ledger_scanner(session, clock, copies, ScanProgress(), BOOKIE_SECONDS)) as scanner:
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


def queue_of_root(session: CommandSession) -> DeletionQueue:
    """The deletions of the cluster that the bucket says it is of."""
    return _queue(session, read_root(session.store).cluster)


def queue_if_any(session: CommandSession) -> DeletionQueue | None:
    """The same; None where nothing was ever written below the root: then nothing is marked there."""
    store = session.store
    try:
        return _queue(session, read_root(store).cluster)
    except ConfigError:
        return None


def queue_of_cluster(session: CommandSession, *, create: bool) -> DeletionQueue:
    """The deletions of the cluster that answers; `create`: also in a bucket that has nothing yet."""
    cluster = session.admin.cluster()
    if create:
        open_root(session.store, cluster, session.dependencies.new_token)
    else:
        with suppress(ConfigError):  # there is nothing yet
            open_root(session.store, cluster, session.dependencies.new_token, create=False)
    return _queue(session, cluster)


@contextmanager
def sides_of(session: CommandSession, stock: str | None = None) -> Iterator[dict[LedgerType, DeletionSide]]:
    """All sides that can be reached: ledgers need the metadata service, objects of Pulsar's own offloader the URL of
    their bucket."""
    with ExitStack() as stack:
        sides: dict[LedgerType, DeletionSide] = {}
        if session.has_bookkeeper:
            ledgers = side_of(session)
            sides[LedgerType.LEDGER] = ledgers
            sides[LedgerType.MANAGED_LEDGER] = deletion.leftovers_beside(ledgers)
            sides[LedgerType.SUBSCRIPTION] = subscription_side(session)
        theirs = None
        if stock is not None:
            theirs = stack.enter_context(stock_scanner(session, stock, lists_of(session)))
        bucket = deletion.bucket_side(session, session.dependencies.clock_ms, theirs)
        sides[LedgerType.OBJECT] = bucket
        if theirs is not None:
            sides[LedgerType.OFFLOAD_LEDGER] = bucket
        yield sides


def subscription_side(session: CommandSession, timeout_s: float = BOOKIE_SECONDS) -> SubscriptionSide:
    """That of subscriptions; lifecycle.visits says how many topics are loaded a minute. Raises ConfigError."""
    check_timeout(timeout_s)
    of = session.dependencies
    pace = pacing(session.config.lifecycle.visits.a_minute, of.clock_ms, of.sleep)
    return deletion.subscription_side(session, clocks_of(session).now_ms, pace, timeout=timeout_s)


def stored_topics(session: CommandSession, timeout_s: float) -> StoredTopics:
    """What is stored of subscriptions. Raises ConfigError, FatalError, MetadataUnavailableError."""
    check_timeout(timeout_s)
    return deletion.stored_topics(session, timeout_s)


def check_timeout(timeout_s: float) -> None:
    """Raises FatalError where no bookie could answer in time."""
    if timeout_s <= 0:
        raise FatalError("--timeout 0: no bookie answers in no time; say at least 1s")


def clocks_of(session: CommandSession) -> Clocks:
    """A quarantine is over by this host's clock and by a broker's."""
    return Clocks(host_ms=session.dependencies.clock_ms, broker_ms=session.admin.time_ms)


def way_back_of(session: CommandSession) -> WayBackOf:
    """What an undo of a record needs, opened when it is needed."""

    def opened(record: PendingDeleteLedgerInfo) -> WayBack:
        if record.ledger_type in (LedgerType.LEDGER, LedgerType.MANAGED_LEDGER):
            return ZooKeeperWayBack(tree_of(session))
        if record.ledger_type is LedgerType.SUBSCRIPTION:
            return subscription_side(session)
        return BucketWayBack(session.store)

    return opened


def tree_of(session: CommandSession) -> MetadataTree:
    """Where ledgers' nodes are. Raises ConfigError, FatalError."""
    tree, _ = session.bookkeeper(BOOKIE_SECONDS)
    if not isinstance(tree, MetadataTree):
        raise FatalError("the metadata service is no ZooKeeper: nothing can be deleted, or undone, there")
    return tree


def say_former(session: CommandSession) -> list[FormerRemoval]:
    """Name the removals that an earlier version of the offloader has left pending."""
    try:
        found = pending_former(session.store, read_root(session.store).cluster)
    except ConfigError:  # nothing was ever written there
        return []
    for one in found:
        say(f"error: {one.says}", err=True)
    return found


def side_of(session: CommandSession) -> BookKeeperSide:
    """BookKeeper's side. Raises ConfigError, FatalError, MetadataUnavailableError."""
    tree, _ = session.bookkeeper(BOOKIE_SECONDS)
    if not isinstance(tree, MetadataTree):
        raise FatalError("the metadata service is no ZooKeeper: nothing can be deleted there under guard")
    scanner = deletion.verifying_scanner(session, session.dependencies.clock_ms)
    return deletion.bookkeeper_side(session, scanner, RescueEvidence(lambda: rescues_of_cluster(session)))


def rescues_of_cluster(session: CommandSession) -> Rescues:
    """What was rescued of the ledgers of the cluster that answers."""
    return Rescues(session.store, session.admin.cluster())


def with_rescues(session: CommandSession, scan: LedgerScan) -> LedgerScan:
    """A scan whose kept ledgers say whether they were rescued, where the bucket can tell."""
    try:
        return RescueEvidence(lambda: rescues_of_cluster(session)).told(scan)
    except OffloadError as error:
        say(f"whether what is kept was rescued is not known: {error}", err=True)
        return scan


def timing(session: CommandSession) -> DeletionTiming:
    """When deletions go on, by the configuration."""
    return deletion.timing_of(session.config.lifecycle)


@dataclass(frozen=True, slots=True)
class NamedDeletion:
    """What was typed, and the name of its record."""

    typed: str
    record: str

    @property
    def not_marked(self) -> str:
        """For people."""
        what = f"ledger {self.typed}" if self.typed.isdigit() else self.typed
        return f"{what} is not marked, or its record has been removed since"


def parse_deletion(text: str) -> NamedDeletion:
    """What an ID names: a ledger in BookKeeper by its number, an object by its key, an upload by its handle, a
    left-over managed ledger by its name, anything by its record's name. Raises ValueError."""
    if text.isascii() and text.isdigit():
        if len(text) < 20:
            return NamedDeletion(text, ledger_record_name(int(text)))
        raise ValueError(f"{text!r} is no ledger's number")
    if is_pending_acks(text):
        return NamedDeletion(text, leftover_record_name(text))
    return NamedDeletion(text, text if _RECORD.fullmatch(text) else object_record_name(text))


def moment(ms: int) -> str | None:
    """A time as text; None for none."""
    return moment_text(ms) if ms > 0 else None


def shown(record: PendingDeleteLedgerInfo, timing: DeletionTiming) -> dict[str, object]:
    """One deletion as JSON has it; times as text."""
    in_flight = record.is_in_flight
    return {
        "id": record.upload or record.object_key or (record.ledger_id if record.ledger_id >= 0 else None),
        "record": record.name,
        "type": str(record.ledger_type),
        "component": str(record.ledger_component),
        "topic": record.topic_name or record.schema_id,
        "state": str(record.state),
        "markedAt": moment(record.marked_at),
        "goesAt": moment(due_at(record, timing)) if in_flight else None,
        "tries": record.tries,
        "answer": None if record.answer is None else str(record.answer),
        "reason": record.reason,
        "endedAt": moment(record.ended_at),
        "markedBy": record.marked_by,
        "proof": str(record.evidence.proof),
        "referee": record.evidence.referee,
        "evidence": list(record.evidence.says),
        "cursor": record.cursor_name,
        "uuid": record.offload_context.uuid if record.offload_context else None,
    }


def _queue(session: CommandSession, cluster: str) -> DeletionQueue:
    return DeletionQueue(session.store, cluster, session.dependencies.new_token)


STATES = tuple(str(one) for one in DeletionState)
