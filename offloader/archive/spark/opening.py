"""Stores, catalogs and keys, opened in each of Spark's processes: workers live longer than tasks, and connections are
worth keeping."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from offloader.archive.catalog_cache import CatalogCache
from offloader.archive.messages.encryption import KeyReader, PemFiles
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.archive.spark.options import LedgerBucketOptions, SourceOptions
from offloader.storage.settings import StoreSettings

if TYPE_CHECKING:
    from offloader.archive.ledgers.ledger_bucket import LedgerBucket

_STORES: dict[tuple[StoreSettings, ...], Stores] = {}
_CATALOGS: dict[StoreSettings, CatalogCache] = {}
_LOCK = threading.Lock()


def opened(options: SourceOptions) -> OpenArchive:
    """The options' archive, with the stores and the catalogs that this process has of it."""
    others = () if options.ledgers is None else (options.ledgers.store,)
    with _LOCK:
        stores = _STORES.setdefault((options.store, *others), Stores(options.store, others))
    store = stores.open().store
    with _LOCK:
        catalogs = _CATALOGS.setdefault(options.store, CatalogCache(store))
    return OpenArchive(stores, None if options.ledgers is None else _bucket(options.ledgers), catalogs)


def key_reader(options: SourceOptions) -> KeyReader | None:
    """What opens encrypted messages, None where no keys are given."""
    return PemFiles(dict(options.private_keys)) if options.private_keys else None


def _bucket(given: LedgerBucketOptions) -> LedgerBucket:
    from offloader.archive.ledgers.ledger_bucket import LedgerBucket  # most have none
    from offloader.pulsar.settings import PulsarSettings

    admin = None if given.admin_url is None else PulsarSettings(admin_url=given.admin_url)
    return LedgerBucket(given.store, admin=admin, cluster=given.cluster)
