"""What a subscription begins with that has no state yet: where the client says, or what a copy of Pulsar's has."""

from __future__ import annotations

from offloader.archive.spark.values import parse_publish_time
from offloader.cursors.copy_store import read_copy
from offloader.cursors.core.records import FirstState
from offloader.cursors.stored import first_of
from offloader.gateway.server.ports import Subscribing
from offloader.gateway.values import ErrorCode, RefusedError
from offloader.ports.object_store import ObjectStore

FROM_COPY = "offloader.from-copy"
"""The subscription property by which a client asks for it: `newest`, or a time."""
NEWEST = "newest"


def copied(store: ObjectStore, asked: Subscribing) -> FirstState | None:
    """What the copy has that is asked for; None: none is. Raises RefusedError where there is none."""
    wanted = asked.properties.get(FROM_COPY)
    if wanted is None:
        return None
    copy = read_copy(store, asked.topic, _moment(wanted))
    cursor = None if copy is None else copy.cursor(asked.subscription)
    if copy is None or cursor is None:
        what = f"no copy of a subscription {asked.subscription} ({FROM_COPY}: {wanted})"
        raise RefusedError(ErrorCode.NOT_ALLOWED, f"{asked.topic}: the archive has {what}")
    return first_of(cursor, copy.incarnation)


def _moment(wanted: str) -> int | None:
    if wanted == NEWEST:
        return None
    try:
        return parse_publish_time(wanted)
    except ValueError as error:
        why = f"{FROM_COPY}: {error}; or write `{NEWEST}`"
        raise RefusedError(ErrorCode.NOT_ALLOWED, why) from error
