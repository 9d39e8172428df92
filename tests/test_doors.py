"""Whatever lies in the bucket, and whatever a server answers, is damage at worst: an error of the tree, never any other
exception.

A door takes bytes of others and does with them what the product does.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random
from typing import Any

import httpx
import pytest
from crc32c import crc32c
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offloader._proto import metadata_pb2 as pb
from offloader._proto.managed_ledger_pb2 import ManagedCursorInfo, PositionInfo, SchemaLocator
from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader._proto.pulsar_wire_pb2 import BaseCommand
from offloader.archive.archive import rescued_ledger
from offloader.archive.items import Missing
from offloader.archive.messages.columns import entry_batches, message_batches
from offloader.archive.messages.payloads import UnpackOptions
from offloader.archive.messages.unpack import Unpacker
from offloader.archive.peek.entry import take_apart
from offloader.archive.reading.plan import plan
from offloader.archive.reading.reader import OnDamage, PlannedReader, ReadOptions
from offloader.archive.reading.sparse_index import decode_sparse_index
from offloader.archive.reading.stores import Stores
from offloader.archive.records import TopicRecords
from offloader.archive.snapshot import TopicSnapshot
from offloader.archive.topic import ArchivedTopic as Archived
from offloader.bookkeeper.api import BookieAddress
from offloader.bookkeeper.layout import Layout, decode_layout, encode_layout
from offloader.bookkeeper.metadata import decode_address, encode_address
from offloader.bookkeeper.metadata_codec import decode_metadata
from offloader.bookkeeper.model import DigestType
from offloader.bookkeeper.requests import BatchRead, EntryRead, ListEntries, ReadLac, Request
from offloader.bookkeeper.v2 import V2
from offloader.bookkeeper.v3 import V3
from offloader.cli.orphans.deletion_parts import shown as ledger_shown
from offloader.cli.orphans.rescued import rescue_fields
from offloader.cursors.facts import TopicFacts
from offloader.errors import OffloadError
from offloader.format.blocks import Chunks, entries, read_blocks
from offloader.format.cutter import PartCutter
from offloader.format.entry import inspect
from offloader.format.index import decode_index
from offloader.format.v1 import decode_ledger_index
from offloader.format.v1_parts import examine
from offloader.lifecycle.deletion.machine import FailedLook, UnreferencedLedger, rule, turn
from offloader.lifecycle.deletion.records import (
    DELETION,
    SWITCH,
    DeletionSwitch,
    LedgerComponent,
    LedgerType,
)
from offloader.lifecycle.deletion.system_topic.marks import OwnMark
from offloader.lifecycle.deletion.system_topic.messages import (
    AVRO_SCHEMA,
    PendingDeleteMessage,
    WrittenSchema,
    read_message,
    write_message,
)
from offloader.lifecycle.deletion.system_topic.topics import SystemTopics
from offloader.lifecycle.deletion.timing import DeletionTiming
from offloader.lifecycle.explaining.bookie_facts import bookie_facts
from offloader.lifecycle.explaining.bookies import explain_bookie
from offloader.lifecycle.ledgers.kinds import purpose_of
from offloader.lifecycle.rescue.objects import damage_of_rescue
from offloader.lifecycle.topics.broker_retention import (
    BrokerRetention,
    RetentionLevel,
    default_retention,
    read_retention,
)
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.cursors.saved import SavedCursor
from offloader.lifecycle.topics.unloaded import look_at
from offloader.lifecycle.topics.visit_plan import check_version
from offloader.metadata import layout, requests
from offloader.metadata.catalog_codec import plain
from offloader.metadata.deal import Deal
from offloader.metadata.envelope import unwrap
from offloader.metadata.heartbeats import Heartbeats
from offloader.metadata.journal_start import JournalStart
from offloader.metadata.message_codec import parts_message, read_parts
from offloader.metadata.root import read_root
from offloader.model import GIB, AcknowledgedRange, EntryRange, PartlyAcknowledged, SegmentLayout
from offloader.offload.fleet import Fleet
from offloader.offload.worker.offloaded_source import stored_entries
from offloader.ports.admin import TopicSchema
from offloader.ports.subscriptions import SubscriptionLook
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.auth import Authentication
from offloader.pulsar.broker_source import explain
from offloader.pulsar.frames import FrameBuffer, encode
from offloader.pulsar.lookup import one_host
from offloader.pulsar.rest import RestClient
from offloader.pulsar.server_errors import server_error
from offloader.pulsar.session import BrokerSession
from offloader.pulsar.settings import PulsarSettings
from offloader.state.managed_ledger import ListedLedger, ManagedLedger
from offloader.state.managed_ledger_codec import decode_managed_ledger
from offloader.state.names import OWNER
from offloader.state.subscription import CursorState
from offloader.state.subscription_codec import (
    decode_cursor_entry,
    decode_cursor_node,
    encode_cursor_entry,
    encode_cursor_node,
)
from offloader.state.topic import PulsarTopic
from offloader.storage.local import LocalStore
from offloader.storage.memory import MemoryStore
from offloader.viewer.schemas import views_of
from tests.archive.messages.encoder import TOPIC as OF_MESSAGES
from tests.archive.messages.encoder import Producer, Sent, batch, run_of
from tests.archive.mutations import KINDS, bucket, findings
from tests.archive.support import APPLICATION, TOPIC, Archive
from tests.bloated import HARMLESS, PLACES, BloatedStore, told
from tests.bookkeeper import test_v2, test_v3
from tests.bookkeeper.damage import damaged
from tests.bookkeeper.test_metadata_codec import message as ledger_message
from tests.fakes.ledger_metadata import Compression, encode_managed_ledger, envelope
from tests.fakes.topic_facts import write_facts
from tests.format.support import v1_tiny_blocks
from tests.in_turn import in_turn
from tests.lifecycle.deletion.support import candidate
from tests.lifecycle.deletion.support import candidate as marked_ledger
from tests.lifecycle.ledgers.read_nodes import read_cursor, read_last_entry, read_locator
from tests.lifecycle.rescue.support import KEPT, KeptCluster
from tests.lifecycle.rescue.support import Archive as RescueArchive
from tests.lifecycle.rescue.support import messages as kept_messages
from tests.viewer.example import AVRO
from tests.viewer.support import look_at_pages

HEAD = struct.Struct(">4sI")

STANDING = struct.Struct(">4sII")

WORKER = "ledger-deletion-worker"
CONFIGURATION = "/api/v1/config/server_config"
DETAILS = "/api/v1/bookie/gc_details"
FILES = "/api/v1/bookie/list_disk_file?file_type=entrylog"
FORCED = "/api/v1/bookie/gc"
SPACE = "/api/v1/bookie/info"
STATE = "/api/v1/bookie/state"
SUSPENDED = "/api/v1/bookie/gc/suspend_compaction"
HEAD_MAGIC = b"PSOH"
FORMAT_VERSION = 2
MAGIC = b"PSOM"

BUCKET = bucket()
DEEP = 100_000
Door = Callable[[bytes], object]

NOTHING_TOO_DEEP = [
    HEAD_MAGIC,
    b"[" * DEEP,
    b'{"version":1,"kind":' + b"[" * DEEP,
    b'{"a":' * DEEP,
    b'"\\ud800"',
    b"Infinity",
    b"1" * 5000,
]


@pytest.fixture(autouse=True, scope="module")
def no_threads() -> Iterator[None]:
    with in_turn("metadata.catalog", "operations.verify.verify"):
        yield


def of_bucket(key: str) -> Door:
    """Everything that reads a bucket, with these bytes under a key."""

    def door(data: bytes) -> None:
        store = BUCKET.store(**{key: data})
        with suppress(OffloadError):
            findings(store)
        for on_damage in OnDamage:
            with suppress(OffloadError):
                view = TopicSnapshot.of(Archive(store, TOPIC).catalog)
                options = ReadOptions(on_damage=on_damage, prefetch=0)
                for item in PlannedReader(Stores.of(store), options).read(plan(view)):
                    if not isinstance(item, Missing):
                        list(Unpacker(UnpackOptions(keep_damaged=True)).messages(item))
        with suppress(OffloadError):
            read_root(store)
        with suppress(OffloadError):
            start = JournalStart(store, APPLICATION)
            start.decode(start.load())
        with suppress(OffloadError):
            numbers = count()
            JournalStart(store, APPLICATION).new_epoch(lambda: f"fuzz-{next(numbers)}")

    return door


def pages_of(key: str) -> Door:
    """Whoever looks at the archive in a browser, with these bytes under a key."""

    def door(data: bytes) -> None:
        look_at_pages(BUCKET.store(**{key: data}), TOPIC, ("3:5", "5:4", "7:0", "8:3"))

    return door


def resealed(key: str) -> Door:
    """The door to what is in a record, with a checksum that is right; in a catalog's log it stands behind its head."""
    head, record = _apart(BUCKET.objects[key])
    token = unwrap(key, record).token

    def sealed(body: bytes) -> object:
        record = pb.Record(format_version=FORMAT_VERSION, token=token, body=body).SerializeToString()
        return of_bucket(key)(head + HEAD.pack(MAGIC, crc32c(record)) + record)

    return sealed


