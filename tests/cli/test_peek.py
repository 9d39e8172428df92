"""`topics peek`: one position, to the last field."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader._proto.pulsar_messages_pb2 import CompressionType, MessageMetadata
from offloader.metadata import layout
from offloader.model import MIB, Position, SegmentLayout
from tests.archive.messages.encoder import Producer, Sent, batch, chunked, single
from tests.archive.reading.support import CountingStore
from tests.archive.support import TOPIC, gap, stream
from tests.format.support import Stored, checksummed

START = 1_700_000_000_000
PRODUCER = Producer(publish_time=START, schema_version=b"\0\1")
PEEK = ("topics", "peek", "orders")


@pytest.fixture
def archived(line):
    """A message with everything, a batch of two, one chunk, one with fields that nobody knows, an opaque entry, a gap,
    a loss."""
    unknown = MessageMetadata.FromString(
        MessageMetadata(producer_name="p", publish_time=START).SerializeToString() + b"\xb8\x3f\x05\xc2\x3f\x02hi"
    )
    entries = [
        replace(
            single(PRODUCER, Sent(b"one\ntwo", key=b"k", properties=(("a", "b"),), event_time=START)), broker=(5, 9)
        ).data,
        batch(
            Producer(publish_time=START, compression=CompressionType.ZSTD), [Sent(b"x" * 100, key=b"k"), Sent(None)]
        ).data,
        chunked(PRODUCER, Sent(b"<chunked>"), 2, "u")[0].data,
        checksummed(unknown, b"data"),
        b"opaque",
    ]
    line.archive.claim(1, 0)
    line.archive.add([Stored(1, n, data) for n, data in enumerate(entries)], [gap(1, 5, 6)])
    line.archive.lose(Position(0, 1, 7), Position(0, 1, 8))
    return line


def test_a_message_is_shown_to_the_last_field(archived) -> None:
    found = archived.json(*PEEK, "1:0")
    segment = archived.archive.catalog.segments[0]
    assert (found["position"], found["incarnation"], found["segment"]["uuid"]) == ("1:0", 0, segment.uuid)
    held = found["object"]
    assert (held["key"], held["offset"], held["block"]["number"]) == (layout.data_key(TOPIC, segment.uuid), 140, 1)
    crc = f"{segment.parts[0].crc32c:08x}"
    assert held["part"] == {"number": 1, "offset": 0, "size": segment.size, "crc32c": crc, "unreadable": 1}
    entry = found["entry"]
    assert entry["brokerEntryMetadata"] == {"broker_timestamp": 5, "index": 9}
    assert entry["checksum"]["ok"]
    assert entry["checksum"]["stored"] == entry["checksum"]["computed"]
    assert entry["messageMetadata"] == {
        "producer_name": "p", "sequence_id": 0, "publish_time": START, "properties": [{"key": "a", "value": "b"}],
        "partition_key": "k", "uncompressed_size": 7, "event_time": START, "schema_version": "0001",
    }  # fmt: skip
    assert entry["payload"] == {"offset": entry["size"] - 7, "size": 7, "preview": "one\\ntwo"}


def test_text_has_the_same_a_line_each(archived) -> None:
    lines = archived.ok(*PEEK, "1:0").splitlines()
    assert lines[:2] == ["position: 1:0", "incarnation: 0"]
    for line in ("    publish_time: 1700000000000 "
        "(2023-11-14T22:13:20.000Z)", "    properties:", "      - key: a", "        value: b",
                 "    ok: yes", "    preview: one\\ntwo", "    number: 1", "  offset: 140"):  # fmt: skip
        assert line in lines


def test_each_message_of_a_batch_is_shown(archived) -> None:
    entry = archived.json(*PEEK, "1:1")["entry"]
    assert entry["messageMetadata"]["num_messages_in_batch"] == 2
    first, second = entry["messages"]
    assert first == {
        "batchIndex": 0,
        "metadata": {"partition_key": "k", "payload_size": 100, "sequence_id": 0},
        "preview": "x" * 64 + "…",
    }
    assert (second["metadata"]["null_value"], second["preview"]) == (True, "")
    assert "    compression: 3 (ZSTD)" in archived.ok(*PEEK, "1:1").splitlines()


def test_a_chunk_is_shown_as_it_is(archived) -> None:
    payload = archived.json(*PEEK, "1:2")["entry"]["payload"]
    assert (payload["note"], payload["preview"]) == ("chunk 1 of 2", "<chu")


def test_fields_that_are_unknown_are_shown_by_their_numbers(archived) -> None:
    metadata = archived.json(*PEEK, "1:3")["entry"]["messageMetadata"]
    assert metadata["unknownFields"] == [
        {"number": 1015, "wireType": 0, "value": 5},
        {"number": 1016, "wireType": 2, "value": b"hi".hex()},
    ]


def test_an_entry_that_is_no_message_is_a_finding(archived) -> None:
    result = archived.run(*PEEK, "1:4")
    assert result.exit_code == 2
    assert "  problem: it ends inside its message metadata" in result.stdout


def test_a_wrong_crc_is_shown_and_is_a_finding(line) -> None:
    line.archive.claim(1, 0)
    line.archive.add([Stored(1, 0, stream(1, 0, 0)[0].data)])
    segment = line.archive.catalog.segments[0]
    key = layout.data_key(TOPIC, segment.uuid)
    stored, stat = line.archive.store.read(key)
    damaged = bytearray(stored)
    damaged[200] ^= 1
    line.archive.store.put(key, bytes(damaged), meta=stat.meta)
    result = line.run(*PEEK, "1:0", "--output", "json")
    assert result.exit_code == 2
    assert "    ok: NO" in line.run(*PEEK, "1:0").stdout.splitlines()


def test_what_is_recorded_of_gaps_and_losses(archived) -> None:
    store = CountingStore(archived.archive.store)
    assert archived.json(*PEEK, "1:6")["gap"] == {"kind": "aborted", "ledger": 1, "first": 5, "last": 6}
    lost = archived.json(*PEEK, "1:7")
    assert lost["loss"] == {
        "start": "1:7",
        "end": "1:8",
        "reason": "trimmed",
        "acceptedBy": "accept-loss",
        "at": "1970-01-01T00:00:00.002Z",
    }
    assert lost["missing"] == "lost: trimmed (accepted by accept-loss)"
    assert all("_catalog" in key for key, _ in store.reads)


def test_it_takes_two_requests(line) -> None:
    line.archive.claim(1, 0)
    found = stream(1, 0, 3_000, size=1_000)
    line.archive.add(found, cuts=SegmentLayout(part_size=2 * MIB, block_size=MIB, index_step=MIB // 8))
    store = CountingStore(line.archive.store)
    for entry in (0, 700, 1_500, 3_000):
        store.reads.clear()
        assert line.json(*PEEK, f"1:{entry}")["entry"]["payload"]["preview"].startswith(f"1:{entry} x")
        reads = [(key, size) for key, size in store.reads if "_catalog" not in key]
        assert len(reads) == 2
        assert sum(size for _, size in reads) <= 1.2 * MIB


def test_a_position_outside_the_archive_is_one_line(archived) -> None:
    assert (
        archived.error(*PEEK, "1:9")
        == "persistent://public/default/orders: 1:9 is not in the archive, which has 1:0..1:8"
    )
    assert archived.error(*PEEK, "1:-1").endswith("1:-1 is not in the archive, which has 1:0..1:8")


def test_damage_names_object_and_offset(archived) -> None:
    key = layout.data_key(TOPIC, archived.archive.catalog.segments[0].uuid)
    data, stat = archived.archive.store.read(key)
    archived.archive.store.put(key, b"x" + data[1:], meta=stat.meta)
    assert archived.error(*PEEK, "1:0").startswith(f"{key}: offset 0: ")
    archived.archive.store.put(key, data[:150], meta=stat.meta)
    assert archived.error(*PEEK, "1:0").startswith(f"{key}: offset ")
    archived.archive.store.delete([key])
    assert key in archived.error(*PEEK, "1:0")
