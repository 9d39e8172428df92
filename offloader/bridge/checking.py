"""A bridged ledger's two objects are read back whole, before anything refers to them: brokers neither check them nor
fall back to BookKeeper."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from offloader.bridge.core.pieces import ObjectPlan, PlannedPiece
from offloader.bridge.piece_tasks import BridgeStores, CheckBlocks
from offloader.bridge.piece_workers import PieceWorkers
from offloader.errors import IntegrityError
from offloader.format.part_index import IndexEntry
from offloader.model import MIB
from offloader.storage.bounded_reads import read_to_compare

CHECKED_AT_ONCE = 64 * MIB  # what one task goes through, some of it at a time


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
