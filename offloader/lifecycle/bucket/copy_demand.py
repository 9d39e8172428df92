"""Somebody wants a ledger's copy in the bucket of Pulsar's own offloader to go: PIP-186's request for OFFLOAD_LEDGER.

Answered as for a ledger in BookKeeper: the request is compared with what is there, never believed."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from offloader.lifecycle.bucket.orphans import BucketOrphan, ObjectScan
from offloader.lifecycle.bucket.side import MOST_COUNTED
from offloader.lifecycle.bucket.stock import NAMED, StockScanner
from offloader.lifecycle.bucket.stock_rules import OWNER
from offloader.lifecycle.deletion.demand import DeleteLedgerPayload, DemandAnswered, DemandDenied
from offloader.lifecycle.deletion.records import DeletionAnswer, LedgerComponent
from offloader.lifecycle.ledgers.kinds import managed_ledgers_named
from offloader.metadata.stock_keys import data_key, index_key, parse_key

_BUCKET = "bucket"  # in the driver's metadata, as a ledger list has them


def demand_copy(
    payload: DeleteLedgerPayload, scanner: StockScanner, bucket: str
) -> DemandAnswered | DemandDenied | ObjectScan:
    """What follows from a look at the copy, `bucket` being the name of where it is looked for. A scan: what it has may
    be marked. Raises what the store and the ledger lists raise."""
    context = payload.offload_context
    problem = payload.problem
    if problem or context is None:
        return DemandAnswered(DeletionAnswer.INVALID, problem)
    keys = data_key(context.uuid, payload.ledger_id), index_key(context.uuid, payload.ledger_id)
    if parse_key(keys[0]) is None:
        return DemandAnswered(DeletionAnswer.INVALID, f"{context.uuid!r} is no uuid")
    told = scanner.look(keys, scanner.grace_ms)
    if not told:
        return DemandAnswered(DeletionAnswer.ALREADY_GONE, f"bucket {bucket} has neither {keys[0]} nor its index")
    difference = _difference(payload, _owners(scanner, told), bucket)
    if difference:
        return DemandAnswered(DeletionAnswer.DOES_NOT_MATCH, difference)
    return _answered(told, scanner)


def _answered(
    told: Mapping[str, BucketOrphan | str], scanner: StockScanner
) -> DemandAnswered | DemandDenied | ObjectScan:
    for key, found in told.items():
        if isinstance(found, str):
            answer = DeletionAnswer.STILL_IN_USE if found == NAMED else DeletionAnswer.DOES_NOT_MATCH
            return DemandAnswered(answer, f"{key}: {found}")
    orphans = tuple(found for found in told.values() if isinstance(found, BucketOrphan))
    doubted = next((one for one in orphans if not one.deletable), None)
    if doubted is not None:
        return DemandDenied(" ".join(doubted.ruling.evidence))
    objects = sum(1 for _ in islice(scanner.store.list(), MOST_COUNTED))
    return ObjectScan(scanner.clock_ms(), orphans, {}, {}, stock_objects=objects)


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
