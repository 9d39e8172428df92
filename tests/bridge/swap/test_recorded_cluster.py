"""The brokers in memory do what 4.0.7 was measured to do (a record rewritten under a loaded topic, stale brokers,
missing objects, read priorities, what is deleted when)."""

from __future__ import annotations

import pytest

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo
from offloader.bridge.core.record import with_contexts, without_contexts
from offloader.bridge.core.rounds import BridgedLedger
from offloader.errors import BrokerUnavailableError, TopicNotFoundError, VersionConflictError
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import TopicName
from offloader.state.managed_ledger import OffloadContext
from tests.bridge.swap.support import BUCKET, TOPIC, SwapTown
from tests.fakes.recorded_state import record_path

NODE = record_path(TOPIC)
OTHER = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def town() -> SwapTown:
    return SwapTown()


def rewrite(town: SwapTown, *ledgers: BridgedLedger, version: int | None = None, **properties: str) -> None:
    """The record gets the contexts, whatever brokers do."""
    node = town.cluster.nodes.get(NODE)
    assert node is not None
    named = tuple(({"bucket": BUCKET} | properties).items())
    contexts = {
        one.ledger: OffloadContext(one.uuid, True, False, named, "S3", town.cluster.recorded.now_ms) for one in ledgers
    }
    value = with_contexts(node.value, contexts)
    town.cluster.nodes.set(NODE, value, node.version if version is None else version)


def bridged(town: SwapTown) -> tuple[BridgedLedger, ...]:
    """All closed ledgers, in the record and loaded."""
    ledgers = town.round().ledgers
    rewrite(town, *ledgers)
    town.cluster.admin.unload(TOPIC)
    return ledgers


def offloaded(town: SwapTown) -> frozenset[int]:
    return town.cluster.admin.topic_info(TOPIC).offloaded


def policies(town: SwapTown, **more: object) -> None:
    town.cluster.namespace(TOPIC.namespace).policies["offload_policies"] = more


def test_a_load_writes_the_list_so_a_version_from_before_is_refused(town: SwapTown) -> None:
    version = town.cluster.nodes.get(NODE).version
    town.cluster.admin.unload(TOPIC)
    assert town.cluster.nodes.get(NODE).version == version
    offloaded(town)
    with pytest.raises(VersionConflictError):
        town.cluster.nodes.set(NODE, b"", version)


def test_who_loads_while_the_record_is_set_fails_and_comes_again(town: SwapTown) -> None:
    ledgers = town.round().ledgers
    town.cluster.admin.unload(TOPIC)

    def between() -> None:
        town.cluster.nodes.before_write = lambda: None
        rewrite(town, *ledgers)

    town.cluster.nodes.before_write = between
    with pytest.raises(BrokerUnavailableError, match="Failed to initialize managed ledger: BadVersion"):
        offloaded(town)
    assert offloaded(town) == {one.ledger for one in ledgers}
    assert town.read() == town.truth()


def test_hazard_1_a_loaded_topic_keeps_its_own_list_and_is_fenced_at_its_next_update(town: SwapTown) -> None:
    ledgers = town.round().ledgers
    rewrite(town, *ledgers)
    assert offloaded(town) == frozenset()
    town.cluster.roll(TOPIC)
    assert town.cluster.is_fenced(TOPIC)
    assert town.read(ledgers[0].ledger) == []
    assert town.contexts() == {one.ledger: one.uuid for one in ledgers}, "what we wrote is not overwritten"


@pytest.mark.parametrize("repair", ["publish", "unload"])
def test_hazard_1_an_idle_broker_stays_fenced_until_a_publish_or_an_unload(town: SwapTown, repair: str) -> None:
    ledgers = town.round().ledgers
    rewrite(town, *ledgers)
    assert not town.cluster.offload(TOPIC, ledgers[0].ledger, OTHER)
    assert town.read(ledgers[0].ledger) == []
    town.cluster.produce(TOPIC, b"new") if repair == "publish" else town.cluster.admin.unload(TOPIC)
    assert offloaded(town) == {one.ledger for one in ledgers}
    assert town.read(ledgers[0].ledger) == town.truth()


