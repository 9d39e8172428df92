"""An archive that a released version wrote is read, checked and continued by the present one."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import replace

import pytest
from click.testing import CliRunner

from offloader.archive.archive import Archive
from offloader.archive.items import ArchivedEntry
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.bridge.core.rounds import BridgePhase
from offloader.bridge.log import BridgeLog
from offloader.cli.main import main
from offloader.lifecycle.bucket.names import ObjectKind
from offloader.lifecycle.bucket.scan import BucketScanner
from offloader.metadata import requests
from offloader.metadata.catalog import Catalogs
from offloader.metadata.journal import Journal
from offloader.metadata.manifest import FAN
from offloader.metadata.stock_keys import data_key
from offloader.model import V1, Part, SegmentStatus, Source, TopicName
from offloader.operations.verify.verify import verify
from offloader.storage.local import LocalStore
from tests.fakes.cluster import MemoryCluster
from tests.invariants import check_invariants
from tests.release.golden import (
    AGAIN,
    BRIDGED,
    COPIED,
    FORMER_GENERATION,
    GOING,
    GONE,
    HISTORY,
    LEFT,
    LONG,
    LOST,
    MOVED,
    MOVING,
    OPEN,
    PASSED,
    REBUILT,
    SECOND,
    TOPICS,
    VERSIONS,
    Continued,
    Golden,
    cluster_of,
)
from tests.truth import Truth, truth_of_cluster

DELETIONS_VERSION = 3
FORMAT_VERSION = 2

CONFIG = """
application: sim
pulsar: {{serviceUrl: "pulsar://127.0.0.1:1", adminUrl: "http://127.0.0.1:1"}}
storage: {{root: "file://{root}"}}
"""


def truths(golden: Golden) -> dict[TopicName, Truth]:
    cluster = cluster_of(golden.said["cluster"])
    return {topic: truth_of_cluster(cluster, topic) for topic in (*TOPICS, *PASSED)}


def test_the_format_that_is_written_now_has_its_archive() -> None:
    """A new format version needs a new archive, beside the old ones: `python -m tests.release.make_archive N`."""
    assert str(DELETIONS_VERSION) in VERSIONS
    assert FORMAT_VERSION <= DELETIONS_VERSION


def test_everything_of_it_is_read_and_equals_what_was_written(golden: Golden) -> None:
    written = {
        (topic, entry.ledger, entry.entry): hashlib.sha256(entry.data).digest()
        for topic in (*TOPICS, *PASSED)
        for entry in cluster_of(golden.said["cluster"]).entries(topic)
    }
    archive = Archive(OpenArchive(Stores.of(golden.store)))
    read: dict[TopicName, int] = {}
    for topic in (*TOPICS, *PASSED):
        for item in archive.topic(topic).items():
            if isinstance(item, ArchivedEntry):
                place = (topic, item.position.ledger, item.position.entry)
                assert hashlib.sha256(item.data).digest() == written[place]
                read[topic] = read.get(topic, 0) + 1
    assert read[LONG] > 100
    assert all(read.get(topic) for topic in (OPEN, LOST, AGAIN, BRIDGED, REBUILT, LEFT, MOVED, MOVING))
    check_invariants(golden.store, truths(golden))


def test_it_is_sound_and_has_something_of_everything(golden: Golden) -> None:
    report = verify(golden.store)
    assert [finding.key for finding in report.findings] == [FORMER_GENERATION]
    assert (report.topics, report.deleted) == (len(TOPICS) + len(PASSED) + 1, 4)
    catalogs = Catalogs(golden.store, "")
    head, lost, going, gone, again, left, rebuilt = (
        catalogs.load(topic).head for topic in (LONG, LOST, GOING, GONE, AGAIN, LEFT, REBUILT)
    )
    assert catalogs.history(LONG).leaves == head.next_slot // FAN == 1
    assert any(segment.gaps for segment in catalogs.load(LONG).segments)
    assert len({span.ledger for s in catalogs.load(LONG).segments for span in s.ledgers}) > 5
    assert catalogs.load(LOST).losses
    assert going.removed.pending is not None
    assert going.removed.begun is None
    assert gone.removed.pending is None
    assert gone.removed.ranges
    assert again.claim is not None
    assert again.claim.incarnation == 1
    assert lost.last is not None
    assert left.removed.trimmed is not None
    assert rebuilt.generation > 0


def test_the_application_continues_it_where_it_was_left(golden: Golden) -> None:
    states = Journal.peek(golden.store, "sim")
    before, sealed, ahead = states[OPEN].open, states[REBUILT].open, states[HISTORY].unfinished
    assert before is not None
    assert before.status is SegmentStatus.ASSIGNED
    assert sealed is not None
    assert sealed.sealed is not None
    assert len(ahead) > 2
    sim = golden.continued()
    sim.serve_requests()
    sim.settle()
    check_resumed(golden, OPEN, before.parts)
    for topic, begun in ((REBUILT, [sealed]), (HISTORY, ahead)):
        uuids = [segment.uuid for segment in sim.context.catalogs.load(topic).segments]
        assert [uuid for uuid in uuids if uuid in {each.uuid for each in begun}] == [each.uuid for each in begun]
    assert requests.pending(sim.store, "sim", sim.clock.now) == [], "what was asked before is answered"
    assert states[OPEN].abandoned
    assert not list(sim.store.list_uploads("public/default/")), "what nobody waits for is aborted"
    slots = {topic: sim.context.catalogs.head(topic).next_slot for topic in (LONG, LOST, AGAIN, BRIDGED, REBUILT)}
    for topic in slots:
        sim.produce(topic, 5)
    sim.settle()
    assert all(sim.context.catalogs.head(topic).next_slot > slot for topic, slot in slots.items())
    check_at_rest(sim, *TOPICS)
    sim.close()


def check_at_rest(sim: Continued, *topics: TopicName) -> None:
    """All that must always hold, and that a check finds nothing but what it must find."""
    truths = {topic: replace(truth_of_cluster(sim.cluster, topic), readable=topic == BRIDGED) for topic in topics}
    check_invariants(sim.store, truths, at_rest=True)
    assert [finding.key for finding in verify(sim.store).findings] == [FORMER_GENERATION]


def check_resumed(golden: Golden, topic: TopicName, before: tuple[Part, ...]) -> None:
    """The segment that was open has the parts that were uploaded, and more."""
    (said,) = (each for each in golden.said["open"] if each["topic"] == str(topic))
    catalog = Catalogs(golden.store, "").load(topic)
    resumed = next(segment for segment in catalog.segments if segment.uuid == said["uuid"])
    assert resumed.parts[: said["parts"]] == before


def test_the_shards_continue_it_and_a_topic_that_was_on_its_way_arrives(golden: Golden) -> None:
    before = Journal.peek(golden.store, SECOND.name)[MOVED].open
    assert before is not None
    assert Journal.peek(golden.store, "sim")[MOVING].passed_to == SECOND.name
    heads = Catalogs(golden.store, "").heads(PASSED).found
    assert [heads[topic].claim.application for topic in PASSED] == [SECOND.name, "sim"]
    first = golden.continued()
    second = first.second(8)
    for _ in range(20):
        first.rounds(1, 2_000)
        second.rounds(1, 2_000)
    assert set(second.registry.topics) == set(PASSED)
    assert not any(state.passed_to for state in first.journal.topics.values())
    for topic in PASSED:
        second.produce(topic, 5)
    second.settle()
    first.settle()
    check_resumed(golden, MOVED, before.parts)
    check_at_rest(first, *TOPICS, *PASSED)
    first.close()
    second.close()


def test_a_bridge_goes_on_and_builds_nothing_again(golden: Golden) -> None:
    log = BridgeLog(golden.store, lambda: "nobody writes")
    state = log.load(BRIDGED).state
    assert state is not None
    assert state.round is not None
    assert state.round.phase is BridgePhase.SWAPPING
    let_go = {each.let_go.ledger for each in log.finished_rounds(BRIDGED) if each.let_go is not None}
    assert let_go
    proven = [each.finished for each in log.finished_rounds(BRIDGED)]
    built = {key: golden.bucket.read(key)[0] for key, _ in golden.bucket.list()}
    named = {data_key(x.uuid, x.ledger) for one in (*proven, state.round) if one is not None for x in one.ledgers}
    assert {key for key in built if not key.endswith("-index")} == named
    assert len(named) > len(state.round.ledgers) > 1
    sim = golden.continued()
    sim.until_bridged()
    finished = {state.finished.number: state.finished for state in log.finished_rounds(BRIDGED) if state.finished}
    assert finished[state.round.number].ledgers == state.round.ledgers
    sim.produce(BRIDGED, 40)
    sim.until_bridged()
    assert set(sim.closed(BRIDGED)) <= {*sim.bridged(BRIDGED), *let_go}
    found = {key: sim.bucket.read(key)[0] for key, _ in sim.bucket.list()}
    assert built.items() < found.items()
    ledgers = [key.partition("-ledger-")[2] for key in found]
    assert len(ledgers) == len(set(ledgers)), "one pair of objects each"
    sim.check(BRIDGED)
    sim.close()


def test_a_deletion_that_was_recorded_goes_on_or_is_taken_back(golden: Golden) -> None:
    sim = golden.continued()
    sim.serve_requests()
    sim.settle()
    sim.rounds(20, 21_000)
    removed = sim.context.catalogs.head(GOING).removed
    assert removed.pending is None
    assert sum(each.segments for each in removed.ranges) == 4
    check_at_rest(sim, *TOPICS)
    sim.close()


def test_a_topic_whose_ledgers_brokers_had_offloaded_is_read_from_copies_and_goes_on(golden: Golden) -> None:
    catalog = Catalogs(golden.store, "").load(COPIED)
    copies = [segment for segment in catalog.segments if segment.source is Source.OFFLOADED]
    assert [segment.cuts.version for segment in copies] == [V1, V1]
    assert len(catalog.segments) > len(copies)
    check_copied(golden)
    sim = golden.continued()
    sim.produce(COPIED, 20)
    sim.settle()
    check_copied(golden, sim.cluster)
    check_at_rest(sim)
    sim.close()


def check_copied(golden: Golden, cluster: MemoryCluster | None = None) -> None:
    """All its entries are read, whatever is left in the brokers' bucket."""
    items = Archive(OpenArchive(Stores.of(golden.store))).topic(COPIED).items()
    read = [(item.position.place, item.data) for item in items if isinstance(item, ArchivedEntry)]
    written = (cluster or cluster_of(golden.said["cluster"])).entries(COPIED)
    assert read == [((entry.ledger, entry.entry), entry.data) for entry in written]


def test_nothing_of_it_is_an_orphan_but_what_was_forgotten(golden: Golden) -> None:
    tokens = itertools.count()
    scanner = BucketScanner(LocalStore(golden.root), lambda: golden.said["now"], lambda: f"t{next(tokens)}", 0)
    kinds = {orphan.kind for orphan in scanner.scan().orphans}
    assert kinds == {ObjectKind.OLD_GENERATION, ObjectKind.ENDED_RESCUE}


@pytest.mark.parametrize("command", ["verify", "topics list", "cost --no-pulsar"])
def test_commands_work_on_it(golden: Golden, command: str) -> None:
    path = golden.root.parent / "offloader.yaml"
    path.write_text(CONFIG.format(root=golden.root))
    result = CliRunner().invoke(main, [*command.split(), "--config", str(path)])
    assert result.exit_code == (2 if command == "verify" else 0), result.output
    assert ("1 findings" in result.output) == (command == "verify"), "its former generation"
