"""Whether what was rescued is in the bucket, to the last byte."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from crc32c import crc32c

from offloader.errors import DamagedObjectError, ObjectNotFoundError
from offloader.format.index import decode_index
from offloader.format.reader import entries, read_blocks
from offloader.format.strict import account, check_ledger_infos
from offloader.metadata.rescues import RescuedLedger, data_and_index
from offloader.model import Segment
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import naming, read_index

Advance = Callable[[int], None]


def damage_of_rescue(store: ObjectStore, folder: str, record: RescuedLedger, advance: Advance = lambda _: None) -> str:
    """Reads every byte: each part against its checksum, each block and entry against index and record, all entries
    against the sum of those that bookies gave. Returns what is wrong; "": nothing. One object at a time is in memory.
    `advance` hears bytes of entries.

    Raises what the store raises, but for what is not there."""
    digest = sha256()
    try:
        for segment in record.segments:
            for block in read_blocks(sound(store, folder, segment)):
                for found in entries(block):
                    digest.update(len(found.data).to_bytes(4))
                    digest.update(found.data)
            advance(sum(held.size for held in segment.ledgers))
    except (ObjectNotFoundError, DamagedObjectError) as error:
        return str(error)
    return "" if digest.digest() == record.sha256 else "its entries are not those that were read from the ledger"


def sound(store: ObjectStore, folder: str, segment: Segment) -> bytes:
    """A data object of which every byte is accounted for. Raises DamagedObjectError."""
    data_key, index_key = data_and_index(folder, segment.uuid)
    data, _ = store.read(data_key, 0, max(segment.size, 0) + 1)
    with naming(data_key):
        if len(data) != segment.size:
            raise DamagedObjectError(f"it should have {segment.size} bytes")
        view = memoryview(data)
        for part in segment.parts:
            if crc32c(view[part.offset : part.offset + part.size]) != part.crc32c:
                raise DamagedObjectError(f"offset {part.offset}: part {part.number} does not match its checksum")
    index_data, _ = read_index(store, index_key)
    with naming(index_key):
        index = decode_index(index_data)
        check_ledger_infos(index, segment.ledgers, segment.offloaded_at)
    with naming(data_key):
        found = account(data, index, own=True)
        if [each.ids for each in found.ledgers] != [each.ids for each in segment.ledgers]:
            raise DamagedObjectError("it has other entries than its record says")
    return data
