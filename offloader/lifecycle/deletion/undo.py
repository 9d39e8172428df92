"""The way back. Before the node is removed it costs nothing; after it, it is a second chance of minutes at most.

Bookies learn of a deletion when they next collect garbage, each in its own time. Until then a node that is created
again brings everything back; nobody can promise it."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field

from offloader.bookkeeper.api import Bookies
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.metadata_codec import decode_metadata
from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.status import Answer, BookieError, answer
from offloader.errors import (
    DamagedRecordError,
    FatalError,
    NodeRefusal,
    OffloadError,
    OperationRefusedError,
    OutcomeUnknownError,
)
from offloader.lifecycle.deletion.records import PendingDeleteLedgerInfo

DEFAULT_GC_WAIT_MS = 900_000  # of Pulsar's conf/bookkeeper.conf
WINDOW = 64  # requests in flight
TOLD = 1000  # positions of lost entries that are told

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class BookieCopies:
    """What one bookie of the ledger has. `silent`: it did not answer, so nothing is known of it.

    `window_ms`: how often it collects garbage: what it had was safe for some part of that. `asked`: it said so."""

    bookie: str
    there: int = 0
    gone: int = 0
    silent: int = 0
    window_ms: int = DEFAULT_GC_WAIT_MS
    asked: bool = False


@dataclass(frozen=True, slots=True)
class UndoneLedger:
    """`lost`: entries that no bookie has any more, the first ones of them; `lost_number`: how many there are.

    `unknown`: entries that nobody showed, while some bookie did not answer."""

    ledger: int
    entries: int
    copies: tuple[BookieCopies, ...]
    lost: tuple[int, ...] = ()
    lost_number: int = 0
    unknown: int = 0

    @property
    def whole(self) -> bool:
        """Whether every copy of every entry is there."""
        return not any(one.gone or one.silent for one in self.copies)


@dataclass(frozen=True)
class LedgerUndo:
    """`window_ms`: a bookie's time between two collections, in its own words; None: it does not say."""

    tree: MetadataTree
    bookies: Bookies
    window_ms: Callable[[str], int | None] = lambda _: None
    timeout: float = 10.0

    def recreate(self, record: PendingDeleteLedgerInfo) -> LedgerMetadata:
        """Put the ledger's node back, as it was, if there is none. Repeated it does nothing more.

        Raises FatalError: it cannot be; MetadataUnavailableError, AccessDeniedError; OutcomeUnknownError: repeat it."""
        metadata = _closed(record)
        check_acl(record)
        path = self.tree.path_of(record.ledger_id)
        try:
            self.tree.nodes.create(path, record.node.data, record.node.acl or None, parents=True)
        except OperationRefusedError as error:
            if error.refusal is not NodeRefusal.NODE_EXISTS:
                raise
            self._check_same(path, record)
        except OutcomeUnknownError:
            node = self.tree.nodes.get(path, latest=True)
            if node is None:
                raise
            self._check_same(path, record)
        return metadata

    def check(self, ledger: int, metadata: LedgerMetadata, progress: Progress = lambda _: None) -> UndoneLedger:
        """Ask every bookie for every entry that it should have."""
        found = _Found()
        requests = self._requests(ledger, metadata)
        begun: deque[tuple[int, str, Future[bytes]]] = deque()
        for one in requests:
            begun.append(one)
            if len(begun) >= WINDOW:
                found.add(*begun[0][:2], _answered(begun.popleft()[2], self.timeout))
                progress(1)
        for entry, bookie, future in begun:
            found.add(entry, bookie, _answered(future, self.timeout))
            progress(1)
        found.end()
        copies = tuple(self._copies(bookie, counts) for bookie, counts in sorted(found.by_bookie.items()))
        return UndoneLedger(
            ledger, metadata.last_entry + 1, copies, tuple(found.lost[:TOLD]), len(found.lost), found.unknown
        )

    def _requests(self, ledger: int, metadata: LedgerMetadata) -> Iterator[tuple[int, str, Future[bytes]]]:
        for entry in range(metadata.last_entry + 1):
            for bookie in dict.fromkeys(metadata.write_set(entry)):
                yield entry, bookie, self.bookies.read(bookie, ledger, entry)

    def _copies(self, bookie: str, counts: Mapping[bool | None, int]) -> BookieCopies:
        said = self.window_ms(bookie)
        return BookieCopies(
            bookie,
            counts.get(True, 0),
            counts.get(False, 0),
            counts.get(None, 0),
            DEFAULT_GC_WAIT_MS if said is None else said,
            said is not None,
        )

    def _check_same(self, path: str, record: PendingDeleteLedgerInfo) -> None:
        node = self.tree.nodes.get(path, latest=True)
        if node is None:
            raise FatalError(f"{path}: somebody else creates and deletes it: look who")
        if node.value != record.node.data:
            raise FatalError(f"ledger {record.ledger_id}: there is another one of this id: nothing was done")


@dataclass
class _Found:
    """What was answered so far, in the order of the entries. True: there; False: gone; None: no answer."""

    by_bookie: defaultdict[str, Counter[bool | None]] = field(default_factory=lambda: defaultdict(Counter))
    lost: list[int] = field(default_factory=list)
    unknown: int = 0
    _entry: int = -1
    _answers: set[bool | None] = field(default_factory=set)

    def add(self, entry: int, bookie: str, found: bool | None) -> None:  # noqa: FBT001
        """One bookie's answer."""
        if entry != self._entry:
            self.end()
            self._entry = entry
        self.by_bookie[bookie][found] += 1
        self._answers.add(found)

    def end(self) -> None:
        """All answers for this entry are there."""
        if self._answers and True not in self._answers:
            if None in self._answers:
                self.unknown += 1
            else:
                self.lost.append(self._entry)
        self._answers = set()


def _answered(future: Future[bytes], timeout: float) -> bool | None:
    try:
        future.result(timeout)
    except FutureTimeoutError:
        future.cancel()
        return None
    except BookieError as error:
        return False if answer(error) is Answer.NEGATIVE else None
    except OffloadError:
        return None
    return True


def check_acl(record: PendingDeleteLedgerInfo) -> None:
    """Raises FatalError where it was hidden: see `LedgerNode.acl_is_hidden`."""
    if record.node.acl_is_hidden:
        raise FatalError(
            f"{record.thing}: who may do what with its nodes was hidden from us when it was marked: create them by "
            "hand, with the data of its record"
        )


def _closed(record: PendingDeleteLedgerInfo) -> LedgerMetadata:
    try:
        metadata = decode_metadata(record.node.data)
    except DamagedRecordError as error:
        raise FatalError(f"ledger {record.ledger_id}: the saved metadata cannot be read: {error}") from error
    if not metadata.closed:
        raise FatalError(f"ledger {record.ledger_id} was not closed: recovery would take a collected entry for the end")
    return metadata
