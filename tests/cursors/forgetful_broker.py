"""A broker's cursor, as it is stored and forgotten: for tests of its protection."""

from __future__ import annotations

from dataclasses import dataclass, field

from offloader.cursors.core.acknowledged import AcknowledgedSet
from offloader.cursors.core.protection import CursorSeen, Incarnation, LastRecord, RecordId
from offloader.model import PartlyAcknowledged

LEDGER, LENGTH = 1, 24
LENGTHS = ((LEDGER, LENGTH),)
WORDS = (0x1,)  # one message of a batch is left


@dataclass
class Stored:
    """A record: mark-delete, entries behind it, parts of batches."""

    mark: int
    entries: frozenset[int]
    parts: frozenset[int] = frozenset()


@dataclass
class ForgetfulBroker:
    """One ledger of `LENGTH` entries, one subscription. `kept`: how many entries behind the mark-delete a record has,
    the lowest. `in_node`: how many a clean unload writes into the node. `fresh`: nothing was stored since it was
    loaded.

    `truth`: what was acknowledged by anybody and not reset since: nothing else may ever be acknowledged again."""

    kept: int = 3
    in_node: int = 2
    mark: int = -1
    entries: set[int] = field(default_factory=set)
    parts: set[int] = field(default_factory=set)
    truth: set[int] = field(default_factory=set)
    true_parts: set[int] = field(default_factory=set)
    fresh: bool = True
    node: int = 0
    born: int = 1
    ledger: int | None = None
    records: list[Stored] = field(default_factory=list)
    metadata: int = 0
    closed: bool = False
    in_the_node: Stored = field(default_factory=lambda: Stored(-1, frozenset()))
    resetting: int | None = None
    last_ledger: int = 100
    loads: int = 0

    # What clients, operators and machines do.

    def acknowledge(self, entry: int, *, stores: bool) -> None:
        if self.resetting is not None:
            return
        self.truth.add(entry)
        self.again([entry], stores=stores)

    def acknowledge_part(self, entry: int, *, stores: bool) -> None:
        if self.resetting is not None or entry in self.entries or entry <= self.mark:
            return
        self.true_parts.add(entry)
        self.again((), [entry], stores=stores)

    def again(self, whole=(), parts=(), *, stores: bool = True) -> None:
        """As the protection does it: nothing that was not acknowledged before. Parts alone are not stored."""
        self.entries |= {one for one in whole if one > self.mark}
        self.parts = (self.parts | set(parts)) - self.entries
        self._advance()
        if stores and (whole or self.entries):
            self.store()

    def store(self) -> None:
        """What is dirty is written, into a new ledger where there is none yet."""
        if self.fresh or self.ledger is None or self.closed:
            self._new_ledger()
        else:
            self.records.append(self._record())
        self.fresh = False

    def switch_ledger(self) -> None:
        if not self.fresh and self.ledger is not None:
            self._new_ledger()

    def change_properties(self) -> None:
        self.node += 1

    def begin_reset(self, mark: int) -> None:
        """Its record is stored first, still with what is acknowledged behind the mark-delete."""
        self.finish_reset()
        self.resetting = mark
        before, self.mark = self.mark, mark
        self.store()
        self.mark = before

    def finish_reset(self) -> None:
        if self.resetting is not None:
            self.mark, self.resetting = self.resetting, None
            self.entries, self.parts = set(), set()
            self.truth, self.true_parts = set(range(self.mark + 1)), set()

    def crash(self) -> None:
        """A reset's record has what was acknowledged behind the mark-delete: a crash makes the broker itself take that
        back, and then it is acknowledged."""
        self._take_back_reset()
        if self.ledger is not None and not self.closed:
            self.metadata += 2
            self.closed = True
        self._load()
        self.truth |= self.acknowledged
        self.true_parts |= self.parts

    def unload(self) -> None:
        self.finish_reset()
        if len(self.entries) > self.in_node and self.ledger is not None and not self.closed and not self.fresh:
            self.records.append(self._record())
            self.metadata += 1
            self.closed = True
        else:
            self.in_the_node = self._record()
            self.ledger = None
            self.node += 1
        self._load()

    def make_anew(self) -> None:
        """Deleted, and made again, at its beginning."""
        self.born += 1
        self.mark, self.entries, self.parts, self.truth, self.true_parts = -1, set(), set(), set(), set()
        self.resetting, self.ledger, self.node, self.fresh = None, None, 0, True
        self.in_the_node = Stored(-1, frozenset())

    # What a look sees.

    def look(self) -> CursorSeen:
        last = self._last()
        record = RecordId(self.node)
        if self.ledger is not None:
            record = RecordId(self.node, self.ledger, len(self.records) - 1, self.metadata)
        parts = tuple(PartlyAcknowledged(LEDGER, entry, WORDS) for entry in sorted(last.parts))
        stored = LastRecord(record, _as_seen(last.mark, last.entries), parts, self.closed)
        memory = _as_seen(self.mark, self.entries)
        return CursorSeen(Incarnation(1, self.born), memory, self.fresh, stored, LENGTHS, str(self.loads))

    @property
    def acknowledged(self) -> set[int]:
        return set(range(self.mark + 1)) | self.entries

    # Within.

    def _advance(self) -> None:
        while self.mark + 1 in self.entries:
            self.mark += 1
        self.entries = {one for one in self.entries if one > self.mark}
        self.parts = {one for one in self.parts if one > self.mark}

    def _record(self) -> Stored:
        entries = [one for one in sorted(self.entries) if one > self.mark]
        return Stored(self.mark, frozenset(entries[: self.kept]), frozenset(self.parts))

    def _new_ledger(self) -> None:
        self.last_ledger += 1
        self.ledger, self.metadata, self.closed = self.last_ledger, 0, False
        self.records = [self._record()]
        self.node += 1

    def _last(self) -> Stored:
        return self.in_the_node if self.ledger is None else self.records[-1]

    def _take_back_reset(self) -> None:
        """It was never confirmed: what its record says counts, and the broker is right whatever it does."""
        if self.resetting is not None:
            self.truth &= set(range(self.resetting + 1))
            self.true_parts = set()
            self.resetting = None

    def _load(self) -> None:
        last = self._last()
        self.mark, self.entries = last.mark, set(last.entries)
        self.parts = set() if self.ledger is None else set(last.parts)
        self.fresh = True
        self.loads += 1


def _as_seen(mark: int, entries: frozenset[int] | set[int]) -> AcknowledgedSet:
    return AcknowledgedSet((LEDGER, mark), {LEDGER: sum(1 << one for one in entries)} if entries else {})
