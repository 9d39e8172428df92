"""`bridged`: a stock broker reads objects that we put together, beside those that its own offloader wrote of the same
messages: all of them in order, and single entries from random places. BookKeeper's copies are gone."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial

import pulsar

from benchmarks.figures import Figure, Report, rates
from benchmarks.options import Options
from benchmarks.pulsar import READ_SECONDS
from integration.bridge.place import Place, place
from integration.produce import open_client
from integration.world import World
from offloader.errors import BrokerUnavailableError
from offloader.model import KIB, MIB, TopicName
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.settings import PulsarSettings

LEDGER_MIB = 128
RANDOM_READS = 100
STORE = "OFFLOADER_BRIDGE_STORE"
SETTINGS = {
    "managedLedgerMaxSizePerLedgerMbytes": str(LEDGER_MIB),
    "managedLedgerMaxEntriesPerLedger": "10000000",
    "managedLedgerCacheSizeMB": "1",
}
BRIDGED, STOCK = "bridged", "stock-offloaded"


def run(options: Options) -> Report:
    figures: list[Figure] = []
    os.environ.setdefault(STORE, "minio")
    with place(options.folder / "bridged", direct=True, settings=SETTINGS) as here:
        for kind, size in (("batches", options.batched_bytes), ("unbatched", options.unbatched_bytes)):
            if size:
                figures += _one_kind(options, here, kind, size)
    notes = [
        f"ledgers of {LEDGER_MIB} MiB; stock blocks have 64 MiB and one index entry, ours 1 MiB and one every 256 KiB"
    ]
    return Report("bridged", "the stock broker's reading from objects in MinIO", figures, notes)


def _one_kind(options: Options, here: Place, kind: str, size: int) -> list[Figure]:
    topics = {
        STOCK: filled(here, size, batched=kind == "batches"),
        BRIDGED: filled(here, size, batched=kind == "batches"),
    }
    here.offload(topics[STOCK])
    namespace = topics[BRIDGED].namespace
    connection = {"metadataServiceUri": here.cluster.books.metadata_uri}
    with World(
        here,
        here.store.archive(kind),
        options.folder / f"world-{kind}",
        [namespace],
        connection=connection,
        light=True,
    ) as world:
        world.catch_up(brokerReadable=True)
    for topic in topics.values():
        here.forget_bookkeepers_copies(topic)
    here.restart()
    # What was read before is found by itself: brokers keep the places of entries. So places are drawn first.
    ways: dict[str, tuple[str, Callable[[TopicName, int], float]]] = {
        f"a random entry, {kind}": ("a second", partial(_at_random, here)),
        f"in order, {kind}": ("MB/s", lambda topic, _: _in_order(here, topic)),
        f"a random entry that was read before, {kind}": ("a second", partial(_at_random, here)),
    }
    figures: list[Figure] = []
    for way, (unit, measure) in ways.items():
        found: dict[str, list[float]] = {f"{name}, {way}": [] for name in topics}
        for number in range(options.rounds + 1):
            for name in list(topics) if number % 2 == 0 else reversed(topics):
                value = measure(topics[name], number)
                options.say(f"bridged: round {number}: {name}, {way}: {value:.0f} {unit}")
                if number:  # the first one compiles the broker's code
                    found[f"{name}, {way}"].append(value)
        figures += rates(found, f"{STOCK}, {way}", unit, targets={f"{BRIDGED}, {way}": (">= 1", 1.0)})
    return figures


def filled(here: Place, size: int, *, batched: bool) -> TopicName:
    topic = here.new_topic(here.new_namespace(), "measured")
    client = open_client(here.service_url)
    producer = client.create_producer(
        str(topic),
        batching_enabled=batched,
        batching_max_messages=100,
        batching_max_publish_delay_ms=1000,
        block_if_queue_full=True,
        max_pending_messages=5000,
    )
    payload = os.urandom(KIB)
    for _ in range(size // KIB):
        producer.send_async(payload, _ignore)
    producer.flush()
    client.close()
    here.unload(topic)
    here.stats(topic)
    return topic


def _closed(here: Place, topic: TopicName) -> Sequence[tuple[int, int, int]]:
    """Ledger, entries, bytes."""
    return [(one["ledgerId"], one["entries"], one["size"]) for one in here.ledgers(topic) if one["offloaded"]]


def _in_order(here: Place, topic: TopicName) -> float:
    """MB/s."""
    ledgers = _closed(here, topic)
    last = (ledgers[-1][0], ledgers[-1][1] - 1)
    begun = time.perf_counter()
    with closing(_source(here)) as source, closing(source.open(topic, ledgers[0][0], 0, max_bytes=16 * MIB)) as reader:
        at = (-1, -1)
        while at < last:
            entries = reader.read(READ_SECONDS)
            if not entries:
                raise BrokerUnavailableError(f"{topic}: nothing arrived within {READ_SECONDS} s")
            at = (entries[-1].ledger, entries[-1].entry)
    return sum(size for _, _, size in ledgers) / (time.perf_counter() - begun) / 1e6


def _at_random(here: Place, topic: TopicName, seed: int) -> float:
    """Readers a second, one after the other, each until its first entry: of the median's seconds."""
    choice, ledgers, took = random.Random(seed), _closed(here, topic), []
    with closing(_source(here)) as source:
        for _ in range(RANDOM_READS):
            ledger, entries, _ = choice.choice(ledgers)
            begun = time.perf_counter()
            with closing(source.open(topic, ledger, choice.randrange(entries), max_bytes=64 * KIB)) as reader:
                if not reader.read(READ_SECONDS):
                    raise BrokerUnavailableError(f"{topic}: nothing arrived within {READ_SECONDS} s")
            took.append(time.perf_counter() - begun)
    return 1 / statistics.median(took)


def _source(here: Place) -> BrokerSource:
    return BrokerSource(PulsarSettings(here.service_url, here.admin_url))


def _ignore(_: pulsar.Result, __: pulsar.MessageId) -> None:
    pass
