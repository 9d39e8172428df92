"""The way back. Before the node is removed it costs nothing; after it, it is a second chance of minutes at most.

Bookies learn of a deletion when they next collect garbage, each in its own time. Until then a node that is created
again brings everything back; nobody can promise it. A left-over managed ledger comes back whole, in one transaction. A
subscription comes back in several steps, which can be repeated. Where nobody knows what came of the last try, whether
the thing is still there is looked up first."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

from offloader.bookkeeper.api import Bookies
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.metadata_codec import decode_metadata
from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.nodes import CreateNode
from offloader.bookkeeper.status import Answer, BookieError, answer
from offloader.errors import (
    DamagedRecordError,
    FatalError,
    NodeRefusal,
    OffloadError,
    OperationRefusedError,
    OutcomeUnknownError,
    VersionConflictError,
)
from offloader.lifecycle.deletion.bookkeeper_side import round_path
from offloader.lifecycle.deletion.guarded import begin_look
from offloader.lifecycle.deletion.machine import abandoned_undo, dropped, let_be, recreated, taken_back, undoing, undone
from offloader.lifecycle.deletion.queue import DeletionQueue, StoredDeletion
from offloader.lifecycle.deletion.records import DeletionAnswer, DeletionState, LedgerType, PendingDeleteLedgerInfo
from offloader.lifecycle.deletion.timing import DAY_MS
from offloader.lifecycle.explaining.words import moment_text
from offloader.ports.object_store import ObjectStore

DEFAULT_GC_WAIT_MS = 900_000  # of Pulsar's conf/bookkeeper.conf
WINDOW = 64  # requests in flight
TOLD = 1000  # positions of lost entries that are told
FARTHEST_MS = 8 * DAY_MS  # what ends later was written by a clock that was wrong
LONGEST_CALL = 60.0  # seconds: a broker's, and that of a store that says nothing of its own

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
class LedgerCopies:
    """What bookies still have of a ledger. `window_ms`: a bookie's time between two collections, in its own words;
    None: it does not say."""

    bookies: Bookies
    window_ms: Callable[[str], int | None] = lambda _: None
    timeout: float = 10.0

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


def _check_acl(record: PendingDeleteLedgerInfo) -> None:
    """Raises FatalError where it was hidden: see `LedgerNode.acl_is_hidden`."""
    if record.node.acl_is_hidden:
        raise FatalError(
            f"{record.thing}: who may do what with its nodes was hidden from us when it was marked: create them by "
            "hand, with the data of its record"
        )


def closed_metadata(record: PendingDeleteLedgerInfo) -> LedgerMetadata:
    """The saved metadata. Raises FatalError: it was not closed, or cannot be read."""
    try:
        metadata = decode_metadata(record.node.data)
    except DamagedRecordError as error:
        raise FatalError(f"ledger {record.ledger_id}: the saved metadata cannot be read: {error}") from error
    if not metadata.closed:
        raise FatalError(f"ledger {record.ledger_id} was not closed: recovery would take a collected entry for the end")
    return metadata


def recreate_ledger(tree: MetadataTree, record: PendingDeleteLedgerInfo) -> LedgerMetadata:
    """Put the ledger's node back, as it was, if there is none. Repeated it does nothing more. Raises FatalError: it
    cannot be; MetadataUnavailableError, AccessDeniedError; OutcomeUnknownError: repeat it."""
    metadata = closed_metadata(record)
    _check_acl(record)
    path = tree.path_of(record.ledger_id)
    try:
        tree.nodes.create(path, record.node.data, record.node.acl or None, parents=True)
    except OperationRefusedError as error:
        if error.refusal is not NodeRefusal.NODE_EXISTS:
            raise
        _check_same_ledger(tree, path, record)
    except OutcomeUnknownError:
        if tree.nodes.get(path, latest=True) is None:
            raise
        _check_same_ledger(tree, path, record)
    return metadata


def _check_same_ledger(tree: MetadataTree, path: str, record: PendingDeleteLedgerInfo) -> None:
    node = tree.nodes.get(path, latest=True)
    if node is None:
        raise FatalError(f"{path}: somebody else creates and deletes it: look who")
    if node.value != record.node.data:
        raise FatalError(f"ledger {record.ledger_id}: there is another one of this id: nothing was done")


def recreate_leftover(tree: MetadataTree, record: PendingDeleteLedgerInfo) -> None:
    """Put the nodes of a left-over managed ledger back, if there are none. Repeated it does nothing more. Whether its
    ledgers are still there is not looked at. Raises FatalError: another one has the name, or it cannot be put back as
    it was; MetadataUnavailableError, AccessDeniedError; OutcomeUnknownError: repeat it."""
    _check_acl(record)
    path, node = f"{tree.uri.managed_ledgers}/{record.topic_name}", record.node
    below = (CreateNode(f"{path}/{name}", one.data, one.acl or None) for name, one in node.below)
    try:
        tree.nodes.multi((CreateNode(path, node.data, node.acl or None), *below))
    except OperationRefusedError as error:
        if error.refusal is not NodeRefusal.NODE_EXISTS:
            raise FatalError(f"{path} cannot be created: {error}") from error
        _check_same_nodes(tree, path, record)
    except OutcomeUnknownError:
        if tree.nodes.get(path, latest=True) is None:
            raise
        _check_same_nodes(tree, path, record)


def _check_same_nodes(tree: MetadataTree, path: str, record: PendingDeleteLedgerInfo) -> None:
    there = tree.nodes.get(path, latest=True)
    if there is None or there.value != record.node.data or there.version != 0:
        raise FatalError(f"{path}: there is another managed ledger of this name now; nothing was changed")


class WayBack(Protocol):
    """What an undo needs of a side."""

    def is_there(self, record: PendingDeleteLedgerInfo, now: int, *, same: bool = True) -> bool | None:
        """A look of our own, of what is in doubt: no try that may still be on its way deletes anything after it. None:
        nobody can say. `same`: raises FatalError where another one may be there. Raises FatalError: it is too early;
        what looking raises."""
        ...

    def put_back(self, record: PendingDeleteLedgerInfo, begin: Callable[[], object]) -> str:
        """Put back what we deleted; repeated it does nothing more. `begin`: to be called before the first step, where
        there are several. Returns what is not as it was. Raises FatalError: it cannot be; OutcomeUnknownError: repeat
        it."""
        ...


@dataclass(frozen=True, slots=True)
class ZooKeeperWayBack:
    """Of ledgers, and of left-over managed ledgers."""

    tree: MetadataTree

    def is_there(self, record: PendingDeleteLedgerInfo, now: int, *, same: bool = True) -> bool:
        """By a look that outdates every try, of whichever process."""
        del now, same
        begin_look(self.tree.nodes, round_path(self.tree))
        left_over = record.ledger_type is LedgerType.MANAGED_LEDGER
        path = (
            f"{self.tree.uri.managed_ledgers}/{record.topic_name}" if left_over else self.tree.path_of(record.ledger_id)
        )
        node = self.tree.nodes.get(path, latest=True)
        return node is not None and node.created_ms == record.node.ctime

    def put_back(self, record: PendingDeleteLedgerInfo, begin: Callable[[], object]) -> str:
        """In one step."""
        del begin
        if record.ledger_type is LedgerType.MANAGED_LEDGER:
            recreate_leftover(self.tree, record)
        else:
            recreate_ledger(self.tree, record)
        return ""


@dataclass(frozen=True, slots=True)
class BucketWayBack:
    """Of objects there is none once they are deleted."""

    store: ObjectStore

    def is_there(self, record: PendingDeleteLedgerInfo, now: int, *, same: bool = True) -> bool | None:
        """Nobody can say it of what is in the bucket of Pulsar's own offloader."""
        del same
        check_not_on_its_way(record, now, max(self.store.longest_call, LONGEST_CALL))
        if record.ledger_type is not LedgerType.OBJECT:
            return None
        if record.upload:
            return any(one.upload == record.upload for one in self.store.list_uploads(record.object_key))
        return self.store.stat(record.object_key) is not None

    def put_back(self, record: PendingDeleteLedgerInfo, begin: Callable[[], object]) -> str:
        """Never."""
        del begin
        raise FatalError(f"{record.thing} was deleted from the bucket: only a bucket with versioning has it still")


