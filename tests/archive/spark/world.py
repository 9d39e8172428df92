"""An archive in a folder or bucket, and the rows that must come out of it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from offloader._proto.pulsar_messages_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata
from offloader.model import KIB, SegmentLayout, TopicName
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.archive.support import Archive
from tests.format.support import Stored, checksummed

CUTS = SegmentLayout(part_size=64 * KIB, block_size=16 * KIB, index_step=8 * KIB)
BEGIN = 1_700_000_000_000


class Row(NamedTuple):
    """What a message's row must say."""

    topic: str
    ledger: int
    entry: int
    batch_index: int | None
    value: bytes | None
    key: bytes | None
    properties: dict[str, str]
    published: int


@dataclass
class TopicMaker:
    """Writes a topic's segments; remembers its entries and rows. Publish times grow by a second an entry."""

    archive: Archive
    random: Random
    entries: list[Stored] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def segment(self, ledger: int, first: int, count: int, **claims: Any) -> None:
        """`count` entries of every shape."""
        made: list[Stored] = []
        for entry in range(first, first + count):
            made.append(self._entry(ledger, entry, BEGIN + 1000 * (len(self.entries) + len(made))))
        self.entries += made
        self.archive.add(made, cuts=CUTS, **claims)

    def _entry(self, ledger: int, entry: int, published: int) -> Stored:
        shape = entry % 5
        if shape == 0:
            data = self._batch(ledger, entry, published, 4)
        elif shape == 4:
            data = self._chunk(ledger, entry, published)
        else:
            data = self._single(
                ledger, entry, published, compressed=shape == 1, tombstone=shape == 2 and entry % 3 == 0
            )
        return Stored(ledger, entry, data)

    def _single(self, ledger: int, entry: int, published: int, *, compressed: bool, tombstone: bool) -> bytes:
        value = self.random.randbytes(700)
        metadata = MessageMetadata(
            producer_name="p", sequence_id=entry, publish_time=published, partition_key=f"key-{entry % 7}"
        )
        metadata.properties.add(key="n", value=str(entry))
        if compressed:
            metadata.compression, metadata.uncompressed_size = CompressionType.ZLIB, len(value)
        if tombstone:
            metadata.null_value = True
        key, properties = f"key-{entry % 7}".encode(), {"n": str(entry)}
        self._row(ledger, entry, None, None if tombstone else value, key, properties, published)
        return checksummed(metadata, b"" if tombstone else zlib.compress(value) if compressed else value)

    def _batch(self, ledger: int, entry: int, published: int, count: int) -> bytes:
        metadata = MessageMetadata(
            producer_name="p", sequence_id=entry, publish_time=published, num_messages_in_batch=count
        )
        payload = b""
        for number in range(count):
            value = self.random.randbytes(300)
            single = SingleMessageMetadata(payload_size=len(value), partition_key=f"b{number}").SerializeToString()
            payload += len(single).to_bytes(4) + single + value
            self._row(ledger, entry, number, value, f"b{number}".encode(), {}, published)
        return checksummed(metadata, payload)

    def _chunk(self, ledger: int, entry: int, published: int) -> bytes:
        """Three chunks make a message: those of entries 4, 9 and 14 of every 15."""
        number, name = entry % 15 // 5, f"{ledger}-{entry // 15}"
        value = Random(name).randbytes(1500)
        metadata = MessageMetadata(
            producer_name="chunker",
            sequence_id=entry // 15,
            publish_time=published,
            uuid=name,
            chunk_id=number,
            num_chunks_from_msg=3,
            total_chunk_msg_size=len(value),
        )
        if number == 2:
            self._row(ledger, entry, None, value, None, {}, published)
        return checksummed(metadata, value[500 * number : 500 * (number + 1)])

    def _row(self, ledger: int, entry: int, index: int | None, *said: Any) -> None:
        self.rows.append(Row(str(self.archive.topic), ledger, entry, index, *said))


@dataclass
class World:
    """An archive below `root`."""

    settings: StoreSettings
    random: Random = field(default_factory=lambda: Random(7))
    topics: dict[str, TopicMaker] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = open_store(self.settings)

    @property
    def root(self) -> str:
        return self.settings.root

    def topic(self, name: str) -> TopicMaker:
        if name not in self.topics:
            archive = Archive(self.store, TopicName.parse(name))
            archive.claim()
            self.topics[name] = TopicMaker(archive, self.random)
        return self.topics[name]

    def rows(self, names: Iterable[str] | None = None) -> list[Row]:
        return sorted((row for name in names or self.topics for row in self.topics[name].rows), key=_order)

    @property
    def stored(self) -> int:
        return sum(segment.size for maker in self.topics.values() for segment in maker.archive.catalog.segments)


def standard(settings: StoreSettings) -> World:
    """Two topics with two and three segments, some 2,000 messages."""
    world = World(settings)
    orders = world.topic("public/default/orders")
    orders.segment(10, 0, 400)
    orders.segment(10, 400, 203, closed={10: 602})
    orders.segment(11, 0, 150)
    users = world.topic("public/default/users")
    users.segment(20, 0, 120)
    users.segment(20, 120, 60)
    return world


def _order(row: Row) -> tuple[Any, ...]:
    return (row.topic, row.ledger, row.entry, -1 if row.batch_index is None else row.batch_index)


def row_of(found: Any) -> Row:
    """A row of Arrow (a dict) or of Spark as the one that was expected."""
    get = found.__getitem__
    return Row(
        get("__topic"),
        get("__ledgerId"),
        get("__entryId"),
        get("__batchIndex"),
        None if get("value") is None else bytes(get("value")),
        None if get("__key") is None else bytes(get("__key")),
        dict(get("__messageProperties") or {}),
        round(get("__publishTime").timestamp() * 1000),
    )


def ordered(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=_order)
