"""A producer and durable consumers that run through everything: what they send, when it is confirmed, what comes."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Self

import pulsar

from integration.produce import open_client
from offloader.model import TopicName

SECONDS_BETWEEN = 0.02
KINDS = {"shared": pulsar.ConsumerType.Shared, "key-shared": pulsar.ConsumerType.KeyShared}
_WAIT_MS = 200


def value(number: int) -> bytes:
    """Of the message with this number: 0 to 2 KiB."""
    return random.Random(number).randbytes(number * 37 % 2048)


def digest(number: int) -> str:
    return hashlib.sha256(value(number)).hexdigest()


class Traffic:
    """`sent`, `confirmed`: by number, when (s of the monotonic clock). `received`: by consumer and number, when."""

    def __init__(self, service_url: str, topic: TopicName) -> None:
        self.topic = topic
        self.sent: dict[int, float] = {}
        self.confirmed: dict[int, float] = {}
        self.received: dict[str, dict[int, list[float]]] = {kind: {} for kind in KINDS}
        self.wrong: list[str] = []
        self._client = open_client(service_url)
        self._stop, self._drained = threading.Event(), threading.Event()
        self._producing = threading.Thread(target=self._produce, daemon=True)
        self._consuming: list[threading.Thread] = []

    def __enter__(self) -> Self:
        """Subscribed before anything happens to the topic: a client may lose the answer to a subscribe to an unload."""
        for kind in KINDS:
            self._consuming.append(
                threading.Thread(target=self._consume, args=(kind, self._subscribed(kind)), daemon=True)
            )
        for thread in (*self._consuming, self._producing):
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._drained.set()
        for thread in (self._producing, *self._consuming):
            thread.join()
        self._client.close()

    def end_producing(self) -> None:
        """Until all is confirmed."""
        self._stop.set()
        self._producing.join()

    def is_drained(self) -> bool:
        """Whether each consumer has each message that was confirmed."""
        return all(self.confirmed.keys() <= received.keys() for received in self.received.values())

    def pause(self, begin: float, end: float) -> float:
        """The longest time that a message, sent within these times, took to be confirmed, in seconds."""
        took = [self.confirmed[n] - at for n, at in self.sent.items() if begin <= at < end and n in self.confirmed]
        return max(took, default=0.0)

    def delivered_again(self, begin: float, end: float) -> int:
        """Deliveries within these times of messages that had been delivered before."""
        times = (again for received in self.received.values() for _, *more in received.values() for again in more)
        return sum(begin <= at < end for at in times)

    def _produce(self) -> None:
        producer = self._client.create_producer(
            str(self.topic), batching_enabled=False, block_if_queue_full=True, max_pending_messages=5000
        )
        while not self._stop.wait(SECONDS_BETWEEN):
            number = len(self.sent)
            self.sent[number] = time.monotonic()
            producer.send_async(
                value(number), self._confirm(number), properties={"n": str(number)}, partition_key=f"k{number % 7}"
            )
        producer.flush()
        producer.close()

    def _confirm(self, number: int) -> object:
        def confirm(result: pulsar.Result, _: pulsar.MessageId) -> None:
            if result == pulsar.Result.Ok:
                self.confirmed[number] = time.monotonic()
            else:
                self.wrong.append(f"message {number} was not taken: {result}")

        return confirm

    def _subscribed(self, kind: str) -> pulsar.Consumer:
        earliest = pulsar.InitialPosition.Earliest
        return self._client.subscribe(str(self.topic), kind, consumer_type=KINDS[kind], initial_position=earliest)

    def _consume(self, kind: str, consumer: pulsar.Consumer) -> None:
        received = self.received[kind]
        while not self._drained.is_set():
            try:
                message = consumer.receive(_WAIT_MS)
            except pulsar.Timeout:
                continue
            number = int(message.properties()["n"])
            if message.data() != value(number):
                self.wrong.append(f"message {number} came with other bytes")
            received.setdefault(number, []).append(time.monotonic())
            consumer.acknowledge(message)
        consumer.close()


def stored(numbers: list[int], traffic: Traffic) -> tuple[list[int], Counter[int]]:
    """Of what a reader got in the end: those that are missing, and how often the others are there too much."""
    found = Counter(numbers)
    missing = sorted(traffic.confirmed.keys() - found.keys())
    return missing, Counter({number: count - 1 for number, count in found.items() if count > 1})
