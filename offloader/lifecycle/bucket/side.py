"""The bucket as a side of two-phase deletion: the second look at marked objects, and their deletion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from offloader.errors import (
    AccessDeniedError,
    FatalError,
    OffloadError,
    OutcomeUnknownError,
)
from offloader.lifecycle.bucket.holds import Held, nobody, why_orphan_held
from offloader.lifecycle.bucket.orphans import BucketOrphan, ObjectScan
from offloader.lifecycle.bucket.scan import BucketScanner
from offloader.lifecycle.bucket.stock import StockScanner
from offloader.lifecycle.candidates import OrphanVerdict
from offloader.lifecycle.deletion.machine import (
    DeletionTry,
    FailedLook,
    GoneLedger,
    ReferencedLedger,
    SecondLook,
    UnprovenLedger,
    UnreferencedLedger,
)
from offloader.lifecycle.deletion.records import DeletionProof, LedgerNode, LedgerType, PendingDeleteLedgerInfo
from offloader.lifecycle.deletion.side import TOO_LATE, SideLooks
from offloader.metadata.catalog import Catalogs
from offloader.metadata.layout import KeyKind, catalog_folder, data_key, index_key, parse_topic_key
from offloader.metadata.stock_keys import data_key as stock_data_key
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.rules import check_key

NO_STOCK = "it is in the bucket of Pulsar's own offloader, which is not named to us"
NO_KEY = "it names nothing that a bucket could hold"
MOST_COUNTED = 1_000_000
COUNTED_FOR_MS = 60 * 60 * 1000
"""How many objects there are need not be known more exactly, or be counted more often."""


class BucketSide:
    """`DeletionSide` of objects. `stock`: where Pulsar's own offloader keeps its objects; None: they are left alone.
    `held`: what stays, whatever is proven of it."""

    def __init__(
        self, store: ObjectStore, scanner: BucketScanner, stock: StockScanner | None = None, *, held: Held = nobody
    ) -> None:
        self._store = store
        self._scanner = scanner
        self._stock = stock
        self._held = held
        self._counted: dict[LedgerType, tuple[int, int]] = {}

    def look(self, records: Sequence[PendingDeleteLedgerInfo], *, goes_on: bool = False) -> SideLooks:
        """All of them at once: keys first, then what names any."""
        del goes_on  # no more is read than what may name these
        named = [record for record in records if _is_key(record.object_key if record.upload else _id_of(record))]
        ours = [record for record in named if record.ledger_type is LedgerType.OBJECT]
        stock = [record for record in named if record.ledger_type is LedgerType.OFFLOAD_LEDGER]
        try:
            found, scan = self._look_at_ours(ours)
            of_stock = self._look_at_stock(stock)
            things = self._things(records, scan.now_ms)
        except OffloadError as error:
            failed = {record.name: FailedLook(str(error)) for record in records}
            return SideLooks(failed, 0, (f"The bucket cannot be looked at: {error}",))
        told = {**found, **of_stock}
        looks: dict[str, SecondLook] = {record.name: UnprovenLedger(NO_KEY) for record in records}
        for record in named:
            thing = told.get(_id_of(record))
            looks[record.name] = self._is_held(thing) or _second_look(thing, scan.now_ms, scan.refusals)
        return SideLooks(looks, things, scan.refusals)

    def _is_held(self, found: BucketOrphan | str | None) -> ReferencedLedger | None:
        """The policy that is in force now decides, not that of the mark; the topic is that of what is there."""
        if not isinstance(found, BucketOrphan):
            return None
        why = why_orphan_held(self._held, found)
        return ReferencedLedger(why) if why else None

    def close(self, record: PendingDeleteLedgerInfo) -> LedgerNode:
        """Nothing in a bucket is open but uploads, and these are ended by their deletion."""
        raise FatalError(f"{record.thing} is in the bucket: there is nothing to close")

    def delete(self, record: PendingDeleteLedgerInfo, in_time: Callable[[], bool]) -> tuple[DeletionTry, str]:
        """The very object of the record, where its catalog still says what it said. One that is gone is success."""
        try:
            refused = self._why_not(record)
            if refused:
                return DeletionTry.REFUSED, refused
            if not in_time():
                return DeletionTry.REFUSED, TOO_LATE
            if record.upload:
                self._store.abort(record.upload)
            elif not self._store_of(record).delete_if(_id_of(record), record.node.data.decode(errors="replace")):
                return DeletionTry.REFUSED, "it was written again since it was looked at"
        except OutcomeUnknownError as error:
            return DeletionTry.UNKNOWN, str(error)
        except AccessDeniedError as error:
            return DeletionTry.REFUSED, f"the role may not delete it: see docs/permissions.md ({error})"
        except OffloadError as error:
            return DeletionTry.REFUSED, str(error)
        return DeletionTry.DONE, ""

    def _look_at_ours(
        self, records: Sequence[PendingDeleteLedgerInfo]
    ) -> tuple[dict[str, BucketOrphan | str], ObjectScan]:
        keys = sorted({record.object_key for record in records if not record.upload})
        wanted = {record.upload for record in records}
        prefixes = sorted({record.object_key for record in records if record.upload})
        open_now = (upload for prefix in prefixes for upload in self._store.list_uploads(prefix))
        return self._scanner.look(keys, [upload for upload in open_now if upload.upload in wanted])

    def _look_at_stock(self, records: Sequence[PendingDeleteLedgerInfo]) -> dict[str, BucketOrphan | str]:
        if not records:
            return {}
        if self._stock is None:
            return {_id_of(record): NO_STOCK for record in records}
        return self._stock.look(sorted({_id_of(record) for record in records}))

    def _things(self, records: Sequence[PendingDeleteLedgerInfo], now_ms: int) -> int:
        """How many objects there are where these records' are, as far as that matters."""
        of_kinds = {record.ledger_type: self._store_of(record) for record in records if self._is_known(record)}
        for kind, store in of_kinds.items():
            at, _ = self._counted.get(kind, (0, 0))
            if not at <= now_ms < at + COUNTED_FOR_MS or not at:
                self._counted[kind] = now_ms, sum(1 for _ in islice(store.list(), MOST_COUNTED))
        return sum(self._counted[kind][1] for kind in of_kinds)

    def _is_known(self, record: PendingDeleteLedgerInfo) -> bool:
        return record.ledger_type is LedgerType.OBJECT or self._stock is not None

    def _store_of(self, record: PendingDeleteLedgerInfo) -> ObjectStore:
        if record.ledger_type is LedgerType.OBJECT:
            return self._store
        if self._stock is None:
            raise FatalError(f"{record.thing}: {NO_STOCK}")
        return self._stock.store

    def _why_not(self, record: PendingDeleteLedgerInfo) -> str:
        """What has changed since the look: its catalog, or what goes before it."""
        first = _goes_before(record)
        if first and self._store_of(record).stat(first) is not None:
            return f"{first} goes first"
        parsed = parse_topic_key(record.object_key)
        if record.evidence.proof is not DeletionProof.PASSED_BY or parsed is None:
            return ""
        return self._catalog_changed(parsed.topic, record)

    def _catalog_changed(self, topic: TopicName, record: PendingDeleteLedgerInfo) -> str:
        head = Catalogs(self._store, "").head(topic)
        known = record.evidence.referee_version or 0
        same = catalog_folder(topic, head.generation) == record.evidence.referee and head.next_slot >= known
        return "" if same else f"the catalog of {topic} was made anew since it was looked at"