def test_hazard_2_a_stale_broker_reads_nothing_once_bookkeeper_s_copy_is_gone(town: SwapTown) -> None:
    ledgers = town.round().ledgers
    rewrite(town, *ledgers)
    town.forget_bookkeeper(*(one.ledger for one in ledgers))
    assert town.read(ledgers[0].ledger) == []
    town.cluster.admin.unload(TOPIC)
    assert town.read(ledgers[0].ledger) == town.truth()


def test_hazard_3_there_is_no_way_back_to_bookkeeper(town: SwapTown) -> None:
    ledgers = bridged(town)
    town.store.delete([index_key(ledgers[1].uuid, ledgers[1].ledger)])
    assert {ledger for ledger, _, _ in town.read()} == {ledgers[0].ledger}
    assert town.cluster.has_entries(ledgers[1].ledger)
    assert offloaded(town) == {one.ledger for one in ledgers}, "it mirrors the record, whatever the object is"


def test_hazard_4_with_auto_skip_the_same_loses_entries_without_a_word(town: SwapTown) -> None:
    ledgers = bridged(town)
    town.cluster.configuration["autoSkipNonRecoverableData"] = "true"
    town.store.delete([index_key(ledgers[0].uuid, ledgers[0].ledger)])
    assert {ledger for ledger, _, _ in town.read(ledgers[0].ledger)} == {one.ledger for one in ledgers[1:]}


def test_hazard_5_bookkeeper_first_never_touches_our_objects_until_the_copy_is_deleted(town: SwapTown) -> None:
    policies(town, managedLedgerOffloadedReadPriority="BOOKKEEPER_FIRST", managedLedgerOffloadDeletionLagInMillis=0)
    ledgers = bridged(town)
    objects = {key: town.store.read(key)[0] for key in town.objects()}
    town.store.delete(objects)
    assert town.read() == town.truth()
    town.forget_bookkeeper(ledgers[0].ledger)
    assert town.read() == [], "gone, and nobody has noted it: no way back either"
    for key, data in objects.items():
        town.store.put(key, data)
    town.cluster.recorded.now_ms += 1
    town.cluster.check_retention(TOPIC)
    assert town.read() == town.truth()


def test_a_broker_deletes_bookkeeper_s_copy_after_the_lag_and_notes_it_first(town: SwapTown) -> None:
    policies(town, managedLedgerOffloadDeletionLagInMillis=1000)
    ledgers = bridged(town)
    town.cluster.recorded.now_ms += 1000
    town.cluster.check_retention(TOPIC)
    assert all(town.cluster.has_entries(one.ledger) for one in ledgers)
    town.cluster.recorded.now_ms += 1
    town.cluster.check_retention(TOPIC)
    assert not any(town.cluster.has_entries(one.ledger) for one in ledgers)
    assert all(town.recorded().get(one.ledger).copy.bookkeeper_deleted for one in ledgers)
    assert town.read() == town.truth()


@pytest.mark.parametrize("lag", [None, -1])
def test_without_a_lag_it_deletes_nothing(town: SwapTown, lag: int | None) -> None:
    policies(town, managedLedgerOffloadDeletionLagInMillis=lag)
    ledgers = bridged(town)
    town.cluster.recorded.now_ms += 10**9
    town.cluster.check_retention(TOPIC)
    assert all(town.cluster.has_entries(one.ledger) for one in ledgers)


