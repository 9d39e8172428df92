"""The product's own pieces, without the application around them: build, swap, prove, withdraw."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from integration.bridge.place import Place
from integration.processes import HANGS
from offloader.bookkeeper.connect import BookKeeperSettings, clients
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bridge.building import BuiltLedger, LedgerBuilder
from offloader.bridge.core.rounds import BridgedLedger, BridgePhase, BridgeRound
from offloader.bridge.core.swap_steps import SwapEnd, SwapOutcome
from offloader.bridge.objects import remove_objects
from offloader.bridge.proof import BrokerProof
from offloader.bridge.sources import LedgerBookies
from offloader.bridge.swapping import Swapper, SwapWorld
from offloader.bridge.transfer import BridgeStores
from offloader.lifecycle.ledgers.references import list_path
from offloader.model import TopicName
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.settings import PulsarSettings
from offloader.state.names import managed_ledger_name
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings


@dataclass(frozen=True)
class Pieces:
    """Of one place and one archive."""

    place: Place
    stores: BridgeStores
    builder: LedgerBuilder
    swapper: Swapper
    tree: MetadataTree

    def closed(self, topic: TopicName) -> list[BridgedLedger]:
        """The topic's closed ledgers that no object has yet, under names that are drawn now."""
        *ledgers, _ = self.place.ledgers(topic)
        return [
            BridgedLedger(int(one["ledgerId"]), int(one["entries"]) - 1, int(one["size"]), str(uuid.uuid4()))
            for one in ledgers
            if one["entries"] and not one["offloaded"]
        ]

    def build(self, topic: TopicName) -> list[BuiltLedger]:
        """All closed ledgers."""
        built = []
        for ledger in self.closed(topic):
            one = self.builder.build(topic, ledger)
            assert isinstance(one, BuiltLedger), one
            built.append(one)
        return built

    def round(self, ledgers: list[BuiltLedger], phase: BridgePhase = BridgePhase.SWAPPING) -> BridgeRound:
        named = tuple(one.ledger for one in ledgers)
        return BridgeRound(0, phase, self.stores.bucket.url, named, int(time.time() * 1000), "tests")

    def swap(self, topic: TopicName, ledgers: list[BuiltLedger]) -> SwapOutcome:
        return self.swapper.bridge(topic, self.round(ledgers), lambda: True)

    def withdraw(self, topic: TopicName, ledgers: list[BuiltLedger]) -> SwapOutcome:
        """The round, and then its objects."""
        outcome = self.swapper.withdraw(topic, self.round(ledgers, BridgePhase.WITHDRAWING), lambda: True)
        if outcome.end is SwapEnd.WITHDRAWN:
            remove_objects(self.stores.bucket, [x.ledger for x in ledgers if x.ledger.ledger not in outcome.kept])
        return outcome

    def record(self, topic: TopicName) -> tuple[bytes, int]:
        """The topic's record, and its version."""
        node = self.tree.nodes.get(record_path(topic), latest=True)
        assert node is not None
        return node.value, node.version


def record_path(topic: TopicName) -> str:
    return list_path(managed_ledger_name(topic))


@contextmanager
def pieces(place: Place, archive: StoreSettings, *, proof_seconds: float = 60.0) -> Iterator[Pieces]:
    """Connected."""
    settings = PulsarSettings(service_url=place.service_url, admin_url=place.admin_url, application="tests")
    with ExitStack() as stack:
        tree, bookies = clients(BookKeeperSettings(place.cluster.books.metadata_uri, metadata_timeout=HANGS))
        stack.callback(tree.close)
        stack.callback(bookies.close)
        admin = AdminClient(settings)
        stack.callback(admin.close)
        source = BrokerSource(settings)
        stack.callback(source.close)
        stores = BridgeStores(open_store(archive), open_store(place.store.bucket()))
        stack.callback(stores.archive.close)
        stack.callback(stores.bucket.close)
        proof = BrokerProof(source, proof_seconds)
        world = SwapWorld(admin, tree.nodes, record_path, lambda _: stores.bucket, proof, tree.has)
        builder = LedgerBuilder(stores, LedgerBookies(tree, bookies))
        yield Pieces(place, stores, builder, Swapper(world), tree)
