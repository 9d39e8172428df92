"""The catalog: per topic, what is offloaded. Each append is an exact compare-and-set on the topic's next slot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256

from offloader.errors import ClaimedByOtherError, DamagedRecordError, IntegrityError
from offloader.metadata.catalog_codec import decode_catalog, encode_catalog
from offloader.metadata.layout import catalog_folder, topics
from offloader.metadata.log import READERS, NumberedLog
from offloader.metadata.state import Claim, LedgerClosed, Record, TopicCatalog
from offloader.model import Loss, Segment, TopicName
from offloader.storage.base import ObjectStore


class Catalogs:
    """All catalogs of a root, as one application may write them. Safe to use from several threads.

    A topic is released by a claim of nobody (`released`): any application may claim it then.
    """

    def __init__(self, store: ObjectStore, application: str, new_token: Callable[[], str]) -> None:
        self._store = store
        self._application = application
        self._new_token = new_token
        self._logs: dict[TopicName, NumberedLog] = {}
        self._lock = threading.Lock()

    def topics(self) -> Iterator[TopicName]:
        """Every topic that has a catalog."""
        return (topic for topic in topics(self._store) if any(True for _ in self._store.list(catalog_folder(topic))))

    def load(self, topic: TopicName) -> TopicCatalog:
        """A topic's catalog, empty where it has none. Raises DamagedRecordError, IntegrityError."""
        return self.refresh(TopicCatalog(topic))

    def refresh(self, catalog: TopicCatalog) -> TopicCatalog:
        """A loaded catalog with the records that were written since: nothing else is read. Raises as `load`."""
        return catalog.apply(*self._records_after(catalog))

    def load_all(self, names: Iterable[TopicName]) -> dict[TopicName, TopicCatalog]:
        """Several catalogs at a time."""
        with ThreadPoolExecutor(READERS, "catalog-reader") as pool:
            return {catalog.topic: catalog for catalog in pool.map(self.load, names)}

    def append(self, catalog: TopicCatalog, record: Record, token: str | None = None) -> TopicCatalog:
        """Write the next record of a loaded catalog; one that is there already is success.

        `token` makes the bytes: by default a segment's is its uuid, so that a repeated commit writes the same ones.
        Raises ClaimedByOtherError; IntegrityError where the record does not continue the catalog (any more);
        OutcomeUnknownError, after which the topic must be loaded again.
        """
        if token is None:
            token = record.uuid if isinstance(record, Segment) else self._new_token()
        while not holds(catalog, record):
            self._check_claim(catalog, record)
            catalog = self._put(catalog, record, token)
        return catalog

    def adopt(self, catalog: TopicCatalog, former: str, at: int) -> TopicCatalog:
        """Claim a topic for this application in place of `former`: everything else stays. A no-op where that is not its owner."""
        while catalog.claim is not None and catalog.claim.application == former:
            claim = replace(catalog.claim, application=self._application, at=at, reason=f"taken over from {former}")
            catalog = self._put(catalog, claim, self._new_token())
        return catalog

    def _put(self, catalog: TopicCatalog, record: Record, token: str) -> TopicCatalog:
        """Try the next slot: the catalog with the record, or with whatever was written there instead."""
        following = catalog.apply(record)
        log = self._log(catalog.topic)
        if log.append(catalog.next_slot, encode_catalog(token, record)) is None:
            return following
        reloaded = self.refresh(catalog)
        if reloaded.next_slot == catalog.next_slot:
            raise DamagedRecordError(f"{log.key(catalog.next_slot)} was refused as being there, but is not")
        return reloaded

    def _check_claim(self, catalog: TopicCatalog, record: Record) -> None:
        owner = catalog.claim.application if catalog.claim is not None else ""
        if owner == self._application or (not owner and isinstance(record, Claim)):
            return
        if catalog.claim is None:
            raise IntegrityError(f"{catalog.topic}: a {type(record).__name__} stands before any claim")
        raise ClaimedByOtherError(
            f"{catalog.topic} is claimed by {owner or 'nobody'}, not by {self._application}: "
            f"`offloader takeover` adopts another application's topics"
        )

    def _records_after(self, catalog: TopicCatalog) -> Iterator[Record]:
        log = self._log(catalog.topic)
        seen: dict[bytes, int] = {}
        for expected, (slot, data) in enumerate(log.load(after=catalog.next_slot - 1), catalog.next_slot):
            if slot != expected:
                raise DamagedRecordError(f"{log.key(expected)} is missing, though {log.key(slot)} is there")
            digest = sha256(data).digest()
            if seen.setdefault(digest, slot) != slot:  # each has a token of its own
                raise DamagedRecordError(f"{log.key(slot)} is a copy of {log.key(seen[digest])}, or the other way round")
            yield decode_catalog(log.key(slot), data)

    def _log(self, topic: TopicName) -> NumberedLog:
        with self._lock:
            return self._logs.setdefault(topic, NumberedLog(self._store, catalog_folder(topic)))


def released(claim: Claim, at: int, reason: str) -> Claim:
    """The claim that ends a claim: nobody's, with everything else as it was."""
    return replace(claim, application="", at=at, reason=reason)


def holds(catalog: TopicCatalog, record: Record) -> bool:
    """Whether the catalog says this already. Raises IntegrityError where it says something else of the same thing."""
    match record:
        case Claim():
            return catalog.claim == record
        case Segment():
            same = next((s for s in catalog.segments if s.uuid == record.uuid), None)
            if same is not None and same != record:
                raise IntegrityError(f"{catalog.topic}: segment {record.uuid} is in the catalog with other contents")
            return same is not None
        case Loss():
            return record in catalog.losses
        case LedgerClosed():
            last = catalog.closed.get((record.incarnation, record.ledger), record.last)
            if last != record.last:
                raise IntegrityError(f"{catalog.topic}: ledger {record.ledger} was closed with {last}, not with {record.last}")
            return (record.incarnation, record.ledger) in catalog.closed