def check_not_on_its_way(record: PendingDeleteLedgerInfo, now: int, longest_call: float) -> None:
    """No store, and no broker, takes back a request that is on its way: until that must have ended, nobody can say what
    came of it. It was sent before the end of the try and takes at most `longest_call` seconds. Raises FatalError: it
    is too early."""
    ended = record.next_at + ceil(longest_call * 1000)
    if record.next_at and now < ended and record.next_at <= now + FARTHEST_MS:
        why = f"{record.thing} is {record.state}: its deletion may be on its way; undo it after {moment_text(ended)}"
        raise FatalError(f"{why}, with deletion switched off, or its next try may come first")


WayBackOf = Callable[[PendingDeleteLedgerInfo], WayBack]


def undo(queue: DeletionQueue, name: str, way_back: WayBackOf, now_ms: Callable[[], int]) -> StoredDeletion | None:
    """Take a deletion back, by its record's name: its mark, or what it deleted. Can be repeated. None: there is no such
    record. Raises FatalError: why it cannot be; OutcomeUnknownError: begun, and to be called again;
    VersionConflictError: somebody else undoes it at the same moment."""
    stored = queue.read(name)
    if stored is not None and not stored.record.has_ended and stored.record.state is not DeletionState.UNDOING:
        stored = queue.change(name, lambda it: _taken_back(it, way_back, now_ms()))
    if stored is None or _is_taken_back(stored.record):
        return stored
    recreated(stored.record, now_ms())  # raises where it was not we who deleted it
    versions = [stored]

    def write(record: PendingDeleteLedgerInfo) -> None:
        """Only what nobody has changed since it was read: of two undos the later one would move what is used by now."""
        written = queue.write(record, versions[-1])
        if written is None:
            raise VersionConflictError(f"{record.thing}: somebody else has changed its record meanwhile; look again")
        versions.append(written)

    says = way_back(stored.record).put_back(stored.record, lambda: write(undoing(stored.record)))
    write(recreated(versions[-1].record, now_ms(), says))
    return versions[-1]


def drop(record: PendingDeleteLedgerInfo, way_back: WayBackOf, now: int) -> PendingDeleteLedgerInfo:
    """What was given up is dropped, and an undo that cannot be finished. What may be gone is looked at first: of what
    we have deleted there is a way back."""
    if record.state is DeletionState.UNDOING:
        return abandoned_undo(record, now)
    if record.state is DeletionState.GIVEN_UP and record.in_doubt:
        return let_be(record, there=way_back(record).is_there(record, now, same=False), now=now)
    return dropped(record, now)


def _taken_back(record: PendingDeleteLedgerInfo, way_back: WayBackOf, now: int) -> PendingDeleteLedgerInfo:
    """As it is after that, if nobody changes it meanwhile. What somebody else has ended stays as it is."""
    if record.has_ended or not record.in_doubt:
        return record if record.has_ended else undone(record, now)
    return taken_back(record, there=way_back(record).is_there(record, now), now=now)


def _is_taken_back(record: PendingDeleteLedgerInfo) -> bool:
    return record.state is DeletionState.UNDONE and record.answer is not DeletionAnswer.DELETED
