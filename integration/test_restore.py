"""An archived topic is published again in a real Pulsar: the same entries, each once, whatever breaks in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pulsar as client_library
import pytest
from _pulsar import SchemaType
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from pulsar.schema import Schema

from integration.processes import HANGS
from integration.produce import HANGS_MS, open_client, produce_mixed
from integration.pulsar.transactions import Transactions
from integration.pulsar.waiting import until
from integration.restoring import KEEP, Bench, Cutter, drop_connection, messages, produce_everything
from offloader.archive.items import ArchivedEntry
from offloader.archive.messages.envelope import parse_envelope
from offloader.cursors.facts import read_facts
from offloader.errors import BrokerUnavailableError, FatalError
from offloader.model import Position, TopicName
from offloader.operations.restore.progress import RestoreProgress
from offloader.operations.restore.provenance import Origin
from offloader.operations.restore.tail import Tail
from offloader.operations.restore.target import TargetCluster
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.pin import BrokerPins
from offloader.pulsar.settings import PulsarSettings
from tests.archive.support import message

pytestmark = pytest.mark.pulsar


@pytest.fixture
def bench(pulsar, namespace, tmp_path) -> Iterator[Bench]:
    pulsar.admin("POST", f"namespaces/{namespace}/retention", json=KEEP)
    settings = PulsarSettings(service_url=pulsar.service_url, admin_url=pulsar.admin_url, subscription="look")
    source, admin, pins = BrokerSource(settings), AdminClient(settings), BrokerPins(settings)
    yield Bench(pulsar, namespace, tmp_path, source, admin, pins)
    pins.close()
    source.close()
    admin.close()


def test_a_mixed_topic_comes_back_as_it_was(bench: Bench) -> None:
    source, target = bench.topic("source"), bench.topic("target", make=False)
    produce_everything(bench, source)
    archived = bench.archive(source)
    planned = bench.restore(source, "--to", target, "--dry-run")
    assert (planned["sent"], planned["alreadyThere"]) == (len(archived), 0)
    assert target not in bench.admin.topics(bench.namespace)
    done = bench.restore(source, "--to", target)
    assert (done["sent"], done["alreadyThere"], done["losses"]) == (len(archived), 0, 0)
    assert done["gaps"] > 5  # five aborted entries, and markers
    bench.check(archived, target)
    assert messages(bench, target) == messages(bench, source)
    again = bench.restore(source, "--to", target)
    assert (again["sent"], again["alreadyThere"]) == (0, len(archived))
    bench.check(archived, target)


@pytest.mark.parametrize("deduplication", [False, True])
def test_connections_that_break_leave_each_entry_once(bench: Bench, monkeypatch, deduplication: bool) -> None:
    if deduplication:
        bench.pulsar.admin("POST", f"namespaces/{bench.namespace}/deduplication", json=True)
    source, target = bench.topic("source"), bench.topic("target")
    produce_mixed(bench.pulsar.service_url, str(source), seed=2, messages=2000, largest=20_000)
    archived = bench.archive(source)
    cutter = Cutter(3, 0.02, 20)
    cutter.install(monkeypatch, drop_connection)
    bench.restore(source, "--to", target)
    assert cutter.cuts >= 5
    bench.check(archived, target)


def test_a_topic_that_is_unloaded_meanwhile(bench: Bench, monkeypatch) -> None:
    source, target = bench.topic("source"), bench.topic("target")
    produce_mixed(bench.pulsar.service_url, str(source), seed=4, messages=2000, largest=2_000)
    archived = bench.archive(source)
    cutter = Cutter(5, 0.005, 6)
    cutter.install(monkeypatch, lambda target: bench.pulsar.admin("PUT", f"{target.topic.rest_path}/unload"))
    bench.restore(source, "--to", target)
    assert cutter.cuts >= 2
    bench.check(archived, target)


def test_a_process_that_is_killed_and_started_again(bench: Bench) -> None:
    source, target = bench.topic("source"), bench.topic("target")
    produce_mixed(bench.pulsar.service_url, str(source), seed=6, messages=1500, largest=20_000)
    archived = bench.archive(source)
    size = sum(len(e.data) for e in archived)
    program = [str(Path(sys.executable).with_name("offloader")), "topics", "restore", str(source), "--to", str(target)]
    stored = 0
    for _ in range(3):
        process = subprocess.Popen(
            [*program, "--rate", str(size // 10), "--config", str(bench.config)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        before, deadline = stored, time.monotonic() + HANGS
        while stored < before + len(archived) // 8:
            assert process.poll() is None, process.stdout.read()
            assert time.monotonic() < deadline
            stored = sum(count for count, _ in bench.admin.topic_info(target).sizes.values())
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    done = bench.restore(source, "--to", target)
    assert done["alreadyThere"] >= stored
    assert done["alreadyThere"] + done["sent"] == len(archived)
    bench.check(archived, target)


class Written(Schema):
    """Of what is encoded already."""

    def __init__(self, kind: str, *fields: tuple[str, str]) -> None:
        found = [{"name": name, "type": of} for name, of in fields]
        definition = {"type": "record", "name": "Order", "fields": found}
        super().__init__(bytes, SchemaType.__members__[kind], definition, kind)

    def encode(self, data: bytes) -> bytes:
        return data

    def decode(self, data: bytes) -> bytes:
        return data


ENCODED = {"AVRO": (b"\x08", b"\x08\x02n"), "JSON": (b'{"number": 4}', b'{"number": 4, "name": "n"}')}
FIELDS = ("number", "int"), ("name", "string")


def allow(bench: Bench, strategy: str) -> None:
    """Which schemas may follow each other, in force before the next command."""
    path = f"namespaces/{bench.namespace}/schemaCompatibilityStrategy"
    bench.pulsar.admin("PUT", path, json=strategy)
    until(lambda: (found := bench.pulsar.admin("GET", path)).content and found.json() == strategy)


def definitions(bench: Bench, topic: TopicName) -> list[tuple[str, str, dict[str, str]]]:
    found = bench.pulsar.admin("GET", f"schemas/{topic.namespace}/{topic.name}/schemas").json()["getSchemaResponses"]
    return [(schema["type"], schema["data"], schema["properties"]) for schema in found]


@pytest.mark.parametrize("kind", ["JSON", "AVRO"])
def test_messages_with_schemas_come_back_with_them(bench: Bench, kind: str) -> None:
    source, target, other = bench.topic("source"), bench.topic("target", make=False), bench.topic("other")
    allow(bench, "ALWAYS_COMPATIBLE")
    client = open_client(bench.pulsar.service_url)
    schemas = Written(kind, *FIELDS[:1]), Written(kind, *FIELDS)  # the second reads nothing of the first
    for schema, data in zip(schemas, ENCODED[kind], strict=True):
        producer = client.create_producer(str(source), schema=schema)
        producer.send(data)
        producer.send(data)
        producer.close()
    archived = bench.archive(source)
    assert "has no schema version 0" in bench.refused(source, "--to", target, "--dry-run")
    assert target not in bench.admin.topics(bench.namespace)
    assert bench.restore(source, "--to", bench.topic("ignored"), "--ignore-schemas")["sent"] == 4
    bench.copy_schemas(source)

    allow(bench, "FULL")
    for mode in (["--dry-run"], []):
        assert "refuses schema version 1" in bench.refused(source, "--to", target, *mode)
    allow(bench, "ALWAYS_COMPATIBLE")
    assert bench.restore(source, "--to", target, "--dry-run")["sent"] == 4
    assert bench.restore(source, "--to", target)["sent"] == 4
    bench.check(archived, target)
    assert definitions(bench, target) == definitions(bench, source)

    string = {"type": "STRING", "schema": "", "properties": {}}
    bench.pulsar.admin("POST", f"schemas/{bench.namespace}/other/schema", json=string)
    assert bench.restore(source, "--to", other, "--dry-run")["sent"] == 4
    assert bench.restore(source, "--to", other)["sent"] == 4
    for topic, first in ((target, 0), (other, 1)):
        reader = client.create_reader(str(topic), client_library.MessageId.earliest, schema=schemas[1])
        found = [reader.read_next(HANGS_MS) for _ in range(4)]
        versions = [
            int.from_bytes(parse_envelope(entry.data).metadata.schema_version) for entry in bench.entries(topic)
        ]
        assert versions == [first] * 2 + [first + 1] * 2
        assert [message.data() for message in found] == [ENCODED[kind][0]] * 2 + [ENCODED[kind][1]] * 2
    client.close()


def test_schemas_of_keys_and_values_and_of_simple_types_are_uploaded_once(bench: Bench) -> None:
    allow(bench, "ALWAYS_COMPATIBLE")
    source, target = bench.topic("source"), bench.topic("target")
    record = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
    made = [
        {"type": "STRING", "schema": "", "properties": {}},
        {"type": "INT64", "schema": "", "properties": {"a": "b"}},
        {
            "type": "KEY_VALUE",
            "schema": json.dumps({"key": "", "value": json.loads(record)}),
            "properties": {
                "key.schema.name": "k", "key.schema.type": "STRING", "key.schema.properties": "{}",
                "value.schema.name": "v", "value.schema.type": "AVRO", "value.schema.properties": "{}",
                "kv.encoding.type": "INLINE",
            },
        },
        {"type": "AVRO", "schema": record, "properties": {}},
    ]  # fmt: skip
    for schema in made:
        bench.pulsar.admin("POST", f"schemas/{bench.namespace}/source/schema", json=schema)
    bench.copy_schemas(source)
    facts = read_facts(bench.store, source)
    assert facts is not None
    assert [schema.type for schema in facts.schemas] == [schema["type"] for schema in made]
    settings = PulsarSettings(service_url=bench.pulsar.service_url, admin_url=bench.pulsar.admin_url)
    cluster = TargetCluster(settings)
    for _ in range(2):
        cluster.check_schemas(target, facts.schemas, try_upload=True)
        versions = cluster.upload_schemas(target, facts.schemas)
        assert [versions.of(number.to_bytes(8)) for number in range(4)] == [number.to_bytes(8) for number in range(4)]
        assert definitions(bench, target) == definitions(bench, source)
    cluster.close()


def test_encrypted_messages_come_back_encrypted(bench: Bench) -> None:
    private, public = bench.folder / "private.pem", bench.folder / "public.pem"
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    keys = client_library.CryptoKeyReader(str(public), str(private))
    source, target = bench.topic("source"), bench.topic("target")
    client = open_client(bench.pulsar.service_url)
    producer = client.create_producer(str(source), encryption_key="k", crypto_key_reader=keys, batching_enabled=False)
    for number in range(3):
        producer.send(b"secret %d" % number, properties={"n": str(number)})
    archived = bench.archive(source)
    bench.restore(source, "--to", target)
    bench.check(archived, target)
    reader = client.create_reader(str(target), client_library.MessageId.earliest, crypto_key_reader=keys)
    assert [reader.read_next(HANGS_MS).data() for _ in range(3)] == [b"secret %d" % n for n in range(3)]
    client.close()


def test_a_second_restore_fences_out_the_first(bench: Bench) -> None:
    topic, origin = (
        bench.topic("target"),
        Origin("99999999-0000-4000-8000-000000000000", bench.topic("source", make=False)),
    )
    settings = PulsarSettings(service_url=bench.pulsar.service_url, admin_url=bench.pulsar.admin_url)
    clusters = [TargetCluster(settings) for _ in range(2)]
    first, second = (cluster.target(topic, origin) for cluster in clusters)
    progress = RestoreProgress(origin, Tail())
    progress.take(ArchivedEntry(Position(0, 1, 0), message("one")))
    entry = progress.next()
    first.attach()
    second.attach()
    first.send(entry)
    with pytest.raises(
        BrokerUnavailableError, match="closed the connection"
    ):  # that of whoever sends for a fenced producer
        first.receipts(HANGS)
    assert second.tail() == Tail()
    with pytest.raises(FatalError, match="ProducerFenced"):
        first.attach()
    second.attach()  # the attempt that was refused has cost it its producer, but its epoch is still the topic's
    second.send(entry)
    assert second.receipts(HANGS) == [1]
    assert second.attach() == Tail(1, Position(0, 1, 0))
    for cluster in clusters:
        cluster.close()


def test_a_partitioned_topic_goes_to_a_partitioned_one(bench: Bench) -> None:
    source, target = bench.topic("source", make=False), bench.topic("target", make=False)
    bench.pulsar.admin("PUT", f"{source.rest_path}/partitions", json=3)
    produce_mixed(bench.pulsar.service_url, str(source), seed=7, messages=300, largest=2_000, partitioned=True)
    archived = {n: bench.archive(TopicName.parse(f"{source}-partition-{n}")) for n in range(3)}
    bench.restore(source, "--to", target)
    for number, entries in archived.items():
        bench.check(entries, TopicName.parse(f"{target}-partition-{number}"))
    assert bench.pulsar.admin("GET", f"{target.rest_path}/partitions").json()["partitions"] == 3


def test_targets_that_are_refused(bench: Bench) -> None:
    source, target = bench.topic("source"), bench.topic("target")
    produce_mixed(bench.pulsar.service_url, str(source), seed=8, messages=20, largest=100)
    archived = bench.archive(source)
    namespace, admin = f"namespaces/{bench.namespace}", bench.pulsar.admin

    def set_to(path: str, value: object, method: str = "POST", *, of_topics: bool = True) -> None:
        """In force before the next command: a broker applies it behind its answer."""
        admin(method, f"{namespace}/{path}", json=value)
        places = [f"{namespace}/{path}", *([f"{target.rest_path}/{path}?applied=true"] if of_topics else [])]
        until(lambda: all((found := admin("GET", place)).content and found.json() == value for place in places))

    def refused(path: str, bad: object, good: object, *, of_topics: bool = True) -> str:
        set_to(path, bad, of_topics=of_topics)
        line = bench.refused(source, "--to", target)
        set_to(path, good, of_topics=of_topics)
        return line

    assert "retention (0 minutes, 0 MB)" in refused(
        "retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}, KEEP
    )
    assert "message TTL (60 s)" in refused("messageTTL", 60, 0)
    set_to("compactionThreshold", 1000, "PUT")
    assert "compaction threshold (1000 bytes)" in bench.refused(source, "--to", target)
    set_to("compactionThreshold", 0, "PUT")
    assert "requires encryption" in refused("encryptionRequired", True, False, of_topics=False)
    client = open_client(bench.pulsar.service_url)
    producer = client.create_producer(str(target), producer_name="somebody")
    assert "producer somebody is connected" in bench.refused(source, "--to", target)
    producer.send(b"foreign")
    client.close()
    assert "was not restored; restore to a new topic" in bench.refused(source, "--to", target)
    assert "its last entry" in bench.refused(source, "--to", source)
    fresh = bench.topic("fresh", make=False)
    for path, bad, good in (
        ("retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}, KEEP),
        ("messageTTL", 60, 0),
    ):
        set_to(path, bad)
        for mode in ([], ["--dry-run"]):
            assert "or make the topic first" in bench.refused(source, "--to", fresh, *mode)
        set_to(path, good)
    assert fresh not in bench.admin.topics(bench.namespace)
    assert bench.restore(source, "--to", fresh)["sent"] == len(archived)
    bench.check(archived, fresh)


def test_what_somebody_else_added_to_a_restore_is_noticed(bench: Bench) -> None:
    source, target = bench.topic("source"), bench.topic("target")
    produce_mixed(bench.pulsar.service_url, str(source), seed=9, messages=20, largest=100)
    archived = bench.archive(source)
    bench.restore(source, "--to", target)
    with Transactions(bench.pulsar.service_url) as transactions:
        txn = transactions.begin(str(target))
        transactions.send(str(target), b"foreign", txn)
        transactions.end(txn, commit=False)
    assert "is not a message" in bench.refused(source, "--to", target)  # an abort marker
    with Transactions(bench.pulsar.service_url) as transactions:
        transactions.send(str(target), archived[-1].data)
    assert "was not restored" in bench.refused(source, "--to", target)
    bench.pulsar.admin("PUT", f"{target.rest_path}/unload")
    assert "was not restored" in bench.refused(source, "--to", target)
