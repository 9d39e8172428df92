"""What commands ask of the running application: only that one appends to journal and catalog.

`<id>` is the request, `<id>.seen` says that it is being worked on, `<id>.done` what came of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from offloader.errors import DamagedRecordError, FormatVersionError, ObjectNotFoundError, RemovedFeatureError
from offloader.json_text import parse_json
from offloader.metadata.layout import requests_folder
from offloader.metadata.value_codec import removed
from offloader.model import MIB, Position, Taking, TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import read_whole

log = logging.getLogger(__name__)

VERSION = 1
SEEN, DONE = ".seen", ".done"
DAY_MS = 24 * 60 * 60 * 1000
LARGEST = 1 * MIB  # bytes of a request or outcome
_NUMBERS = range(-(1 << 63), 1 << 63)


class RequestKind(StrEnum):
    """What is asked."""

    CLOSE = "close"  # close the topic's segment at `position`
    RELEASE = "release"  # offload up to the end, then delete the subscription
    # record what is gone up to `position` as lost and go on; without one: the topic was deleted
    ACCEPT_LOSS = "accept-loss"
    # what its policy says goes; all but what must stay goes; what is under way to go stays
    ARCHIVE_RETENTION = "archive-retention"
    ARCHIVE_DELETE = "archive-delete"
    ARCHIVE_UNDELETE = "archive-undelete"
    # the same, and nothing goes any more as long as the hold of the request's name is there; that hold goes
    ARCHIVE_HOLD = "archive-hold"
    ARCHIVE_LIFT_HOLD = "archive-lift-hold"
    # take the topic in, and with it the ledgers that brokers have offloaded
    MIGRATE_COPY = "migrate-copy"
    MIGRATE_REWRITE = "migrate-rewrite"
    # offload up to the end, and have brokers read all closed ledgers; or go on as before
    HAND_OVER = "hand-over"
    HAND_OVER_UNDO = "hand-over-undo"
    BRIDGE_LET_GO = "bridge-let-go"  # the ledger of `position` cannot be bridged: it stays in the archive alone


OF_THE_ARCHIVE = frozenset(
    {
        RequestKind.ARCHIVE_RETENTION,
        RequestKind.ARCHIVE_DELETE,
        RequestKind.ARCHIVE_UNDELETE,
        RequestKind.ARCHIVE_HOLD,
        RequestKind.ARCHIVE_LIFT_HOLD,
    }
)
"""Also of topics that are not offloaded (any more)."""
MIGRATIONS = {
    RequestKind.MIGRATE_COPY: Taking.COPY,
    RequestKind.MIGRATE_REWRITE: Taking.REWRITE,
}
"""Also of topics that are not offloaded yet."""
REMOVED_KIND = "migrate-reference"
"""What an older version may have been asked for."""


@dataclass(frozen=True, slots=True)
class Request:
    """One thing to do with one topic. `hold`: the name of the hold that is placed."""

    kind: RequestKind
    topic: TopicName
    at: int
    by: str = ""
    position: Position | None = None
    hold: str = ""


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """What came of a request; `message` is one line for whoever asked."""

    ok: bool
    message: str
    at: int


def submit(store: ObjectStore, application: str, request: Request, new_token: Callable[[], str]) -> str:
    """Ask; returns the request's id. Ids sort by the time of asking."""
    request_id = f"{request.at:014d}-{new_token()}"
    store.put(_key(application, request_id), _request_bytes(request), if_absent=True)
    return request_id


def pending(store: ObjectStore, application: str, now: int) -> list[tuple[str, Request]]:
    """Requests that have no outcome yet, oldest first, seen or not; one that cannot be read is answered with that."""
    return list(unanswered(store, application, now))


def unanswered(
    store: ObjectStore, application: str, now: int, but: Container[str] = ()
) -> Iterator[tuple[str, Request]]:
    """The same, one after the other; not those of the ids `but`, which are not read."""
    names = _names(store, application)
    for request_id in sorted(names):
        if "." in request_id or request_id + DONE in names or request_id in but:
            continue
        try:
            data = _read(store, _key(application, request_id))
            if data is not None:
                yield request_id, _read_request(request_id, data)
        except (DamagedRecordError, FormatVersionError, RemovedFeatureError) as error:
            mark_done(store, application, request_id, RequestOutcome(False, str(error), now))


def mark_seen(store: ObjectStore, application: str, request_id: str) -> None:
    """Say that the request is being worked on. Safe to repeat."""
    store.put(_key(application, request_id) + SEEN, b"", if_absent=True)


def is_seen(store: ObjectStore, application: str, request_id: str) -> bool:
    """Whether the application has taken notice; if not for long, it does not run."""
    return store.stat(_key(application, request_id) + SEEN) is not None


