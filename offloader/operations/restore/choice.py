"""Which archived entries are published, and which transactions were committed. Pure.

Brokers deliver committed entries only. What was copied from ledgers (Pulsar's own offloader, the source bookkeeper)
also holds entries of aborted transactions, and behind them the markers that tell."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from offloader.archive.items import ArchivedEntry, Item
from offloader.archive.messages.envelope import Envelope, parse_envelope
from offloader.errors import DamagedObjectError, FatalError
from offloader.format.entry import ABORT_MARKER, COMMIT_MARKER, transaction_of
from offloader.model import Position, Transaction
from offloader.operations.restore.provenance import Skipped

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


@dataclass(frozen=True, slots=True)
class Choice:
    """`allow_missing`: what cannot be read is left out."""

    outcomes: Outcomes = field(default_factory=Outcomes)
    allow_missing: bool = False

    def of(self, item: ArchivedEntry) -> Envelope | Skipped:
        """What is published, or why it is not. Raises FatalError where that cannot be decided."""
        try:
            envelope = parse_envelope(item.data)
        except DamagedObjectError as error:
            if self.allow_missing:
                return Skipped.UNREADABLE
            why = f"{item.position} is not what a broker would deliver ({error}); --allow-missing goes on without it"
            raise FatalError(why) from error
        if envelope.is_marker:
            return Skipped.MARKER
        transaction = transaction_of(envelope.metadata)
        if transaction is not None and not self.outcomes.committed(item.position, transaction):
            return Skipped.ABORTED
        return envelope
