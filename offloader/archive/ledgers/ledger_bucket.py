"""Where Pulsar's own offloader wrote, and who says which objects there are whose: what a user gives an archive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from offloader.archive.ledgers.bucket import BucketScan, scan
from offloader.archive.ledgers.contexts import contexts_of_record, contexts_of_rest, found_in
from offloader.archive.ledgers.found import FoundLedgers
from offloader.errors import TopicNotFoundError
from offloader.model import TopicName
from offloader.ports.object_store import Stat
from offloader.pulsar.managed_ledger import instant
from offloader.pulsar.settings import PulsarSettings
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings


@dataclass(frozen=True)
class LedgerBucket:
    """The bucket that `managedLedgerOffloadBucket` names. Can be pickled.

    Which objects are a topic's is known, in this order, from `records` (managed-ledger records as the metadata store
    has them), from the brokers at `admin`, or from the metadata of every index object in the bucket: the last cannot
    prove that no ledger is missing, and needs `cluster` where several clusters share the bucket.
    """

    store: StoreSettings
    records: Mapping[TopicName, bytes] = field(default_factory=dict)
    admin: PulsarSettings | None = None
    cluster: str | None = None
    _heads: dict[str, Stat] = field(default_factory=dict, init=False, repr=False, compare=False)

    def find(self, topic: TopicName, scanned: BucketScan | None = None) -> FoundLedgers:
        """What is offloaded of a topic; no ledgers where it is not known. Raises DamagedRecordError and what Pulsar or
        the store raise.

        `scanned`: what `scan` has told of the bucket already, which then is not listed again.
        """
        if topic in self.records:
            return found_in(topic, contexts_of_record(self.records[topic]), self.url_of)
        found = None if self.admin is None else self._ask(self.admin, topic)
        return found or (scanned or self.scan(topic.__eq__)).of(topic)

    def scan(self, wanted: Callable[[TopicName], bool] = lambda _: True) -> BucketScan:
        """What the bucket alone tells of the topics that are wanted, by default of all."""
        with closing(open_store(self.store, read_only=True)) as store:
            return scan(store, wanted, cluster=self.cluster, store_url=self.store.root, heads=self._heads)

    def url_of(self, bucket: str) -> str:
        """The URL of the store with the objects of a context that names this bucket: same end point, same keys."""
        root = self.store.root
        own = not bucket or self.store.scheme != "s3" or root.partition("://")[2].split("/")[0] == bucket
        return root if own else f"s3://{bucket}"

    def _ask(self, admin: PulsarSettings, topic: TopicName) -> FoundLedgers | None:
        """None where the brokers do not know the topic."""
        from offloader.pulsar.admin import AdminClient  # httpx takes 0.1 s to import

        with closing(AdminClient(admin)) as client:
            try:
                stats = client.rest.get(f"{topic.rest_path}/internalStats")
            except TopicNotFoundError:
                return None
            info = client.rest.get(f"{topic.rest_path}/internal-info")
        return found_in(topic, contexts_of_rest(stats, info), self.url_of, instant(info["creationDate"]))
