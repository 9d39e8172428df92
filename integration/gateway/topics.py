"""Topics of every kind that Pulsar has, in several ledgers each, the same for all clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pulsar
from pulsar.schema import JsonSchema

from integration.bridge.topics import keys_in
from integration.gateway.clients import StockClient
from integration.gateway.python_client import Order
from integration.patient import PatientPulsar
from integration.produce import CODECS, open_client, produce_mixed
from integration.pulsar.transactions import Transactions
from integration.pulsar.waiting import until
from offloader.model import TopicName

NEVER_MS = 3_600_000
BATCH = 10
PARTITIONS = 3


@dataclass(frozen=True)
class Made:
    """`count`: messages that a reader gets. `topics`: that are archived of it. `keys`: the file that decrypts."""

    name: str
    count: int
    topics: tuple[str, ...] = ()
    keys: str | None = None

    @property
    def archived(self) -> tuple[TopicName, ...]:
        return tuple(map(TopicName.parse, self.topics or (self.name,)))


class Maker:
    """Produces. `java`: a client for what Python's cannot make."""

    def __init__(self, pulsar_: PatientPulsar, namespace: str, java: StockClient, folder: Path) -> None:
        self._pulsar = pulsar_
        self._namespace = namespace
        self._java = java
        self._folder = folder

    def all(self) -> dict[str, Made]:
        makers: list[Callable[[str], Made]] = [
            self.single, self.batched, self.mixed, self.chunked, self.encrypted, self.delayed, self.partitioned,
            self.transactional, self.orders, self.customers, self.terminated, self.compacted,
            self.empty, self.empty_terminated, self.sparse, self.empty_partitioned,
        ]  # fmt: skip
        return {make.__name__: make(f"persistent://{self._namespace}/{make.__name__}") for make in makers}

    def single(self, name: str) -> Made:
        """Each message alone in its entry; keys, ordering keys, event times; each codec; three ledgers."""
        for part in range(3):
            for codec in CODECS:
                with self._producer(name, compression_type=codec) as producer:
                    for number in range(8):
                        self._send(producer, 100 * part + number)
            self._new_ledger(name)
        return Made(name, 3 * len(CODECS) * 8)

    def batched(self, name: str) -> Made:
        """Ten messages a batch; each codec; two ledgers."""
        for part in range(2):
            for codec in CODECS:
                with self._producer(
                    name, compression_type=codec, batching_enabled=True, batching_max_messages=BATCH,
                    batching_max_publish_delay_ms=NEVER_MS,
                ) as producer:  # fmt: skip
                    for number in range(BATCH * 2):
                        self._send(producer, 100 * part + number)
            self._new_ledger(name)
        return Made(name, 2 * len(CODECS) * BATCH * 2)

    def mixed(self, name: str) -> Made:
        """What the other tests produce: sizes from nothing to 100,000 bytes."""
        return Made(
            name, produce_mixed(self._pulsar.service_url, name, seed=14, messages=120, largest=100_000).messages
        )

    def chunked(self, name: str) -> Made:
        answer = self._java.ask(do="chunks", topic=name, count=12)
        assert "error" not in answer, answer
        return Made(name, 12)

    def encrypted(self, name: str) -> Made:
        public, private = keys_in(self._folder)
        reader = pulsar.CryptoKeyReader(str(public), str(private))
        with self._producer(name, encryption_key="key", crypto_key_reader=reader) as producer:
            for number in range(12):
                self._send(producer, number)
        return Made(name, 12, keys=str(private))

    def delayed(self, name: str) -> Made:
        """Some for now, some for a second later, some for tomorrow."""
        with self._producer(name) as producer:
            for number in range(30):
                later = (None, timedelta(seconds=1), timedelta(days=1))[number % 3]
                self._send(producer, number, deliver_after=later)
        return Made(name, 30)

    def partitioned(self, name: str) -> Made:
        self._pulsar.admin("PUT", f"{TopicName.parse(name).rest_path}/partitions", json=PARTITIONS)
        parts = tuple(f"{name}-partition-{number}" for number in range(PARTITIONS))
        for number, part in enumerate(parts):
            with self._producer(part) as producer:
                for each in range(10):
                    self._send(producer, 100 * number + each)
        return Made(name, 10 * PARTITIONS, parts)

    def transactional(self, name: str) -> Made:
        """Plain entries among those of committed and aborted transactions."""
        seen = 0
        with Transactions(self._pulsar.service_url) as transactions:
            for number in range(6):
                transaction = transactions.begin(name)
                for inside in range(3):
                    transactions.send(name, b"inside %d" % inside, transaction)
                    transactions.send(name, b"beside %d" % inside)
                transactions.end(transaction, commit=number % 2 == 0)
                seen += 6 if number % 2 == 0 else 3
        return Made(name, seen)

    def orders(self, name: str) -> Made:
        """AVRO, in two versions."""
        answer = self._java.ask(do="orders", topic=name)
        assert "error" not in answer, answer
        return Made(name, 20)

    def customers(self, name: str) -> Made:
        """JSON."""
        with self._producer(name, schema=JsonSchema(Order)) as producer:
            for number in range(10):
                producer.send(Order(customer=f"c{number}", amount=number), partition_key=f"k{number}")
        return Made(name, 10)

    def terminated(self, name: str) -> Made:
        with self._producer(name) as producer:
            for number in range(12):
                self._send(producer, number)
        self._pulsar.admin("POST", f"{TopicName.parse(name).rest_path}/terminate")
        return Made(name, 12)

    def compacted(self, name: str) -> Made:
        with self._producer(name) as producer:
            for number in range(40):
                producer.send(b"value %d" % number, partition_key=f"key-{number % 7}")
        path = f"{TopicName.parse(name).rest_path}/compaction"
        self._pulsar.admin("PUT", path)
        until(lambda: self._pulsar.admin("GET", path).json()["status"] == "SUCCESS")
        return Made(name, 40)

    def empty(self, name: str) -> Made:
        """Nothing was ever sent to it."""
        self._pulsar.admin("PUT", TopicName.parse(name).rest_path)
        return Made(name, 0)

    def empty_terminated(self, name: str) -> Made:
        self._pulsar.admin("PUT", TopicName.parse(name).rest_path)
        self._pulsar.admin("POST", f"{TopicName.parse(name).rest_path}/terminate")
        return Made(name, 0)

    def sparse(self, name: str) -> Made:
        """The partition in the middle alone has messages."""
        made = self.empty_partitioned(name)
        with self._producer(made.topics[1]) as producer:
            for number in range(10):
                self._send(producer, number)
        return Made(name, 10, made.topics)

    def empty_partitioned(self, name: str) -> Made:
        self._pulsar.admin("PUT", f"{TopicName.parse(name).rest_path}/partitions", json=PARTITIONS)
        return Made(name, 0, tuple(f"{name}-partition-{number}" for number in range(PARTITIONS)))

    @contextmanager
    def _producer(self, name: str, **settings: Any) -> Iterator[pulsar.Producer]:
        with closing(open_client(self._pulsar.service_url)) as client:
            producer = client.create_producer(name, producer_name=f"p-{time.monotonic_ns()}", **settings)
            yield producer
            producer.flush()
            producer.close()

    def _send(self, producer: pulsar.Producer, number: int, **more: Any) -> None:
        producer.send_async(
            b"value %d " % number * (number % 13 + 1),
            _ignore,
            properties={"n": str(number)},
            partition_key=f"key-{number % 7}" if number % 3 else None,
            ordering_key=f"order-{number % 5}" if number % 4 == 0 else None,
            event_timestamp=1_000_000 + number if number % 2 else None,
            **more,
        )

    def _new_ledger(self, name: str) -> None:
        self._pulsar.admin("PUT", f"{TopicName.parse(name).rest_path}/unload")


def _ignore(result: pulsar.Result, _: object) -> None:
    assert result == pulsar.Result.Ok, result