def headed(key: str) -> Door:
    """The door to the head of a record of a catalog's log, with a checksum that is right."""
    _, record = _apart(BUCKET.objects[key])

    def standing(head: bytes) -> object:
        return of_bucket(key)(STANDING.pack(HEAD_MAGIC, crc32c(head), len(head)) + head + record)

    return standing


def _apart(data: bytes) -> tuple[bytes, bytes]:
    record = plain(data)
    return data[: len(data) - len(record)], record


def _body(data: bytes) -> bytes:
    return unwrap("key", plain(data)).body.SerializeToString()


def _head(data: bytes) -> bytes:
    head, _ = _apart(data)
    return head[STANDING.size :]


PACKED: dict[str, type[Message]] = {"topics": pb.Topic}
NUMBERS = (0, 1, -1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, -(2**63), 2**64 - 1)


def wild(message: Message, random: Random) -> None:
    """Give some fields, however deep, values that nobody has thought of; repeat some, leave some out."""
    for field, value in message.ListFields():
        if random.random() < 0.1:
            message.ClearField(field.name)
        elif field.is_repeated:
            if random.random() < 0.2:
                value.extend([value[0], value[-1]])
            if random.random() < 0.2:
                value.pop(random.randrange(len(value)))
            for number, one in enumerate(value):
                if isinstance(one, Message):
                    wild(one, random)
                elif field.name in PACKED:
                    inner = PACKED[field.name].FromString(one)
                    wild(inner, random)
                    value[number] = inner.SerializeToString()
        elif isinstance(value, Message):
            wild(value, random)
        elif random.random() < 0.3:
            with suppress(ValueError, TypeError, OverflowError):  # not of this field's type
                setattr(message, field.name, random.choice((*NUMBERS, "", "\x1b[2J", "a/b", "../x", b"", b"\xff" * 9)))


