"""What the application builds for brokers is read as well by the archive, by `verify --bridged`, and by the scan that
asks whether a copy is whole before BookKeeper's may go."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.bridge.core.rounds import BridgedLedger, BridgeHead, BridgeState
from offloader.bridge.log import BridgeLog
from offloader.bridge.operations.verify import BridgeCheck, BrokersView
from offloader.lifecycle.ledgers.copies import CopiedLedger
from offloader.lifecycle.ledgers.stock_copies import is_whole
from offloader.metadata.stock_keys import data_key
from offloader.state.managed_ledger import ListedLedger, ManagedLedger, OffloadContext
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.archive.bridges import drawn, fresh_bucket
from tests.archive.ledgers.support import put_ledger
from tests.archive.support import TOPIC
from tests.bridge.support import LEDGER, UUID, BridgeWorld, entries_of


@pytest.fixture(params=[0, 1, 2])
def world(request: pytest.FixtureRequest) -> tuple[BridgeWorld, str]:
    """A ledger that is bridged, of three segments and with gaps that bookies fill; and the one before it."""
    url = fresh_bucket()
    made = BridgeWorld(seed=request.param, gaps=((3, 4), (27, 29)))
    found = made.build()
    bucket = open_store(StoreSettings(url))
    for key, _ in made.bucket.list():
        data, stat = made.bucket.read(key)
        bucket.put(key, data, meta=stat.meta)
    before = [each.data for each in entries_of(LEDGER - 1, 6)]
    put_ledger(bucket, LEDGER - 1, before, drawn(1), block_size=2_000)
    data, _ = bucket.read(data_key(drawn(1), LEDGER - 1))
    first = BridgedLedger(LEDGER - 1, 5, sum(map(len, before)), drawn(1), len(data), crc32c(data))
    log = BridgeLog(made.store, iter(map(str, range(9))).__next__)
    head = log.append(BridgeHead(0, None), BridgeState(TOPIC, 0).began((first, made.wanted), url, "app", 1))
    assert head.state is not None
    head = log.append(head, head.state.built((first, found.ledger)))
    assert head.state is not None
    log.append(head, head.state.proven(2))
    return made, url


def test_verify_and_the_scan_find_it_whole(world: tuple[BridgeWorld, str]) -> None:
    made, url = world
    context = ListedLedger(LEDGER, made.count, made.length, 1, OffloadContext(UUID, complete=True))
    length = sum(len(each.data) for each in entries_of(LEDGER - 1, 6))
    first = ListedLedger(LEDGER - 1, 6, length, 1, OffloadContext(drawn(1), complete=True))
    view = BrokersView(ManagedLedger((first, context)), frozenset({LEDGER - 1, LEDGER}))
    assert BridgeCheck(OpenArchive(Stores.of(made.store)), lambda _: view).topic(TOPIC).findings == ()
    copy = OffloadContext(UUID, complete=True, bookkeeper_deleted=True)
    copied = CopiedLedger(LEDGER, "public/default/persistent/orders", copy, made.count - 1, made.length)
    assert is_whole(open_store(StoreSettings(url)), copied)
