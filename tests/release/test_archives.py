"""An archive that a released version wrote is read, checked and continued by the present one; one that a newer version
wrote is refused in one line."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from offloader.archive.archive import Archive
from offloader.archive.items import ArchivedEntry
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.cli.main import main
from offloader.cursors.copy_store import read_copy
from offloader.cursors.stored import kept_subscription
from offloader.errors import FormatVersionError
from offloader.metadata import requests
from offloader.metadata.catalog import Catalogs
from offloader.metadata.catalog_codec import HEAD_MAGIC, plain
from offloader.metadata.envelope import DELETIONS_VERSION, FORMAT_VERSION, MAGIC, unwrap, wrap
from offloader.metadata.journal import Journal
from offloader.metadata.manifest import FAN
from offloader.metadata.root import read_root
from offloader.model import SegmentStatus, TopicName
from offloader.offload.driver.request_handler import RequestHandler
from offloader.operations.verify.verify import verify
from offloader.ports.object_store import ObjectStore
from offloader.testing.invariants import check_invariants
from offloader.testing.truth import Truth, truth_of_cluster
from tests.release.golden import (
    AGAIN,
    GOING,
    GONE,
    LONG,
    LOST,
    OPEN,
    TOPICS,
    VERSIONS,
    Golden,
    cluster_of,
    unpacked,
)

CONFIG = """
application: sim
pulsar: {{serviceUrl: "pulsar://127.0.0.1:1", adminUrl: "http://127.0.0.1:1"}}
storage: {{root: "file://{root}"}}
"""


@pytest.fixture(params=VERSIONS)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    return unpacked(request.param, tmp_path)


def truths(golden: Golden) -> dict[TopicName, Truth]:
    cluster = cluster_of(golden.said["cluster"])
    return {topic: truth_of_cluster(cluster, topic) for topic in TOPICS}


def test_the_format_that_is_written_now_has_its_archive() -> None:
    """A new format version needs a new archive, beside the old ones: `python -m tests.release.make_archive N`."""
    assert str(DELETIONS_VERSION) in VERSIONS
    assert FORMAT_VERSION <= DELETIONS_VERSION


def test_everything_of_it_is_read_and_equals_what_was_written(golden: Golden) -> None:
    written = {
        (topic, entry.ledger, entry.entry): hashlib.sha256(entry.data).digest()
        for topic in TOPICS
        for entry in cluster_of(golden.said["cluster"]).entries(topic)
    }
    archive = Archive(OpenArchive(Stores.of(golden.store)))
    read: dict[TopicName, int] = {}
    for topic in TOPICS:
        for item in archive.topic(topic).items():
            if isinstance(item, ArchivedEntry):
                place = (topic, item.position.ledger, item.position.entry)
                assert hashlib.sha256(item.data).digest() == written[place]
                read[topic] = read.get(topic, 0) + 1
    assert read[LONG] > 100
    assert all(read.get(topic) for topic in (OPEN, LOST, AGAIN))
    check_invariants(golden.store, truths(golden))


def test_it_is_sound_and_has_something_of_everything(golden: Golden) -> None:
    report = verify(golden.store)
    assert report.findings == ()
    assert (report.topics, report.deleted) == (len(TOPICS), 4)
    catalogs = Catalogs(golden.store, "")
    head, lost, going, gone, again = (catalogs.load(topic).head for topic in (LONG, LOST, GOING, GONE, AGAIN))
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


def test_subscriptions_of_it_are_read(golden: Golden) -> None:
    copy = read_copy(golden.store, LONG)
    assert copy is not None
    assert [(c.name, c.mark_delete[1]) for c in copy.cursors] == [("job", 3)]
    kept = kept_subscription(golden.store, LONG, "reader")
    assert kept is not None
    assert kept.marker.mark_delete.entry == 1
    assert kept.pieces


def test_the_application_continues_it_where_it_was_left(golden: Golden) -> None:
    said = golden.said["open"]
    before = Journal.peek(golden.store, "sim")[OPEN].open
    assert before is not None
    assert before.status is SegmentStatus.ASSIGNED
    sim = golden.continued()
    sim.driver._requests = RequestHandler(sim.context, 1, sim.retaining, sim.bridging)
    sim.settle()
    catalog = sim.context.catalogs.load(OPEN)
    resumed = next(segment for segment in catalog.segments if segment.uuid == said["uuid"])
    assert resumed.parts[: said["parts"]] == before.parts
    assert requests.pending(sim.store, "sim", sim.clock.now) == [], "what was asked before is answered"
    slots = {topic: sim.context.catalogs.head(topic).next_slot for topic in (LONG, LOST, AGAIN)}
    for topic in slots:
        sim.produce(topic, 5)
    sim.settle()
    assert all(sim.context.catalogs.head(topic).next_slot > slot for topic, slot in slots.items())
    check_invariants(sim.store, {topic: truth_of_cluster(sim.cluster, topic) for topic in TOPICS}, at_rest=True)
    assert verify(golden.store).findings == ()
    sim.close()


def test_a_deletion_that_was_recorded_goes_on_or_is_taken_back(golden: Golden) -> None:
    sim = golden.continued()
    sim.driver._requests = RequestHandler(sim.context, 1, sim.retaining, sim.bridging)
    sim.settle()
    sim.rounds(20, 21_000)
    removed = sim.context.catalogs.head(GOING).removed
    assert removed.pending is None
    assert sum(each.segments for each in removed.ranges) == 4
    check_invariants(sim.store, {topic: truth_of_cluster(sim.cluster, topic) for topic in TOPICS}, at_rest=True)
    sim.close()


@pytest.mark.parametrize("command", ["verify", "topics list", "cost --no-pulsar"])
def test_commands_work_on_it(golden: Golden, command: str) -> None:
    path = golden.root.parent / "offloader.yaml"
    path.write_text(CONFIG.format(root=golden.root))
    result = CliRunner().invoke(main, [*command.split(), "--config", str(path)])
    assert result.exit_code == 0, result.output


# What a newer version wrote


def records(store: ObjectStore) -> Iterator[tuple[str, bytes]]:
    """One record of each kind of key, with its bytes."""
    seen = set[str]()
    for key, _ in store.list():
        kind = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]{20}", "*", key)
        kind = re.sub(r"public/default/[a-z]+", "topic", kind)
        data = store.read(key)[0]
        if kind not in seen and data[: len(MAGIC)] in (MAGIC, HEAD_MAGIC) and "/records-" not in key:
            seen.add(kind)
            yield key, data


def newer(data: bytes) -> bytes:
    """The same record, of a format that does not exist yet."""
    record = plain(data)
    opened = unwrap("old", record)
    return data[: len(data) - len(record)] + wrap(opened.token, opened.body, DELETIONS_VERSION + 1)


def test_a_record_of_a_newer_version_is_refused_whatever_it_is(golden: Golden) -> None:
    kinds = set[str]()
    for key, data in records(golden.store):
        kinds.add(unwrap(key, plain(data)).kind)
        with pytest.raises(FormatVersionError) as refused:
            unwrap(key, plain(newer(data)))
        text = str(refused.value)
        assert key in text
        assert text.endswith("run a newer one")
        assert "\n" not in text
    assert kinds >= {"root", "journal", "claim", "segment", "manifest", "cursor_copy", "cursor_pieces"}


def test_whoever_meets_a_newer_record_stops_and_says_to_upgrade(golden: Golden) -> None:
    """The root, a journal, a catalog's last record, copies and logs of subscriptions."""
    store = golden.store
    keys = [key for key, _ in records(store)]

    def raised(part: str) -> None:
        key = max(key for key in keys_below(part))
        store.put(key, newer(store.read(key)[0]))

    def keys_below(part: str) -> list[str]:
        return [key for key, _ in store.list(part)]

    assert keys
    for part, read in (
        ("public/default/long/_subscriptions/", lambda: kept_subscription(store, LONG, "reader")),
        ("public/default/long/_cursors/", lambda: read_copy(store, LONG)),
        ("public/default/lost/_catalog/", lambda: Catalogs(store, "").head(LOST)),
        ("_journal/", lambda: Journal.peek(store, "sim")),
        ("_root", lambda: read_root(store)),
    ):
        raised(part)
        with pytest.raises(FormatVersionError, match="run a newer one"):
            read()


def test_a_request_of_a_newer_version_is_answered_with_what_to_do(golden: Golden) -> None:
    store = golden.store
    (name, _), *_ = requests.pending(store, "sim", golden.said["now"])
    key = f"_requests/sim/{name}"
    store.put(key, store.read(key)[0].replace(b'"version": 1', b'"version": 99'))
    assert requests.pending(store, "sim", golden.said["now"]) == []
    outcome = requests.outcome_of(store, "sim", name)
    assert outcome is not None
    assert not outcome.ok
    assert "written by a newer version: run that one" in outcome.message