def wild_body(body: bytes, seed: int) -> bytes:
    message = pb.Body.FromString(body)
    wild(message, Random(seed))
    return message.SerializeToString()


def a_request(data: bytes) -> None:
    """What the application does each second, and what it does with what it finds."""
    store = MemoryStore()
    folder = layout.requests_folder("app")
    store.put(folder + "1", data)
    for _, request in requests.pending(store, "app", 5):
        assert request.position is None or pb.Position(ledger=request.position.ledger, entry=request.position.entry)
        assert pb.TopicId(tenant=request.topic.tenant, namespace=request.topic.namespace_part, name=request.topic.name)
        requests.mark_done(store, "app", "1", requests.RequestOutcome(True, f"{request}", 5))
    assert requests.pending(store, "app", 5) == []


def a_sign_of_life(data: bytes) -> None:
    """What a process does with those of other shards, and `offloader shards`."""
    store = MemoryStore()
    store.put(layout.shard_key("app", 1), data)
    fleet = Fleet(Heartbeats(store, "app"), Deal("app", 0, 2), 1_000, lambda: 1, "run")
    assert fleet.may_return()
    fleet.joins(0, lambda: 1)
    assert fleet.look() == []
    fleet.agrees("app~1")
    for index, found in Heartbeats(store, "app").all().items():
        assert found.heartbeat is None or found.heartbeat.index == index


def an_outcome(data: bytes) -> None:
    store = MemoryStore()
    store.put(layout.requests_folder("app") + "1.done", data)
    requests.remove_old(store, "app", 10**15)
    requests.outcome_of(store, "app", "1")


def an_entry(data: bytes) -> None:
    """From a source to a part's record, and back to messages."""
    cutter = PartCutter(SegmentLayout(), first_part=1, offset=0, first_block=1, room=GIB)
    cutter.offer(1, 0, data, inspect(data))
    cut = cutter.finish()
    assert cut is not None
    part = cut.to_part("0" * 32, 0)
    assert read_parts(parts_message([part]))[0].stats == part.stats
    take_apart(data)
    run = run_of([data])
    assert sum(found.num_rows for found in entry_batches([run], OF_MESSAGES)) == 1
    options = UnpackOptions(keep_damaged=True)
    assert len(list(Unpacker(options).messages(run))) == sum(
        b.num_rows for b in message_batches([run], OF_MESSAGES, options=options)
    )


