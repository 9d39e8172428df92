"""Stores and keys, opened in each of Spark's processes: workers live longer than tasks, and connections are worth keeping."""

from __future__ import annotations

import threading

from offloader.archive.catalog_cache import CatalogCache
from offloader.archive.messages.encryption import KeyReader, PemFiles
from offloader.archive.reading.stores import Stores
from offloader.archive.spark.options import SourceOptions
from offloader.storage.settings import StoreSettings

_STORES: dict[tuple[StoreSettings, ...], Stores] = {}
_CATALOGS: dict[StoreSettings, CatalogCache] = {}
_LOCK = threading.Lock()


def opened_stores(options: SourceOptions) -> Stores:
    """The stores of this process for these options."""
    others = () if options.ledgers is None else (options.ledgers.store,)
    with _LOCK:
        return _STORES.setdefault((options.store, *others), Stores(options.store, others))


def known_catalogs(options: SourceOptions) -> CatalogCache:
    """The catalogs that this process knows of the options' root."""
    store = opened_stores(options).open().store
    with _LOCK:
        return _CATALOGS.setdefault(options.store, CatalogCache(store))


def key_reader(options: SourceOptions) -> KeyReader | None:
    """What opens encrypted messages, None where no keys are given."""
    return PemFiles(dict(options.private_keys)) if options.private_keys else None
