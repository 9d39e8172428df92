"""Bookies in memory that answer at once, later, wrongly or not at all, as a test says; no threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

from offloader.bookkeeper.entry_codec import digest_for, master_key
from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.status import status_error
from offloader.errors import BookieUnavailableError, OffloadError
from tests.bookkeeper.entries import LEDGER, stored_entry
from tests.fakes.memory_bookie import MemoryBookie

Result = Any


class Call(NamedTuple):
    bookie: str
    batch: bool
    first: int
    entries: int
    size: int


class Behaviour:
    """Base: answers what it has. Subclasses change the result, raise, or return None: no answer."""

    def __call__(self, call: Call, result: Callable[[], list[bytes]]) -> list[bytes] | None:
        return result()


class Gone(Behaviour):
    """Cannot be reached."""

    def __call__(self, call: Call, result: Callable[[], list[bytes]]) -> list[bytes] | None:
        raise BookieUnavailableError(f"{call.bookie}: gone")


class Silent(Behaviour):
    """Never answers by itself: see `ScriptedBookies.release`."""

    def __call__(self, call: Call, result: Callable[[], list[bytes]]) -> list[bytes] | None:
        return None


class Says(Behaviour):
    """Answers with this status, `times` times."""

    def __init__(self, status: int, times: int = 1_000_000) -> None:
        self.status, self.times = status, times

    def __call__(self, call: Call, result: Callable[[], list[bytes]]) -> list[bytes] | None:
        self.times -= 1
        if self.times >= 0:
            raise status_error(self.status, f"{call.bookie}: read of {call.first}")
        return result()


class Damaged(Behaviour):
    """Each entry's last byte is another one."""

    def __call__(self, call: Call, result: Callable[[], list[bytes]]) -> list[bytes] | None:
        return [entry[:-1] + bytes([entry[-1] ^ 1]) for entry in result()]


class Short(Behaviour):
    """Never more than two entries at once."""

    def __call__(self, call: Call, result: Callable[[], list[bytes]]) -> list[bytes] | None:
        return result()[:2]


class NoBatches(Behaviour):
    """Closes the connection when asked for a batch, as BookKeeper did before 4.17."""

    def __call__(self, call: Call, result: Callable[[], list[bytes]]) -> list[bytes] | None:
        if call.batch:
            raise BookieUnavailableError(f"{call.bookie}: the connection was closed")
        return result()


class ScriptedBookies:
    """What of `Bookies` reading needs. `sizes`: of each entry's payload. Entries are where the metadata says, but for
    `holes`."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        sizes: Iterable[int],
        *,
        batches: bool = True,
        behaviours: dict[str, Behaviour] | None = None,
        holes: Iterable[tuple[str, int]] = (),
    ) -> None:
        self.batches = batches
        self.behaviours = behaviours or {}
        self.calls: list[Call] = []
        self.pending: list[tuple[Call, Future[Result]]] = []
        self._bookies = {name: MemoryBookie() for f in metadata.fragments for name in f.ensemble}
        digest, holes = digest_for(metadata), set(holes)
        for entry, size in enumerate(sizes):
            data = stored_entry(entry, digest, size=size)
            for bookie in metadata.write_set(entry):
                if (bookie, entry) not in holes:
                    self._bookies[bookie].add(LEDGER, entry, data, master_key(b""))

    def read(self, bookie: str, ledger: int, entry: int, *, fence: bytes | None = None) -> Future[bytes]:
        assert fence is None  # reading never fences
        return self._answer(Call(bookie, False, entry, 1, 0), lambda: [self._bookies[bookie].read(ledger, entry)])

    def batch(self, bookie: str, ledger: int, first: int, *, count: int, size: int) -> Future[list[bytes]]:
        assert self.batches
        return self._answer(
            Call(bookie, True, first, count, size), lambda: self._bookies[bookie].batch(ledger, first, count, size)
        )

    def release(self, behaviour: Behaviour | None = None) -> None:
        """Let what waits be answered now."""
        waiting, self.pending = self.pending, []
        for call, future in waiting:
            self._settle(call, future, partial(self._held, call), behaviour or Behaviour())

    def _held(self, call: Call) -> list[bytes]:
        if call.batch:
            return self._bookies[call.bookie].batch(LEDGER, call.first, call.entries, call.size)
        return [self._bookies[call.bookie].read(LEDGER, call.first)]

    def _answer(self, call: Call, result: Callable[[], list[bytes]]) -> Future[Any]:
        self.calls.append(call)
        future: Future[Any] = Future()
        self._settle(call, future, result, self.behaviours.get(call.bookie, Behaviour()))
        return future

    def _settle(self, call: Call, future: Future[Any], result: Callable[[], list[bytes]], behaviour: Behaviour) -> None:
        try:
            entries = behaviour(call, result)
        except OffloadError as error:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
            return
        if entries is None:
            self.pending.append((call, future))
        elif future.set_running_or_notify_cancel():
            future.set_result(entries if call.batch else entries[0])
