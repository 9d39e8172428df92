"""The secret that our marks are made with: one a cluster, in the bucket, made once."""

from __future__ import annotations

from collections.abc import Callable

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError, ObjectNotFoundError
from offloader.lifecycle.deletion.system_topic.marks import OwnMark
from offloader.metadata.envelope import unwrap, wrap
from offloader.metadata.layout import deletion_secret_key
from offloader.metadata.log import read_record
from offloader.ports.object_store import ObjectStore

LEAST_BYTES = 16


def open_mark(
    store: ObjectStore, cluster: str, new_token: Callable[[], str], new_secret: Callable[[], bytes]
) -> OwnMark:
    """The cluster's mark; of several who make its secret at once, one does. `new_secret`: 32 bytes that nobody can
    guess.

    Raises DamagedRecordError; OutcomeUnknownError: call it again."""
    key = deletion_secret_key(cluster)
    try:
        return _read(store, key)
    except ObjectNotFoundError:
        body = pb.Body(system_topic_secret=pb.SystemTopicSecret(secret=new_secret()))
        store.put(key, wrap(new_token(), body), if_absent=True)
        return _read(store, key)


def _read(store: ObjectStore, key: str) -> OwnMark:
    opened = unwrap(key, read_record(store, key))
    if opened.kind != "system_topic_secret":
        raise DamagedRecordError(f"{key}: a {opened.kind} record is no secret of the system topic")
    secret = opened.body.system_topic_secret.secret
    if len(secret) < LEAST_BYTES:
        raise DamagedRecordError(f"{key}: a secret of {len(secret)} bytes")
    return OwnMark(secret)
