"""Buckets as Pulsar's own offloader fills them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from offloader._proto.managed_ledger_pb2 import LedgerMetadataFormat
from offloader.format.blocks import read_blocks
from offloader.format.index import IndexEntry
from offloader.format.v1 import LedgerIndex
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore
from offloader.state.names import managed_ledger_name
from tests.archive.support import TOPIC, message, uuid_of
from tests.format.stock import encode_ledger_index, write_blocks

BLOCK_SIZE = 1000
UUID, OTHER_UUID = uuid_of(1), uuid_of(2)


def messages(ledger: int, count: int, size: int = 60) -> list[bytes]:
    return [message(f"{ledger}:{entry} ".ljust(size, "x")) for entry in range(count)]


def any_entries() -> st.SearchStrategy[list[bytes]]:
    return st.lists(st.binary(max_size=300), min_size=1, max_size=30)


def metadata(entries: Sequence[bytes], topic: TopicName | None) -> LedgerMetadataFormat:
    """BookKeeper's record of a closed ledger."""
    said = LedgerMetadataFormat(
        quorumSize=1,
        ensembleSize=1,
        length=sum(map(len, entries)),
        lastEntryId=len(entries) - 1,
        state=LedgerMetadataFormat.CLOSED,
        digestType=LedgerMetadataFormat.CRC32C,
    )
    if topic is not None:
        said.customMetadata.add(key="pulsar/managed-ledger", value=managed_ledger_name(topic).encode())
    return said


def objects(
    ledger: int, entries: Sequence[bytes], topic: TopicName | None = TOPIC, block_size: int = BLOCK_SIZE
) -> tuple[bytes, bytes]:
    """The data and the index object."""
    data = b"".join(write_blocks(entries, block_size))
    found = tuple(IndexEntry(ledger, b.header.first_entry, n, b.offset) for n, b in enumerate(read_blocks(data), 1))
    index = LedgerIndex(len(data), metadata(entries, topic).SerializeToString(), found)
    return data, encode_ledger_index(index)


def user_metadata(topic: TopicName, role: str, cluster: str = "east") -> dict[str, str]:
    return {
        "s3managedledgeroffloaderformatversion": "1",
        "managedledgername": managed_ledger_name(topic),
        "pulsarclustername": cluster,
        "role": role,
    }


def put_ledger(
    store: ObjectStore,
    ledger: int,
    entries: Sequence[bytes],
    uuid: str = UUID,
    topic: TopicName = TOPIC,
    *,
    block_size: int = BLOCK_SIZE,
    cluster: str = "east",
) -> None:
    """What the offload of a ledger leaves in the bucket."""
    data, index = objects(ledger, entries, topic, block_size)
    store.put(data_key(uuid, ledger), data, meta=user_metadata(topic, "data", cluster))
    store.put(index_key(uuid, ledger), index, meta=user_metadata(topic, "index", cluster))


def flip(store: ObjectStore, key: str, at: int, mask: int = 1) -> None:
    """Change bits of one byte of an object."""
    data, stat = store.read(key)
    changed = bytearray(data)
    changed[at] ^= mask
    store.put(key, bytes(changed), meta=stat.meta)
