"""The same answers, the same decision: what BookKeeper's own recovery closes at or gives up, ours does, too. Where bookies do not take
what is written back, both put others in their place."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from integration.bookkeeper.cluster import BookKeeperCluster
from integration.bookkeeper.official import OfficialClient, OfficialError, Shape
from integration.bookkeeper.scripts import PASSWORD, SIZE, Script, script
from integration.soak import SOAK
from offloader.bookkeeper.api import BookieAddress
from offloader.bookkeeper.bookies import BookieClient
from offloader.bookkeeper.layout import Layout, ledger_path
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.metadata_codec import encode_metadata
from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.recovery.forward import Reading
from offloader.bookkeeper.recovery.machine import Aborted, RecoveryRules
from offloader.bookkeeper.recovery.runner import recover
from offloader.bookkeeper.settings import BookieSettings
from offloader.bookkeeper.zookeeper import connect

pytestmark = [pytest.mark.pulsar, pytest.mark.timeout(3600 if SOAK else 900)]

SCRIPTS = 600 if SOAK else 50
AT_ONCE = 8
GAPS = (0.02, 0.15, 0.4)  # seconds between answers: on a busy machine the short one may not keep their order
_TIMEOUT = 3.0  # the official client's
ONE_BY_ONE = Reading(window=1)  # as the official client reads entries
_LEDGERS = itertools.count(10_000_000)

Decision = int | None
"""The last entry; None: given up. (The official client's length may be that of an entry which it then leaves out.)"""


def address(bookie: str) -> BookieAddress:
    host, _, port = bookie.rpartition(":")
    return BookieAddress(host, int(port))


def put(cluster: BookKeeperCluster, ledger: int, metadata: LedgerMetadata) -> None:
    cluster.zookeeper.create(f"/ledgers{ledger_path(Layout.HIERARCHICAL, ledger)}", encode_metadata(metadata), makepath=True)


@contextmanager
def registered(cluster: BookKeeperCluster, official: OfficialClient, bookies: Iterable[str]) -> Iterator[None]:
    """The official client finds them."""
    for bookie in bookies:
        cluster.zookeeper.create(f"/ledgers/available/{bookie}", b"", ephemeral=True)
    for bookie in bookies:
        official.call("await bookie", bookie=bookie, parallel=True)
    yield
    for bookie in bookies:
        cluster.unregister(bookie)


def decided_by_official(cluster: BookKeeperCluster, official: OfficialClient, played: Script, gap: float) -> Decision:
    ledger = next(_LEDGERS)
    with played.played(ledger, gap) as metadata:
        put(cluster, ledger, metadata)
        with registered(cluster, official, metadata.fragments[0].ensemble):
            try:
                return int(official.recover(ledger, Shape(password=PASSWORD), parallel=True).result(60)["last"])
            except OfficialError:
                return None


def decided_by_us(cluster: BookKeeperCluster, store: MetadataTree, played: Script, gap: float, replaced: set[str]) -> Decision:
    ledger = next(_LEDGERS)
    settings = BookieSettings(connect_timeout=_TIMEOUT, request_timeout=_TIMEOUT)
    with played.played(ledger, gap) as metadata, closing(BookieClient(settings, address)) as bookies:
        put(cluster, ledger, metadata)
        outcome = recover(ledger, store, bookies, RecoveryRules(ONE_BY_ONE), timeout=_TIMEOUT)
    if isinstance(outcome.phase, Aborted):
        return None
    assert outcome.metadata.length == SIZE * (outcome.metadata.last_entry + 1)
    replaced.update(change.bookie for change in outcome.replaced)
    return outcome.metadata.last_entry


def test_both_decide_the_same_from_the_same_answers(cluster: BookKeeperCluster) -> None:
    official = cluster.client()
    replaced: set[str] = set()
    with closing(connect(cluster.metadata_uri)) as store, ThreadPoolExecutor(AT_ONCE) as pool:

        def play(seed: int) -> tuple[int, Script, Decision, Decision]:
            played = script(random.Random(seed))
            for gap in GAPS:
                theirs = decided_by_official(cluster, official, played, gap)
                ours = decided_by_us(cluster, store, played, gap, replaced)
                if theirs == ours:
                    break
            return seed, played, theirs, ours

        results = list(pool.map(play, range(SCRIPTS)))
    official.kill()
    for seed, played, theirs, ours in results:
        assert ours == theirs, f"seed {seed}: they decided {theirs}, we {ours}: {played}"
        if ours is not None:
            assert ours >= played.acknowledged, f"seed {seed}: {ours}: {played}"
    given_up = sum(ours is None for *_, ours in results)
    assert SCRIPTS // 10 < given_up < SCRIPTS // 2
    assert len(replaced) >= SCRIPTS // 10
