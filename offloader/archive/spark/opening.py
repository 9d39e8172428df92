"""Stores and catalogs, opened once in each of Spark's processes: workers live longer than tasks."""

from __future__ import annotations

import threading

from offloader.archive.catalog_cache import CatalogCache
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.archive.spark.options import SourceOptions
from offloader.storage.settings import StoreSettings

_STORES: dict[tuple[StoreSettings, ...], Stores] = {}
_CATALOGS: dict[StoreSettings, CatalogCache] = {}
_LOCK = threading.Lock()


def opened(options: SourceOptions) -> OpenArchive:
    """The archive that the options name. Its stores and its catalogs are this process's: later calls get them again."""
    others = () if options.ledgers is None else (options.ledgers.store,)
    with _LOCK:
        stores = _STORES.setdefault((options.store, *others), Stores(options.store, others))
    store = stores.open().store
    with _LOCK:
        catalogs = _CATALOGS.setdefault(options.store, CatalogCache(store))
    if options.ledgers is None:
        return OpenArchive(stores, catalogs=catalogs)
    from offloader.archive.ledgers.ledger_bucket import LedgerBucket  # most have none
    from offloader.pulsar.settings import PulsarSettings

    url = options.ledgers.admin_url
    admin = None if url is None else PulsarSettings(admin_url=url)
    return OpenArchive(
        stores, LedgerBucket(options.ledgers.store, admin=admin, cluster=options.ledgers.cluster), catalogs
    )