def test_a_stale_broker_deletes_nothing_since_it_is_refused_first(town: SwapTown) -> None:
    """The list is written before anything is deleted, and that write names a version."""
    policies(town, managedLedgerOffloadDeletionLagInMillis=0)
    ledgers = bridged(town)
    offloaded(town)
    node = town.cluster.nodes.get(NODE)
    assert node is not None
    back = without_contexts(node.value, {one.ledger: one.uuid for one in ledgers})
    town.cluster.nodes.set(NODE, back, node.version)
    town.cluster.recorded.now_ms += 10**9
    town.cluster.check_retention(TOPIC)
    assert town.cluster.is_fenced(TOPIC)
    assert all(town.cluster.has_entries(one.ledger) for one in ledgers)


@pytest.mark.parametrize("end", ["retention 0", "topic deletion"])
def test_hazard_6_retention_0_and_topic_deletion_delete_our_objects(town: SwapTown, end: str) -> None:
    bridged(town)
    offloaded(town)
    if end == "retention 0":
        town.cluster.namespace(TOPIC.namespace).policies["retention_policies"] = {"retentionTimeInMinutes": 0}
        town.cluster.check_retention(TOPIC)
    else:
        town.cluster.delete(TOPIC)
    assert town.objects() == set()


def test_hazard_7_an_incomplete_context_makes_a_broker_delete_its_objects(town: SwapTown) -> None:
    one = town.round(town.closed[0]).ledgers[0]
    assert town.cluster.offload(TOPIC, one.ledger, one.uuid, complete=False)
    assert town.cluster.offload(TOPIC, one.ledger, OTHER)
    assert data_key(one.uuid, one.ledger) not in town.objects()


def test_the_broker_s_own_offload_leaves_complete_contexts_alone(town: SwapTown) -> None:
    ledgers = bridged(town)
    assert town.cluster.offload(TOPIC, ledgers[0].ledger, OTHER)
    assert town.contexts()[ledgers[0].ledger] == ledgers[0].uuid


def test_rollback_without_the_context_it_reads_bookkeeper_again(town: SwapTown) -> None:
    ledgers = bridged(town)
    offloaded(town)
    node = town.cluster.nodes.get(NODE)
    assert node is not None
    back = without_contexts(node.value, {one.ledger: one.uuid for one in ledgers})
    town.cluster.nodes.set(NODE, back, node.version)
    town.cluster.admin.unload(TOPIC)
    town.store.delete(town.objects())
    assert town.read() == town.truth()


def test_a_context_without_a_bucket_cannot_be_read(town: SwapTown) -> None:
    ledgers = town.round().ledgers
    rewrite(town, *ledgers, bucket="")
    town.cluster.admin.unload(TOPIC)
    assert town.read() == []


def test_a_terminated_topic_is_loaded_without_a_write_and_its_newest_ledger_loses_its_context() -> None:
    town = SwapTown()
    town.cluster.produce(TOPIC, b"last")
    town.cluster.terminate(TOPIC)
    newest = town.closed[-1]
    one = town.built(newest)
    rewrite(town, one)
    version = town.cluster.nodes.get(NODE).version
    town.cluster.admin.unload(TOPIC)
    assert newest not in offloaded(town)
    assert town.cluster.nodes.get(NODE).version == version


def test_properties_of_the_record_survive_a_broker_s_write(town: SwapTown) -> None:
    node = town.cluster.nodes.get(NODE)
    assert node is not None
    info = ManagedLedgerInfo.FromString(node.value)
    info.properties.add(key="index", value="17")
    town.cluster.nodes.set(NODE, info.SerializeToString(), node.version)
    town.cluster.admin.unload(TOPIC)
    town.cluster.roll(TOPIC)
    assert [(one.key, one.value) for one in town.cluster.record(TOPIC).properties] == [("index", "17")]


def test_a_topic_that_is_not_there_is_not_loaded(town: SwapTown) -> None:
    town.cluster.delete(TOPIC)
    with pytest.raises(TopicNotFoundError):
        town.cluster.admin.unload(TOPIC)
    with pytest.raises(TopicNotFoundError):
        town.cluster.admin.topic_info(TopicName.parse("acme/orders/none"))
