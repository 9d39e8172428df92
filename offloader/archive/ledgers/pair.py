"""A ledger's two objects against each other: quickly (there, of the right size, a readable index), or byte for byte."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from crc32c import crc32c

from offloader.archive.findings import Finding, FindingKind, offset_in
from offloader.archive.snapshot import LAST_ENTRY, OffloadedLedger, Unreadable
from offloader.errors import DamagedObjectError, ObjectArchivedError, ObjectNotFoundError
from offloader.format.ledger_account import LedgerAccount, account_ledger
from offloader.format.v1 import LedgerIndex, decode_ledger_index
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import Position, TopicName
from offloader.ports.object_store import ObjectStore
from offloader.state.names import managed_ledger_name, managed_ledger_of
from offloader.storage.bounded_reads import read_index, read_ranges


def owner_of(index: LedgerIndex) -> str:
    """The managed ledger's name, from the index's copy of BookKeeper's record; "" where that does not say it."""
    return managed_ledger_of({one.key: one.value for one in index.ledger_metadata.customMetadata})


class Summed:
    """Bytes on their way to somebody else; then `crc32c` is the sum of all that went."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.crc32c = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.crc32c = crc32c(chunk, self.crc32c)
            yield chunk


@dataclass
class LedgerPair:
    """One ledger's pair of objects. Each check adds to `findings`; what the store raises is raised."""

    store: ObjectStore
    topic: TopicName | None
    uuid: str
    ledger: int
    index: LedgerIndex | None = None
    account: LedgerAccount | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def data_key(self) -> str:
        return data_key(self.uuid, self.ledger)

    @property
    def index_key(self) -> str:
        return index_key(self.uuid, self.ledger)

    @property
    def sound(self) -> bool:
        """Whether what was checked can be read; metadata that only stock readers need does not matter."""
        return self.index is not None and all(finding.kind is FindingKind.WRONG_METADATA for finding in self.findings)

    def read_index(self) -> None:
        """Whether the index can be read, and is of a closed ledger that is not empty."""
        try:
            self.index = decode_ledger_index(read_index(self.store, self.index_key)[0], self.ledger)
        except ObjectNotFoundError:
            message = (
                f"ledger {self.ledger} has no index object: it was never completed, is being written, or its index "
                "was deleted"
            )
            self.add(FindingKind.MISSING_INDEX, self.index_key, message)
        except DamagedObjectError as error:
            self.add(FindingKind.DAMAGED_INDEX, self.index_key, str(error))
        else:
            self._check_metadata(self.index)

    def check_size(self, size: int | None) -> None:
        """Whether the data object is there (`size` None: it is not) and as long as the index says."""
        if size is None:
            self.add(FindingKind.MISSING_OBJECT, self.data_key, f"ledger {self.ledger} has no data object")
        elif self.index is not None and size != self.index.data_length:
            self.add(
                FindingKind.WRONG_SIZE, self.data_key, f"it has {size} bytes, its index says {self.index.data_length}"
            )

    def check_contents(self, recorded: int | None = None) -> None:
        """Every byte, in one pass; only where nothing was found before. `recorded`: the sum of the whole data object,
        where that is known."""
        if self.index is None or not self.sound:
            return
        length = self.index.data_length
        try:
            summed = Summed(read_ranges(self.store, self.data_key, 0, length))
            account = account_ledger(summed, self.ledger, self.index)
        except DamagedObjectError as error:
            self.add(FindingKind.UNACCOUNTED_BYTES, self.data_key, str(error))
            return
        self.account = account
        for entry, offset in account.damaged:
            message = f"offset {offset}: the checksum of {self.ledger}:{entry} does not match its bytes"
            self.add(FindingKind.DAMAGED_ENTRY, self.data_key, message, Position(0, self.ledger, entry))
        if recorded is not None and self.sound and summed.crc32c != recorded:
            message = f"its CRC32C is {summed.crc32c:08x}, and was {recorded:08x} when it was built"
            self.add(FindingKind.DAMAGED_PART, self.data_key, message)
        said = self.index.ledger_metadata
        if (account.entries, account.payload) != (said.lastEntryId + 1, said.length):
            self._wrong_entries(
                account.entries, account.payload, said.lastEntryId + 1, said.length, "the ledger's metadata says"
            )

    def check_record(self, listed: OffloadedLedger) -> None:
        """Whether the index speaks of the ledger that Pulsar's record lists."""
        if self.index is None:
            return
        said = self.index.ledger_metadata
        if (said.lastEntryId, said.length) != (listed.end.entry, listed.size):
            self._wrong_entries(
                said.lastEntryId + 1, said.length, listed.end.entry + 1, listed.size, "Pulsar's record says"
            )

    @property
    def completed(self) -> bool:
        """Whether its index object is there, which is written last."""
        return not self._has(FindingKind.MISSING_INDEX)

    @property
    def extent_known(self) -> bool:
        """Whether its index says what its data object must hold: readers find by themselves what else is wrong."""
        return self.index is not None and not self._has(FindingKind.DAMAGED_INDEX)

    def offloaded(self, store_url: str) -> OffloadedLedger:
        """What readers need of it."""
        assert self.index is not None
        said = self.index.ledger_metadata
        end = Position(0, self.ledger, said.lastEntryId)
        return OffloadedLedger(Position(0, self.ledger, 0), end, self.uuid, said.length, store_url)

    def unreadable(self, store_url: str, *, damaged: bool) -> OffloadedLedger:
        """What readers tell of it where its extent is not known. `damaged`: see Unreadable."""
        worst = next(
            (f for f in reversed(self.findings) if f.kind in (FindingKind.MISSING_INDEX, FindingKind.DAMAGED_INDEX)),
            None,
        )
        key, why = (self.index_key, "nothing says whose ledger it is") if worst is None else (worst.key, worst.message)
        start, end = Position(0, self.ledger, 0), Position(0, self.ledger, LAST_ENTRY)
        return OffloadedLedger(start, end, self.uuid, 0, store_url, Unreadable(key, why, damaged))

    def add(self, kind: FindingKind, key: str, message: str, position: Position | None = None) -> None:
        at = position or Position(0, self.ledger, 0)
        self.findings.append(Finding(kind, key, message, self.topic, offset_in(message), at))

    @contextmanager
    def archived_is_finding(self, key: str) -> Iterator[None]:
        """Where the store keeps the object in an archive tier, this is a finding of it, and not raised."""
        try:
            yield
        except ObjectArchivedError as error:
            self.add(FindingKind.ARCHIVED_OBJECT, key, str(error))

    def _has(self, kind: FindingKind) -> bool:
        return any(finding.kind is kind for finding in self.findings)

    def _check_metadata(self, index: LedgerIndex) -> None:
        said, owner = index.ledger_metadata, owner_of(index)
        if said.state != said.CLOSED or not said.HasField("lastEntryId"):
            self.add(FindingKind.DAMAGED_INDEX, self.index_key, "its ledger was not closed when it was copied")
        elif not index.entries[-1].entry <= said.lastEntryId:
            message = f"it names entry {index.entries[-1].entry} of a ledger that was closed with {said.lastEntryId}"
            self.add(FindingKind.DAMAGED_INDEX, self.index_key, message)
        if owner and self.topic is not None and owner != managed_ledger_name(self.topic):
            self.add(FindingKind.DAMAGED_INDEX, self.index_key, f"it is of a ledger of {owner}")

    def _wrong_entries(self, entries: int, payload: int, expected: int, size: int, who: str) -> None:
        message = f"it has {entries} entries of {payload} bytes, {who} {expected} of {size}"
        self.add(FindingKind.WRONG_ENTRIES, self.data_key, message)
