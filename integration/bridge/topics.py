"""Topics of every kind that Pulsar has, in several ledgers each."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pulsar
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from integration.bridge.place import LARGEST_MESSAGE, Place
from integration.lifecycle.acking import Coordinator
from integration.produce import MODES, Content, Mode, open_client, produce, random_contents
from integration.pulsar.waiting import until
from offloader.model import KIB, MIB, TopicName

PLAIN = Mode(batched=False, codec=pulsar.CompressionType.NONE)
PARTITIONS = 2
DELAYED_SUBSCRIPTION, LATER = "delayed", timedelta(seconds=2)


@dataclass(frozen=True)
class Made:
    """One topic or partition. `count`: messages that a reader gets; `view`: of the compacted view. `key`: decrypts."""

    topic: TopicName
    count: int
    view: int = 0
    key: Path | None = None


def mixed(place: Place, namespace: str) -> Iterator[Made]:
    """Batched and not, each codec, keyed, 0 B to 1 MiB."""
    topic = place.new_topic(namespace, "mixed")
    yield Made(topic, sum(produced(place, topic, mode, 36, seed, MIB) for seed, mode in enumerate(MODES)))


def partitioned(place: Place, namespace: str) -> Iterator[Made]:
    """Every message keyed."""
    topic = place.new_topic(namespace, "partitioned", PARTITIONS)
    partitions = [TopicName.parse(f"{topic}-partition-{number}") for number in range(PARTITIONS)]
    for partition in partitions:
        mode = MODES[partitions.index(partition)]
        yield Made(
            partition,
            produced(place, partition, PLAIN, 80, 20, 4 * KIB) + produced(place, partition, mode, 90, 21, KIB),
        )


def transactional(place: Place, namespace: str) -> Iterator[Made]:
    """Plain messages among those of committed and aborted transactions, and their markers."""
    topic, choice, seen = place.new_topic(namespace, "transactional"), random.Random(5), 0
    with until(lambda: _coordinator(place)) as coordinator:
        for number in range(12):
            commit, inside = number % 3 != 0, choice.randrange(4, 9)
            coordinator.send(str(topic), b"plain %d" % number)
            transaction = coordinator.begin(str(topic))
            for _ in range(inside):
                coordinator.send(str(topic), choice.randbytes(choice.randrange(2000)), transaction)
            coordinator.send(str(topic), b"between %d" % number)
            coordinator.end(transaction, commit=commit)
            seen += 2 + inside * commit
    yield Made(topic, seen)


def plain(place: Place, namespace: str) -> Iterator[Made]:
    """Two ledgers and a bit of small messages."""
    topic = place.new_topic(namespace, "plain")
    yield Made(topic, produced(place, topic, PLAIN, 150))


def compacted(place: Place, namespace: str) -> Iterator[Made]:
    """With a view of its keys."""
    topic = place.new_topic(namespace, "compacted")
    contents = [Content(b"%d" % n * (n % 90 + 1), f"key-{n % 7}", {"n": str(n)}, 0) for n in range(140)]
    with_client(place, lambda client: produce(client, str(topic), contents, PLAIN))
    place.admin("PUT", f"{topic.rest_path}/compaction")
    until(lambda: place.admin("GET", f"{topic.rest_path}/compaction").json()["status"] == "SUCCESS")
    yield Made(topic, len(contents), view=7)


def encrypted(place: Place, namespace: str) -> Iterator[Made]:
    """Batches and single messages under a key of ours."""
    topic, (public, private) = place.new_topic(namespace, "encrypted"), keys_in(place.folder)
    client = open_client(place.service_url)
    for batched in (False, True):
        producer = client.create_producer(
            str(topic),
            encryption_key="key",
            crypto_key_reader=pulsar.CryptoKeyReader(str(public), str(private)),
            batching_enabled=batched,
            batching_max_messages=5,
        )
        for content in random_contents(7 + batched, 100, smallest=1, largest=20_000):
            producer.send_async(content.payload, _ignore, properties=content.properties)
        producer.flush()
        producer.close()
    client.close()
    yield Made(topic, 200, key=private)


def chunked(place: Place, namespace: str) -> Iterator[Made]:
    """Messages of several entries, which may be in two ledgers."""
    topic, sent = place.new_topic(namespace, "chunked"), 0
    client = open_client(place.service_url)
    producer = client.create_producer(str(topic), chunking_enabled=True, batching_enabled=False)
    choice = random.Random(9)
    for number in range(70):
        size = 2 * LARGEST_MESSAGE + 777 if number in (5, 57) else choice.randrange(1, 3000)
        producer.send(choice.randbytes(size), properties={"n": str(number)})
        sent += 1
    client.close()
    yield Made(topic, sent)


def delayed(place: Place, namespace: str) -> Iterator[Made]:
    """Each to be delivered two seconds after it was sent, or at once."""
    topic = place.new_topic(namespace, "delayed")
    client = open_client(place.service_url)
    consumer = client.subscribe(str(topic), DELAYED_SUBSCRIPTION, consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(str(topic), batching_enabled=False)
    for number in range(130):
        producer.send_async(b"delayed %d" % number, _ignore, deliver_after=LATER if number % 2 else None)
    producer.flush()
    consumer.close()
    client.close()
    yield Made(topic, 130)


KINDS: Mapping[str, Callable[[Place, str], Iterator[Made]]] = {
    kind.__name__: kind for kind in (mixed, partitioned, transactional, compacted, encrypted, chunked, delayed, plain)
}


def with_client(place: Place, do: Callable[[pulsar.Client], object]) -> None:
    client = open_client(place.service_url)
    try:
        do(client)
    finally:
        client.close()


def produced(place: Place, topic: TopicName, mode: Mode, count: int, seed: int = 0, largest: int = 4 * KIB) -> int:
    """Messages of 0 bytes to `largest`; how many."""
    # an empty message that is compressed and alone in its entry is dropped by pulsar-client or by the Go client
    smallest = int(not mode.batched and mode.codec is not pulsar.CompressionType.NONE)
    contents = random_contents(seed, count, smallest=smallest, largest=largest, keyed=seed % 2 == 0)
    with_client(place, lambda client: produce(client, str(topic), contents, mode))
    return count


def _coordinator(place: Place) -> Coordinator | None:
    try:
        return Coordinator(place.service_url)
    except (AssertionError, OSError):
        return None


def keys_in(folder: Path) -> tuple[Path, Path]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private, public = folder / "private.pem", folder / "public.pem"
    pem = serialization.Encoding.PEM
    private.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    )
    public.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return public, private


def _ignore(result: pulsar.Result, _: object) -> None:
    assert result == pulsar.Result.Ok, result
