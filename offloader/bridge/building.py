"""One closed ledger becomes a pair of V1 objects in the brokers' bucket: planned, written, read back, and only then
named as built.

The names are recorded before, so every step may be repeated, by this process or the next one: what is there and right
is taken, what is there and wrong is written again. Whoever else is at it writes the same bytes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from offloader.bridge.core.assembly import assemble, index_metadata
from offloader.bridge.core.coverage import LedgerCoverage, UncommittedLedger
from offloader.bridge.core.pieces import LEAST_PART, ObjectPlan, PlannedPiece, combined
from offloader.bridge.core.rounds import BridgedLedger, BridgeVerdict, UnbridgedLedger
from offloader.bridge.objects import BridgedObjects, end_uploads, remove_objects
from offloader.bridge.sources import (
    MOST_FILLED,
    LedgerBookies,
    LedgerSources,
    MemoryRoom,
    head_of,
    read_coverage,
    read_sources,
    with_known_sums,
)
from offloader.bridge.transfer import (
    BridgeStores,
    BuildingCost,
    CopiesRefusedError,
    PartUploader,
    PieceThreads,
    PieceWorkers,
    check_data,
    content_of,
    is_there,
)
from offloader.errors import (
    DamagedObjectError,
    IntegrityError,
    StoreUnavailableError,
    UncommittedLedgerError,
    UploadGoneError,
)
from offloader.format.v1 import encode_ledger_index
from offloader.metadata.catalog import Catalogs
from offloader.metadata.history import RecordCache
from offloader.metadata.state import CatalogHead
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import MIB, TopicName
from offloader.ports.object_store import ObjectStore
from offloader.state.names import managed_ledger_name

log = logging.getLogger(__name__)

FORMAT_VERSION = "s3managedledgeroffloaderformatversion"
MOST_RECORDS = 200  # of catalogs, each of some 50 KiB: the ledgers of a round lie beside each other
TRIES = 3  # to write an object of which something else is read back


@dataclass(frozen=True, slots=True)
class BuiltLedger:
    """Both objects are there and were read back. `requests` to the stores, `copied` bytes inside the store, `streamed`
    bytes through us; nothing of these where the objects were there already."""

    ledger: BridgedLedger
    requests: int
    copied: int
    streamed: int


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """`cluster`: Pulsar's name of the cluster, for whoever looks into the bucket. `least_part` is the store's."""

    cluster: str = ""
    copy_size: int = 256 * MIB
    least_part: int = LEAST_PART


class LedgerBuilder:
    """Builds ledgers, several at a time if it is asked to. `bookies`: None where no metadata service is set. `memory`:
    for what they give, which builders may share."""

    def __init__(
        self,
        stores: BridgeStores,
        bookies: LedgerBookies | None = None,
        workers: PieceWorkers | None = None,
        settings: BuildSettings | None = None,
        memory: MemoryRoom | None = None,
    ) -> None:
        self._stores = stores
        self._catalogs = Catalogs(stores.archive, "")
        self._bookies = bookies
        self._workers = workers or PieceThreads()
        self._settings = settings or BuildSettings()
        self._copies = True
        self._memory = memory or MemoryRoom(MOST_FILLED)
        self._records = RecordCache(MOST_RECORDS)

    def coverage(
        self, topic: TopicName, ledger: int, last: int
    ) -> LedgerCoverage | UnbridgedLedger | UncommittedLedger:
        """Whether the archive has what the ledger is made of: by the catalog alone. Raises IntegrityError, and what the
        store raises."""
        return read_coverage(self._catalogs, self._records, topic, ledger, last)

    def build(self, topic: TopicName, ledger: BridgedLedger) -> BuiltLedger | UnbridgedLedger | UncommittedLedger:
        """Raises OutcomeUnknownError and what may pass: build it again. No `ledger.length`: nobody has said it.

        `ledger.size`: it was built, and read back, before; then it is only looked whether it is there."""
        if ledger.size and not BridgedObjects(self._stores.bucket).faults((ledger,)):
            return BuiltLedger(ledger, 2, 0, 0)
        try:
            found = self._built(topic, ledger)
        except IntegrityError as error:
            found = self._damaged(topic, ledger, error)
        if isinstance(found, UnbridgedLedger):
            head = self._records.get(head_of(topic), CatalogHead)
            return replace(found, generation=head.generation if head is not None else 0)
        return found

    def _built(self, topic: TopicName, ledger: BridgedLedger) -> BuiltLedger | UnbridgedLedger | UncommittedLedger:
        coverage = self.coverage(topic, ledger.ledger, ledger.last)
        if not isinstance(coverage, LedgerCoverage):
            return coverage
        with self._memory.taken(_to_fill(ledger, coverage)):
            sources = read_sources(self._stores.archive, topic, coverage, self._bookies)
            if isinstance(sources, UnbridgedLedger):
                return sources
            return _Build(self._stores, self._workers, self._settings, topic, ledger, sources).run(self)

    def _damaged(self, topic: TopicName, ledger: BridgedLedger, error: IntegrityError) -> UnbridgedLedger:
        by_now = None
        with suppress(IntegrityError):
            by_now = self.coverage(topic, ledger.ledger, ledger.last)
        if isinstance(by_now, UnbridgedLedger):  # its segments were deleted while it was built
            return by_now
        return UnbridgedLedger(ledger.ledger, ledger.last, BridgeVerdict.DAMAGED, str(error))

    @property
    def copies(self) -> bool:
        """Whether the brokers' bucket copies from the archive by itself, as far as it is known."""
        return self._copies

    def copies_refused(self) -> None:
        """From now on everything passes through us."""
        if self._copies:
            log.info("%s copies nothing of the archive by itself: ledgers are read and sent", self._stores.bucket.url)
        self._copies = False


