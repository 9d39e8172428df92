"""Bookies of which an operator says that they are gone for good: what only they may have is lost.

A bookie that does not answer is no loss by itself. Nor is one that an operator names while it may still come back: it
must have neither a registration nor a cookie, without which it does not start."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from offloader.bookkeeper.api import EntryBookies, LedgerMetadataStore
from offloader.bookkeeper.status import NoEntryError
from offloader.errors import FatalError


def check_gone(gone: Iterable[str], ledgers: LedgerMetadataStore) -> None:
    """Raises FatalError for the first one that may come back."""
    for bookie in gone:
        if bookie in ledgers.available():
            raise FatalError(f"{bookie} is not gone: it is registered. Without --gone {bookie} it is asked")
        if ledgers.cookie(bookie) is not None:
            raise FatalError(
                f"{bookie} may come back: it has a cookie. Where it is gone for good, take it out of service first: "
                f"`bookkeeper shell decommissionbookie -bookieid {bookie}`, or `cookie_delete {bookie}`"
            )


@dataclass(frozen=True, slots=True)
class WithoutGone:
    """`bookies`, but those that are `gone` are not asked: they have nothing. `by`: who says so."""

    bookies: EntryBookies
    gone: Collection[str]
    by: str

    @property
    def batches(self) -> bool:
        return self.bookies.batches

    def read(self, bookie: str, ledger: int, entry: int, *, fence: bytes | None = None) -> Future[bytes]:
        if bookie in self.gone:
            return self._nothing(bookie)
        return self.bookies.read(bookie, ledger, entry, fence=fence)

    def batch(self, bookie: str, ledger: int, first: int, *, count: int, size: int) -> Future[list[bytes]]:
        if bookie in self.gone:
            return self._nothing(bookie)
        return self.bookies.batch(bookie, ledger, first, count=count, size=size)

    def _nothing(self, bookie: str) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(NoEntryError(f"{bookie} is gone for good, says {self.by}"))
        return future