def a_message(data: bytes) -> None:
    """What others send to the system topic is read, written again, and compared with a ledger."""
    message = read_message(data)
    assert read_message(write_message(message)).ledger_id == message.ledger_id
    message.differs_from(candidate(7))
    OwnMark(b"secret").is_on_message(data, {})


def of_system_topics(data: bytes) -> None:
    """An answer of the admin port about them, sound or with an error's status."""
    for status in (200, 404, 409, 500):
        transport = httpx.MockTransport(lambda _, s=status: httpx.Response(s, content=data))
        topics = SystemTopics(RestClient(PulsarSettings(), transport=transport), 2)
        asked: list[Callable[[], object]] = [
            topics.make,
            topics.shape,
            partial(topics.strangers, OwnMark(b"secret")),
            partial(topics.schema, "persistent://pulsar/system/__ledger_deletion-partition-1", 3),
        ]
        for ask in asked:
            with suppress(OffloadError):
                ask()


def blocks(data: bytes) -> None:
    for block in read_blocks(data, 0):
        list(entries(block))


def rest(data: bytes) -> None:
    """An answer of the admin port, sound or with an error's status."""
    for status in (200, 404, 500):
        transport = httpx.MockTransport(lambda _, s=status: httpx.Response(s, content=data))
        admin = AdminClient(PulsarSettings(), transport=transport)
        asked: list[Callable[[], object]] = [
            admin.version,
            admin.cluster,
            admin.identity,
            admin.runtime_configuration,
            admin.namespaces,
            partial(admin.namespace_properties, "a/b"),
            partial(admin.namespace_policies, "a/b"),
            partial(admin.topics, "a/b"),
            partial(admin.topic_info, TOPIC),
            partial(explain, admin.rest, TOPIC, EntryRange(7, 0, 2), limit=2),
            *visiting(AdminClient(PulsarSettings(), transport=transport)),
        ]
        for ask in asked:
            with suppress(OffloadError):
                ask()
        admin.close()


def a_list_node(data: bytes) -> None:
    found = decode_managed_ledger(data)
    look_at(PulsarTopic(TOPIC, found, None), BrokerRetention(0, 0, RetentionLevel.TOPIC), 1, SubscriptionNames())


def visiting(brokers: AdminClient) -> list[Callable[[], object]]:
    """What is asked so that unloaded topics are visited, and what is made of it."""
    return [
        lambda: check_version(brokers.version()),
        brokers.loaded_topics,
        lambda: brokers.known_topics("a/b"),
        lambda: default_retention(brokers.runtime_configuration()),
        lambda: read_retention(brokers.namespace_policies("a/b").get("retention_policies"), RetentionLevel.NAMESPACE),
        lambda: read_retention(brokers.applied_retention(TOPIC), RetentionLevel.TOPIC),
        lambda: brokers.trim(TOPIC),
        lambda: brokers.use(TOPIC),
        lambda: brokers.unload(TOPIC),
    ]


def a_broker(data: bytes) -> None:
    """What a broker sends, in one piece, to a connection that has asked for something."""
    session = BrokerSession(Authentication(), lambda: None)
    replies = [session.request(lambda n: BaseCommand(type=BaseCommand.PING_FIELD_NUMBER)) for _ in range(3)]
    session.add_consumer(Heard())
    buffer = FrameBuffer(1000)
    with suppress(OffloadError):
        while data:
            space = buffer.space()
            piece, data = data[: len(space)], data[len(space) :]
            space[: len(piece)] = piece
            buffer.received(len(piece))
            for frame in buffer.frames():
                session.handle(frame)
    for reply in replies:
        if reply.done() and reply.exception() is None:
            response = reply.result().lookup_response
            with suppress(OffloadError):
                one_host(response.broker_service_url)
            str(server_error(response.error, response.message, "asking"))
    with suppress(OffloadError):
        session.fail(OffloadError("over"))


class Heard:
    def on_entry(self, ledger: int, entry: int, data: bytes) -> None: ...

    def on_closed(self, error: OffloadError) -> None: ...


