"""Archives that released versions wrote, and what was in Pulsar then: kept in `tests/fixtures/archives`, one for each
format version, and `3b` where version 3 has got kinds of records since then.

Each is a `.tar.xz` of a folder `root` (the store, with its open uploads), folders `brokers` and `stock` (buckets of
brokers: bridged ledgers, and what they have offloaded by themselves) and a file `cluster.json`: the in-memory Pulsar's
topics with all entries ever written, which ledgers it reads from its buckets, the time, and what was open and pending.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from dev.release.build import extract
from offloader.config.levels import TopicPolicy
from offloader.metadata.catalog_codec import plain
from offloader.metadata.deal import Deal, DealBy
from offloader.metadata.envelope import unwrap, wrap
from offloader.metadata.layout import catalog_folder
from offloader.model import GapKind, TopicName
from offloader.ports.object_store import ObjectStore, Stat
from offloader.storage.forwarding import ForwardingStore, Verb
from offloader.storage.local import LocalStore
from tests.archive.support import message
from tests.bridge.driver.simulation import BUCKET, BridgedSimulation, ReadablePolicies
from tests.fakes.cluster import MemoryCluster
from tests.fakes.cluster_state import Ledger, MemoryCursor, MemoryEntry, MemoryTopic, Namespace
from tests.offload.simulation import Simulation

HEAD_MAGIC = b"PSOH"
DELETIONS_VERSION = 3
MAGIC = b"PSOM"

ARCHIVES = Path(__file__).resolve().parents[1] / "fixtures" / "archives"
VERSIONS = sorted(
    (path.name.removesuffix(".tar.xz") for path in ARCHIVES.glob("*.tar.xz")),
    key=lambda name: (int(name.rstrip(ascii_lowercase)), name),
)
NEWEST = VERSIONS[-1]

LONG = TopicName.parse("public/default/long")  # many segments, manifests
OPEN = TopicName.parse("public/default/open")  # an open segment with uploaded parts
LOST = TopicName.parse("public/default/lost")  # a recorded loss
GONE = TopicName.parse("public/default/gone")  # deleted on request
GOING = TopicName.parse("public/default/going")  # its deletion can still be taken back
AGAIN = TopicName.parse("public/default/again")  # deleted in Pulsar and made again
BRIDGED = TopicName.parse("public/default/bridged")  # stock brokers read some of it, and are about to read more
REBUILT = TopicName.parse("public/default/rebuilt")  # its catalog is the second one
HISTORY = TopicName.parse("public/default/history")  # several of its segments are assigned at once
LEFT = TopicName.parse("public/default/left")  # Pulsar has trimmed it, then it was deleted there; it stays archived
MOVED = TopicName.parse("public/second/moved")  # the second shard has it, and a segment of it open
MOVING = TopicName.parse("public/second/moving")  # it is to be the second shard's: only the claim is missing
TOPICS = (LONG, OPEN, LOST, GONE, GOING, AGAIN, BRIDGED, REBUILT, LEFT, HISTORY)  # of the first shard
PASSED = (MOVED, MOVING)
COPIED = TopicName.parse("public/default/copied")  # brokers have offloaded some ledgers; the archive has copies of them
STOCK = "s3://stock"  # where they have them
FORMER_GENERATION = catalog_folder(REBUILT)  # the only thing that a check speaks of: it has to stay
FIRST, SECOND = (Deal("sim", index, 2, DealBy.NAMESPACE) for index in range(2))
CLUSTER = "memory"
SETTINGS = {"roll": "30s", "fail_on_data_loss": False, "grace_ms": 60_000, "entries_per_ledger": 12}


class TimelessStore(ForwardingStore):
    """A folder's times are the machine's, not the simulation's: it does not say them."""

    def _call(self, verb: Verb, key: str, work: Callable[[], Any]) -> Any:
        answer = super()._call(verb, key, work)
        if isinstance(answer, Stat):
            return replace(answer, modified_at=0)
        if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Stat):
            return answer[0], replace(answer[1], modified_at=0)
        return answer


class BridgedAlone(ReadablePolicies):
    """Of all topics stock brokers are to read one."""

    def of(self, topic: TopicName, namespace_property: Any = None) -> TopicPolicy:
        return replace(super().of(topic, namespace_property), broker_readable=topic == BRIDGED)


class Archived(BridgedSimulation):
    """A simulation over folders."""

    def start(self) -> None:
        super().start()
        object.__setattr__(self.context, "policies", BridgedAlone(self.config.policies, self))

    def second(self, seed: int) -> Simulation:
        """The other shard, beside it."""
        return Simulation(seed, application=SECOND.name, deal=SECOND, store=self.store, cluster_of=self, **SETTINGS)


def in_folder(root: Path, url: str) -> TimelessStore:
    """A store that tells the same wherever its folder is."""
    store = TimelessStore(LocalStore(root))
    store.url = url
    return store


