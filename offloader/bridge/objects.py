"""The V1 objects of bridged ledgers, in the root of the brokers' bucket."""

from __future__ import annotations

from collections.abc import Iterable

from offloader.bridge.core.index_seek import floor_entry
from offloader.errors import DamagedObjectError, ObjectNotFoundError
from offloader.format.reader import read_entries
from offloader.format.v1 import LedgerIndex, decode_ledger_index
from offloader.metadata.bridges import BridgedLedger
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import MIB
from offloader.ports.object_store import ObjectStore

_FIRST_READ = MIB


class BridgedObjects:
    """Those of one bucket. Raises what its store raises."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def faults(self, ledgers: Iterable[BridgedLedger]) -> dict[int, str]:
        """What is missing, or has another size than was built, by ledger. Bytes were compared when they were built;
        what can have happened since is that somebody deleted them."""
        return {one.ledger: fault for one in ledgers if (fault := self._fault(one))}

    def _fault(self, one: BridgedLedger) -> str:
        data = self._store.stat(data_key(one.uuid, one.ledger))
        if data is None:
            return f"the data object of ledger {one.ledger} is not in the bucket any more"
        if data.size != one.size:
            return f"the data object of ledger {one.ledger} has {data.size} bytes, not {one.size}"
        if self._store.stat(index_key(one.uuid, one.ledger)) is None:
            return f"the index of ledger {one.ledger} is not in the bucket any more"
        return ""

    def entry(self, one: BridgedLedger, entry: int) -> bytes:
        """An entry as the object has it. Raises DamagedObjectError where it has not."""
        try:
            index = decode_ledger_index(self._store.read(index_key(one.uuid, one.ledger))[0], one.ledger)
            return self._find(index, one, entry)
        except ObjectNotFoundError as error:
            raise DamagedObjectError(f"ledger {one.ledger}: {error}") from error

    def _find(self, index: LedgerIndex, one: BridgedLedger, entry: int) -> bytes:
        begin, end, first = floor_entry(index, entry)
        size = _FIRST_READ
        while True:
            data = self._store.read(data_key(one.uuid, one.ledger), begin, min(size, end - begin))[0]
            try:
                return next(found.data for found in read_entries(data, begin, first) if found.entry == entry)
            except (StopIteration, DamagedObjectError) as error:
                if begin + size >= end:
                    raise DamagedObjectError(f"ledger {one.ledger}: the object has no entry {entry}") from error
            size *= 4  # what was read ends before the entry, or within it
