"""Topics whose ledgers brokers have: what the application would have recorded and written."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from crc32c import crc32c

from offloader.bridge.core.rounds import BridgedLedger, BridgeHead, BridgeState
from offloader.bridge.log import BridgeLog
from offloader.metadata.stock_keys import data_key, index_key
from offloader.ports.object_store import ObjectStore
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.archive.ledgers.support import put_ledger
from tests.archive.support import APPLICATION, Archive

BRIDGED_BLOCK = 4_000  # the longest block of an object for brokers
_NAMES = itertools.count()


def fresh_bucket() -> str:
    """The URL of an empty bucket for brokers, which whoever reads opens by itself."""
    return f"memory://brokers-{next(_NAMES)}"


def opened(bucket: str) -> ObjectStore:
    return open_store(StoreSettings(bucket))


def drawn(number: int) -> str:
    return f"bbbbbbbb-0000-4000-8000-{number:012d}"


class Bridging:
    """The bridge of an archive's topic. `entries`: what each ledger has in Pulsar, gaps of segments filled."""

    def __init__(self, archive: Archive, bucket: str = "") -> None:
        self.archive = archive
        self.bucket = bucket or fresh_bucket()
        self.brokers = opened(self.bucket)
        tokens = itertools.count()
        self.log = BridgeLog(archive.store, lambda: f"bridge-token-{next(tokens)}")
        self._head = BridgeHead(0, None)
        self._uuids = itertools.count(1)

    def begin(self, ledgers: dict[int, Sequence[bytes]]) -> BridgeState:
        """A round is recorded, before its first byte."""
        state = self._head.state or BridgeState(self.archive.topic, self.archive.incarnation)
        named = tuple(
            BridgedLedger(ledger, len(entries) - 1, sum(map(len, entries)), drawn(next(self._uuids)))
            for ledger, entries in sorted(ledgers.items())
        )
        return self._append(state.began(named, self.bucket, APPLICATION, 5))

    def build(self, ledgers: dict[int, Sequence[bytes]], *, index: bool = True) -> None:
        """The objects of the round that is under way, whole or without their index."""
        for each in self._round():
            put_ledger(self.brokers, each.ledger, ledgers[each.ledger], each.uuid, block_size=BRIDGED_BLOCK)
            if not index:
                self.brokers.delete([index_key(each.uuid, each.ledger)])

    def swap(self) -> BridgeState:
        state = self.state
        sized = tuple(replace(each, size=self._size(each), crc32c=self._sum(each)) for each in self._round())
        return self._append(state.built(sized))

    def finish(self) -> BridgeState:
        return self._append(self.state.proven(6))

    def bridge(self, ledgers: dict[int, Sequence[bytes]]) -> BridgeState:
        """A whole round."""
        self.begin(ledgers)
        self.build(ledgers)
        self.swap()
        return self.finish()

    def withdraw(self) -> None:
        self._append(self.state.withdrawing("the broker did not deliver"))

    def withdrawn(self) -> None:
        """And nothing is left to be taken away, as far as anybody knows."""
        self._append(self.state.withdrawn(7))
        self._append(self.state.cleaned())

    @property
    def state(self) -> BridgeState:
        assert self._head.state is not None
        return self._head.state

    def delete_in_pulsar(self, state: BridgeState, ledger: int) -> None:
        """As the broker deletes what it owns."""
        assert state.finished is not None
        for each in state.finished.ledgers:
            if each.ledger == ledger:
                self.brokers.delete([data_key(each.uuid, ledger), index_key(each.uuid, ledger)])

    def _append(self, state: BridgeState) -> BridgeState:
        self._head = self.log.append(self._head, state)
        return self.state

    def _round(self) -> tuple[BridgedLedger, ...]:
        assert self.state.round is not None
        return self.state.round.ledgers

    def _sum(self, each: BridgedLedger) -> int:
        key = data_key(each.uuid, each.ledger)
        return 0 if self.brokers.stat(key) is None else crc32c(self.brokers.read(key)[0])

    def _size(self, each: BridgedLedger) -> int:
        stat = self.brokers.stat(data_key(each.uuid, each.ledger))
        return 0 if stat is None else stat.size