def _frames() -> bytes:
    commands = [
        BaseCommand(type=BaseCommand.CONNECTED_FIELD_NUMBER, connected={"server_version": "4", "max_message_size": 5}),
        BaseCommand(
            type=BaseCommand.LOOKUP_RESPONSE_FIELD_NUMBER,
            lookup_response={"broker_service_url": "pulsar://h:6650", "request_id": 1},
        ),
        BaseCommand(type=BaseCommand.ERROR_FIELD_NUMBER, error={"request_id": 2, "error": 1, "message": "no"}),
        BaseCommand(
            type=BaseCommand.ACK_RESPONSE_FIELD_NUMBER,
            ack_response={"consumer_id": 4, "request_id": 3, "error": 3, "message": "x"},
        ),
        BaseCommand(type=BaseCommand.CLOSE_CONSUMER_FIELD_NUMBER, close_consumer={"consumer_id": 4, "request_id": 9}),
    ]
    return b"".join(map(encode, commands))


def a_bookie(kind: type[V2 | V3], request: Request) -> Door:
    def door(data: bytes) -> None:
        dialect = kind("b1")
        dialect.encode(1, request)
        with suppress(OffloadError):
            for _, result, _ in dialect.decode(memoryview(data)):
                list(result) if isinstance(result, list) else result
        dialect.whose(memoryview(data))
        with suppress(OffloadError):
            dialect.decode_auth(memoryview(data))

    return door


def an_upload(data: bytes, folder: Any) -> None:
    store = LocalStore(folder)
    upload = store.begin("a/b")
    next(folder.glob(".uploads/*/upload.json")).write_bytes(data)
    with suppress(OffloadError):
        store.put_part(upload, 1, 0, b"x", crc32c(b"x"))
    list(store.list_uploads())


STATS = {"ledgers": [{"ledgerId": 7, "entries": 3, "size": 10}], "lastConfirmedEntry": "7:2", "state": "LedgerOpened"}
ANSWERS: tuple[object, ...] = (
    None,
    7,
    ["a", "b/c", None],
    {"reason": "no", "a": [1, {}]},
    {"clusterName": "c", "metadataStoreUrl": "zk:a", "offloader.enabled": "true"},
    {
        **STATS,
        "currentLedgerEntries": 3,
        "currentLedgerSize": 10,
        "cursors": {"a": {}},
        "creationDate": "2026-11-21T12:12:20.531Z",
    },
)


