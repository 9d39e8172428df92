"""What the product says of a cluster's ledgers, and how it deletes one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from integration.lifecycle.cluster import PulsarCluster
from integration.processes import HANGS
from offloader.bookkeeper.connect import BookKeeperSettings, clients
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.settings import BookieSettings
from offloader.bookkeeper.zookeeper import ZooKeeper
from offloader.config.lifecycle import Lifecycle
from offloader.lifecycle.deletion.guard import GuardCase, GuardDoubt, LedgerToGo
from offloader.lifecycle.deletion.guarded import GuardedDeletion, GuardedLedgers
from offloader.lifecycle.ledgers.evidence import LedgerVerdict
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.scanner import ClusterScanner, open_scanner
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.settings import PulsarSettings

_PATIENT = BookieSettings(connect_timeout=60.0, request_timeout=60.0)


@dataclass(frozen=True)
class Looking:
    """The product beside a cluster."""

    tree: MetadataTree
    scanner: ClusterScanner
    guarded: GuardedLedgers

    def scan(self) -> LedgerScan:
        return self.scanner.scan()

    def verdict(self, ledger: int) -> LedgerVerdict:
        """What a scan for this ledger says."""
        (verdict,) = self.scanner.scan([ledger]).verdicts
        return verdict

    def case(self, verdict: LedgerVerdict, *, on_demand: bool = False) -> GuardCase:
        """What a guarded deletion of it needs, as everything is now."""
        ledger = verdict.ledger
        assert ledger.created_ms is not None
        to_go = LedgerToGo(ledger.ledger, ledger.version, ledger.created_ms)
        referees = tuple(self.guarded.referee(referee.node) for referee in verdict.referees)
        doubt = GuardDoubt(data=True, loaded=False, demanded=True) if on_demand else None
        return GuardCase(to_go, referees, one_zookeeper=True, doubt=doubt)

    def delete(self, verdict: LedgerVerdict, *, on_demand: bool = False) -> GuardedDeletion:
        return self.guarded.delete(self.case(verdict, on_demand=on_demand))


@contextlib.contextmanager
def looking(cluster: PulsarCluster) -> Iterator[Looking]:
    """With sessions of its own, straight to ZooKeeper: the proxy freezes brokers."""
    broker = cluster.broker()
    settings = PulsarSettings(service_url=broker.service_url, admin_url=broker.admin_url, application="tests")
    with contextlib.ExitStack() as stack:
        tree, bookies = clients(BookKeeperSettings(cluster.books.metadata_uri, _PATIENT, metadata_timeout=HANGS))
        stack.callback(tree.close)
        stack.callback(bookies.close)
        admin = AdminClient(settings)
        stack.callback(admin.close)
        scanner = open_scanner(Lifecycle(bookkeeperIsNotShared=True), tree, bookies, admin, connect=ZooKeeper)
        stack.callback(scanner.close)
        yield Looking(tree, scanner, GuardedLedgers(tree.nodes, tree.uri.root, tree.layout))
