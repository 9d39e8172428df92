"""What can be done anywhere of the building of bridged objects: send a part, read some blocks back. Each task holds a
part or some pieces at a time, is plain data, and may be done twice or at two places at once: it writes the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crc32c import crc32c

from offloader.bridge.core.pieces import PlannedPart, PlannedPiece, SourceRange
from offloader.errors import DamagedObjectError, IntegrityError, ObjectNotFoundError
from offloader.format.ledger_account import account_blocks
from offloader.format.part_index import IndexEntry
from offloader.format.v1 import LedgerIndex
from offloader.model import MIB
from offloader.ports.object_store import ObjectStore, UploadedPart
from offloader.storage.bounded_reads import naming, read_ranges

READ_SIZE = 8 * MIB


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