def mark_done(store: ObjectStore, application: str, request_id: str, outcome: RequestOutcome) -> None:
    """Say what came of it. The first outcome stands."""
    store.put(_key(application, request_id) + DONE, _outcome_bytes(outcome), if_absent=True)


def outcome_of(store: ObjectStore, application: str, request_id: str) -> RequestOutcome | None:
    """What came of a request, None while it is pending."""
    data = _read(store, _key(application, request_id) + DONE)
    return None if data is None else _read_outcome(request_id, data)


def wait(
    store: ObjectStore,
    application: str,
    request_id: str,
    *,
    timeout_ms: int,
    clock: Callable[[], int],
    sleep: Callable[[float], None],
    poll_ms: int = 500,
) -> RequestOutcome | None:
    """The outcome as soon as there is one, None after the timeout. `clock` gives ms, `sleep` takes seconds."""
    until = clock() + timeout_ms
    while (outcome := outcome_of(store, application, request_id)) is None:
        left = until - clock()
        if left <= 0:
            return None
        sleep(min(poll_ms, left) / 1000)
    return outcome


def remove_old(store: ObjectStore, application: str, now: int) -> int:
    """Remove requests that were done more than a day ago; returns how many. An outcome that cannot be read stays."""
    names = _names(store, application)
    old = [name.removesuffix(DONE) for name in sorted(names) if name.endswith(DONE)]
    # The outcome goes last: a request must not look pending when this is interrupted.
    old = [i for i in old if (at := _done_at(store, application, i)) is not None and at < now - DAY_MS]
    store.delete([_key(application, i) + suffix for i in old for suffix in ("", SEEN)])
    store.delete([_key(application, i) + DONE for i in old])
    return len(old)


def _done_at(store: ObjectStore, application: str, request_id: str) -> int | None:
    try:
        outcome = outcome_of(store, application, request_id)
    except (DamagedRecordError, FormatVersionError) as error:
        log.warning("the outcome of a request is passed over: %s", error, extra={"see": "request-outcome-damaged"})
        return None
    return None if outcome is None else outcome.at


def _key(application: str, request_id: str) -> str:
    return requests_folder(application) + request_id


def _names(store: ObjectStore, application: str) -> set[str]:
    folder = requests_folder(application)
    return {key.removeprefix(folder) for key, _ in store.list(folder)}


def _read(store: ObjectStore, key: str) -> bytes | None:
    try:
        return read_whole(store, key, LARGEST, DamagedRecordError)[0]
    except ObjectNotFoundError:
        return None


def _request_bytes(request: Request) -> bytes:
    position = request.position
    fields = {
        "version": VERSION,
        "kind": request.kind,
        "topic": str(request.topic),
        "at": request.at,
        "by": request.by,
        "position": None if position is None else [position.incarnation, position.ledger, position.entry],
        "hold": request.hold,
    }
    return json.dumps(fields).encode()


def _read_request(request_id: str, data: bytes) -> Request:
    fields = _fields(request_id, data)
    try:
        position = None if fields["position"] is None else Position(*map(_number, fields["position"]))
        topic = TopicName.parse(str(fields["topic"]))
        if fields["kind"] == REMOVED_KIND:
            raise removed(f"{topic}: request {request_id}: {REMOVED_KIND}")
        kind = RequestKind(fields["kind"])
        hold = str(fields.get("hold", ""))
        return Request(kind, topic, _number(fields["at"]), str(fields["by"]), position, hold)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedRecordError(f"request {request_id}: {error!r}") from error


def _outcome_bytes(outcome: RequestOutcome) -> bytes:
    return json.dumps({"version": VERSION, "ok": outcome.ok, "message": outcome.message, "at": outcome.at}).encode()


def _read_outcome(request_id: str, data: bytes) -> RequestOutcome:
    fields = _fields(request_id, data)
    try:
        return RequestOutcome(bool(fields["ok"]), str(fields["message"]), _number(fields["at"]))
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedRecordError(f"outcome of request {request_id}: {error!r}") from error


def _fields(request_id: str, data: bytes) -> dict[str, Any]:
    try:
        fields = parse_json(data)
        version = _number(fields["version"])
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedRecordError(f"request {request_id}: {error!r}") from error
    if version > VERSION:
        raise FormatVersionError(f"request {request_id} was written by a newer version: run that one")
    return dict(fields)


def _number(value: object) -> int:
    """Raises ValueError for what is no whole number, or one that no record could hold."""
    if not isinstance(value, int) or value not in _NUMBERS:
        raise ValueError(f"{value!r:.100} is no number of a request")
    return int(value)
