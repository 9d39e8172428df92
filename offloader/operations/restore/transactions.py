"""Which transactions were committed, where an archive holds ledgers as they are. Pure.

Brokers deliver committed entries only. What was copied from ledgers (Pulsar's own offloader, the source bookkeeper)
also holds entries of aborted transactions, and behind them the markers that tell.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from offloader.archive.items import ArchivedEntry, Item
from offloader.archive.messages.envelope import parse_envelope
from offloader.errors import DamagedObjectError, FatalError
from offloader.format.entry import ABORT_MARKER, COMMIT_MARKER, transaction_of
from offloader.model import Position, Transaction

Range = tuple[Position, Position]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """`raw`: first and last position of what was copied from ledgers, in order and without overlap; `ended`:
    transactions there, and whether they were committed."""

    raw: tuple[Range, ...] = ()
    ended: frozenset[tuple[Transaction, bool]] = frozenset()

    def committed(self, position: Position, transaction: Transaction) -> bool:
        """Whether an entry of the transaction may be delivered. Raises FatalError where nothing tells."""
        before = bisect_right(self.raw, position, key=lambda of: of[0])
        if before == 0 or position > self.raw[before - 1][1]:
            return True
        if (transaction, True) in self.ended:
            return True
        if (transaction, False) in self.ended:
            return False
        raise FatalError(
            f"{position} belongs to a transaction, and the archive does not hold its end: it cannot be restored"
        )


def outcomes(raw: tuple[Range, ...], items: Iterable[Item]) -> Outcomes:
    """From the markers among these items."""
    ends = (_end(item.data) for item in items if isinstance(item, ArchivedEntry))
    return Outcomes(raw, frozenset(end for end in ends if end is not None))


def _end(data: bytes) -> tuple[Transaction, bool] | None:
    """The transaction that ends here, and whether it was committed."""
    try:
        metadata = parse_envelope(data).metadata
    except DamagedObjectError:  # no message, so no marker
        return None
    transaction = transaction_of(metadata)
    if transaction is None or metadata.marker_type not in (COMMIT_MARKER, ABORT_MARKER):
        return None
    return transaction, metadata.marker_type == COMMIT_MARKER
