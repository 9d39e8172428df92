"""Produces every kind of entry that pulsar-client can make, the same ones for the same seed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any

import pulsar

CODECS = (
    pulsar.CompressionType.NONE,
    pulsar.CompressionType.LZ4,
    pulsar.CompressionType.ZLib,
    pulsar.CompressionType.ZSTD,
    pulsar.CompressionType.SNAPPY,
)
LARGEST = 1024 * 1024
_FLUSH_AFTER = 20
_NEVER_MS = 3_600_000
HANGS_MS = 180_000


@dataclass(frozen=True, slots=True)
class Content:
    """What one message holds. `event_time` is in milliseconds, 0 where there is none; `key` is empty where there is
    none."""

    payload: bytes
    key: str
    properties: dict[str, str]
    event_time: int


@dataclass(frozen=True, slots=True)
class Mode:
    """How a producer writes: several messages an entry or one, and the codec."""

    batched: bool
    codec: pulsar.CompressionType


@dataclass(slots=True)
class Produced:
    """What was acknowledged: messages, their payloads' bytes, and per topic or partition the (ledger, entry) positions,
    sorted."""

    messages: int = 0
    payload_bytes: int = 0
    positions: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        return sum(len(positions) for positions in self.positions.values())


MODES = tuple(Mode(batched, codec) for batched, codec in product((True, False), CODECS))


class PatientClient(pulsar.Client):
    """Its producers wait for a busy machine: a send that runs into a time-out may have happened or not, and no test
    could tell."""

    def create_producer(self, topic: str, **settings: Any) -> pulsar.Producer:
        return super().create_producer(topic, **{"send_timeout_millis": HANGS_MS, **settings})


def open_client(service_url: str) -> pulsar.Client:
    """A client that logs errors only. Close it."""
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return PatientClient(service_url, operation_timeout_seconds=HANGS_MS // 1000, logger=logger)


def random_contents(
    seed: int, count: int, *, smallest: int = 0, largest: int = LARGEST, keyed: bool = False
) -> Iterator[Content]:
    """`count` messages of `smallest` to `largest` bytes, most of them small; the first two have exactly these sizes."""
    choice = random.Random(seed)
    for number in range(count):
        size = (
            (smallest, largest)[number]
            if number < 2
            else int(2 ** choice.uniform(0, (largest + 1).bit_length() - 1)) - 1
        )
        has_key = keyed or choice.random() < 0.5
        yield Content(
            payload=_payload(choice, max(size, smallest)),
            key=f"key-{choice.randrange(1000)}" if has_key else "",
            properties={f"name-{n}": f"value-{number}" for n in range(choice.randrange(3))},
            event_time=choice.randrange(1, 2_000_000_000_000) if choice.random() < 0.5 else 0,
        )


def mixed_contents(
    seed: int, messages: int, *, largest: int = LARGEST, keyed: bool = False
) -> list[tuple[Mode, list[Content]]]:
    """What `produce_mixed` sends: an equal share of `messages` in each mode."""
    shares = [messages // len(MODES) + (number < messages % len(MODES)) for number in range(len(MODES))]
    # pulsar-client 3.13 cannot decompress an empty ZLIB message that is not in a batch, and drops it
    smallest = [int(mode == Mode(batched=False, codec=pulsar.CompressionType.ZLib)) for mode in MODES]
    return [
        (
            mode,
            list(
                random_contents(
                    1000 * seed + number, shares[number], smallest=smallest[number], largest=largest, keyed=keyed
                )
            ),
        )
        for number, mode in enumerate(MODES)
    ]


def _payload(choice: random.Random, size: int) -> bytes:
    if choice.random() < 0.5:
        return choice.randbytes(size)
    word = choice.randbytes(8)
    return (word * (size // len(word) + 1))[:size]


def produce(client: pulsar.Client, topic: str, contents: Iterable[Content], mode: Mode) -> Produced:
    """Send `contents` with one producer and wait for the acknowledgements. Batches end by count or size, never by
    time."""
    producer = client.create_producer(
        topic,
        compression_type=mode.codec,
        batching_enabled=mode.batched,
        batching_max_publish_delay_ms=_NEVER_MS,
        block_if_queue_full=True,
    )
    outcomes: list[tuple[pulsar.Result, pulsar.MessageId]] = []
    sent: list[Content] = []
    for group in _groups(contents):
        for content in group:
            producer.send_async(
                content.payload,
                lambda result, position: outcomes.append((result, position)),
                properties=content.properties,
                partition_key=content.key or None,
                event_timestamp=content.event_time or None,
            )
        producer.flush()
        sent.extend(group)
    producer.close()
    failed = [result for result, _ in outcomes if result != pulsar.Result.Ok]
    assert not failed, failed
    assert len(outcomes) == len(sent)
    return Produced(
        len(sent),
        sum(len(content.payload) for content in sent),
        _positions(topic, [position for _, position in outcomes]),
    )


def produce_mixed(
    service_url: str, topic: str, *, seed: int, messages: int = 200, largest: int = LARGEST, partitioned: bool = False
) -> Produced:
    """`messages` messages in all modes in turn: batched and not, each codec. On a partitioned topic every message has a
    key."""
    contents = mixed_contents(seed, messages, largest=largest, keyed=partitioned)
    client = open_client(service_url)
    try:
        return merged(produce(client, topic, part, mode) for mode, part in contents if part)
    finally:
        client.close()


def merged(parts: Iterable[Produced]) -> Produced:
    """The sum of several results."""
    total = Produced()
    positions: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
    for part in parts:
        total.messages += part.messages
        total.payload_bytes += part.payload_bytes
        for topic, found in part.positions.items():
            positions[topic].update(found)
    total.positions = {topic: sorted(found) for topic, found in positions.items()}
    return total


def _groups(contents: Iterable[Content]) -> Iterator[list[Content]]:
    remaining = iter(contents)
    while group := list(islice(remaining, _FLUSH_AFTER)):
        yield group


def _positions(topic: str, ids: Sequence[pulsar.MessageId]) -> dict[str, list[tuple[int, int]]]:
    found: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
    for position in ids:
        name = topic if position.partition() < 0 else f"{topic}-partition-{position.partition()}"
        found[name].add((position.ledger_id(), position.entry_id()))
    return {name: sorted(positions) for name, positions in found.items()}
