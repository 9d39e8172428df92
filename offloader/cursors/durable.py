"""A subscription that this process owns: its state in memory, and its log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Self, TypeVar

from offloader.cursors.core.cursor import CACHE_BYTES, Cursor, LedgersFrom, SwappedOutError
from offloader.cursors.core.ledger_acks import BatchLeft
from offloader.cursors.core.records import (
    FORGOTTEN,
    CursorMarker,
    FirstState,
    LedgerKey,
    PieceAt,
    PieceRecord,
)
from offloader.cursors.log import CursorLog
from offloader.errors import DamagedRecordError
from offloader.model import Position
from offloader.ports.object_store import ObjectStore

T = TypeVar("T")


class DurableCursor:
    """Safe to use from several threads. Acknowledgements do not wait for what is being written, but for a ledger that
    has to be read. Calls raise what the store raises, then have changed nothing, and may be repeated.

    Raises OvertakenError from `flush` once another process owns the subscription: this one must be thrown away."""

    def __init__(self, log: CursorLog, marker: CursorMarker, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._log = log
        self._cursor = Cursor(marker, cache_bytes=cache_bytes)
        self._state = threading.Lock()  # of the cursor; nobody waits for the store while holding it
        self._flushing = threading.Lock()
        self._pending: list[PieceRecord] = []
        self._cache_bytes = cache_bytes

    @classmethod
    def open(
        cls,
        store: ObjectStore,
        folder: str,
        first: Callable[[], FirstState] | None,
        new_token: Callable[[], str],
        *,
        cache_bytes: int = CACHE_BYTES,
    ) -> Self:
        """Become the owner, and read the newest ledgers, as many as memory may have. `first`: as of
        `CursorLog.open`. Raises OvertakenError, DamagedRecordError, HandedOverError."""
        log = CursorLog(store, folder, new_token)
        found = cls(log, log.open(first).record.marker, cache_bytes=cache_bytes)
        found._read_ahead()
        return found

    @property
    def mark_delete(self) -> Position:
        """Everything up to and including it is acknowledged."""
        with self._state:
            return self._cursor.mark_delete

    @property
    def properties(self) -> tuple[tuple[str, int], ...]:
        """Pulsar's long ones, and ours."""
        with self._state:
            return self._cursor.properties

    @property
    def memory(self) -> int:
        """About how many bytes of acknowledgements are in memory."""
        with self._state:
            return self._cursor.memory

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        with self._state:
            return bool(self._pending) or self._cursor.changed

    def acknowledge(self, key: LedgerKey, first: int, last: int) -> bool:
        """Entries of a ledger. Returns whether anything changed."""
        return self._asked(lambda: self._cursor.acknowledge(key, first, last))

    def acknowledge_part(self, position: Position, size: int, left: int) -> bool:
        """Messages of a batch of `size`: those whose bit in `left` is 0. Returns whether anything changed."""
        return self._asked(lambda: self._cursor.acknowledge_part(position, size, left))

    def acknowledge_up_to(self, position: Position) -> bool:
        """Everything up to and including it. Never moves backwards."""
        return self._asked(lambda: self._cursor.acknowledge_up_to(position))

    def is_acknowledged(self, position: Position) -> bool:
        """Whether the whole entry is."""
        return self._asked(lambda: self._cursor.is_acknowledged(position))

    def left_of(self, position: Position) -> BatchLeft | None:
        """Of a batch of which a part is acknowledged what is left; None: of any other entry."""
        return self._asked(lambda: self._cursor.left_of(position))

    def has_none_of(self, key: LedgerKey, first: int, last: int) -> bool:
        """Whether of a ledger's entries `first`..`last` nothing is acknowledged, no part either."""
        return self._asked(lambda: self._cursor.has_none_of(key, first, last))

    def acknowledged_of(self, ledgers: Iterable[LedgerKey]) -> int | None:
        """How many entries of these ledgers are acknowledged behind the mark-delete position; None: some are not in
        memory."""
        with self._state:
            return self._cursor.acknowledged_of(ledgers)

    def count_left(self, key: LedgerKey, first: int, last: int) -> int:
        """How many of a ledger's entries `first`..`last` are not acknowledged as a whole."""
        return self._asked(lambda: self._cursor.count_left(key, first, last))

    def count_property(self, name: str, by: int) -> None:
        """Add to one of the properties."""
        with self._state:
            self._cursor.count_property(name, by)

    def next_left(self, position: Position) -> Position:
        """The first position from there on, in its ledger, that is not acknowledged as a whole."""
        return self._asked(lambda: self._cursor.next_left(position))

    def advance(self, ledgers_from: LedgersFrom) -> bool:
        """Move the mark-delete position over what is acknowledged."""
        return self._asked(lambda: self._cursor.advance(ledgers_from))

    def begin_anew(self, position: Position, properties: tuple[tuple[str, int], ...] | None = None) -> None:
        """A reset: everything up to and including `position` is acknowledged, and nothing else. `properties` None: they
        stay."""
        with self._state:
            self._cursor.begin_anew(position, properties)

    def forget(self) -> None:
        """The subscription is deleted: once this is flushed, whoever opens it finds none. Its fences stay."""
        self.begin_anew(self.mark_delete, FORGOTTEN)

    def flush(self) -> None:
        """Returns when all that was acknowledged before the call is durable."""
        with self._flushing:
            self._write_pending()  # of a call that failed: an outcome that is not known is settled first
            with self._state:
                if not self._cursor.changed:
                    return
                to_move = self._cursor.to_move()
            moved = self._log.pieces(to_move.items())
            with self._state:
                self._pending = self._cursor.records(self._log.epoch, self._log.next_slot, moved)
            self._write_pending()

    def _write_pending(self) -> None:
        while self._pending:
            self._log.append(self._pending[0])
            with self._state:
                self._cursor.written(self._pending.pop(0))
                self._cursor.swap_out()

    def _asked(self, call: Callable[[], T]) -> T:
        while True:
            with self._state:
                try:
                    answer = call()
                    self._cursor.swap_out()
                except SwappedOutError as error:
                    missing, piece = error.key, self._cursor.named[error.key]
                else:
                    return answer
            self._swap_in(missing, piece)

    def _swap_in(self, key: LedgerKey, piece: PieceAt) -> None:
        try:
            data = self._log.pieces([(key, piece)])[key]
        except DamagedRecordError:
            with self._state:
                if self._cursor.named.get(key) == piece:
                    raise
            return  # it was written anew meanwhile, and the former record is removed
        with self._state:
            if self._cursor.named.get(key) == piece:
                self._cursor.swap_in(key, data)

    def _read_ahead(self) -> None:
        """The newest ledgers. Pieces' bytes say about what they take in memory; a record that has many is read once."""
        named, chosen, size = self._cursor.named, dict[LedgerKey, PieceAt](), 0
        for key in self._cursor.swapped_out:
            size += named[key].size
            if size > self._cache_bytes:
                break
            chosen[key] = named[key]
        pieces = self._log.pieces(chosen.items())
        for key in reversed(chosen):  # the newest stay, where memory takes more than their bytes
            self._cursor.swap_in(key, pieces[key])
            self._cursor.swap_out()
