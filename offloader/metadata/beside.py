"""What the objects of records tell that stand beside a topic's segments, where the catalog's head does not."""

from __future__ import annotations

from offloader.errors import FormatVersionError, IntegrityError, ObjectNotFoundError
from offloader.metadata.catalog_codec import decode_of
from offloader.metadata.deal import is_shard_of
from offloader.metadata.deletions import Tombstone
from offloader.metadata.layout import record_key
from offloader.metadata.log import read_record
from offloader.metadata.state import CatalogHead, Claim, Record
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore


def is_buried(store: ObjectStore, topic: TopicName, uuid: str) -> bool:
    """Whether a tombstone stands in place of the copy of a segment's record."""
    return tombstone(store, topic, uuid) is not None


def tombstone(store: ObjectStore, topic: TopicName, uuid: str) -> Tombstone | None:
    """What stands in place of the copy of a segment's record; None: no tombstone."""
    record = _read(store, topic, uuid)
    return record if isinstance(record, Tombstone) and record.uuid == uuid else None


def last_owner(store: ObjectStore, head: CatalogHead) -> str:
    """The application that has the topic, or had it last; "": nothing tells. Where an older version released it, the
    claim's object is read that it had. Raises what the store raises."""
    claim = head.claim
    if claim is None or claim.application or claim.released_by:
        return "" if claim is None else claim.application or claim.released_by
    former = _read(store, head.topic, claim.former) if claim.former else None
    return former.application if isinstance(former, Claim) else ""


def decides(head: CatalogHead, owner: str, application: str) -> bool:
    """Whether an application decides what goes of a topic whose last owner is `owner`: it has the topic, or a shard of
    the same application let go of it."""
    released = head.claim is not None and not head.claim.application
    return owner == application or (released and is_shard_of(owner, application))


def _read(store: ObjectStore, topic: TopicName, uuid: str) -> Record | None:
    """None: it is not there, or cannot be read. Raises RemovedFeatureError."""
    key = record_key(topic, uuid)
    try:
        return decode_of(topic, key, read_record(store, key))[1]
    except (IntegrityError, FormatVersionError, ObjectNotFoundError):
        return None
