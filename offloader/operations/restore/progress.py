"""Which entries wait, are on their way, and are stored: from a target's tail to the archive's end. Pure."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from offloader.archive.items import ArchivedEntry, Item, Missing
from offloader.archive.messages.envelope import Envelope, parse_envelope
from offloader.errors import DamagedObjectError, DataLostError, FatalError, IntegrityError, ProtocolError
from offloader.format.entry import transaction_of
from offloader.model import MIB, Position
from offloader.operations.restore.outgoing import Outgoing, Skipped, outgoing
from offloader.operations.restore.provenance import Origin, Provenance
from offloader.operations.restore.tail import Tail
from offloader.operations.restore.transactions import Outcomes

# As many as a broker takes from one connection before it stops reading (maxPendingPublishRequestsPerConnection).
MAX_PENDING = 1000
MAX_PENDING_BYTES = 16 * MIB


@dataclass
class Counts:
    """What came of the archived items so far. `sent`: stored ones; `gaps` counts positions, `losses` records."""

    already_there: int = 0
    sent: int = 0
    bytes: int = 0
    gaps: int = 0
    losses: int = 0
    skipped: Counter[Skipped] = field(default_factory=Counter)


class RestoreProgress:
    """One restore of one topic: `take` brings archived items in, `next` gives entries out, `confirm` says what is
    stored. After a disconnect nobody knows that: `resume` with the target's tail, and `next` goes on after it.
    """

    def __init__(
        self, origin: Origin, tail: Tail, *, outcomes: Outcomes | None = None, allow_missing: bool = False
    ) -> None:
        self.tail = tail
        self.counts = Counts(already_there=tail.number)
        self._origin = origin
        self._outcomes = outcomes or Outcomes()
        self._allow_missing = allow_missing
        self._number = tail.number
        self._sent: deque[Outgoing] = deque()
        self._waiting: deque[Outgoing] = deque()
        self._pending_bytes = 0

    @property
    def waiting(self) -> bool:
        """Whether `next` has something."""
        return bool(self._waiting)

    @property
    def pending(self) -> int:
        """Entries that were sent and are not confirmed."""
        return len(self._sent)

    @property
    def full(self) -> bool:
        """Whether to wait for confirmations before sending more."""
        return len(self._sent) >= MAX_PENDING or self._pending_bytes >= MAX_PENDING_BYTES

    def take(self, item: Item) -> None:
        """The next archived item. Raises DataLostError where it is lost, FatalError where it cannot be published."""
        if isinstance(item, Missing):
            self._pass_over(item)
            return
        envelope = self._opened(item)
        if envelope is None:
            self.counts.skipped[Skipped.UNREADABLE] += 1
        elif skipped := self._skipped(item.position, envelope):
            self.counts.skipped[skipped] += 1
        else:
            self._number += 1
            self._waiting.append(outgoing(envelope, Provenance(self._origin, item.position, self._number)))

    def next(self) -> Outgoing:
        """The next entry to send."""
        entry = self._waiting.popleft()
        self._sent.append(entry)
        self._pending_bytes += len(entry.data)
        return entry

    def confirm(self, number: int) -> int:
        """The broker has stored this entry; its bytes. Raises ProtocolError where it was another one's turn."""
        if not self._sent or self._sent[0].provenance.number != number:
            raise ProtocolError(f"the broker confirmed entry {number} out of turn")
        return self._stored(self._sent.popleft())

    def resume(self, tail: Tail) -> int:
        """Nothing is on its way, and the target ends with `tail`. Returns the bytes that turned out to be stored.

        Raises IntegrityError where this restore has not sent that entry.
        """
        if tail.number < self.tail.number:
            raise IntegrityError(f"the target ends with entry {tail.number}, though {self.tail.number} were confirmed")
        stored = 0
        while self._sent and self._sent[0].provenance.number <= tail.number:
            stored += self._stored(self._sent.popleft())
        if self.tail != tail:
            raise IntegrityError(
                f"the target ends with entry {tail.number}, which this restore has not sent: is there another one?"
            )
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()
        self._pending_bytes = 0
        return stored

    def _stored(self, entry: Outgoing) -> int:
        size = len(entry.data)
        self._pending_bytes -= size
        self.tail = Tail(entry.provenance.number, entry.provenance.position)
        self.counts.sent += 1
        self.counts.bytes += size
        return size

    def _pass_over(self, item: Missing) -> None:
        if item.kind is not None:
            self.counts.gaps += item.entries.span
            return
        self.counts.losses += 1
        if not self._allow_missing:
            raise DataLostError(f"{item.start}..{item.end} is missing ({item.why}); --allow-missing goes on without it")

    def _opened(self, item: ArchivedEntry) -> Envelope | None:
        try:
            return parse_envelope(item.data)
        except DamagedObjectError as error:
            if self._allow_missing:
                return None
            why = f"{item.position} is not what a broker would deliver ({error}); --allow-missing goes on without it"
            raise FatalError(why) from error

    def _skipped(self, position: Position, envelope: Envelope) -> Skipped | None:
        if envelope.is_marker:
            return Skipped.MARKER
        transaction = transaction_of(envelope.metadata)
        if transaction is not None and not self._outcomes.committed(position, transaction):
            return Skipped.ABORTED
        return None
