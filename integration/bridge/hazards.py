"""What can go wrong between the record, the broker and the objects; each is made on purpose, on a loaded topic of a
stock broker whose entries are in the archive and not bridged yet.

Each function gets a topic of its own, and raises AssertionError where the product leaves readers with less than before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from integration.bridge.pieces import Pieces, record_path
from integration.bridge.topics import PLAIN, Made, produced
from integration.bridge.truth import Seen
from integration.pulsar.waiting import until
from offloader.bookkeeper.layout import ledger_path
from offloader.bridge.building import BuiltLedger
from offloader.bridge.core.record import with_contexts
from offloader.bridge.core.swap_steps import SwapEnd
from offloader.bridge.swapping import StaleOrFine
from offloader.format.v1 import decode_ledger_index
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import TopicName
from offloader.state.managed_ledger import OffloadContext
from offloader.state.managed_ledger_codec import decode_managed_ledger
from tests.storage.servers import REGION

NEVER, AT_ONCE = 4 * 3_600_000, 0  # ms after which a broker may delete BookKeeper's copy
UNREADABLE_SECONDS = 3.0


@dataclass(frozen=True)
class Ground:
    """One archived topic: what clients see of it, and what may be done to it."""

    pieces: Pieces
    seen: Seen

    @property
    def topic(self) -> TopicName:
        return self.seen.made.topic

    @property
    def made(self) -> Made:
        return self.seen.made

    def same(self) -> None:
        """A stock client reads what it read before."""
        assert self.seen.again() == []

    def reads_nothing(self) -> bool:
        """So little that a client waits in vain."""
        asked = self.seen.client.read(self.topic, self.made.count, patience=UNREADABLE_SECONDS)
        return asked.result().end != "count"

    def keep_bookkeepers_copies(self, milliseconds: int = NEVER) -> None:
        self.pieces.place.admin("PUT", f"namespaces/{self.topic.namespace}/offloadDeletionLagMs", milliseconds)

    def write_under_the_broker(self, built: list[BuiltLedger]) -> None:
        """Contexts into the record of a topic that stays loaded, as nobody should."""
        pieces = self.pieces
        pieces.place.stats(self.topic)
        facts = {one.ledger.ledger: self._facts(one) for one in built}
        record, version = pieces.record(self.topic)
        assert pieces.tree.nodes.set(record_path(self.topic), with_contexts(record, facts), version) is not None
        assert pieces.place.offloaded(self.topic) == []

    def delete_from_bookkeeper(self, built: list[BuiltLedger]) -> None:
        for one in built:
            path = f"{self.pieces.tree.uri.root}{ledger_path(self.pieces.tree.layout, one.ledger.ledger)}"
            node = self.pieces.tree.nodes.get(path, latest=True)
            assert node is not None
            self.pieces.tree.nodes.delete(path, node.version)

    def _facts(self, one: BuiltLedger) -> OffloadContext:
        place = self.pieces.place
        named = {
            "bucket": self.pieces.stores.bucket.url.removeprefix("s3://").strip("/"),
            "managedLedgerOffloadDriver": "S3",
            "region": REGION,
            "serviceEndpoint": place.store.brokers.url,
        }
        return OffloadContext(one.ledger.uuid, True, False, tuple(named.items()), "S3", int(time.time() * 1000))


def stale_and_idle(ground: Ground) -> None:
    """1. Somebody wrote the record and died before the unload; nobody publishes."""
    ground.keep_bookkeepers_copies()
    built = ground.pieces.build(ground.topic)
    ground.write_under_the_broker(built)
    assert ground.pieces.swapper.look(ground.topic) is StaleOrFine.REPAIRED
    assert ground.pieces.place.offloaded(ground.topic) == [one.ledger.ledger for one in built]
    assert ground.pieces.swap(ground.topic, built).end is SwapEnd.PROVEN
    ground.same()


def stale_and_published_to(ground: Ground) -> None:
    """1. The same, and the broker's next write of the list finds another version: the next process finishes it."""
    ground.keep_bookkeepers_copies()
    built = ground.pieces.build(ground.topic)
    ground.write_under_the_broker(built)
    produced(ground.pieces.place, ground.topic, PLAIN, 70)
    assert ground.pieces.swap(ground.topic, built).end is SwapEnd.PROVEN
    messages = ground.seen.client.read(ground.topic, ground.made.count, whole=False).result().messages
    assert messages == ground.seen.whole.messages


def stale_and_gone_from_bookkeeper(ground: Ground) -> None:
    """2. The broker does not know the record, and BookKeeper has not got the ledgers any more."""
    built = ground.pieces.build(ground.topic)
    ground.write_under_the_broker(built)
    ground.delete_from_bookkeeper(built)
    assert ground.pieces.swapper.look(ground.topic) is StaleOrFine.REPAIRED
    ground.same()