def _to_fill(ledger: BridgedLedger, coverage: LedgerCoverage) -> int:
    """How much bookies are to give; all that may be held where nobody has said the ledger's length."""
    if not coverage.missing:
        return 0
    return max(ledger.length - coverage.length, 0) if ledger.length else MOST_FILLED


@dataclass
class _Build:
    """One building of one ledger."""

    stores: BridgeStores
    workers: PieceWorkers
    settings: BuildSettings
    topic: TopicName
    ledger: BridgedLedger
    sources: LedgerSources

    def __post_init__(self) -> None:
        self.data_key = data_key(self.ledger.uuid, self.ledger.ledger)
        self.index_key = index_key(self.ledger.uuid, self.ledger.ledger)
        self.took = BuildingCost(requests=self.sources.requests)

    def run(self, builder: LedgerBuilder) -> BuiltLedger:
        plan = self._with_sums(self._plan(copies=builder.copies))
        index = self._index(plan)
        self._write_data(builder, plan)
        end_uploads(self.stores.bucket, self.data_key)  # of tries whose process died, or whose begin was not heard of
        self.took.requests += 1
        self._write_index(index)
        crc = combined(*plan.pieces)
        if crc is None:
            raise IntegrityError(f"{self.data_key}: nobody knows its sum")
        built = replace(
            self.ledger,
            length=plan.length,
            size=plan.size,
            crc32c=crc,
            segments=tuple(segment.uuid for segment in self.sources.coverage.segments),
            filled=plan.filled,
        )
        return BuiltLedger(built, self.took.requests, self.took.copied, self.took.streamed)

    def _plan(self, *, copies: bool) -> ObjectPlan:
        found = self.sources
        return assemble(
            found.coverage,
            found.objects,
            found.filled,
            copy_size=self.settings.copy_size,
            least_part=self.settings.least_part,
            server_copies=copies,
        )

    def _with_sums(self, plan: ObjectPlan) -> ObjectPlan:
        if self.ledger.length and self.ledger.length != plan.length:
            raise IntegrityError(
                f"{self.topic}: ledger {self.ledger.ledger} has {self.ledger.length} bytes in Pulsar's list, and "
                f"{plan.length} in the archive"
            )
        unknown = sum(piece.crc32c is None for piece in plan.pieces)
        self.took.requests += unknown
        pieces = tuple(with_known_sums(self.stores.archive, self.sources, piece) for piece in plan.pieces)
        return replace(plan, pieces=pieces)

    def _index(self, plan: ObjectPlan) -> bytes:
        name, segments = managed_ledger_name(self.topic), self.sources.coverage.segments
        created = segments[0].assigned_at if segments else 0  # the same whenever it is built
        metadata = index_metadata(self.ledger.last, plan.length, name, created, self.sources.known)
        return encode_ledger_index(plan.size, metadata, plan.index)

    def _write_data(self, builder: LedgerBuilder, plan: ObjectPlan) -> None:
        """Where an object of the right size is there, it may be whole: an answer was lost, or another process died."""
        there = self.stores.bucket.stat(self.data_key)
        self.took.requests += 1
        fault = self._fault(plan) if there is not None and there.size == plan.size else "it is not there"
        ended: UploadGoneError | None = None
        for _ in range(TRIES):
            if not fault:
                return
            try:
                self._upload(builder, plan)
            except UploadGoneError as error:  # an overtaken process writes the same
                ended = error
            fault = self._fault(plan)
        if fault and ended is not None:
            raise StoreUnavailableError(f"{self.data_key}: somebody ends its uploads") from ended
        if fault:
            raise DamagedObjectError(f"{fault}; it was written {TRIES} times, and what it is made of is sound")

    def _upload(self, builder: LedgerBuilder, plan: ObjectPlan) -> None:
        uploader = PartUploader(self.stores, self.workers, self.sources.etags, self.took)
        try:
            uploader.upload(self.data_key, plan, self._meta("data"))
        except CopiesRefusedError:
            builder.copies_refused()
            sent = replace(plan, parts=self._plan(copies=False).parts)
            uploader.upload(self.data_key, sent, self._meta("data"))

    def _fault(self, plan: ObjectPlan) -> str:
        """What is wrong with the object that is there. Raises IntegrityError where its source is."""
        found = check_data(self.stores, self.workers, self.data_key, self.ledger.ledger, self.ledger.last, plan)
        self.took.requests += found.requests
        for piece in found.suspects:
            self._prove_source(piece)
        return found.fault

    def _prove_source(self, piece: PlannedPiece) -> None:
        content_of(self.stores.archive, piece, dict(self.sources.etags))
        self.took.requests += 1

    def _write_index(self, index: bytes) -> None:
        """Last: to whoever looks at the bucket it says that the data object is whole."""
        for written in range(TRIES + 1):
            self.took.requests += 1
            if is_there(self.stores, self.index_key, index):
                return
            if written < TRIES:
                self.took.requests += 1
                self.stores.bucket.put(self.index_key, index, meta=self._meta("index"))
        raise DamagedObjectError(f"{self.index_key}: it was written {TRIES} times, and is not what is read back")

    def _meta(self, role: str) -> Mapping[str, str]:
        """As Pulsar's own offloader writes it; brokers look at the version alone, on each object."""
        named = {FORMAT_VERSION: "1", "role": role, "managedledgername": managed_ledger_name(self.topic)}
        return {**named, "pulsarclustername": self.settings.cluster} if self.settings.cluster else named


