"""What `offloader cost` says of requests is what the application makes of them."""

from __future__ import annotations

from collections import Counter

import pytest

from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.cursors.core.records import FirstState
from offloader.cursors.durable import DurableCursor
from offloader.gateway.application import StoredTopicsOfArchive
from offloader.gateway.entries.missing import OnMissing
from offloader.gateway.owners.claim import TopicClaim
from offloader.gateway.owners.claim_log import ClaimLog
from offloader.metadata.compaction import compact
from offloader.metadata.layout import KeyKind, parse_topic_key, subscription_folder
from offloader.metadata.manifest import FAN
from offloader.model import Position, TopicName
from offloader.operations.cost.requests import (
    AskedFor,
    Idling,
    Requests,
    Serving,
    of_idle_hour,
    of_segment,
    of_serving_hour,
    total,
)
from offloader.storage.forwarding import ForwardingStore
from offloader.storage.memory import MemoryStore
from tests.archive.support import Archive, message
from tests.format.support import Stored
from tests.offload.simulation import RETENTION_MS, Simulation

HEALTH_MS = 10_000
LIST_KEPT_MS = 5000

TOPIC = TopicName.parse("public/default/t")
WRITES = {"begin", "put_part", "commit", "put"}
READS = {"read", "stat", "commit"}  # S3 looks at what it has completed
LISTS = {"list", "list_uploads"}


