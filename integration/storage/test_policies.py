"""The policies of docs/permissions.md, word by word, at an S3 server that enforces them: what they allow is enough,
what they do not allow is refused, and said in one line.

versitygw's IAM service judges as AWS does, but is not AWS: conditions, KMS keys and life-cycle rules are not tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from pulsar import MessageId

from integration.processes import HANGS
from integration.starting import started
from integration.storage import roles
from integration.storage.roles import RoleServer
from offloader.cursors.core.records import FirstState
from offloader.cursors.durable import DurableCursor
from offloader.errors import AccessDeniedError
from offloader.gateway.owners.claim import TopicClaim
from offloader.gateway.owners.claim_log import ClaimLog
from offloader.lifecycle.bucket.quarantine import ObjectQuarantine
from offloader.lifecycle.bucket.side import BucketSide
from offloader.lifecycle.deletion.machine import retried, undone
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import (
    DeletionState,
    DeletionSwitch,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.lifecycle.deletion.service import DeletionRules, LedgerDeletionService
from offloader.lifecycle.deletion.timing import DeletionBounds, DeletionTiming
from offloader.lifecycle.deletion.watcher import PendingDeletions
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.policy import MINUTE_MS, RetentionPolicy
from offloader.lifecycle.retention.retention import ArchiveRetention
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs
from offloader.metadata.journal import Journal
from offloader.metadata.root import open_root
from offloader.model import Position, TopicName
from offloader.operations.doctor.probes import try_store, try_upload
from offloader.operations.verify.verify import verify
from offloader.ports.object_store import ObjectStore
from tests.archive.support import APPLICATION, Archive, message, stream
from tests.format.support import Stored
from tests.gateway.gateway import gateway
from tests.gateway.test_stock_client import PATIENCE, connected
from tests.lifecycle.bucket.support import a_uuid, scanner
from tests.storage.servers import Stores
from tests.storage.subject import upload_parts

pytestmark = pytest.mark.versitygw

BASE = ("ReadAndWrite", "DeleteHelpersOnly", "List")
RETENTION = (*BASE, "RetentionOfTheArchive", "NeverTheCatalogs")
GATEWAY = ("GatewayReads", "GatewayWrites", "List")
ORPHANS = (*BASE, "DeleteOrphans", "KeepCatalogs", "TellVersioning")

ORDERS = TopicName.parse("persistent://shop/orders/placed")
RETURNS = TopicName.parse("persistent://shop/returns/sent")  # the same tenant, another namespace
MOVES = TopicName.parse("persistent://bank/accounts/moves")
CLUSTER = "memory"  # as archives of tests are
HOUR = RetentionPolicy(minutes=60)
ON = DeletionSwitch(on=True, at=0)
# The second try comes 3 s after the first: that is also how long a try may take.
AT_ONCE = DeletionTiming(delay=1, reconsume_later=3_000, max_tries=2, floor=0)


def now() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleServer]:
    with started(tmp_path_factory.mktemp("roles"), roles.running) as running:
        yield running


@pytest.fixture
def everything(server: RoleServer, stores: Stores) -> Iterator[ObjectStore]:
    """The root for who may do everything. Empty at the test's beginning."""
    store = stores.open(server.administrator())
    yield store
    store.delete([key for key, _ in store.list()])
    for upload in store.list_uploads():
        store.abort(upload.upload)


@pytest.fixture
def role(server: RoleServer, stores: Stores, everything: ObjectStore) -> Callable[..., ObjectStore]:
    return lambda *sids: stores.open(server.role(*sids))


def keys(store: ObjectStore) -> set[str]:
    return {key for key, _ in store.list()}


def written(store: ObjectStore, topic: TopicName = ORDERS) -> Archive:
    """Three segments of a topic, two of them old enough for `HOUR`, by the catalog's own code."""
    archive = Archive(store, topic, sealed_at=now() - 120 * MINUTE_MS)
    archive.claim(ledger=5)
    archive.add(stream(5, 0, 9))
    archive.add(stream(5, 10, 19), closed={5: 19})
    archive.sealed_at = now()
    archive.add(stream(6, 0, 9))
    return archive