def no_index(ground: Ground) -> None:
    """3. An object is gone before the swap: the record is not touched. It goes after the swap: it is to be built again,
    or, where that fails, the round is withdrawn, and brokers read from BookKeeper again."""
    ground.keep_bookkeepers_copies()
    pieces, topic = ground.pieces, ground.topic
    built = pieces.build(topic)
    victim = built[-1].ledger
    before = pieces.record(topic)
    pieces.stores.bucket.delete([index_key(victim.uuid, victim.ledger)])
    assert pieces.swap(topic, built).end is SwapEnd.BUILD
    assert pieces.record(topic) == before
    rebuilt = [_built(pieces, topic, one) for one in built]
    assert pieces.swap(topic, rebuilt).end is SwapEnd.PROVEN
    pieces.stores.bucket.delete([index_key(victim.uuid, victim.ledger)])
    pieces.place.unload(topic)
    assert ground.reads_nothing()
    assert pieces.swap(topic, rebuilt).end is SwapEnd.BUILD
    assert pieces.withdraw(topic, rebuilt).end is SwapEnd.WITHDRAWN
    assert pieces.place.offloaded(topic) == []
    kept = pieces.place.store.keys()
    assert not [key for key in kept if victim.uuid in key]
    ground.same()


def bookkeeper_first(ground: Ground) -> None:
    """5. Brokers that read BookKeeper first would prove nothing: refused, with what to set."""
    place = ground.pieces.place
    built = ground.pieces.build(ground.topic)
    place.restart(managedLedgerDataReadPriority="bookkeeper-first")
    outcome = ground.pieces.swap(ground.topic, built)
    place.restart(managedLedgerDataReadPriority="tiered-storage-first")
    assert outcome.end is SwapEnd.REFUSED
    assert "tiered-storage-first" in outcome.why
    ledgers = decode_managed_ledger(ground.pieces.record(ground.topic)[0]).ledgers
    assert not [one for one in ledgers if one.copy.uuid]
    ground.same()


def topic_deleted(ground: Ground) -> None:
    """6. Brokers own what they read: with the topic they delete it. The archive is whole beside it."""
    pieces, topic = ground.pieces, ground.topic
    built = pieces.build(topic)
    assert pieces.swap(topic, built).end is SwapEnd.PROVEN
    named = {key for one in built for key in (data_key(one.ledger.uuid, one.ledger.ledger),)}
    assert named <= pieces.place.store.keys().keys()
    pieces.place.admin("DELETE", f"{topic.rest_path}?force=true")
    until(lambda: not named & pieces.place.store.keys().keys())
    for one in built:
        assert isinstance(pieces.builder.build(topic, one.ledger), BuiltLedger)  # from the archive, once more


def offloaded_by_the_broker_behind_ours(ground: Ground) -> None:
    """7. The broker's own offloader finds whole contexts only, and leaves ours alone."""
    pieces, topic = ground.pieces, ground.topic
    built = pieces.build(topic)
    assert pieces.swap(topic, built).end is SwapEnd.PROVEN
    produced(pieces.place, topic, PLAIN, 70)
    pieces.place.offload(topic)
    copies = {one.ledger: one.copy for one in decode_managed_ledger(pieces.record(topic)[0]).ledgers}
    for one in built:
        assert (copies[one.ledger.ledger].uuid, copies[one.ledger.ledger].complete) == (one.ledger.uuid, True)
    assert sum(copy.complete for copy in copies.values()) > len(built)
    messages = ground.seen.client.read(topic, ground.made.count, whole=False).result().messages
    assert messages == ground.seen.whole.messages


def blocks_end_with_padding(ground: Ground) -> None:
    """9. Every block of every object, also the last one, ends with a byte that no reader takes for a length."""
    pieces = ground.pieces
    for one in pieces.build(ground.topic):
        uuid, ledger = one.ledger.uuid, one.ledger.ledger
        index = decode_ledger_index(pieces.stores.bucket.read(index_key(uuid, ledger))[0], ledger)
        data = pieces.stores.bucket.read(data_key(uuid, ledger))[0]
        assert len(data) == one.ledger.size
        begins = [entry.offset for entry in index.entries if data[entry.offset : entry.offset + 4] in MAGIC]
        assert begins[0] == 0
        for begin, end in zip(begins, [*begins[1:], len(data)], strict=True):
            assert _padding(data, begin, end) >= 1


def store_without_copies(ground: Ground) -> None:
    """A store that answers `NotImplemented` to UploadPartCopy: the bytes pass through us, and are the same."""
    with ground.pieces.place.store.without_server_side_copy():
        built = ground.pieces.build(ground.topic)
    assert sum(one.copied for one in built) == 0
    assert sum(one.streamed for one in built) >= sum(one.ledger.size for one in built)
    assert ground.pieces.swap(ground.topic, built).end is SwapEnd.PROVEN
    ground.pieces.place.forget_bookkeepers_copies(ground.topic)
    ground.same()


MAGIC = (bytes.fromhex("fbdbabcb"), bytes.fromhex("26a66d32"))
HAZARDS: Mapping[str, Callable[[Ground], None]] = {
    one.__name__: one
    for one in (
        stale_and_idle,
        stale_and_published_to,
        stale_and_gone_from_bookkeeper,
        no_index,
        bookkeeper_first,
        topic_deleted,
        offloaded_by_the_broker_behind_ours,
        blocks_end_with_padding,
        store_without_copies,  # the last one: the builder remembers it
    )
}


def _built(pieces: Pieces, topic: TopicName, one: BuiltLedger) -> BuiltLedger:
    again = pieces.builder.build(topic, one.ledger)
    assert isinstance(again, BuiltLedger)
    return again


def _padding(data: bytes, begin: int, end: int) -> int:
    """Bytes behind the last entry of a block."""
    at = begin + 128
    while at + 4 <= end and (length := int.from_bytes(data[at : at + 4], signed=True)) >= 0:
        at += 12 + length
    return end - at