class KindsStore(ForwardingStore):
    """Counts requests by verb and by what the key is."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.asked: Counter[tuple[str, object]] = Counter()

    def _call(self, verb, key, work):
        parsed = parse_topic_key(key)
        self.asked[verb, key.partition("/")[0] if parsed is None else parsed.kind] += 1
        return super()._call(verb, key, work)

    def taken(self, *kinds: object) -> Requests:
        """Of these kinds, by the classes that have prices."""

        def count(verbs: set[str]) -> int:
            return sum(n for (verb, kind), n in self.asked.items() if verb in verbs and kind in kinds)

        return Requests(count(WRITES), count(READS), count(LISTS))


def running(store: KindsStore) -> Simulation:
    """One topic that has a segment already: what is asked once for each topic is over."""
    sim = Simulation(1, store=store, entries_per_ledger=None)
    sim.cluster.create(TOPIC)
    sim.produce(TOPIC, 5)
    sim.settle()
    store.asked.clear()
    return sim


@pytest.mark.parametrize("entries", [1, 5, 60])
def test_a_segment_takes_the_requests_that_are_said(entries: int) -> None:
    store = KindsStore()
    sim = running(store)
    sim.produce(TOPIC, entries)
    sim.settle()
    asked = store.asked.copy()
    segments = sim.context.catalogs.load(TOPIC).segments[1:]
    store.asked = asked
    assert len(segments) == 1
    parts = len(segments[0].parts)
    said = of_segment(parts)
    of_data, of_index, of_record = store.taken(KeyKind.DATA), store.taken(KeyKind.INDEX), store.taken(KeyKind.RECORD)
    assert of_data + of_index == said[AskedFor.PARTS] + said[AskedFor.INDEXES]
    assert of_record == said[AskedFor.RECORDS]
    listed = store.taken("public")  # a listing's key is a folder
    assert store.taken(KeyKind.CATALOG) + listed == said[AskedFor.CATALOGS]
    journal = store.taken("_journal").writes
    assert journal == said[AskedFor.JOURNAL].writes if parts == 1 else journal < said[AskedFor.JOURNAL].writes


def test_parts_that_come_one_by_one_take_at_most_a_journal_record_each() -> None:
    store = KindsStore()
    sim = running(store)
    for _ in range(12):
        sim.produce(TOPIC, 6)
        sim.rounds(3, 500)
    sim.settle()
    asked = store.asked.copy()
    segments = sim.context.catalogs.load(TOPIC).segments[1:]
    store.asked = asked
    said = sum(of_segment(len(segment.parts))[AskedFor.JOURNAL].writes for segment in segments)
    slices_in_vain = len(segments)
    assert said / 2 < store.taken("_journal").writes <= said + slices_in_vain


def test_a_manifest_takes_the_requests_that_are_said() -> None:
    store = KindsStore()
    sim = running(store)
    head = sim.context.catalogs.head(TOPIC)
    while head.next_slot < FAN:
        sim.produce(TOPIC, 1)
        sim.settle()
        head = sim.context.catalogs.head(TOPIC)
    store.delete([key for key, _ in store.list("public/default/t/_manifests/")])
    store.asked.clear()
    assert compact(store, head) == 1
    made = store.taken(KeyKind.MANIFEST, KeyKind.CATALOG)
    assert made.writes == 3
    assert FAN <= made.reads <= FAN + 4


def test_an_idle_hour_takes_the_requests_that_are_said_however_many_topics_there_are() -> None:
    store = KindsStore()
    trigger = 10_000
    sim = Simulation(1, store=store, entries_per_ledger=None)
    for number in range(20):
        topic = TopicName("public", "default", f"t{number}")
        sim.cluster.create(topic)
        sim.produce(topic, 2)
    sim.settle()
    sim.serve_requests(trigger)
    sim.rounds(2, trigger)
    store.asked.clear()
    rounds = 3_600_000 // trigger
    for _ in range(rounds):
        sim.clock.now += trigger
        sim.driver.round()
    made = store.taken(*(kind for _, kind in store.asked))
    assert made == total(of_idle_hour(Idling(trigger_ms=trigger, deletion_interval_ms=600_000)))


def test_an_idle_hour_of_retention_takes_the_requests_that_are_said() -> None:
    store, topics, hours = KindsStore(), 5, 1
    policy = "archiveRetentionTimeInMinutes: 525600\narchiveRetentionSizeInMB: -1"
    sim = Simulation(1, store=store, entries_per_ledger=None, retention=policy)
    for number in range(topics):
        topic = TopicName("public", "default", f"t{number}")
        sim.cluster.create(topic)
        sim.produce(topic, 2)
    sim.settle()
    sim.rounds(20)
    before = store.asked.copy()
    looks = hours * 3_600_000 // RETENTION_MS
    for _ in range(looks):
        sim.clock.now += RETENTION_MS
        sim.driver.round()
    store.asked -= before
    made = store.taken(*(kind for _, kind in store.asked if kind != "_journal"))
    idling = Idling(trigger_ms=1, deletion_interval_ms=RETENTION_MS, retained=topics)
    assert made == of_idle_hour(idling)[AskedFor.RETENTION].times(hours)


def test_a_gateway_takes_the_requests_that_are_said() -> None:
    store = KindsStore()
    topics = [TopicName("public", "default", f"t{number}") for number in range(3)]
    for topic in topics:
        made = Archive(store, topic)
        made.claim(10, 0)
        made.add([Stored(10, entry, message("m")) for entry in range(3)])
    archived = StoredTopicsOfArchive(OpenArchive(Stores.of(store)), OnMissing.FAIL)
    served = [archived.open(topic) for topic in topics]
    archived.names("public/default")
    for topic, entries in zip(topics, served, strict=True):
        entries.refresh()
        ClaimLog(store, lambda: "t").append(TopicClaim(topic, 0, "g"))
    begin = FirstState(Position(0, 10, -1))
    folder = subscription_folder(topics[0], "s")
    cursor = DurableCursor.open(store, folder, lambda: begin, lambda: "t")
    cursor.acknowledge_up_to(Position(0, 10, 0))
    store.asked.clear()
    for entries in served:
        entries.refresh()
    cursor.flush()
    archived.names("public/default")
    ClaimLog(store, lambda: "t").newest_of_all()
    made_requests = store.taken(*(kind for _, kind in store.asked))
    hour = 3_600_000
    said = of_serving_hour(Serving(3, 1, 1, hour, hour, hour))[AskedFor.GATEWAY]
    beside = Requests(reads=hour / HEALTH_MS, lists=hour / LIST_KEPT_MS - 1)
    assert made_requests + beside == said