def refused(work: Callable[[], object]) -> str:
    """Not allowed, and said in one line."""
    with pytest.raises(AccessDeniedError) as caught:
        work()
    text = str(caught.value)
    assert "\n" not in text
    assert "policy" in text
    return text


# Retention


@dataclass
class Retaining:
    """Retention of one root as the application does it, without a grace."""

    store: ObjectStore

    def __post_init__(self) -> None:
        self.catalogs = Catalogs(self.store, APPLICATION)
        deletion = ArchiveDeletion(
            self.store, self.catalogs, self.catalogs.append, lambda: None, now, CLUSTER, APPLICATION
        )
        self.retention = ArchiveRetention(deletion, lambda _: HOUR, lambda _: None, grace_ms=0)

    def recorded(self, topic: TopicName) -> None:
        """The first phase."""
        assert "2 segments" in self.retention.visit(topic)


# Orphans


@dataclass
class Heard:
    """What a deletion service tells."""

    failures: list[str] = field(default_factory=list)
    given_up: list[PendingDeleteLedgerInfo] = field(default_factory=list)
    ends: list[PendingDeleteLedgerInfo] = field(default_factory=list)

    def pending(self, pending: PendingDeletions, *, on: bool) -> None: ...

    def refused(self, refusals: Mapping[LedgerType, Sequence[str]]) -> None:
        assert not refusals

    def damaged(self, name: str, why: str) -> None:
        raise AssertionError(name, why)

    def failed(self, record: PendingDeleteLedgerInfo, why: str) -> None:
        self.failures.append(why)

    def ended(self, record: PendingDeleteLedgerInfo) -> None:
        self.ends.append(record)

    def gave_up(self, record: PendingDeleteLedgerInfo) -> None:
        self.given_up.append(record)


@dataclass
class Cleaning:
    """Both phases over one root."""

    store: ObjectStore
    heard: Heard = field(default_factory=Heard)

    def __post_init__(self) -> None:
        tokens = (f"token-{number}" for number in range(10_000))
        self.queue = DeletionQueue(self.store, CLUSTER, lambda: next(tokens))
        rules = DeletionRules(AT_ONCE, DeletionBounds(percent=100))
        side = BucketSide(self.store, scanner(self.store, now, grace=0))
        self.service = LedgerDeletionService(self.queue, {LedgerType.OBJECT: side}, rules, self.heard, now)

    def mark(self) -> list[str]:
        """Mark all that is certain; the names of the records."""
        scan = scanner(self.store, now, grace=0).scan()
        phase = ObjectQuarantine(self.queue, DeletionBounds(percent=100), now, "test")
        assert not phase.mark(scan).refusals
        return [one.name for one in self.records()]

    def finish(self) -> None:
        """Rounds until all has come to an end, or was given up."""
        deadline = time.monotonic() + HANGS
        while {one.state for one in self.records()} & {DeletionState.MARKED, DeletionState.DELETING}:
            assert time.monotonic() < deadline
            self.service.round(ON)

    def records(self) -> list[PendingDeleteLedgerInfo]:
        return [one.record for one in self.queue.readable()]

    def of_objects(self) -> list[PendingDeleteLedgerInfo]:
        """Data, then index."""
        return sorted((one for one in self.records() if not one.upload), key=lambda each: each.object_key)


def strayed(store: ObjectStore, archive: Archive) -> set[str]:
    """A segment once more, under another uuid, and an upload. The keys of its objects."""
    topic, uuid = archive.topic, a_uuid(1)
    segment = archive.catalog.segments[1]
    made = set()
    for of in (layout.data_key, layout.index_key):
        store.put(of(topic, uuid), store.read(of(topic, segment.uuid))[0])
        made.add(of(topic, uuid))
    store.begin(layout.data_key(topic, a_uuid(2)))
    return made