def _doors() -> Iterator[tuple[str, bytes, Door]]:
    """Names, sound bytes, and where they go in."""
    for kind in KINDS:
        key = BUCKET.keys(kind)[-1]
        yield kind, BUCKET.objects[key], of_bucket(key)
    for key in SEALED:
        yield f"inside of {key[-30:]}", _body(BUCKET.objects[key]), resealed(key)
    for key in HEADED:
        yield f"head of {key[-30:]}", _head(BUCKET.objects[key]), headed(key)
    for kind in ("catalog", "data", "index"):
        key = BUCKET.keys(kind)[0]
        yield f"pages of a bucket with such a {kind}", BUCKET.objects[key], pages_of(key)
    yield "a value and its schema", AVRO.encode(), lambda data: views_of(data, TopicSchema(0, "AVRO", data))
    copied = MemoryStore()
    key = write_facts(copied, TopicFacts(TOPIC, 1, schemas=(TopicSchema(0, "AVRO", AVRO.encode()),)))
    yield "archived schemas on pages", bytes(copied.read(key)[0]), pages_of(key)
    asked = {"version": 1, "kind": "close", "topic": str(TOPIC), "at": 1, "by": "joe", "position": [0, 1, 2]}
    yield "request", json.dumps(asked).encode(), a_request
    sign = {"version": 1, "index": 1, "count": 2, "by": "topic", "host": 1, "run": "r", "beat": 5, "taken": 0}
    yield "sign of life", json.dumps(sign).encode(), a_sign_of_life
    yield "outcome", json.dumps({"version": 1, "ok": True, "message": "done", "at": 1}).encode(), an_outcome
    yield "entry", batch(Producer(compression=1), [Sent(b"one"), Sent(b"two")]).data, an_entry
    broker = b"\x0e\x02\0\0\0\x04\x08\x05\x10\x07"
    yield "entry with broker metadata", broker + batch(Producer(), [Sent(b"one")]).data, an_entry
    last = MessageMetadata(
        publish_time=2**64 - 1, num_messages_in_batch=-1, producer_name="p"
    ).SerializePartialToString()
    yield "entry of extremes", len(last).to_bytes(4, "big") + last, an_entry
    index = BUCKET.objects[BUCKET.keys("index")[0]]
    yield "index", index, decode_index
    yield "index points", index, lambda data: decode_sparse_index(data, None)
    yield "blocks", BUCKET.objects[BUCKET.keys("data")[0]], blocks
    v1 = v1_tiny_blocks()
    yield "V1 index", v1.index, lambda data: decode_ledger_index(data, 9)
    yield (
        "brokers' object that is taken over",
        v1.data,
        lambda data: examine((data,), len(data), 9, SegmentLayout(version=1)),
    )
    yield "brokers' object that workers read", v1.data, lambda data: list(stored_entries(Chunks((data,)), 0, 9))
    yield "V1 points", v1.index, lambda data: decode_sparse_index(data, 9)
    record = encode_managed_ledger(ManagedLedger((ListedLedger(3, 60, 9), ListedLedger(5, 1, 2))))
    cursor = ManagedCursorInfo(cursorsLedgerId=4, markDeleteLedgerId=3, markDeleteEntryId=7).SerializeToString()
    for packed in Compression.values():
        name = Compression.Name(packed)
        yield f"managed ledger {name}", envelope(record, packed), lambda data: decode_managed_ledger(data, 0)
        yield f"cursor {name}", envelope(cursor, packed), decode_cursor_node
        yield f"ledger list of an unloaded topic {name}", envelope(record, packed), a_list_node
        yield f"cursor as references {name}", envelope(cursor, packed), lambda data: read_cursor(data, 0)
        yield f"cursor's whole state {name}", envelope(CURSOR_NODE, packed), decode_cursor_node
    schema = SchemaLocator.Version(version=0, position={"ledgerId": 3, "entryId": 0}, hash=b"h")
    yield (
        "schema locator",
        SchemaLocator(info=schema, index=[schema]).SerializeToString(),
        lambda data: read_locator(data, 0),
    )
    yield (
        "cursor ledger's last entry",
        PositionInfo(
            ledgerId=3, entryId=7, properties=[{"name": "CompactedTopicLedger", "value": 5}]
        ).SerializeToString(),
        lambda data: read_last_entry(data, 4),
    )
    yield "entry of a cursor's ledger", encode_cursor_entry(CURSOR_STATE), decode_cursor_entry
    yield "dense entry of a cursor's ledger", encode_cursor_entry(CURSOR_STATE, dense=True), decode_cursor_entry
    look = SubscriptionLook(1, (3, 4), CURSOR_STATE.ranges, 0, 7, 9)
    saved = SavedCursor(look, CURSOR_NODE, encode_cursor_entry(CURSOR_STATE), 5)
    marked = replace(marked_ledger(), ledger_type=LedgerType.SUBSCRIPTION, cursor_name="s", subscription=saved)
    yield (
        "deletion of a subscription",
        DELETION.encode("t", marked),
        lambda data: DELETION.decode("k", data).subscription.state,
    )
    for path, said in BOOKIE_SAYS.items():
        yield f"bookie's HTTP answer {path}", json.dumps(said).encode(), partial(a_bookies_page, path)
    yield (
        "custom metadata",
        b"t/ns/persistent/x",
        lambda data: purpose_of(
            {"application": b"pulsar", "component": b"managed-ledger", OWNER: data}, DigestType.CRC32C
        ),
    )
    yield (
        "ledger metadata",
        b"BookieMetadataFormatVersion\t3\n" + _delimited(ledger_message().SerializeToString()),
        decode_metadata,
    )
    asked_for = PendingDeleteMessage(7, LedgerType.LEDGER, LedgerComponent.MANAGED_CURSOR, "t/ns/x", cursor_name="sub")
    message = write_message(asked_for)
    yield "message of the system topic", message, a_message
    yield (
        "message of the system topic, by its schema",
        message,
        lambda data: read_message(data, WrittenSchema("AVRO", json.dumps(AVRO_SCHEMA))),
    )
    yield (
        "schema of the system topic",
        json.dumps(AVRO_SCHEMA).encode(),
        lambda data: read_message(message, WrittenSchema("AVRO", data.decode(errors="replace"))),
    )
    payload = {"ledgerId": 7, "ledgerType": "LEDGER", "ledgerComponent": "MANAGED_LEDGER", "topicName": "t/ns/x"}
    yield "message of the system topic, as JSON", json.dumps(payload).encode(), a_message
    consumer = {"consumerName": "c", "address": "/1.2.3.4:5", "metadata": {"a": "b"}}
    statistics = {"subscriptions": {WORKER: {"consumers": [consumer]}}, "partitions": 0}
    yield "admin's answer about a system topic", json.dumps(statistics).encode(), of_system_topics
    reported_schema = {"type": "AVRO", "data": json.dumps(AVRO_SCHEMA), "partitions": 2}
    yield "admin's answer about a system topic's schema", json.dumps(reported_schema).encode(), of_system_topics
    yield "ledger layout", encode_layout(Layout.HIERARCHICAL), decode_layout
    yield (
        "bookie's address",
        encode_address(BookieAddress("host.example", 3181)),
        lambda data: decode_address("b", data),
    )
    for number, said in enumerate(ANSWERS):
        yield f"admin's answer {number}", json.dumps(said).encode(), rest
    yield "deletion", DELETION.encode("token", marked_ledger()), a_deletion
    yield "inside of a deletion", _body(DELETION.encode("token", marked_ledger())), a_record("deletion", a_deletion)
    switch = SWITCH.encode("token", DeletionSwitch(True, 5))
    yield "deletion's switch", switch, lambda data: SWITCH.decode("key", data)
    yield "inside of a switch", _body(switch), a_record("switch", lambda data: SWITCH.decode("key", data))
    _, _, rescue = RESCUED
    yield "rescue", rescue, a_rescue
    yield "inside of a rescue", _body(rescue), a_record("rescue", a_rescue)
    yield "broker's frames", _frames(), a_broker
    for read in (BatchRead(7, 0, 1, 1000), BatchRead(7, 0, 5, 1000)):
        yield (
            f"bookie's answer in V2 to a {read}",
            test_v2.ask(V2("b1"), 1, read).tobytes(),
            a_bookie(V2, read),
        )
    for request in (EntryRead(7, 3), ReadLac(7), ListEntries(7)):
        answer = test_v3.ask(V3("b1"), 1, request, test_v2.bookie())
        yield f"bookie's answer in V3 to a {request}", bytes(answer), a_bookie(V3, request)


