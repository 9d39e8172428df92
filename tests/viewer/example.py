"""An archive to look at: a topic with everything that a page can show, one with a loss and deletions, partitions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from struct import pack

from offloader.cursors.facts import TopicFacts
from offloader.metadata import layout
from offloader.metadata.catalog_codec import encode_catalog
from offloader.metadata.deletions import Deleted, Deleting, DeletionBegun, DeletionReason, SegmentRange, buried
from offloader.model import Gap, GapKind, Position, Segment, TopicName
from offloader.ports.admin import TopicSchema
from offloader.ports.object_store import ObjectStore
from tests.archive.messages.encoder import Encoded, Producer, Sent, batch, chunked, marker, single
from tests.archive.support import Archive, gap
from tests.fakes.topic_facts import write_facts
from tests.format.support import Stored

ORDERS = TopicName.parse("persistent://shop/orders/created")
KINDS = TopicName.parse("persistent://shop/orders/every-kind")
SHIPPED = [TopicName.parse(f"persistent://shop/orders/shipped-partition-{number}") for number in range(3)]
HOUR = 3_600_000
BEGIN = 1_795_219_200_000  # 2026-11-21T00:00:00Z
SCRIPT = "<script>document.title = 'owned'; alert(1)</script><img src=x onerror=alert(2)>"
BIDI = "safe\u202egpj.exe\x1b[2J\x00"
AVRO = json.dumps({
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "paid", "type": "boolean"},
    ],
})  # fmt: skip


def avro_order(number: int, customer: str, *, paid: bool) -> bytes:
    """As Avro writes the record."""
    name = customer.encode()
    return _long(number) + _long(len(name)) + name + bytes([paid])


def _long(value: int) -> bytes:
    rest, found = value << 1, bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def write(store: ObjectStore) -> None:
    """All of it."""
    _orders(store)
    _every_kind(store)
    for topic in SHIPPED:
        archive = Archive(store, topic)
        archive.claim(70, 0)
        _add(archive, 70, 0, [_order(number, BEGIN + number * HOUR) for number in range(40)])


def _orders(store: ObjectStore) -> None:
    """Three days: two deleted segments, some with gaps, a loss, and more."""
    archive, random = Archive(store, ORDERS), Random(7)
    archive.claim(12, 0)
    at, entry, segments = BEGIN, 0, []
    for number in range(26):
        hours = random.choice((1, 1, 2, 3))
        if number == 17:
            archive.lose(Position(0, 12, entry), Position(0, 12, entry + 4999))
            entry, at = entry + 5000, at + 5 * HOUR
            continue
        step = hours * HOUR // 60
        entries = [_order(entry + n, at + n * step) for n in range(60)]
        gaps = [gap(12, entry + 60, entry + 63, GapKind.ABORTED)] if number in (8, 9, 21) else []
        segments.append(_add(archive, 12, entry, entries, gaps))
        entry, at = entry + 60 + 4 * len(gaps), at + hours * HOUR
    _delete(archive, segments[:3])


def _delete(archive: Archive, segments: Sequence[Segment]) -> None:
    span = SegmentRange(
        segments[0].start,
        segments[-1].end,
        len(segments),
        sum(each.entries for each in segments),
        sum(each.size for each in segments),
    )
    catalogs, policy = archive.catalogs, "the policy keepFor 60 d"
    head = catalogs.head(archive.topic)
    head = catalogs.append(head, Deleting(0, (span,), DeletionReason.TIME, policy, "retention", BEGIN, BEGIN + HOUR))
    head = catalogs.append(head, DeletionBegun(0, "app", BEGIN + HOUR))
    for each in segments:
        keys = [layout.data_key(archive.topic, each.uuid), layout.index_key(archive.topic, each.uuid)]
        archive.store.delete(keys)
        stone = encode_catalog(each.uuid, buried(each, DeletionReason.TIME, policy, BEGIN))
        archive.store.put(layout.record_key(archive.topic, each.uuid), stone)
    catalogs.append(head, Deleted(0, (span,), DeletionReason.TIME, policy, "retention", BEGIN))


def _every_kind(store: ObjectStore) -> None:
    """An entry of each kind, from 30:0 on; `KIND_AT` says which is where."""
    archive = Archive(store, KINDS)
    archive.claim(30, 0)
    entries = list(every_kind())
    _add(archive, 30, 0, entries, [gap(30, len(entries), len(entries) + 1, GapKind.MARKER)])
    archive.lose(Position(0, 30, len(entries) + 2), Position(0, 30, len(entries) + 9))
    schemas = (TopicSchema(0, "AVRO", AVRO.encode(), BEGIN),)
    write_facts(store, TopicFacts(KINDS, BEGIN, schemas=schemas))


KIND_NAMES = (
    *("json", "script", "bidi", "avro", "bad-avro", "unknown-schema", "batch", "null", "binary"),
    *("chunk-1", "chunk-2", "marker", "encrypted", "broken"),
)
KIND_AT = {name: number for number, name in enumerate(KIND_NAMES)}


def every_kind() -> list[bytes]:
    """In the order of `KIND_AT`."""
    at, version = Producer("orders-1", BEGIN), pack(">q", 0)
    avro = Producer("orders-1", BEGIN, schema_version=version)
    hostile = Sent(SCRIPT.encode(), key=SCRIPT.encode(), properties=((SCRIPT, SCRIPT),))
    hidden = Sent(BIDI.encode(), key=BIDI.encode(), properties=((BIDI, BIDI),))
    closed = single(at, Sent(b"secret"))
    closed.metadata.encryption_keys.add(key="customer-data", value=b"wrapped")
    closed.metadata.encryption_param = b"0" * 12
    web = Sent(b'{"order": 7, "items": ["apple", "pear"]}', key=b"alice", properties=(("source", "web"),))
    first, last = chunked(at, Sent(b"a value in two chunks " * 20), 2, "uuid")
    return [
        encoded.data if isinstance(encoded, Encoded) else encoded
        for encoded in (
            single(at, web),
            single(Producer(SCRIPT, BEGIN), hostile),
            single(at, hidden),
            single(avro, Sent(avro_order(77, "Zo\u00eb", paid=True))),
            single(avro, Sent(b"\xff\xff\xff")),
            single(Producer("p", BEGIN, schema_version=pack(">q", 9)), Sent(b"text")),
            batch(at, [Sent(f"number {n}".encode(), key=f"key-{n}".encode()) for n in range(5)]),
            single(at, Sent(None, key=b"gone")),
            single(at, Sent(bytes(range(256)) * 40)),
            first,
            last,
            marker(),
            closed,
            b"\x0e\x01 this is no entry",
        )
    ]


def _order(number: int, time: int) -> bytes:
    value = json.dumps({"order": number, "customer": f"customer-{number % 17}", "total": number % 90 + 0.5})
    return single(Producer("orders-1", time), Sent(value.encode(), key=f"customer-{number % 17}".encode())).data


def _add(archive: Archive, ledger: int, first: int, entries: list[bytes], gaps: list[Gap] | None = None) -> Segment:
    return archive.add([Stored(ledger, first + number, data) for number, data in enumerate(entries)], gaps)