def test_the_first_policy_is_enough_to_offload(role, everything) -> None:
    """The proof of the store, the journal, segments in parts, their commit, old records, an upload's end, verify."""
    store = role(*BASE)
    try_store(store)
    try_upload(store)
    numbers = iter(range(1000))
    open_root(store, CLUSTER, lambda: f"root-{next(numbers)}")
    with Journal.open(store, APPLICATION, lambda: f"token-{next(numbers)}"):
        archive = written(store)
    strays = [layout.data_key(ORDERS, a_uuid(number)) for number in (7, 8)]
    upload = store.begin(strays[0])
    store.commit(upload, upload_parts(store, upload, [b"data"]))
    ended = store.begin(strays[1])
    report = verify(store, abort_uploads=True)
    assert (report.segments, report.aborted) == (3, (ended,))
    assert {finding.key for finding in report.findings} <= {*strays}
    assert archive.catalog.segments


def test_with_the_first_policy_nothing_of_a_topic_is_deleted_and_nothing_outside_is_touched(role, everything) -> None:
    store = role(*BASE)
    archive = written(store)
    before = keys(everything)
    segment = archive.catalog.segments[0]
    for key in (
        layout.data_key(ORDERS, segment.uuid),
        layout.index_key(ORDERS, segment.uuid),
        layout.record_key(ORDERS, segment.uuid),
        layout.slot_key(ORDERS, 0, 0),
        layout.ROOT,
    ):
        assert "DeleteObject" in refused(partial(store.delete, [key]))
    assert keys(everything) == before


def test_nothing_outside_the_root_is_read_or_written(server, stores, everything) -> None:
    beside = stores.open(replace(server.role(*RETENTION, *ORPHANS[3:]), root=f"s3://{roles.BUCKET}/other"))
    refused(lambda: beside.put("k", b"x"))
    refused(lambda: beside.read("k"))
    refused(lambda: beside.delete(["shop/orders/k"]))


def test_without_the_right_retention_waits_and_can_be_undone(role, everything) -> None:
    store = role(*BASE)
    written(store)
    retaining = Retaining(store)
    retaining.recorded(ORDERS)
    before = keys(everything)
    for _ in range(2):  # it is tried again, and nothing is begun
        assert "DeleteObject" in refused(lambda: retaining.retention.visit(ORDERS))
        assert retaining.catalogs.head(ORDERS).removed.begun is None
    assert keys(everything) == before
    retaining.retention.undelete(ORDERS, "somebody")
    assert retaining.catalogs.head(ORDERS).removed.pending is None
    assert not verify(store, [ORDERS]).findings


def test_retention_deletes_below_its_namespace_and_nowhere_else(role, everything) -> None:
    store = role(*RETENTION)
    for topic in (ORDERS, RETURNS, MOVES):
        written(store, topic)
    retaining = Retaining(store)
    for topic in (ORDERS, RETURNS, MOVES):
        retaining.recorded(topic)
    before = keys(everything)
    assert "is done" in retaining.retention.visit(ORDERS)
    for topic in (RETURNS, MOVES):
        refused(partial(retaining.retention.visit, topic))
        retaining.retention.undelete(topic, "somebody")
    gone = before - keys(everything)
    went = {key for key in gone if not key.startswith(layout.DELETION)}
    old = Catalogs(everything, "").load(ORDERS).segments[:2]
    assert went == {of(ORDERS, each.uuid) for each in old for of in (layout.data_key, layout.index_key)}
    for topic, deleted in {ORDERS: 2, RETURNS: 0, MOVES: 0}.items():
        report = verify(store, [topic])
        assert (report.segments, report.deleted, report.findings) == (3 - deleted, deleted, ())


@pytest.mark.parametrize("sids", [RETENTION, ORPHANS])
def test_a_catalog_is_deleted_by_nobody(role, everything, sids) -> None:
    """Not even below a namespace that may go."""
    store = role(*sids)
    written(store)
    slot = layout.slot_key(ORDERS, 0, 0)
    assert "explicit deny" in refused(lambda: store.delete([slot]))
    kept = everything.stat(slot)
    assert kept is not None
    refused(lambda: store.delete_if(slot, kept.etag))
    assert everything.stat(slot) == kept


