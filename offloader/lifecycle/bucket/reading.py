"""What the bucket's scan reads beside listings: catalogs, contents of what nothing names, the store's clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from offloader.ahead import map_ahead
from offloader.errors import (
    AccessDeniedError,
    DamagedObjectError,
    DamagedRecordError,
    FormatVersionError,
    IntegrityError,
    ObjectNotFoundError,
)
from offloader.lifecycle.bucket.extents import FIRST_BYTES, Contents, NoExtent, of_data, of_index, of_record
from offloader.lifecycle.bucket.names import TopicNames, names_of
from offloader.metadata.catalog import Catalogs
from offloader.metadata.history import RecordCache
from offloader.metadata.layout import KeyKind, TopicKey, generations_folder, parse_claim_key, parse_slot, proof_key
from offloader.metadata.log import read_record
from offloader.metadata.manifest import FAN, ManifestRow
from offloader.metadata.rescue_log import Rescues, read_rescue
from offloader.metadata.rescued_keys import parse_rescued_key
from offloader.metadata.rescues import NewestRescue
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import read_index

MOST_SKEW_MS = 15 * 60 * 1000
"""S3 refuses who is further off: where we cannot ask the store for its time, ours is no better than this."""


def read_names(store: ObjectStore, topic: TopicName) -> TopicNames:
    """What a topic's catalog names now. Raises what the store raises."""
    try:
        history = Catalogs(store, "").history(topic, cache=RecordCache(FAN))
        head = history.head
        if head.next_slot == 0:
            return TopicNames(topic, unreadable="it has none")
        records = ((each.token, each.record) for each in history.read(range(head.next_slot)))
        return names_of(head, records, rebuilding=_is_rebuilding(store, topic, head.generation))
    except (IntegrityError, FormatVersionError) as error:
        return TopicNames(topic, unreadable=str(error).rstrip("."))


def check_records(store: ObjectStore, topic: TopicName, ledgers: Collection[int]) -> None:
    """Read the records of a topic's segments that have entries of some ledgers. Raises RemovedFeatureError where an
    older version let the archive read brokers' copies of them; IntegrityError, FormatVersionError, what the store
    raises."""

    def has(row: ManifestRow) -> bool:
        if row.start is None or row.end is None or not row.segments:
            return False
        first, last = row.start.ledger, row.end.ledger
        return row.start.incarnation != row.end.incarnation or any(first <= ledger <= last for ledger in ledgers)

    history = Catalogs(store, "").history(topic)
    deque(history.read(slot.number for slot in history.slots(has)), maxlen=0)


def rescues_of(
    pool: ThreadPoolExecutor, ahead: int, store: ObjectStore, cluster: str, listed: Iterable[tuple[str, int]]
) -> dict[int, NewestRescue | str]:
    """What counts now of the ledgers of which some keys are rescued objects. Raises what the store raises."""
    parsed = (parse_rescued_key(cluster, key) for key, _ in listed)
    found = sorted({one.ledger for one in parsed if one is not None})
    read = map_ahead(pool, partial(read_rescue, Rescues(store, cluster)), found, ahead)
    return dict(zip(found, read, strict=True))


def _is_rebuilding(store: ObjectStore, topic: TopicName, in_force: int) -> bool:
    folder = generations_folder(topic)
    found = (parse_slot(name.removeprefix(folder).rstrip("/")) for name in store.folders(folder))
    return any(generation is not None and generation > in_force for generation in found)


def is_claimed(store: ObjectStore, key: str) -> bool:
    """Whether the catalog that a claim's marker is about says the same, or cannot say."""
    parsed = parse_claim_key(key)
    try:
        claim = None if parsed is None else Catalogs(store, "").head(parsed[1]).claim
    except (IntegrityError, FormatVersionError):
        return True
    return parsed is not None and claim is not None and claim.application == parsed[0]


def read_contents(store: ObjectStore, key: str, parsed: TopicKey) -> Contents | None:
    """Which entries an object has; None: it is gone."""
    try:
        match parsed.kind:
            case KeyKind.DATA:
                return of_data(store.read(key, 0, FIRST_BYTES)[0])
            case KeyKind.INDEX:
                return of_index(read_index(store, key)[0])
            case _:
                return of_record(parsed.topic, key, read_record(store, key))
    except ObjectNotFoundError:
        return None
    except (DamagedObjectError, DamagedRecordError):
        return NoExtent.JUNK


def store_time(store: ObjectStore, clock_ms: Callable[[], int], new_token: Callable[[], str]) -> int:
    """Now, by the store's clock, or a little earlier: whoever reads only, and may not ask, gets the latest that it
    cannot be before."""
    found = asked_store_time(store, new_token)
    return clock_ms() - MOST_SKEW_MS if found is None else found


def asked_store_time(store: ObjectStore, new_token: Callable[[], str]) -> int | None:
    """Now, by the store's clock. None: it does not say, or we may not ask: an object has to be written for it."""
    key = proof_key(new_token())
    try:
        store.put(key, b"what time is it?", if_absent=True)
        found = store.stat(key)
        store.delete([key])
    except AccessDeniedError:
        return None
    return found.modified_at or None if found is not None else None


def folder_of(key: str) -> str:
    """Where a topic's keys are together: what a scan reads of one topic, it reads at once."""
    return "/".join(key.split("/", 3)[:3])
