"""What a building asks of an S3 server, request by request (moto's)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from offloader.bridge.building import BuildSettings, LedgerBuilder
from offloader.bridge.core.rounds import BridgedLedger
from offloader.bridge.transfer import BridgeStores, PieceThreads
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import KIB, MIB, SegmentLayout
from offloader.ports.object_store import ObjectStore
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.bridge.support import LEDGER, UUID, built
from tests.format.support import Stored
from tests.storage.conftest import moto, stores
from tests.storage.proxy import Proxy
from tests.storage.servers import S3Server, Stores

__all__ = ["moto", "stores"]

ENTRY = message("x" * (100 * KIB))
CUTS = SegmentLayout(part_size=1 * MIB, block_size=256 * KIB, index_step=64 * KIB)
SEGMENT_ENTRIES = 90  # 9 MiB: nine parts


def written(store: ObjectStore) -> BridgedLedger:
    """A ledger of three segments of 9 MiB; the last one has some of the next ledger, too."""
    made = Archive(store=MemoryStore())
    made.claim(LEDGER)
    for first in (0, SEGMENT_ENTRIES, 2 * SEGMENT_ENTRIES):
        held = [Stored(LEDGER, entry, ENTRY) for entry in range(first, first + SEGMENT_ENTRIES)]
        behind = [Stored(LEDGER + 1, 0, ENTRY)] if first == 2 * SEGMENT_ENTRIES else []
        made.add([*held, *behind], cuts=CUTS)
    for key, _ in made.store.list():
        store.put(key, made.store.read(key)[0])
    count = 3 * SEGMENT_ENTRIES
    return BridgedLedger(LEDGER, count - 1, count * len(ENTRY), UUID)


@pytest.fixture
def proxy(moto: S3Server) -> Iterator[Proxy]:
    with Proxy(moto.host, moto.port) as proxy:
        yield proxy


def kinds(proxy: Proxy) -> dict[str, int]:
    """Requests by what they are for."""
    found: dict[str, int] = {}
    for method, path in proxy.requests:
        marks = {"partNumber": "part", "uploads": "uploads", "uploadId": "commit"}
        kind = next((kind for mark, kind in marks.items() if mark in path), "")
        name = f"{method} {kind}".strip()
        found[name] = found.get(name, 0) + 1
    return found


@pytest.mark.parametrize("copies", [True, False])
def test_a_building_asks_for_no_more_than_it_needs(
    moto: S3Server, stores: Stores, proxy: Proxy, *, copies: bool
) -> None:
    root, beside, used = moto.fresh_root(), moto.bucket_beside(), Stores()
    wanted = written(stores.open(moto.settings(root)))
    source = used.open(moto.settings(root, endpoint=proxy.url))
    bucket = used.open(moto.settings(beside.root, endpoint=proxy.url))
    try:
        builder = LedgerBuilder(BridgeStores(source, bucket), workers=PieceThreads(2), settings=BuildSettings())
        if not copies:
            builder.copies_refused()
        found = built(builder.build(TOPIC, wanted))
        asked = kinds(proxy)
        size = found.ledger.size
        assert asked["POST uploads"] == asked["POST commit"] == 1  # begun and completed
        assert asked["GET uploads"] == 1  # those that others have left open
        if copies:  # one request for each segment's range; the first block's header is ours, so its range is sent
            assert asked["PUT part"] == 3
            assert found.copied + found.streamed == size
            assert found.copied > size * 0.6
        else:
            assert asked["PUT part"] == -(-size // (16 * MIB))
            assert (found.copied, found.streamed) == (0, size)
        assert asked["PUT"] == 1  # the index
        assert asked["HEAD"] <= 3 + 2 + 1  # each segment, the object before and after, and the catalog's manifest
        assert dict(bucket.list()) == {
            data_key(UUID, LEDGER): size,
            index_key(UUID, LEDGER): bucket.read(index_key(UUID, LEDGER))[1].size,
        }
        proxy.requests.clear()
        again = built(builder.build(TOPIC, wanted))
        assert again.ledger == found.ledger
        assert not any(method in ("PUT", "POST", "DELETE") for method, _ in proxy.requests)
    finally:
        used.close()
