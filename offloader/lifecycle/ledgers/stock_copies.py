"""Reads back what Pulsar's own offloader has put into a bucket: every byte of a ledger's copy, against its index."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from offloader.errors import ConfigError, DamagedObjectError, ObjectNotFoundError, OffloadError
from offloader.format.ledger_account import account_ledger
from offloader.format.v1 import decode_ledger_index
from offloader.lifecycle.ledgers.copies import CopiedLedger, VerifyCopies, no_copies
from offloader.metadata.stock_keys import STOCK_BUCKET, data_key, index_key
from offloader.ports.object_store import ObjectStore
from offloader.state.names import managed_ledger_of
from offloader.storage.bounded_reads import read_index, read_ranges
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings

log = logging.getLogger(__name__)

READERS = 8  # copies at a time: mostly they wait for the store


def stock_copies(bucket: str, archive: StoreSettings) -> VerifyCopies:
    """`bucket`: its URL, which is reached as the archive is; empty: it is not known. Raises ConfigError."""
    if not bucket:
        return no_copies
    settings = archive.beside(bucket, STOCK_BUCKET)
    return StockCopies(lambda: open_store(settings, read_only=True), bucket_name(bucket))


def bucket_name(url: str) -> str:
    """As ledger lists have it: an Azure container's account stands behind it."""
    return urlsplit(url).netloc.partition("@")[0]


@dataclass(frozen=True, slots=True)
class StockCopies:
    """See `VerifyCopies`. `name`: the bucket's. It is opened only where there is something to read."""

    open_bucket: Callable[[], ObjectStore]
    name: str = ""

    def __call__(self, ledgers: Collection[CopiedLedger]) -> Mapping[int, bool]:
        elsewhere = {one.ledger for one in ledgers if not self._is_here(one)}
        asked = [one for one in ledgers if one.ledger not in elsewhere]
        failed: list[str] = []
        found: dict[int, bool] = {}
        try:
            with closing(self.open_bucket()) as store, ThreadPoolExecutor(READERS, "copies") as pool:
                found = told_of(zip(asked, pool.map(partial(_asked, store, failed), asked), strict=True))
        except ConfigError:
            raise
        except OffloadError as error:
            failed.append(str(error))
        if failed:
            log.warning(
                "the bucket of Pulsar's own offloader cannot be read now, its ledgers stay: %s",
                failed[0],
                extra={"see": "stock-bucket"},
            )
        return found

    def _is_here(self, one: CopiedLedger) -> bool:
        """A mirror of the bucket that readers use proves nothing."""
        copy = one.copy
        return bool(copy.uuid) and copy.complete and copy.bucket in ("", self.name)


def is_whole(store: ObjectStore, one: CopiedLedger) -> bool | None:
    """Whether a copy has each entry of the ledger, sound. None: the bucket has nothing of it, so it may be another one.

    Raises what the store raises."""
    data, index_name = data_key(one.copy.uuid, one.ledger), index_key(one.copy.uuid, one.ledger)
    try:
        index = decode_ledger_index(read_index(store, index_name)[0], one.ledger)
        account = account_ledger(read_ranges(store, data, 0, index.data_length), one.ledger, index)
    except ObjectNotFoundError:
        return False if store.stat(data) or store.stat(index_name) else None
    except DamagedObjectError:
        return False
    stat, said = store.stat(data), index.ledger_metadata
    held = account.entries, account.payload
    owner = managed_ledger_of({it.key: it.value for it in said.customMetadata})
    return (
        not account.damaged
        and stat is not None
        and stat.size == index.data_length
        and said.state == said.CLOSED
        and held == (said.lastEntryId + 1, said.length)
        and one.last_entry in (None, said.lastEntryId)
        and (one.last_entry is None or one.length == said.length)
        and owner in ("", one.managed_ledger)
    )


def told_of(read: Iterable[tuple[CopiedLedger, bool | None]]) -> dict[int, bool]:
    """By ledger. One that several lists name is whole where all say so; what could not be read is left out."""
    found: dict[int, bool] = {}
    for one, whole in read:
        if whole is not None:
            found[one.ledger] = whole and found.get(one.ledger, True)
    return found


def _asked(store: ObjectStore, failed: list[str], one: CopiedLedger) -> bool | None:
    try:
        return is_whole(store, one)
    except OffloadError as error:
        failed.append(f"ledger {one.ledger}: {error}")
        return None