CURSOR_STATE = CursorState(
    (3, 4),
    (AcknowledgedRange((3, 6), (3, 8)), AcknowledgedRange((3, 10), (3, 200))),
    (PartlyAcknowledged(3, 9, (0x3E0, -1)),),
    (("CompactedTopicLedger", 7),),
)
CURSOR_NODE = encode_cursor_node(replace(CURSOR_STATE, subscription_properties=(("owner", "joe"),), cursor_ledger=9))
BOOKIE_SAYS: dict[str, object] = {
    CONFIGURATION: {"gcWaitTime": "900000", "majorCompactionInterval": "0", "isThrottleByBytes": "true"},
    DETAILS: [
        {
            "majorCompacting": False,
            "minorCompacting": True,
            "lastMajorCompactionTime": 1,
            "lastMinorCompactionTime": 2**62,
            "majorCompactionCounter": 0,
            "minorCompactionCounter": 3,
        }
    ],
    FORCED: {"is_in_force_gc": "false"},
    SUSPENDED: {"isMajorGcSuspended": "true", "isMinorGcSuspended": "false"},
    SPACE: {"freeSpace": 1, "totalSpace": 3},
    STATE: {"readOnly": True},
    FILES: {"entrylog files": "0.log\t1.log"},
}


def a_bookies_page(path: str, data: bytes) -> None:
    explanation = explain_bookie(bookie_facts("b1:3181", "http://b1:8000", {path: data}, {}))
    assert all(sentence.isprintable() for sentence in (*explanation.because, *explanation.do, *explanation.unknown))


def _delimited(message: bytes) -> bytes:
    assert len(message) < 0x4000
    size = len(message)
    return bytes([size & 0x7F | 0x80, size >> 7]) + message


def a_deletion(data: bytes) -> None:
    """All that is done with a record of others before anything else is looked at, and after it."""
    record = DELETION.decode("key", data)
    timing, switch = DeletionTiming(), DeletionSwitch(True, 1)
    turn(record, 2, timing, switch)
    for look in (FailedLook("no answer"), UnreferencedLedger(record.node, record.evidence, 2**50, 2**50)):
        ruled = rule(record, look, 3, timing, switch).record
        assert DELETION.decode("key", DELETION.encode("token", ruled)) == ruled
    ledger_shown(record, timing)


def _rescued() -> tuple[RescueArchive, str, bytes]:
    """An archive with a rescued ledger, its record's key, and that record."""
    archive = RescueArchive(KeptCluster(kept_messages(6)))
    archive.rescue()
    (key,) = (key for key in archive.all_keys() if "/records/" in key)
    return archive, key, archive.store.read(key)[0]


