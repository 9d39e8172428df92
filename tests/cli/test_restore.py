"""`offloader topics restore` over an archive in memory and a Pulsar of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.config import Config
from offloader.cursors.broker_losses import BrokerSettings, defaults_of
from offloader.cursors.copies import CopiedCursor, CursorCopy, pieces_of
from offloader.cursors.copy_store import write_copy
from offloader.cursors.facts import TopicFacts
from offloader.errors import FatalError
from offloader.metadata.layout import catalog_folder, cursor_copies_folder
from offloader.model import AcknowledgedRange, GapKind, PartlyAcknowledged, Position, TopicName
from offloader.operations.restore.pairs import Existing
from offloader.operations.restore.ports import BrokerStoring
from offloader.operations.restore.provenance import Origin, read_provenance
from offloader.operations.restore.schemas import SchemaRegistry, SchemaVersions
from offloader.operations.restore.tail import Tail, TargetContents, tail_of
from offloader.ports.admin import TopicSchema
from tests.archive.support import TOPIC, Archive, gap, stream
from tests.archive.test_deleted import append, deleting
from tests.cli.support import Line
from tests.fakes.cluster_subscriptions import HeldCursor, MemorySubscriptions
from tests.fakes.ledger_metadata import MemoryMetadata
from tests.fakes.topic_facts import write_facts
from tests.format.support import Stored, checksummed
from tests.operations.restore.registry import FakeRegistry, schemas_of
from tests.operations.restore.support import MemoryTarget, envelopes

AGAIN = TopicName.parse("public/default/again")


class Target(MemoryTarget):
    """One topic of the fake cluster."""

    topic = AGAIN
    origin: Origin

    def tail(self) -> Tail:
        last = (1, len(self.stored) - 1) if self.stored else None
        found = TargetContents(len(self.stored), last, self.stored[-1] if self.stored else None)
        return tail_of(self.topic, self.origin, found, settled=True)


@dataclass
class FakeCluster:
    """Remembers what was made and stored."""

    topics: dict[TopicName, Target] = field(default_factory=dict)
    partitioned: dict[TopicName, int] = field(default_factory=dict)
    refuse: str = ""
    refuse_new: str = ""
    registry: FakeRegistry = field(default_factory=FakeRegistry)
    storing_: BrokerStoring = field(default_factory=lambda: BrokerStoring(BrokerSettings(batch_index=True)))
    refuse_subscriptions: str = ""

    def __post_init__(self) -> None:
        metadata = MemoryMetadata()
        self.subscriptions = MemorySubscriptions(metadata.nodes, metadata.uri.managed_ledgers, lambda: 0)

    def check_subscriptions(self, topic: TopicName, *, new: bool) -> None:
        if self.refuse_subscriptions:
            raise FatalError(f"{self.refuse_subscriptions} new={new}")

    def lengths(self, topic: TopicName) -> list[tuple[int, int | None]]:
        """As entries were stored; subscriptions are made in the same ledger."""
        if topic not in self.subscriptions.topics:
            self.subscriptions.make(topic, {1: len(self.topics[topic].stored)})
        return [(1, None)]

    def storing(self, _: str) -> BrokerStoring:
        return self.storing_

    def existing(self, namespace: str) -> Existing:
        return Existing([t for t in self.topics if t.namespace == namespace], dict(self.partitioned))

    def check_new(self, topic: TopicName) -> None:
        if self.refuse_new:
            raise FatalError(self.refuse_new)

    def create(self, topic: TopicName, partitions: int) -> None:
        if partitions:
            self.partitioned[topic] = partitions
        names = [replace(topic, name=f"{topic.name}-partition-{n}") for n in range(partitions)] or [topic]
        self.topics |= {name: Target(Random(1)) for name in names}

    def check_schemas(self, topic: TopicName, schemas: Sequence[TopicSchema], *, try_upload: bool) -> SchemaVersions:
        registry = SchemaRegistry(self.registry.rest(), topic)
        if try_upload and (missing := registry.missing(schemas)):
            registry.try_upload(missing, TopicName.parse("public/default/tried"))
        return registry.expected(schemas)

    def upload_schemas(self, topic: TopicName, schemas: Sequence[TopicSchema]) -> SchemaVersions:
        return SchemaRegistry(self.registry.rest(), topic).upload(schemas)

    def target(self, topic: TopicName, origin: Origin) -> Target:
        if self.refuse:
            raise FatalError(self.refuse)
        target = self.topics[topic]
        target.topic, target.origin = topic, origin
        return target

    def close(self) -> None:
        pass


@pytest.fixture
def cluster(line: Line) -> FakeCluster:
    cluster = FakeCluster()
    line.dependencies = replace(line.dependencies, target=lambda _: cluster)
    return cluster


def archive(line: Line) -> None:
    line.root()
    line.archive.claim(1)
    line.archive.add(stream(1, 0, 4), [gap(1, 5, 6, GapKind.MARKER)], closed={1: 6})
    line.archive.add(stream(2, 0, 3), closed={2: 3})


def test_a_topic_is_made_and_filled(line: Line, cluster: FakeCluster) -> None:
    archive(line)
    text = line.ok("topics", "restore", "orders", "--to", "again")
    assert text == (
        f"{TOPIC} is restored to {AGAIN}: 9 entries sent ({sum(map(len, cluster.topics[AGAIN].stored))} bytes), 0 were "
        "there, 2 positions in gaps, 0 losses passed over\n"
    )
    marks = [read_provenance(e.metadata) for e in envelopes(cluster.topics[AGAIN])]
    assert [m.position for m in marks] == [Position(0, 1, n) for n in range(5)] + [Position(0, 2, n) for n in range(4)]


def test_another_call_goes_on(line: Line, cluster: FakeCluster) -> None:
    archive(line)
    line.ok("topics", "restore", "orders", "--to", "again")
    line.archive.add(stream(3, 0, 1), closed={3: 1})
    (done,) = line.json_lines("topics", "restore", "orders", "--to", "again")
    assert (done["sent"], done["alreadyThere"], done["gaps"], done["dryRun"]) == (2, 9, 0, False)
    assert done["bytes"] == sum(map(len, cluster.topics[AGAIN].stored[9:]))


def test_a_dry_run_touches_nothing(line: Line, cluster: FakeCluster) -> None:
    archive(line)
    text = line.ok("topics", "restore", "orders", "--to", "again", "--dry-run")
    assert "(to be made): 9 entries" in text
    assert cluster.topics == {}
    (planned,) = line.json_lines("topics", "restore", "orders", "--to", "again", "--dry-run")
    (done,) = line.json_lines("topics", "restore", "orders", "--to", "again")
    # The headers of blocks, which are counted, weigh a quarter in so small an archive.
    assert planned["bytes"] == pytest.approx(done["bytes"], rel=0.3)
    (planned,) = line.json_lines("topics", "restore", "orders", "--to", "again", "--dry-run")
    assert (planned["sent"], planned["alreadyThere"], planned["dryRun"]) == (0, 9, True)


def test_a_loss_is_refused_before_anything_is_made(line: Line, cluster: FakeCluster) -> None:
    archive(line)
    line.archive.lose(Position(0, 3, 0), Position(0, 5, -1))
    line.archive.add(stream(5, 0, 1), closed={5: 1})
    error = line.error("topics", "restore", "orders", "--to", "again")
    assert error.startswith(f"{TOPIC}: 3:0..5:-1 (lost: trimmed")
    assert error.endswith("--allow-missing goes on without it")
    assert cluster.topics == {}
    (done,) = line.json_lines("topics", "restore", "orders", "--to", "again", "--allow-missing")
    assert (done["sent"], done["losses"]) == (11, 1)


def test_what_nothing_proves_is_refused_like_a_loss(line: Line, cluster: FakeCluster) -> None:
    line.root()
    line.archive.claim(1)
    line.archive.add(stream(1, 0, 4))
    line.archive.add(stream(2, 0, 4))
    assert "nothing records that ledger 1 ended with 4" in line.error("topics", "restore", "orders", "--to", "again")
    (done,) = line.json_lines("topics", "restore", "orders", "--to", "again", "--allow-missing")
    assert (done["sent"], done["losses"]) == (10, 1)


def partitioned(line: Line, *numbers: int) -> list[Archive]:
    """Partitions with as many entries as their numbers say, and one more."""
    line.root()
    parts = [Archive(line.archive.store, replace(TOPIC, name=f"orders-partition-{number}")) for number in numbers]
    for number, part in zip(numbers, parts, strict=True):
        part.claim(1)
        part.add(stream(1, 0, number), closed={1: number})
    return parts


def test_all_partitions_go_to_a_new_partitioned_topic(line: Line, cluster: FakeCluster) -> None:
    partitioned(line, 0, 2)
    done = line.json_lines("topics", "restore", "orders", "--to", "again")
    assert [(d["target"][-1], d["sent"]) for d in done] == [("0", 1), ("2", 3)]
    assert cluster.partitioned == {AGAIN: 3}


def test_a_partition_whose_catalog_is_gone_is_not_restored_as_nothing(line: Line, cluster: FakeCluster) -> None:
    _, part = partitioned(line, 0, 1)
    line.archive.store.delete([key for key, _ in line.archive.store.list(catalog_folder(part.topic))])
    assert "orders-partition-1 has segments in the archive, but its catalog" in line.error(
        "topics", "restore", "orders", "--to", "again"
    )
    assert not cluster.partitioned


def test_a_refusal_is_one_line(line: Line, cluster: FakeCluster) -> None:
    archive(line)
    cluster.create(AGAIN, 0)
    cluster.refuse = "its retention may remove what was restored"
    assert line.error("topics", "restore", "orders", "--to", "again") == cluster.refuse


@pytest.mark.parametrize("mode", [[], ["--dry-run"]])
def test_what_a_new_topic_would_be_refused_for_is_found_before_it_is_made(
    line: Line, cluster: FakeCluster, mode: list[str]
) -> None:
    archive(line)
    cluster.refuse_new = "its retention may remove what was restored"
    assert line.error("topics", "restore", "orders", "--to", "again", *mode) == cluster.refuse_new
    assert cluster.topics == {}
    cluster.create(AGAIN, 0)
    line.ok("topics", "restore", "orders", "--to", "again", *mode)


def test_unknown_topics_and_bad_options(line: Line, cluster: FakeCluster) -> None:
    archive(line)
    assert "is not in the archive" in line.error("topics", "restore", "nothing", "--to", "again")
    assert "is not a size" in line.error("topics", "restore", "orders", "--to", "again", "--rate", "fast")
    assert "nothing would ever go" in line.error("topics", "restore", "orders", "--to", "again", "--rate", "0")
    line.ok("topics", "restore", "orders", "--to", "again", "--rate", "1G")


def versioned(number: int, version: int) -> bytes:
    fields = {"producer_name": "p", "sequence_id": number, "publish_time": 1_700_000_000_000}
    return checksummed(MessageMetadata(**fields, schema_version=version.to_bytes(8)), b"%d" % number)


def with_schemas(line: Line, *versions: int, topic: TopicName = TOPIC) -> None:
    """Entries that name these schema versions."""
    line.root()
    archive = Archive(line.archive.store, topic)
    archive.claim(1)
    entries = [versioned(n, version) for n, version in enumerate(versions)]
    archive.add([Stored(1, n, data) for n, data in enumerate(entries)], closed={1: len(entries) - 1})


def copy_schemas(line: Line, schemas: Sequence[TopicSchema], topic: TopicName = TOPIC, at: int = 5) -> None:
    write_facts(line.archive.store, TopicFacts(topic, at, schemas=tuple(schemas)))


def named(target: Target) -> list[int]:
    return [int.from_bytes(one.metadata.schema_version) for one in envelopes(target)]


def test_schemas_are_uploaded_and_entries_name_them(line: Line, cluster: FakeCluster) -> None:
    with_schemas(line, 0, 0, 1)
    copy_schemas(line, schemas_of("a", "b"))
    line.ok("topics", "restore", "orders", "--to", "again", "--dry-run")
    assert cluster.registry.topics == {}
    line.ok("topics", "restore", "orders", "--to", "again")
    assert cluster.registry.definitions(AGAIN) == [("AVRO", "a"), ("AVRO", "b")]
    assert named(cluster.topics[AGAIN]) == [0, 0, 1]


def test_entries_name_the_versions_that_the_target_gives(line: Line, cluster: FakeCluster) -> None:
    with_schemas(line, 3, 4)
    copy_schemas(line, schemas_of("a", "b", first=3))
    cluster.registry.add(AGAIN, *schemas_of("x", "b"))
    line.ok("topics", "restore", "orders", "--to", "again")
    assert named(cluster.topics[AGAIN]) == [2, 1]


@pytest.mark.parametrize("mode", [(), ("--dry-run",)])
def test_a_topic_without_archived_schemas_is_refused_before_anything_is_made(
    line: Line, cluster: FakeCluster, mode: tuple[str, ...]
) -> None:
    with_schemas(line, 0)
    assert "has no schema version 0" in line.error("topics", "restore", "orders", "--to", "again", *mode)
    assert cluster.topics == {}
    line.ok("topics", "restore", "orders", "--to", "again", "--ignore-schemas", *mode)
    assert cluster.registry.topics == {}
    if not mode:
        assert named(cluster.topics[AGAIN]) == [0]


@pytest.mark.parametrize("forbidden", [False, True])
def test_a_dry_run_finds_schemas_that_cannot_be_uploaded(line: Line, cluster: FakeCluster, forbidden: bool) -> None:
    with_schemas(line, 0, 1)
    copy_schemas(line, schemas_of("a", "b"))
    cluster.registry.refused, cluster.registry.forbidden = {"b"}, forbidden
    why = "only the tenant's administrators" if forbidden else "refuses schema version 1"
    assert why in line.error("topics", "restore", "orders", "--to", "again", "--dry-run")
    assert cluster.registry.topics == {}
    line.ok("topics", "restore", "orders", "--to", "again", "--dry-run", "--ignore-schemas")


def test_partitions_have_their_schemas_together(line: Line, cluster: FakeCluster) -> None:
    parts = [TopicName.parse(f"public/default/orders-partition-{number}") for number in range(2)]
    for number, part in enumerate(parts):
        with_schemas(line, number, topic=part)
        copy_schemas(line, schemas_of(*"ab"[: 1 + number]), part, at=5 + number)  # one was looked at before
    line.ok("topics", "restore", "orders", "--to", "again")
    assert cluster.registry.definitions(AGAIN) == [("AVRO", "a"), ("AVRO", "b")]
    again = [TopicName.parse(f"public/default/again-partition-{number}") for number in range(2)]
    assert [named(cluster.topics[part]) for part in again] == [[0], [1]]
    (first, second) = json.loads(line.ok("topics", "schemas", "orders", "--output", "json"))
    assert (first["topic"], first["version"], second["version"]) == (str(TOPIC), 0, 1)


def test_the_archived_schemas_of_a_topic_are_shown(line: Line) -> None:
    with_schemas(line, 0)
    assert line.ok("topics", "schemas", "orders") == f"{TOPIC} has no archived schemas\n"
    copy_schemas(
        line, [TopicSchema(0, "STRING", b"", 1_700_000_000_000), TopicSchema(1, "AVRO", b"{}", 5, (("a", "b"),))]
    )
    (_, second) = json.loads(line.ok("topics", "schemas", "orders", "--output", "json"))
    assert second == {
        "topic": str(TOPIC), "version": 1, "type": "AVRO", "created": "1970-01-01T00:00:00.005Z",
        "properties": {"a": "b"}, "schema": "{}",
    }  # fmt: skip
    text = line.ok("topics", "schemas", "orders")
    assert "STRING" in text
    assert "2023-11-14T22:13:20.000Z" in text
    assert "is not in the archive" in line.error("topics", "schemas", "nothing")


def test_the_target_may_be_in_another_cluster(line: Line, cluster: FakeCluster) -> None:
    archive(line)
    seen: list[str] = []

    def target(config: Config) -> FakeCluster:
        seen.append(config.pulsar.service_url)
        return cluster

    line.dependencies = replace(line.dependencies, target=target)
    other = line.folder / "other.yaml"
    other.write_text(line.config.replace("pulsar://localhost:6650", "pulsar://elsewhere:6650"))
    line.ok("topics", "restore", "orders", "--to", "again", "--to-config", str(other))
    assert seen == ["pulsar://elsewhere:6650"]


def test_progress_is_told_in_a_unit_that_fits(line: Line, cluster: FakeCluster) -> None:
    archive(line)
    told = line.run("topics", "restore", "orders", "--to", "again", "--subscriptions", "none").stderr.splitlines()
    assert told
    assert [row for row in told if not re.search(r": [\d.]+ (bytes|kB) of [\d.]+ kB$", row)] == []


def test_json_is_an_object_a_line(line: Line, cluster: FakeCluster) -> None:
    archive(line)
    text = line.ok("topics", "restore", "orders", "--to", "again", "--output", "json")
    fields = {"message", "topic", "target", "dryRun", "sent", "bytes", "alreadyThere", "skipped", "gaps", "losses"}
    assert set(json.loads(text)) == fields


LENGTHS = [(1, 7), (2, None)]
RANGES = [AcknowledgedRange((1, 3), (1, 5)), AcknowledgedRange((2, 0), (2, 1)), AcknowledgedRange((2, 5), (2, 8))]


def copied(line: Line, at: int, mark: tuple[int, int] = (1, 1), topic: TopicName = TOPIC, name: str = "job") -> None:
    """Two subscriptions: one with holes, a gap among them, a part of a batch, and acknowledged ahead of the archive."""
    job = CopiedCursor(name, mark, pieces_of(mark, RANGES, [PartlyAcknowledged(2, 3, (0b101,))], LENGTHS))
    copy = CursorCopy(topic, 0, at, (job, CopiedCursor("other", (2, 9), replicated=True)))
    write_copy(line.archive.store, copy, line.archive.token, None)


def test_subscriptions_stand_where_they_stood(line: Line, cluster: FakeCluster) -> None:
    archive(line)
    copied(line, 1_000)
    _, job, other = line.json_lines("topics", "restore", "orders", "--to", "again")
    held = cluster.subscriptions.topics[AGAIN].cursors
    # of 1:0..4 and 2:0..3 these are 1:4 and 2:1, and 2:3
    assert held["job"].mark == (1, 1)
    assert held["job"].ranges == (AcknowledgedRange((1, 3), (1, 4)), AcknowledgedRange((1, 5), (1, 6)))
    assert held["job"].batches == {(1, 8): (0b101,)}
    assert held["other"].mark == (1, 8)
    assert (job["subscription"], job["standing"], job["copied"]) == ("job", "restored", 1_000)
    assert (job["pending"], job["ranges"], job["acknowledged"], job["batches"]) == (5, 2, 2, 1)
    assert job["leftOut"] == 1 + 3  # a gap, and three that are not archived
    assert [(one["when"], one["entries"], one["batches"]) for one in job["losses"]] == [
        ("unload", 0, 1),
        ("idle unload", 0, 1),
    ]
    assert (other["pending"], other["losses"]) == (0, [])
    assert held["other"].replicated
    assert (held["job"].replicated, other["notes"]) == (False, [])
    again = line.json_lines("topics", "restore", "orders", "--to", "again")
    assert [one["standing"] for one in again[1:]] == ["there already"] * 2


@pytest.mark.parametrize("alone", [False, True])
def test_a_subscription_whose_copy_is_damaged_stops_nobody_else(line: Line, cluster: FakeCluster, alone: bool) -> None:
    archive(line)
    copied(line, 1_000)
    damaged = CopiedCursor("damaged", (1, 1), {1: b"junk"})
    whole = () if alone else (CopiedCursor("other", (2, 9)),)
    write_copy(line.archive.store, CursorCopy(TOPIC, 0, 2_000, (damaged, *whole)), line.archive.token, None)
    for more in (("--dry-run",), ()):
        result = line.run("topics", "restore", "orders", "--to", "again", "--output", "json", *more)
        assert result.exit_code == 2
        told = {one["subscription"]: one for one in map(json.loads, result.stdout.splitlines()[1:])}
        assert told["damaged"]["standing"] == "failed"
        assert "subscription damaged" in told["damaged"]["notes"][0]
        assert "--subscriptions-at takes an earlier copy" in told["damaged"]["notes"][0]
        assert told.keys() == ({"damaged"} if alone else {"damaged", "other"})
    if not alone:
        assert cluster.subscriptions.topics[AGAIN].cursors.keys() == {"other"}
    earlier = line.json_lines("topics", "restore", "orders", "--to", "again", "--subscriptions-at", "1000")
    assert [one["standing"] for one in earlier[1:]] == ["restored", "there already" if not alone else "restored"]


def test_a_copy_that_is_damaged_as_a_whole_says_what_can_be_done(line: Line, cluster: FakeCluster) -> None:
    archive(line)
    copied(line, 1_000)
    copied(line, 2_000)
    newest = max(key for key, _ in line.archive.store.list(cursor_copies_folder(TOPIC)))
    line.archive.store.put(newest, b"nothing")
    arguments = ("topics", "restore", "orders", "--to", "again")
    error = line.error(*arguments)
    assert "--subscriptions-at takes an earlier copy, --subscriptions none restores the entries alone" in error
    assert not cluster.topics
    earlier = line.json_lines(*arguments, "--subscriptions-at", "1500")
    assert [one["standing"] for one in earlier[1:]] == ["restored", "restored"]


def test_what_the_target_will_forget_is_told_with_the_setting(line: Line, cluster: FakeCluster) -> None:
    archive(line)
    copied(line, 1_000)
    cluster.storing_ = BrokerStoring(defaults_of("4.0.7"), "the defaults of Pulsar 4.0.7", 30)
    text = line.ok("topics", "restore", "orders", "--to", "again", "--subscriptions", "job")
    assert f"{AGAIN}: subscription job is restored, as of 1970-01-01T00:00:01.000Z: 5 entries pending" in text
    told = "does not know which messages of 1 batches are acknowledged (acknowledgmentAtBatchIndexLevelEnabled)"
    assert text.count(told) == 1
    assert "These are the defaults of Pulsar 4.0.7." in text
    assert "The target deletes subscriptions that nobody has used for 30 minutes." in text
    assert set(cluster.subscriptions.topics[AGAIN].cursors) == {"job"}
    cluster.storing_ = BrokerStoring(defaults_of("4.2.4"))
    text = line.ok("topics", "restore", "orders", "--to", "again", "--subscriptions", "job")
    assert "At its next clean unload the target forgets which messages of 1 batches are acknowledged" in text
    assert "and delivers them again (managedLedgerMaxUnackedRangesToPersistInMetadataStore)." in text


def test_none_are_restored_where_none_are_wanted_or_copied(line: Line, cluster: FakeCluster) -> None:
    archive(line)
    result = line.run("topics", "restore", "orders", "--to", "again")
    assert "no copy of its subscriptions is in the archive; policies.archiveCursors: true" in result.stderr
    copied(line, 1_000)
    cluster.refuse_subscriptions = "its quota"
    (done,) = line.json_lines("topics", "restore", "orders", "--to", "again", "--subscriptions", "none")
    assert done["sent"] == 0
    assert cluster.subscriptions.topics == {}


def test_those_of_a_moment_are_restored(line: Line, cluster: FakeCluster) -> None:
    archive(line)
    copied(line, 1_000)
    copied(line, 2_000, (1, 3))
    _, job, _ = line.json_lines("topics", "restore", "orders", "--to", "again", "--subscriptions-at", "1500")
    assert (job["copied"], cluster.subscriptions.topics[AGAIN].cursors["job"].mark) == (1_000, (1, 1))
    error = line.error("topics", "restore", "orders", "--to", "again", "--subscriptions-at", "999")
    assert "the first copy of its subscriptions is of 1970-01-01T00:00:01.000Z" in error


def test_what_is_refused_is_refused_before_anything_is_sent(line: Line, cluster: FakeCluster) -> None:
    archive(line)
    copied(line, 1_000)
    arguments = ("topics", "restore", "orders", "--to", "again")
    assert "no copy has a subscription nobody" in line.error(*arguments, "--subscriptions", "nobody")
    assert "stand alone" in line.error(*arguments, "--subscriptions", "none", "--subscriptions", "job")
    assert "says none" in line.error(*arguments, "--subscriptions", "none", "--subscriptions-at", "1500")
    cluster.refuse_subscriptions = "its quota"
    assert line.error(*arguments) == "its quota new=True"
    assert cluster.topics == {}


def test_a_dry_run_says_what_would_be_restored(line: Line, cluster: FakeCluster) -> None:
    archive(line)
    copied(line, 1_000)
    _, job, other = line.json_lines("topics", "restore", "orders", "--to", "again", "--dry-run")
    assert (job["standing"], job["pending"], job["dryRun"]) == ("to be restored", 5, True)
    assert (other["standing"], other["pending"]) == ("to be restored", 0)
    assert cluster.subscriptions.topics == {}


def test_a_dry_run_counts_what_came_after_the_topic_was_made_anew_and_nothing_that_is_deleted(
    line: Line, cluster: FakeCluster
) -> None:
    archive(line)
    copied(line, 1_000)
    line.archive.incarnation = 1
    line.archive.claim(3, created=1)
    line.archive.add(stream(3, 0, 9))
    dry = line.json_lines("topics", "restore", "orders", "--to", "again", "--dry-run")
    done = line.json_lines("topics", "restore", "orders", "--to", "again")
    assert [one["pending"] for one in dry[1:]] == [one["pending"] for one in done[1:]] == [5 + 10, 10]
    append(line.archive, deleting(line.archive, 1))  # ledger 1
    arguments = ("topics", "restore", "orders", "--to", "other", "--dry-run", "--allow-missing")
    assert [one["pending"] for one in line.json_lines(*arguments)[1:]] == [3 + 10, 10]


def test_one_that_is_somebody_s_is_a_finding(line: Line, cluster: FakeCluster) -> None:
    archive(line)
    copied(line, 1_000)
    line.ok("topics", "restore", "orders", "--to", "again", "--subscriptions", "none")
    cluster.lengths(AGAIN)
    cluster.subscriptions.topics[AGAIN].cursors["job"] = HeldCursor((1, 7))
    result = line.run("topics", "restore", "orders", "--to", "again", "--output", "json")
    assert result.exit_code == 2
    _, job, other = map(json.loads, result.stdout.splitlines())
    assert (job["standing"], other["standing"]) == ("not touched", "restored")
    assert "delete it first" in job["notes"][0]


def test_each_partition_has_its_own(line: Line, cluster: FakeCluster) -> None:
    parts = partitioned(line, 0, 1)
    copied(line, 1_000, topic=parts[1].topic, name="late")
    result = line.run("topics", "restore", "orders", "--to", "again", "--subscriptions", "late", "--output", "json")
    assert result.exit_code == 0, result.output
    told = [one for one in map(json.loads, result.stdout.splitlines()) if "subscription" in one]
    assert [(one["target"][-1], one["subscription"]) for one in told] == [("1", "late")]
