"""The same answers, the same decision: what BookKeeper's own recovery closes at or gives up, ours does, too. Where
bookies do not take what is written back, both put others in their place."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from integration.bookkeeper.cluster import BookKeeperCluster
from integration.bookkeeper.official import HURRIED, OfficialClient, OfficialError, Shape
from integration.bookkeeper.scripts import PASSWORD, SIZE, Script, Tempo, script
from integration.processes import HANGS
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

pytestmark = [pytest.mark.pulsar, pytest.mark.timeout(3600)]

SCRIPTS = 600 if SOAK else 50
AT_ONCE = 8
TEMPI = (
    Tempo(0.02, 1.0, HURRIED),
    Tempo(0.15, 1.0, HURRIED),
    Tempo(0.4, 1.0, HURRIED),
)  # quick ones may not keep the answers' order
ALONE = Tempo(1.0, 5.0, 15.0)  # keeps it however busy the machine is
ONE_BY_ONE = Reading(window=1)  # as the official client reads entries
_LEDGERS = itertools.count(10_000_000)

Decision = int | None
"""The last entry; None: given up. (The official client's length may be that of an entry which it then leaves out.)"""


def address(bookie: str) -> BookieAddress:
    host, _, port = bookie.rpartition(":")
    return BookieAddress(host, int(port))


def put(cluster: BookKeeperCluster, ledger: int, metadata: LedgerMetadata) -> None:
    cluster.zookeeper.create(
        f"/ledgers{ledger_path(Layout.HIERARCHICAL, ledger)}", encode_metadata(metadata), makepath=True
    )


@contextmanager
def registered(
    cluster: BookKeeperCluster, official: OfficialClient, bookies: Iterable[str], timeout: float
) -> Iterator[None]:
    """The official client finds them."""
    try:
        for bookie in bookies:
            cluster.zookeeper.create(f"/ledgers/available/{bookie}", b"", ephemeral=True)
        for bookie in bookies:
            official.call("await bookie", bookie=bookie, parallel=True, timeout=timeout)
        yield
    finally:
        for bookie in bookies:
            cluster.unregister(bookie)


def decided_by_official(cluster: BookKeeperCluster, official: OfficialClient, played: Script, tempo: Tempo) -> Decision:
    ledger = next(_LEDGERS)
    with played.played(ledger, tempo) as metadata:
        put(cluster, ledger, metadata)
        with registered(cluster, official, metadata.fragments[0].ensemble, tempo.timeout):
            recovering = official.recover(ledger, Shape(password=PASSWORD), parallel=True, timeout=tempo.timeout)
            try:
                return int(recovering.result(HANGS)["last"])
            except OfficialError:
                return None


def decided_by_us(
    cluster: BookKeeperCluster, store: MetadataTree, played: Script, tempo: Tempo, replaced: set[str]
) -> Decision:
    ledger = next(_LEDGERS)
    settings = BookieSettings(connect_timeout=tempo.timeout, request_timeout=tempo.timeout)
    with played.played(ledger, tempo) as metadata, closing(BookieClient(settings, address)) as bookies:
        put(cluster, ledger, metadata)
        outcome = recover(ledger, store, bookies, RecoveryRules(ONE_BY_ONE), timeout=tempo.timeout)
    if isinstance(outcome.phase, Aborted):
        return None
    assert outcome.metadata.length == SIZE * (outcome.metadata.last_entry + 1)
    replaced.update(change.bookie for change in outcome.replaced)
    return outcome.metadata.last_entry


def test_both_decide_the_same_from_the_same_answers(cluster: BookKeeperCluster) -> None:
    replaced: set[str] = set()
    with closing(connect(cluster.metadata_uri, timeout=HANGS)) as store:

        def play(official: OfficialClient, seed: int, tempo: Tempo) -> tuple[int, Script, Decision, Decision]:
            played = script(random.Random(seed))
            theirs = decided_by_official(cluster, official, played, tempo)
            return seed, played, theirs, decided_by_us(cluster, store, played, tempo, replaced)

        def play_until_same(seed: int) -> tuple[int, Script, Decision, Decision]:
            for tempo in TEMPI:
                *_, theirs, ours = result = play(official, seed, tempo)
                if theirs == ours:
                    break
            return result

        official, unhurried = cluster.client(), cluster.client()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            results = list(pool.map(play_until_same, range(SCRIPTS)))
        for tempo, client in ((TEMPI[-1], official), (ALONE, unhurried)):
            results = [result if result[2] == result[3] else play(client, result[0], tempo) for result in results]
    for client in (official, unhurried):
        client.kill()
    for seed, played, theirs, ours in results:
        assert ours == theirs, f"seed {seed}: they decided {theirs}, we {ours}: {played}"
        if ours is not None:
            assert ours >= played.acknowledged, f"seed {seed}: {ours}: {played}"
    given_up = sum(ours is None for *_, ours in results)
    assert SCRIPTS // 10 < given_up < SCRIPTS // 2
    assert len(replaced) >= SCRIPTS // 10
