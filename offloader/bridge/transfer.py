"""A planned data object comes into the brokers' bucket, and is read back whole before anything refers to it: brokers
neither check objects nor fall back to BookKeeper.

The store copies what it can by itself. All else is tasks for workers, threads of this process or Spark's executors
(`driver/spark.py`): send a part, read some blocks back. Each task holds a part or some pieces at a time, is plain data,
and may be done twice or at two places at once: it writes the same bytes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from crc32c import crc32c

from offloader.ahead import map_ahead, unawaited_pool
from offloader.bridge.core.pieces import STREAMED_PART, ObjectPlan, PlannedPart, PlannedPiece, SourceRange
from offloader.errors import DamagedObjectError, IntegrityError, ObjectNotFoundError, OffloadError
from offloader.format.index import IndexEntry
from offloader.format.ledger_account import account_blocks
from offloader.format.v1 import LedgerIndex
from offloader.model import MIB
from offloader.ports.object_store import ObjectStore, UploadedPart
from offloader.storage.bounded_reads import naming, read_ranges, read_to_compare

READ_SIZE = 8 * MIB
THREADS = 4
COPIES_AT_ONCE = 8  # requests, whose bytes pass through nobody
CHECKED_AT_ONCE = 64 * MIB  # what one task goes through, some of it at a time


@dataclass(frozen=True, slots=True)
class BridgeStores:
    """`archive`: the root that has the segments. `bucket`: the flat one that brokers read."""

    archive: ObjectStore
    bucket: ObjectStore


@dataclass(frozen=True, slots=True)
class SendPart:
    """Read a part's pieces and send them. `etags`: of the objects that they are read from, by key."""

    upload: str
    part: PlannedPart
    etags: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SentPart:
    """What came of it."""

    part: UploadedPart
    requests: int


@dataclass(frozen=True, slots=True)
class CheckBlocks:
    """Read back the whole blocks from `offset` on, whose first entry is `first`. `pieces`: size and expected CRC32C of
    each piece of them. `index`: their index entries, with offsets from 0 and blocks from 1."""

    key: str
    ledger: int
    offset: int
    first: int
    pieces: tuple[tuple[int, int], ...]
    index: tuple[IndexEntry, ...]

    @property
    def size(self) -> int:
        return sum(size for size, _ in self.pieces)


@dataclass(frozen=True, slots=True)
class CheckedBlocks:
    """What was found: the entry behind the last one, the sum of the entries' lengths; or what is wrong."""

    after: int
    payload: int
    requests: int
    fault: str = ""


def send_part(task: SendPart, stores: BridgeStores) -> SentPart:
    """Raises IntegrityError where a source is not what the catalog says, and what the stores raise."""
    etags = dict(task.etags)
    pieces = [content_of(stores.archive, piece, etags) for piece in task.part.pieces]
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    part = stores.bucket.put_part(task.upload, task.part.number, task.part.offset, data, crc32c(data))
    return SentPart(part, 1 + sum(not isinstance(piece.source, bytes) for piece in task.part.pieces))