@dataclass
class LedgerBuilds:
    """`Builds` of `driver/parts.py`. `archive`: the application's store. `open_bucket`: by its URL; whoever made
    that closes it."""

    archive: ObjectStore
    open_bucket: Callable[[str], ObjectStore]
    bookies: LedgerBookies | None
    workers: PieceWorkers
    settings: BuildSettings
    _memory: MemoryRoom = field(default_factory=lambda: MemoryRoom(MOST_FILLED))  # of all buckets together
    _builders: dict[str, LedgerBuilder] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def build(self, topic: TopicName, ledger: BridgedLedger, bucket: str) -> BridgedLedger | UnbridgedLedger:
        """See `Builds`, `LedgerBuilder`. Raises UncommittedLedgerError where the catalog does not have all of it."""
        with self._lock:
            if bucket not in self._builders:
                stores = BridgeStores(self.archive, self.open_bucket(bucket))
                self._builders[bucket] = LedgerBuilder(stores, self.bookies, self.workers, self.settings, self._memory)
            builder = self._builders[bucket]
        found = builder.build(topic, ledger)
        if isinstance(found, BuiltLedger):
            return found.ledger
        if isinstance(found, UnbridgedLedger):
            return found
        raise UncommittedLedgerError(
            f"{topic}: ledger {ledger.ledger} is not bridged yet: entry {found.expected} is not committed"
        )

    def discard(self, bucket: str, ledgers: Iterable[BridgedLedger]) -> None:
        """See `Builds`."""
        remove_objects(self.open_bucket(bucket), ledgers)