def cluster_fields(cluster: MemoryCluster) -> dict[str, Any]:
    """All that a later process has to find again."""
    state = cluster.state
    return {
        "lastLedger": state.last_ledger,
        "created": state.created,
        "tokens": state.tokens,
        "namespaces": sorted(state.namespaces),
        "topics": [
            {"topic": str(name), "living": each is state.topics.get(name), **_topic_fields(each)}
            for name in (*TOPICS, *PASSED, COPIED)
            for each in state.all_incarnations(name)
        ],
    }


def _topic_fields(topic: MemoryTopic) -> dict[str, Any]:
    return {
        "created": topic.created,
        "terminated": topic.terminated,
        "listed": [ledger.id for ledger in topic.ledgers],
        "ledgers": [
            {
                "id": ledger.id,
                "closed": ledger.closed,
                "offloaded": ledger.offloaded,
                "offloadedAs": ledger.offloaded_as,
                "entries": [[base64.b64encode(e.data).decode(), e.hidden] for e in ledger.entries],
            }
            for ledger in topic.history
        ],
        "cursors": {
            name: {"mark": list(cursor.mark), "properties": cursor.properties} for name, cursor in topic.cursors.items()
        },
    }


def cluster_of(fields: dict[str, Any]) -> MemoryCluster:
    """The cluster as it was."""
    cluster = MemoryCluster(seed=99, name=CLUSTER, entries_per_ledger=SETTINGS["entries_per_ledger"])
    state = cluster.state
    state.last_ledger, state.created, state.tokens = fields["lastLedger"], fields["created"], fields["tokens"]
    for name in fields["namespaces"]:
        state.namespaces[name] = Namespace()
    for said in fields["topics"]:
        topic = _topic_of(said)
        if said["living"]:
            state.topics[topic.name] = topic
        else:
            state.deleted.setdefault(topic.name, []).append(topic)
    return cluster


def _topic_of(said: dict[str, Any]) -> MemoryTopic:
    history = [
        Ledger(
            one["id"],
            [
                MemoryEntry(base64.b64decode(data), hidden=None if hidden is None else GapKind(hidden))
                for data, hidden in one["entries"]
            ],
            closed=one["closed"],
            offloaded=one["offloaded"],
            offloaded_as=one["offloadedAs"],
        )
        for one in said["ledgers"]
    ]
    topic = MemoryTopic(TopicName.parse(said["topic"]), said["created"], history[0])
    topic.history = history
    topic.ledgers = [ledger for ledger in history if ledger.id in said["listed"]]
    topic.terminated = said["terminated"]
    for name, cursor in said["cursors"].items():
        topic.cursors[name] = MemoryCursor(tuple(cursor["mark"]), None, cursor["properties"])
    return topic


@dataclass
class Golden:
    """An archive of an older version, in a folder of the test's own."""

    version: str
    root: Path
    said: dict[str, Any]

    @property
    def store(self) -> ObjectStore:
        return TimelessStore(LocalStore(self.root))

    @property
    def bucket(self) -> ObjectStore:
        """The brokers'."""
        return in_folder(self.root.parent / "brokers", BUCKET)

    @property
    def stock(self) -> ObjectStore:
        """That of Pulsar's own offloader."""
        return in_folder(self.root.parent / "stock", STOCK)

    def records(self, part: str = "") -> Iterator[tuple[str, bytes]]:
        """The keys of all records below one, with their bytes."""
        for key, _ in self.store.list(part):
            data = self.store.read(key)[0]
            if data[: len(MAGIC)] in (MAGIC, HEAD_MAGIC) and "/records-" not in key:
                yield key, data

    def raise_versions(self, part: str) -> None:
        """All records below it were written by a newer version."""
        for key, data in self.records(part):
            self.store.put(key, newer(data))

    def continued(self) -> Continued:
        """The present version goes on with it: other uuids, the same cluster, a day later."""
        stores = {"store": self.store, "bucket": self.bucket, "stock": self.stock}
        return Continued(2, said=self.said, deal=FIRST, **stores, **SETTINGS)


@dataclass
class Continued(Archived):
    """A simulation over what a file says."""

    said: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, contexts in self.said["contexts"].items():
            known = {int(ledger): uuid for ledger, uuid in contexts.items()}
            self.records.contexts[TopicName.parse(name)] = known

    def made_cluster(self) -> MemoryCluster:
        return cluster_of(self.said["cluster"])

    def start(self) -> None:
        self.clock.now = max(self.clock.now, self.said["now"] + 10_000)
        super().start()


def newer(data: bytes) -> bytes:
    """The same record, of a format that does not exist yet."""
    record = plain(data)
    opened = unwrap("old", record)
    return data[: len(data) - len(record)] + wrap(opened.token, opened.body, DELETIONS_VERSION + 1)


def unpacked(version: str, folder: Path) -> Golden:
    """A copy that may be written to."""
    extract(ARCHIVES / f"{version}.tar.xz", folder)
    return Golden(version, folder / "root", json.loads((folder / "cluster.json").read_text()))


def entry_of(rng: random.Random, number: int, *, is_message: bool) -> bytes:
    """Something that compresses well: the fixture is to be small."""
    text = f"order {number} " * rng.choice([1, 3, 9])
    return message(text) if is_message else text.encode()