def test_without_the_right_an_orphan_is_given_up_and_told_and_an_operator_decides(role, everything) -> None:
    store = role(*BASE)
    made = strayed(everything, written(store))
    cleaning = Cleaning(store)
    assert len(cleaning.mark()) == 3
    cleaning.finish()
    assert made <= keys(everything)
    data, index = cleaning.of_objects()
    assert (data.state, index.state) == (DeletionState.GIVEN_UP, DeletionState.GIVEN_UP)
    assert "docs/permissions.md" in data.reason
    assert "DeleteObject" in data.reason
    assert "\n" not in data.reason
    assert index.reason == f"{data.object_key} goes first"
    cleaning.queue.change(index.name, lambda it: undone(it, now()))
    cleaning.queue.change(data.name, lambda it: retried(it, now()))
    Cleaning(role(*ORPHANS)).finish()
    data, index = cleaning.of_objects()
    assert (data.state, index.state) == (DeletionState.DELETED, DeletionState.UNDONE)
    assert made & keys(everything) == {index.object_key}


def test_orphans_go_with_the_right_and_only_those_of_its_tenant(role, everything) -> None:
    store = role(*ORPHANS)
    shop = strayed(everything, written(everything, RETURNS))
    bank = strayed(everything, written(everything, MOVES))
    before = keys(everything)
    assert scanner(store, now, grace=0).scan().keeps_versions is False  # it may ask
    cleaning = Cleaning(store)
    assert len(cleaning.mark()) == 6
    cleaning.finish()
    after = {key for key in keys(everything) if not key.startswith(layout.DELETION)}
    assert before - after == shop
    assert {one.object_key for one in cleaning.heard.given_up} == bank
    assert list(everything.list_uploads()) == []  # the first policy ends those of all


def test_a_gateway_without_durable_subscriptions_needs_to_read_alone(role, everything) -> None:
    archive = Archive(everything, ORDERS)
    archive.claim(ledger=5)
    archive.add([Stored(5, entry, message(f"m{entry}")) for entry in range(10)])
    before, store = keys(everything), role("GatewayReads", "List")
    refused(lambda: store.put(f"{layout.GATEWAYS}/x", b"x"))
    with gateway(store) as url:
        client = connected(url)
        reader = client.create_reader(str(ORDERS), MessageId.earliest)
        assert [reader.read_next(PATIENCE).data() for _ in range(10)] == [b"m%d" % entry for entry in range(10)]
        client.close()
    assert keys(everything) == before


def test_a_gateway_keeps_subscriptions_and_claims_and_writes_nothing_else(role, everything) -> None:
    archive = written(everything)
    before = keys(everything)
    store, numbers = role(*GATEWAY), iter(range(1000))
    claims = ClaimLog(store, lambda: f"claim-{next(numbers)}")
    assert claims.append(TopicClaim(ORDERS, 0, "one"))
    assert claims.append(TopicClaim(ORDERS, 1, "two"))
    assert claims.newest_of_all() == {ORDERS: 1}
    folder, first = layout.subscription_folder(ORDERS, "s"), FirstState(Position(0, 5, -1))
    for entry in range(3):  # owners one after the other: what the last one does not need goes
        cursor = DurableCursor.open(store, folder, lambda: first, lambda: f"cursor-{next(numbers)}")
        cursor.acknowledge((0, 5), entry, entry)
        cursor.flush()
    segment = archive.catalog.segments[0]
    assert store.read(layout.data_key(ORDERS, segment.uuid))[0]
    refused(lambda: store.put(layout.data_key(ORDERS, a_uuid(7)), b"x"))
    for key in before:
        refused(partial(store.delete, [key]))
    assert before < keys(everything)
    assert all(key.startswith((folder, layout.GATEWAYS)) for key in keys(everything) - before)
