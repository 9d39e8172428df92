"""What the tests of restoring need: a namespace with an archive beside it, and trouble for a target."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pulsar as client_library
import pytest
from click.testing import CliRunner, Result

from integration.patient import PatientPulsar
from integration.produce import HANGS_MS, open_client, produce_mixed
from integration.pulsar.transactions import Transactions
from integration.pulsar.waiting import read
from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.archive.messages.envelope import Envelope, parse_envelope
from offloader.cli.main import main
from offloader.cursors.facts import FactsCopier
from offloader.metadata.root import open_root
from offloader.model import MIB, GapKind, Position, SegmentLayout, TopicName
from offloader.operations.restore.provenance import PREFIX, read_provenance
from offloader.operations.restore.target import PulsarTarget
from offloader.ports.entry_source import RawEntry
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.pin import BrokerPins
from offloader.pulsar.settings import PulsarSettings
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.archive.support import Archive, gap
from tests.format.support import Stored

KEEP = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
CONFIG = """
application: app
pulsar: {{serviceUrl: "{service}", adminUrl: "{admin}"}}
storage: {{root: "file://{folder}"}}
namespaces:
  {namespace}: {{enabled: true}}
"""


@dataclass
class Bench:
    """A Pulsar, a namespace that keeps everything, an archive, and the command line."""

    pulsar: PatientPulsar
    namespace: str
    folder: Path
    source: BrokerSource
    admin: AdminClient
    pins: BrokerPins

    def __post_init__(self) -> None:
        self.store = open_store(StoreSettings(f"file://{self.folder}/archive"))
        open_root(self.store, "standalone", lambda: "99999999-0000-4000-8000-000000000000")
        self.config = self.folder / "offloader.yaml"
        self.config.write_text(
            CONFIG.format(
                service=self.pulsar.service_url,
                admin=self.pulsar.admin_url,
                folder=f"{self.folder}/archive",
                namespace=self.namespace,
            )
        )

    def topic(self, name: str, *, make: bool = True) -> TopicName:
        topic = TopicName.parse(f"{self.namespace}/{name}")
        if make:
            self.pulsar.admin("PUT", topic.rest_path)
        return topic

    def entries(self, topic: TopicName) -> list[RawEntry]:
        """All that a broker delivers."""
        end = self.pins.open(topic).last
        self.pins.drop(topic)
        if end is None:
            return []
        reader = self.source.open(topic, 0, 0, max_bytes=16 * MIB)
        found: list[RawEntry] = []
        while not found or (found[-1].ledger, found[-1].entry) < end:
            found += read(reader, 1)
        reader.close()
        return found

    def archive(self, topic: TopicName) -> list[RawEntry]:
        """Put the topic into the archive as it is now, what the broker does not deliver as gaps."""
        entries = self.entries(topic)
        have = {(e.ledger, e.entry) for e in entries}
        sizes = self.admin.topic_info(topic).sizes
        closed = {ledger: count - 1 for ledger, (count, _) in sizes.items()}
        gaps = [
            gap(ledger, entry, entry, GapKind.ABORTED)
            for ledger, last in closed.items()
            for entry in range(last + 1)
            if (ledger, entry) not in have
        ]
        archive = Archive(self.store, topic)
        archive.claim(min(closed), 0)
        stored = [Stored(e.ledger, e.entry, e.data) for e in entries]
        archive.add(stored, gaps, closed=closed, cuts=SegmentLayout(256 * 1024, 64 * 1024, 16 * 1024))
        return entries

    def copy_schemas(self, topic: TopicName) -> None:
        """Into the archive, as the application does."""
        settings = PulsarSettings(service_url=self.pulsar.service_url, admin_url=self.pulsar.admin_url)
        states = AdminClient(settings)
        FactsCopier(self.store, states, lambda: "token").take(topic, 1, None, terminated=False)
        states.close()

    def run(self, *arguments: object) -> Result:
        return CliRunner().invoke(main, ["topics", "restore", *map(str, arguments), "--config", str(self.config)])

    def restore(self, *arguments: object) -> dict:
        result = self.run(*arguments, "--output", "json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout.splitlines()[-1])

    def refused(self, *arguments: object) -> str:
        result = self.run(*arguments)
        assert result.exit_code == 1, result.output
        (line,) = result.stderr.splitlines()
        return line

    def check(self, archived: list[RawEntry], target: TopicName) -> None:
        """The target has the archived entries and nothing else, in their order, each once, with a mark."""
        restored = self.entries(target)
        assert len(restored) == len(archived)
        assert sum(count for count, _ in self.admin.topic_info(target).sizes.values()) == len(archived)
        for number, (old, new) in enumerate(zip(archived, restored, strict=True), 1):
            before, after = parse_envelope(old.data), parse_envelope(new.data)
            assert after.payload == before.payload
            provenance = read_provenance(after.metadata)
            assert (provenance.position, provenance.number) == (Position(0, old.ledger, old.entry), number)
            assert unmarked(after) == unmarked(before)


def unmarked(envelope: Envelope) -> MessageMetadata:
    """An entry's metadata but for what a restore changes."""
    metadata = MessageMetadata.FromString(envelope.metadata.SerializeToString())
    kept = [p for p in metadata.properties if not p.key.startswith(PREFIX)]
    del metadata.properties[:]
    metadata.properties.extend(kept)
    metadata.ClearField("txnid_least_bits")
    metadata.ClearField("txnid_most_bits")
    return metadata