def a_rescue(data: bytes) -> None:
    """All that is done with the record of a rescued ledger."""
    archive, key, _ = RESCUED
    archive.store.put(key, data)
    newest = archive.rescues().newest(KEPT)
    if newest.rescued is not None:
        rescue_fields(newest.rescued)
        damage_of_rescue(archive.store, archive.rescues().folder(KEPT, newest.slot), newest.rescued)
    archive.evidence().proven(archive.cluster.verdict())
    for damage in OnDamage:
        reading = Archived(Stores.of(archive.store), TopicRecords(rescued_ledger(archive.store, KEPT)),
                           ReadOptions(on_damage=damage))  # fmt: skip
        with suppress(OffloadError):
            list(reading.messages())


def a_record(kind: str, door: Door) -> Door:
    """The door to what is in such a record, with a checksum that is right."""

    def sealed(body: bytes) -> object:
        record = pb.Record(format_version=FORMAT_VERSION, token=kind, body=body).SerializeToString()
        return door(HEAD.pack(MAGIC, crc32c(record)) + record)

    return sealed


RESCUED = _rescued()
HEADED = BUCKET.keys("catalog")
SEALED = [key for kind in ("catalog", "journal", "root") for key in BUCKET.keys(kind)]
DOORS = list(_doors())
FEW = settings(max_examples=max(10, settings().max_examples // 6), suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize(("sound", "door"), [door[1:] for door in DOORS], ids=[door[0] for door in DOORS])
@FEW
@given(data=st.data())
def test_what_comes_in_is_damage_at_worst(sound: bytes, door: Door, data: st.DataObject) -> None:
    with suppress(OffloadError):
        door(data.draw(damaged(sound) | st.sampled_from(NOTHING_TOO_DEEP)))


NAMES = st.sampled_from(
    [
        "clusterName",
        "cursors",
        "persistent",
        "publishers",
        "subscriptions",
        "retentionSizeInMB",
        *STATS,
        "ledgerId",
        "entries",
        "size",
        "reason",
        "creationDate",
        "x",
    ]
)
ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.sampled_from(["7:2", "a/b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=12,
)


@FEW
@given(ANY_JSON, st.dictionaries(NAMES, ANY_JSON, max_size=2))
def test_answers_of_another_type_are_damage_at_worst(anything: object, changes: dict[str, object]) -> None:
    rest(json.dumps(anything).encode())
    assert isinstance(ANSWERS[-1], dict)
    rest(json.dumps({**ANSWERS[-1], **changes}).encode())


@pytest.mark.parametrize("key", SEALED)
@FEW
@given(seed=st.integers(0, 2**32))
def test_records_that_say_what_no_record_says_are_damage_at_worst(key: str, seed: int) -> None:
    resealed(key)(wild_body(_body(BUCKET.objects[key]), seed))


@settings(FEW, max_examples=10)
@given(key=st.sampled_from(SEALED), seed=st.integers(0, 2**32))
def test_pages_of_records_that_say_what_no_record_says_say_so(key: str, seed: int) -> None:
    head, record = _apart(BUCKET.objects[key])
    body = wild_body(_body(BUCKET.objects[key]), seed)
    made = pb.Record(format_version=FORMAT_VERSION, token=unwrap(key, record).token, body=body).SerializeToString()
    pages_of(key)(head + HEAD.pack(MAGIC, crc32c(made)) + made)


@pytest.mark.parametrize("key", HEADED)
@FEW
@given(seed=st.integers(0, 2**32))
def test_heads_that_say_what_no_head_says_are_damage_at_worst(key: str, seed: int) -> None:
    head = pb.Head.FromString(_head(BUCKET.objects[key]))
    wild(head, Random(seed))
    headed(key)(head.SerializeToString())


@pytest.mark.parametrize(("sound", "door"), [door[1:] for door in DOORS], ids=[door[0] for door in DOORS])
def test_what_is_sound_comes_in_and_what_nests_too_deep_does_not(sound: bytes, door: Door) -> None:
    door(sound)
    for data in NOTHING_TOO_DEEP:
        with suppress(OffloadError):
            door(data)


@pytest.mark.parametrize("place", PLACES)
def test_what_is_too_large_is_damage_of_which_little_is_read(place: str, caplog: pytest.LogCaptureFixture) -> None:
    objects, key = PLACES[place]
    lines = [f"{finding}" for finding in told(BloatedStore(objects, key))]
    assert place in HARMLESS or any(key in line for line in (*lines, *caplog.messages))
