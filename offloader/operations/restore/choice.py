"""Which archived entries are published. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from offloader.archive.items import ArchivedEntry
from offloader.archive.messages.envelope import Envelope, parse_envelope
from offloader.errors import DamagedObjectError, FatalError
from offloader.format.entry import transaction_of
from offloader.operations.restore.outgoing import Skipped
from offloader.operations.restore.transactions import Outcomes


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