def produce_everything(bench: Bench, topic: TopicName, messages: int = 300) -> None:
    """Batches, codecs, keys, event times, a chunked message, committed and aborted transactions, several ledgers."""
    produce_mixed(bench.pulsar.service_url, str(topic), seed=1, messages=messages, largest=100_000)
    with Transactions(bench.pulsar.service_url) as transactions:
        first, second = transactions.begin(str(topic)), transactions.begin(str(topic))
        for number in range(5):
            transactions.send(str(topic), b"committed %d" % number, first)
            transactions.send(str(topic), b"aborted %d" % number, second)
        transactions.end(first, commit=True)
        transactions.end(second, commit=False)
        transactions.send(str(topic), b"behind")
    client = open_client(bench.pulsar.service_url)
    producer = client.create_producer(str(topic), chunking_enabled=True, batching_enabled=False)
    producer.send(
        Random(1).randbytes(6 * MIB), partition_key="chunked"
    )  # its first chunk is as large as entries may be
    producer.send(b"ordered", ordering_key="o", event_timestamp=5, properties={"a": "b"})
    client.close()


def messages(bench: Bench, topic: TopicName) -> list[tuple]:
    """What a stock consumer gets, but for the marks."""
    client = open_client(bench.pulsar.service_url)
    reader = client.create_reader(str(topic), client_library.MessageId.earliest)
    found = []
    while reader.has_message_available():
        m = reader.read_next(HANGS_MS)
        properties = {k: v for k, v in m.properties().items() if not k.startswith(PREFIX)}
        found.append(
            (
                m.data(),
                m.partition_key(),
                m.ordering_key(),
                properties,
                m.event_timestamp(),
                m.publish_timestamp(),
                m.producer_name(),
            )
        )
    client.close()
    return found


class Cutter:
    """Breaks the connection of a target's producer at random sends, `most` times."""

    def __init__(self, seed: int, share: float, most: int) -> None:
        self._random = Random(seed)
        self._share = share
        self._most = most
        self.cuts = 0

    def install(self, monkeypatch: pytest.MonkeyPatch, hit: Callable[[PulsarTarget], None]) -> None:
        send = PulsarTarget.send

        def cutting(target: PulsarTarget, entry) -> None:
            send(target, entry)
            if self.cuts < self._most and self._random.random() < self._share:
                time.sleep(self._random.choice((0, 0.001, 0.01)))  # how much of what is on its way arrives
                self.cuts += 1
                hit(target)

        monkeypatch.setattr(PulsarTarget, "send", cutting)


def drop_connection(target: PulsarTarget) -> None:
    with suppress(OSError):  # it is down already
        target._producer._connection._sock.shutdown(socket.SHUT_RDWR)
