"""Archived items, and a target in memory that breaks off where a test wants it to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.archive.items import ArchivedEntry, Item, Missing
from offloader.archive.messages.envelope import Envelope, parse_envelope
from offloader.errors import BrokerUnavailableError
from offloader.model import GapKind, Position, TopicName
from offloader.operations.restore.choice import Choice
from offloader.operations.restore.progress import Counts, RateLimiter, RestoreProgress
from offloader.operations.restore.provenance import Origin, Outgoing, Provenance, read_provenance
from offloader.operations.restore.restore import Restore, Tools
from offloader.operations.restore.tail import Tail, TargetContents, tail_of
from tests.format.support import checksummed

SOURCE = TopicName.parse("public/default/orders")
TARGET = TopicName.parse("public/default/again")
ORIGIN = Origin("11111111-0000-4000-8000-000000000000", SOURCE)
FOREIGN = checksummed(MessageMetadata(producer_name="x", sequence_id=1, publish_time=1), b"foreign")


def at(ledger: int, entry: int, incarnation: int = 0) -> Position:
    return Position(incarnation, ledger, entry)


def archived(position: Position, payload: bytes = b"payload", **fields) -> ArchivedEntry:
    metadata = MessageMetadata(**{"producer_name": "p", "sequence_id": 7, "publish_time": 1_700_000_000_000} | fields)
    return ArchivedEntry(position, checksummed(metadata, payload))


def gap(ledger: int, first: int, last: int) -> Missing:
    return Missing(at(ledger, first), at(ledger, last), "a gap: aborted", GapKind.ABORTED)


def mixed(random: Random, count: int) -> list[Item]:
    """Entries of several ledgers with gaps and markers; payloads differ."""
    items: list[Item] = []
    ledger, entry = 3, 0
    for number in range(count):
        position = at(ledger, entry, ledger // 10)
        kind = random.random()
        if kind < 0.1:
            items.append(Missing(position, position, "a gap: marker", GapKind.MARKER))
        elif kind < 0.2:
            items.append(archived(position, marker_type=21, txnid_most_bits=1, txnid_least_bits=number))
        elif kind < 0.5:
            items.append(archived(position, b"batch %d" % number, num_messages_in_batch=random.randint(1, 9)))
        else:
            items.append(archived(position, b"%d" % number, txnid_most_bits=1, txnid_least_bits=2, partition_key="k"))
        ledger, entry = (ledger + random.randint(1, 9), 0) if random.random() < 0.1 else (ledger, entry + 1)
    return items


def published(items: list[Item]) -> list[ArchivedEntry]:
    """What a target must hold."""
    entries = (item for item in items if isinstance(item, ArchivedEntry))
    return [entry for entry in entries if not parse_envelope(entry.data).is_marker]


def after(items: list[Item]) -> Callable[[Position | None], Iterator[Item]]:
    """As an archive gives them."""
    return lambda tail: iter([item for item in items if tail is None or _place(item) > tail])


def _place(item: Item) -> Position:
    return item.position if isinstance(item, ArchivedEntry) else item.start


class KilledError(Exception):
    """The process ends here."""


@dataclass
class MemoryTarget:
    """Stores what is sent when it is asked for receipts, a random part of it each time. `calm`: nothing goes wrong any
    more.

    What is on its way when the connection breaks is stored in part, at the latest when the next producer attaches.
    """

    random: Random
    trouble: float = 0.0
    stored: list[bytes] = field(default_factory=list)
    on_way: list[Outgoing] = field(default_factory=list)
    receipts_due: list[int] = field(default_factory=list)
    attached: bool = False
    sends: int = 0

    def check(self) -> Tail:
        return self.tail()

    def attach(self) -> Tail:
        self._store(self.random.randint(0, len(self.on_way)))
        self.on_way.clear()
        self.receipts_due.clear()
        self.attached = True
        self._maybe_fail()
        return self.tail()

    def send(self, entry: Outgoing) -> None:
        self.sends += 1
        if self.attached:
            self.on_way.append(entry)
        self._maybe_die()
        self._maybe_fail()

    def receipts(self, timeout: float) -> list[int]:
        self._maybe_die()
        if not self.attached:
            raise BrokerUnavailableError("the connection ended")
        self._store(self.random.randint(0, len(self.on_way)))
        self._maybe_fail()
        if timeout > 1:  # whoever waits for long gets something
            self._store(min(1, len(self.on_way)))
        due = self.random.randint(0, len(self.receipts_due)) if timeout <= 1 else len(self.receipts_due)
        told, self.receipts_due = self.receipts_due[:due], self.receipts_due[due:]
        self._maybe_die()
        return told

    def tail(self) -> Tail:
        self._maybe_fail()
        last = (1, len(self.stored) - 1) if self.stored else None
        found = TargetContents(
            len(self.stored), last, self.stored[-1] if self.stored else None, producers=("offloader-restore-1",)
        )
        return tail_of(TARGET, ORIGIN, found, settled=True)

    def provenance(self, ledger: int, entry: int) -> Provenance:
        """Of one ledger's entries."""
        found = read_provenance(parse_envelope(self.stored[entry]).metadata)
        assert found is not None
        return found

    def close(self) -> None:
        self.attached = False

    def _store(self, count: int) -> None:
        for entry in self.on_way[:count]:
            self.stored.append(entry.data)
            self.receipts_due.append(entry.provenance.number)
        del self.on_way[:count]

    def _maybe_fail(self) -> None:
        if self.random.random() < self.trouble:
            self.attached = False
            raise BrokerUnavailableError("the connection broke")

    def _maybe_die(self) -> None:
        if self.random.random() < self.trouble / 5:
            raise KilledError


class Clock:
    """Sleeping and waiting are what make time pass."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def run(
    target: MemoryTarget, items: list[Item], *, rate: int | None = None, clock: Clock | None = None, **options
) -> Counts:
    """One process."""
    clock = clock or Clock()
    tools = Tools(clock, clock.sleep, retry_for=1e9)
    return Restore(
        target, after(items), lambda tail: RestoreProgress(ORIGIN, tail, Choice(**options)), RateLimiter(rate), tools
    ).run()


def envelopes(target: MemoryTarget) -> list[Envelope]:
    return [parse_envelope(data) for data in target.stored]
