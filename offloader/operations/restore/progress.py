"""Which entries wait, are on their way, and are stored: from a target's tail to the archive's end; and no more than
so many bytes a second. Pure: time is passed in, in seconds."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from offloader.archive.items import Item, Missing
from offloader.errors import DataLostError, IntegrityError, ProtocolError
from offloader.model import MIB
from offloader.operations.restore.choice import Choice
from offloader.operations.restore.provenance import Origin, Outgoing, Provenance, Skipped, outgoing, unchanged
from offloader.operations.restore.tail import Tail

# As many as a broker takes from one connection before it stops reading (maxPendingPublishRequestsPerConnection).
MAX_PENDING = 1000
MAX_PENDING_BYTES = 16 * MIB
EVERYTHING = Choice()
# What may be sent at once after a pause, in seconds' worth: waits shorter than this are not worth one.
BURST = 0.05


class RateLimiter:
    """`rate` None: as fast as it goes."""

    def __init__(self, rate: int | None) -> None:
        self._rate = rate
        self._free_at = 0.0

    def wait(self, now: float) -> float:
        """Seconds until the next entry may go."""
        return 0.0 if self._rate is None else max(0.0, self._free_at - now)

    def spend(self, size: int, now: float) -> None:
        """So many bytes went."""
        if self._rate is not None:
            self._free_at = max(self._free_at, now - BURST) + size / self._rate


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
    `schema_version`: as of `outgoing`.
    """

    def __init__(
        self,
        origin: Origin,
        tail: Tail,
        choice: Choice = EVERYTHING,
        schema_version: Callable[[bytes], bytes] = unchanged,
    ) -> None:
        self.tail = tail
        self.counts = Counts(already_there=tail.number)
        self._origin = origin
        self._choice = choice
        self._schema_version = schema_version
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
        chosen = self._choice.of(item)
        if isinstance(chosen, Skipped):
            self.counts.skipped[chosen] += 1
        else:
            self._number += 1
            provenance = Provenance(self._origin, item.position, self._number)
            self._waiting.append(outgoing(chosen, provenance, self._schema_version))

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
        if not self._choice.allow_missing:
            raise DataLostError(f"{item.start}..{item.end} is missing ({item.why}); --allow-missing goes on without it")