def _is_key(key: str) -> bool:
    """A record that others have forged must not keep all the others from being looked at."""
    try:
        return bool(check_key(key))
    except FatalError:
        return False


def _id_of(record: PendingDeleteLedgerInfo) -> str:
    """Others than our scan name a copy by its ledger and uuid alone."""
    context = record.offload_context
    if record.upload or record.object_key or context is None:
        return record.upload or record.object_key
    return stock_data_key(context.uuid, record.ledger_id)


def _second_look(found: BucketOrphan | str | None, now_ms: int, refusals: Sequence[str]) -> SecondLook:
    if found is None:
        return GoneLedger()
    if isinstance(found, str):
        return FailedLook(found) if found == NO_STOCK else ReferencedLedger(found)
    if found.modified_ms is None:
        return UnprovenLedger("the store does not say when it was written")
    if found.ruling.verdict is OrphanVerdict.CERTAIN and not found.ruling.kept:
        return UnreferencedLedger(found.node, found.evidence, now_ms - found.modified_ms, now_ms)
    why = found.ruling.evidence[-1].rstrip(".")
    if refusals:
        return FailedLook(refusals[0])
    stock = found.stock is not None and not found.ruling.kept
    passing = stock if found.names is None else found.names.unreadable or found.names.rebuilding
    return FailedLook(why) if passing else UnprovenLedger(why)


def _goes_before(record: PendingDeleteLedgerInfo) -> str:
    """Data, then the index, then the record beside them: whoever finds a later one knows that something was there."""
    parsed = parse_topic_key(record.object_key)
    if record.offload_context is not None:
        data = stock_data_key(record.offload_context.uuid, record.ledger_id)
        return data if data != _id_of(record) else ""
    if parsed is None or record.upload or parsed.kind not in (KeyKind.INDEX, KeyKind.RECORD):
        return ""
    return (data_key if parsed.kind is KeyKind.INDEX else index_key)(parsed.topic, parsed.uuid)