def check_blocks(task: CheckBlocks, stores: BridgeStores) -> CheckedBlocks:
    """Raises what the store raises."""
    end = task.offset + task.size
    requests = -(-task.size // READ_SIZE)
    sums: list[int] = []
    chunks = _summed(read_ranges(stores.bucket, task.key, task.offset, end, READ_SIZE), task.pieces, sums)
    index = LedgerIndex(task.size, b"", task.index)
    try:
        after, payload = account_blocks(chunks, task.ledger, index, task.first)
    except DamagedObjectError as error:
        return CheckedBlocks(task.first, 0, requests, f"{task.key} from offset {task.offset} on: {error}")
    except ObjectNotFoundError:
        return CheckedBlocks(task.first, 0, requests, f"{task.key} is gone")
    at = task.offset
    for (size, expected), said in zip(task.pieces, sums, strict=True):
        if said != expected:
            fault = f"{task.key}: the bytes from {at} to {at + size} have CRC32C {said:08x}, not {expected:08x}"
            return CheckedBlocks(task.first, 0, requests, fault)
        at += size
    return CheckedBlocks(after, payload, requests)


def content_of(archive: ObjectStore, piece: PlannedPiece, etags: dict[str, str]) -> bytes:
    """A piece's bytes, compared with what is known of them. Raises IntegrityError, which names the segment's object."""
    source = piece.source
    if isinstance(source, bytes):
        return source
    data = read_source(archive, source, etags[source.key])
    if piece.crc32c is None or crc32c(data) == piece.crc32c:
        return data
    data = read_source(archive, source, etags[source.key])  # what was damaged on its way is right now
    if crc32c(data) != piece.crc32c:
        raise DamagedObjectError(
            f"{source.key}: the bytes from {source.offset} to {source.offset + source.size} have CRC32C "
            f"{crc32c(data):08x}, the catalog says {piece.crc32c:08x}: nothing is bridged of a damaged segment"
        )
    return data


def read_source(archive: ObjectStore, source: SourceRange, etag: str) -> bytes:
    """A range of a segment's object, as long as it is the one that was looked at."""
    with naming(source.key):
        try:
            data, found = archive.read(source.key, source.offset, source.size)
        except ObjectNotFoundError as error:
            raise absent(source.key) from error
    if found.etag != etag:
        raise IntegrityError(f"{source.key} was replaced while a ledger was bridged of it")
    if len(data) != source.size:
        raise DamagedObjectError(f"{source.key}: it ends at {source.offset + len(data)}, before its last part does")
    return data


def absent(key: str) -> DamagedObjectError:
    """The error of a segment whose object is not there."""
    return DamagedObjectError(f"{key}: the catalog names it, and it is absent: nothing is bridged of a damaged segment")


def _summed(chunks: Iterator[bytes], pieces: Sequence[tuple[int, int]], sums: list[int]) -> Iterator[bytes]:
    """The chunks as they come; into `sums` goes the CRC32C of each piece that has passed."""
    sizes = iter(size for size, _ in pieces)
    left, crc = next(sizes), 0
    for chunk in chunks:
        rest = memoryview(chunk)
        while rest:
            taken, rest = rest[:left], rest[left:]
            crc, left = crc32c(taken, crc), left - len(taken)
            if not left:
                sums.append(crc)
                left, crc = next(sizes, 0), 0
        yield chunk


class PieceWorkers(Protocol):
    """Results come in the tasks' order. Raises what the first task that failed raised; whether others were done nobody
    knows. Memory: a part for each task that is under way."""

    def send(self, stores: BridgeStores, tasks: Sequence[SendPart]) -> Iterator[SentPart]: ...

    def check(self, stores: BridgeStores, tasks: Sequence[CheckBlocks]) -> Iterator[CheckedBlocks]: ...


@dataclass(frozen=True, slots=True)
class PieceThreads:
    """`PieceWorkers` in this process."""

    threads: int = THREADS

    def send(self, stores: BridgeStores, tasks: Sequence[SendPart]) -> Iterator[SentPart]:
        with unawaited_pool(self.threads, "bridge-send") as pool:
            yield from map_ahead(pool, partial(send_part, stores=stores), tasks, self.threads)

    def check(self, stores: BridgeStores, tasks: Sequence[CheckBlocks]) -> Iterator[CheckedBlocks]:
        with unawaited_pool(self.threads, "bridge-check") as pool:
            yield from map_ahead(pool, partial(check_blocks, stores=stores), tasks, self.threads)


class CopiesRefusedError(Exception):
    """The store copies nothing by itself: the parts are to be planned for sending. Never leaves the building."""


@dataclass
class BuildingCost:
    """What an upload took."""

    requests: int = 0
    copied: int = 0
    streamed: int = 0


@dataclass(frozen=True)
class PartUploader:
    """`etags`: of the sources, by key."""

    stores: BridgeStores
    workers: PieceWorkers
    etags: Mapping[str, str]
    took: BuildingCost = field(default_factory=BuildingCost)

    def upload(self, key: str, plan: ObjectPlan, meta: Mapping[str, str]) -> None:
        """Write the object, in the place of whatever is there. Raises CopiesRefusedError, and as `ObjectStore` and
        `send_part` do; then this upload is ended, as far as that can be done now."""
        bucket = self.stores.bucket
        upload = bucket.begin(key, meta=meta, copies=True)
        self.took.requests += 1
        try:
            bucket.commit(upload, self._parts(upload, plan))
            self.took.requests += 1
        except BaseException:
            with suppress(OffloadError):
                bucket.abort(upload)
            raise

    def _parts(self, upload: str, plan: ObjectPlan) -> list[UploadedPart]:
        parts = self._copied(upload, [part for part in plan.parts if part.copies])
        left = [part for part in plan.parts if part.number not in parts]
        if any(part.copies and part.size > STREAMED_PART for part in left):
            raise CopiesRefusedError
        etags = tuple(self.etags.items())
        sent = self.workers.send(self.stores, [SendPart(upload, part, etags) for part in left])
        for part, done in zip(left, sent, strict=True):
            parts[part.number] = done.part
            self.took.requests += done.requests
            self.took.streamed += part.size
        return [parts[number] for number in sorted(parts)]

    def _copied(self, upload: str, wanted: Iterable[PlannedPart]) -> dict[int, UploadedPart]:
        """Those that the store has copied, by number."""
        with unawaited_pool(COPIES_AT_ONCE, "bridge-copy") as pool:
            answers = list(map_ahead(pool, partial(self._copy, upload), wanted, COPIES_AT_ONCE))
        found = {part.number: part for part in answers if part is not None}
        self.took.requests += len(answers)
        self.took.copied += sum(part.size for part in found.values())
        return found

    def _copy(self, upload: str, part: PlannedPart) -> UploadedPart | None:
        (piece,) = part.pieces
        source = piece.source
        if not isinstance(source, SourceRange):
            raise IntegrityError(f"part {part.number} is to be copied, and is of no object")
        stores = self.stores
        try:
            return stores.bucket.copy_part(
                upload,
                part.number,
                part.offset,
                stores.archive,
                source.key,
                source.offset,
                source.size,
                self.etags[source.key],
            )
        except ObjectNotFoundError as error:
            raise absent(source.key) from error


@dataclass(frozen=True, slots=True)
class DataCheck:
    """`fault`: what is wrong, empty where nothing is. `suspects`: pieces among which it is."""

    requests: int
    fault: str = ""
    suspects: tuple[PlannedPiece, ...] = ()


def check_data(
    stores: BridgeStores, workers: PieceWorkers, key: str, ledger: int, last: int, plan: ObjectPlan
) -> DataCheck:
    """Each piece of the object that is there by its sum, each block and entry by its place, and that they are all. The
    sum of each piece must be known. Raises what the store raises."""
    groups = list(_groups(plan.pieces, frozenset(_block_begins(plan.index))))
    tasks = [_task(key, ledger, group, plan.index) for group in groups]
    requests = payload = expected = 0
    for group, task, done in zip(groups, tasks, workers.check(stores, tasks), strict=True):
        requests += done.requests
        if done.fault:
            return DataCheck(requests, done.fault, tuple(group))
        if task.first != expected:
            return DataCheck(requests, f"{key}: entry {task.first} stands where {expected} belongs", tuple(group))
        payload += done.payload
        expected = done.after
    if (expected, payload) != (last + 1, plan.length):
        found = f"{expected} entries of {payload} bytes"
        return DataCheck(requests, f"{key}: it holds {found}, and {last + 1} of {plan.length} belong there")
    return DataCheck(requests)


def is_there(stores: BridgeStores, key: str, data: bytes) -> bool:
    """Whether the object is exactly these bytes. Raises what the store raises."""
    return read_to_compare(stores.bucket, key, len(data)) == data


def _groups(pieces: Sequence[PlannedPiece], begins: Container[int]) -> Iterator[list[PlannedPiece]]:
    """Pieces that are checked together: each group begins with a block, which not every piece does."""
    group: list[PlannedPiece] = []
    for piece in pieces:
        if group and piece.end - group[0].offset > CHECKED_AT_ONCE and piece.offset in begins:
            yield group
            group = []
        group.append(piece)
    if group:
        yield group


def _block_begins(index: Iterable[IndexEntry]) -> Iterator[int]:
    block = 0
    for entry in index:
        if entry.block != block:
            yield entry.offset
        block = entry.block


def _task(key: str, ledger: int, group: Sequence[PlannedPiece], index: Sequence[IndexEntry]) -> CheckBlocks:
    begin, end = group[0].offset, group[-1].end
    mine = index[_at(index, begin) : _at(index, end)]
    if not mine or mine[0].offset != begin:
        raise IntegrityError(f"{key}: its index names no block at offset {begin}, where a piece begins")
    moved = tuple(replace(e, block=e.block - mine[0].block + 1, offset=e.offset - begin) for e in mine)
    return CheckBlocks(key, ledger, begin, mine[0].entry, tuple(_sum_of(key, piece) for piece in group), moved)


def _at(index: Sequence[IndexEntry], offset: int) -> int:
    return bisect_left(index, offset, key=lambda entry: entry.offset)


def _sum_of(key: str, piece: PlannedPiece) -> tuple[int, int]:
    if piece.crc32c is None:
        raise IntegrityError(f"{key}: nobody knows the sum of the bytes at offset {piece.offset}")
    return piece.size, piece.crc32c
