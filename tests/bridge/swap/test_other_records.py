"""Records that are not what they seem: another topic's, another metadata service's, one that says too little."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo
from offloader.bridge.core.rounds import BridgePhase
from offloader.bridge.core.swap_steps import SwapEnd
from offloader.bridge.swapping import Swapper
from offloader.errors import BrokerUnavailableError
from offloader.model import TopicName
from tests.bridge.swap.support import TOPIC, SwapTown, proven
from tests.fakes.recorded_state import record_path

NODE = record_path(TOPIC)


def at_the_unload(town: SwapTown, act: Callable[[], object]) -> None:
    """Something happens while the topic is unloaded."""
    unload = town.cluster.admin.unload

    def unloads(topic: TopicName) -> None:
        town.cluster.admin.unload = unload
        unload(topic)
        act()

    town.cluster.admin.unload = unloads


def test_a_topic_made_anew_during_the_unload_whose_record_has_the_same_version_keeps_its_own_list() -> None:
    """A node that is created again counts its versions from 0 on: the version alone does not tell the two apart."""
    town = SwapTown()
    under_way = town.round()
    town.cluster.admin.topic_info(TOPIC)
    read = town.cluster.nodes.get(NODE)
    assert read is not None
    made: list[set[int]] = []

    def anew() -> None:
        town.cluster.delete(TOPIC)
        town.cluster.create(TOPIC)
        while (node := town.cluster.nodes.get(NODE)) is not None and node.version < read.version:
            town.cluster.produce(TOPIC, b"of the new topic")
            town.cluster.roll(TOPIC)
        node = town.cluster.nodes.get(NODE)
        assert node is not None
        assert (node.version, node.born != read.born) == (read.version, True)
        made.append({one.ledger for one in town.recorded().ledgers})

    at_the_unload(town, anew)
    town.bridge(under_way)
    assert made
    assert made[0] <= {one.ledger for one in town.recorded().ledgers}, (
        "the new topic's list was replaced by the deleted one's"
    )


def strip(town: SwapTown) -> None:
    """Somebody takes every context out of the record; the topic is loaded anew."""
    node = town.cluster.nodes.get(NODE)
    assert node is not None
    info = ManagedLedgerInfo.FromString(node.value)
    for one in info.ledgerInfo:
        one.ClearField("offloadContext")
    town.cluster.nodes.set(NODE, info.SerializeToString(), node.version)
    town.cluster.admin.unload(TOPIC)


def test_a_repair_is_not_taken_back_where_bookkeeper_has_no_copy() -> None:
    """It is taken back as far as BookKeeper has it. The context that a repair puts in does not say whether it does."""
    town = SwapTown()
    under_way = town.round()
    proven(town.bridge(under_way))
    town.forget_bookkeeper(*(one.ledger for one in under_way.ledgers))
    strip(town)
    assert town.contexts() == {}
    assert not any(town.swapper().missing(TOPIC, under_way.ledgers).values()), "BookKeeper has none of them"
    repair = replace(under_way, repairs=True)
    town.cluster.buckets.clear()  # the brokers' store does not answer for some minutes
    assert town.bridge(repair).end is SwapEnd.WITHDRAW
    town.phase = BridgePhase.WITHDRAWING
    town.swapper().withdraw(TOPIC, repair, town.says(BridgePhase.WITHDRAWING))
    town.cluster.buckets["brokers"] = town.store  # it answers again, and the objects are whole
    assert town.contexts() == {one.ledger: one.uuid for one in under_way.ledgers}
    assert town.read() == town.truth()


def elsewhere(town: SwapTown) -> Swapper:
    """With `pulsar.metadataServiceUri` of another cluster, or without its chroot."""
    found = town.swapper()
    found._world = replace(found._world, record_path=lambda _: "/another/managed-ledgers/t")
    return found


def test_a_topic_that_brokers_have_and_whose_record_is_nowhere_is_not_gone() -> None:
    town = SwapTown()
    under_way = town.round()
    proven(town.bridge(under_way))  # and the process dies before it records that
    outcome = elsewhere(town).bridge(TOPIC, under_way, town.says(BridgePhase.SWAPPING))
    assert outcome.end is SwapEnd.REFUSED
    assert "pulsar.metadataServiceUri" in outcome.why
    town.phase = BridgePhase.WITHDRAWING
    ended = elsewhere(town).withdraw(TOPIC, under_way, town.says(BridgePhase.WITHDRAWING))
    assert ended.end is SwapEnd.REFUSED, f"the objects go that the record names: {ended.why}"


def test_without_a_record_and_without_an_answer_of_brokers_nothing_is_decided() -> None:
    town = SwapTown()
    under_way = town.round()
    swapper = elsewhere(town)

    def nobody(topic: TopicName) -> NoReturn:
        raise BrokerUnavailableError(f"{topic}: 503")

    town.cluster.admin.topic_info = nobody
    outcome = swapper.bridge(TOPIC, under_way, town.says(BridgePhase.SWAPPING))
    assert outcome.end is SwapEnd.LATER
    assert "no broker says" in outcome.why


def test_a_topic_that_is_deleted_in_the_middle_of_a_round_is_gone() -> None:
    town = SwapTown()
    under_way = town.round()
    town.cluster.delete(TOPIC)
    assert town.bridge(under_way).end is SwapEnd.WITHDRAW
