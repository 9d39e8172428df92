"""Somebody wants a ledger's copy in the bucket of Pulsar's own offloader to go: PIP-186's request for OFFLOAD_LEDGER.

Answered as for a ledger in BookKeeper: the request is compared with what is there, never believed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice

from offloader.lifecycle.bucket.orphans import BucketOrphan, ObjectScan
from offloader.lifecycle.bucket.side import MOST_COUNTED
from offloader.lifecycle.bucket.stock import BRIDGED, NAMED, StockScanner
from offloader.lifecycle.bucket.stock_rules import OWNER
from offloader.lifecycle.deletion.demand import DeleteLedgerPayload, DemandAnswered, DemandDenied
from offloader.lifecycle.deletion.records import DeletionAnswer, LedgerComponent
from offloader.lifecycle.ledgers.kinds import managed_ledgers_named
from offloader.metadata.stock_keys import data_key, index_key, parse_key

_BUCKET = "bucket"  # in the driver's metadata, as a ledger list has them


CopyDemand = DemandAnswered | DemandDenied | ObjectScan
"""What follows from a look at a copy. A scan: what it has may be marked."""


def demand_copies(payloads: Sequence[DeleteLedgerPayload], scanner: StockScanner, bucket: str) -> list[CopyDemand]:
    """What follows for each from one look at all, `bucket` being the name of where they are looked for. Raises what the
    store and the ledger lists raise."""
    found = {key: None for one in payloads for key in _keys(one) if parse_key(key) is not None}
    told = scanner.look([*found], scanner.grace_ms) if found else {}
    seen = _Seen(scanner, told, bucket)
    return [seen.answer(one) for one in payloads]


def demand_copy(payload: DeleteLedgerPayload, scanner: StockScanner, bucket: str) -> CopyDemand:
    """The same for one."""
    return demand_copies([payload], scanner, bucket)[0]


def _keys(payload: DeleteLedgerPayload) -> Iterator[str]:
    context = payload.offload_context
    if context is not None and not payload.problem:
        yield data_key(context.uuid, payload.ledger_id)
        yield index_key(context.uuid, payload.ledger_id)


class _Seen:
    def __init__(self, scanner: StockScanner, told: Mapping[str, BucketOrphan | str], bucket: str) -> None:
        self._scanner = scanner
        self._told = told
        self._bucket = bucket

    def answer(self, payload: DeleteLedgerPayload) -> CopyDemand:
        keys = [*_keys(payload)]
        if not keys:
            return DemandAnswered(DeletionAnswer.INVALID, payload.problem or "it names no copy")
        if parse_key(keys[0]) is None:
            return DemandAnswered(DeletionAnswer.INVALID, f"{keys[0]!r} is no copy's name: no such uuid")
        told = {key: self._told[key] for key in keys if key in self._told}
        if not told:
            why = f"bucket {self._bucket} has neither {keys[0]} nor its index"
            return DemandAnswered(DeletionAnswer.ALREADY_GONE, why if self._has_anything else f"{why}, and is empty")
        difference = _difference(payload, _owners(self._scanner, told), self._bucket)
        if difference:
            return DemandAnswered(DeletionAnswer.DOES_NOT_MATCH, difference)
        return self._by_evidence(told)

    def _by_evidence(self, told: Mapping[str, BucketOrphan | str]) -> CopyDemand:
        for key, found in told.items():
            if isinstance(found, str):
                answer = DeletionAnswer.STILL_IN_USE if found in (NAMED, BRIDGED) else DeletionAnswer.DOES_NOT_MATCH
                return DemandAnswered(answer, f"{key}: {found}")
        orphans = tuple(found for found in told.values() if isinstance(found, BucketOrphan))
        doubted = next((one for one in orphans if not one.deletable), None)
        if doubted is not None:
            return DemandDenied(" ".join(doubted.ruling.evidence))
        return ObjectScan(self._scanner.clock_ms(), orphans, {}, {}, stock_objects=self._objects)

    @cached_property
    def _has_anything(self) -> bool:
        return self._scanner.has_anything()

    @cached_property
    def _objects(self) -> int:
        """How many there are in that bucket, as far as that matters."""
        return sum(1 for _ in islice(self._scanner.store.list(), MOST_COUNTED))


def _owners(scanner: StockScanner, told: Mapping[str, BucketOrphan | str]) -> set[str]:
    """The managed ledgers that the objects say they are of."""
    stats = (scanner.store.stat(key) for key in told)
    return {stat.meta.get(OWNER, "") for stat in stats if stat is not None}


def _difference(payload: DeleteLedgerPayload, owners: set[str], bucket: str) -> str:
    """How a request differs from what is there; "": it does not."""
    context = payload.offload_context
    if (
        payload.ledger_component not in (None, LedgerComponent.MANAGED_LEDGER)
        or payload.cursor_name
        or payload.schema_id
    ):
        return "copies are of topics' data only"
    meant = dict(context.driver_metadata).get(_BUCKET, bucket) if context else bucket
    if meant != bucket:
        return f"it names bucket {meant}; this is {bucket}"
    named = {payload.topic_name, *managed_ledgers_named(payload.topic_name)}
    if payload.topic_name and not (len(owners) == 1 and owners <= named):
        return f"the copy says that it is of {' and '.join(sorted(owners)) or 'nobody'}"
    return ""
