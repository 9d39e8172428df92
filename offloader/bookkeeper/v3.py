"""Version 3 of the wire protocol: protobuf messages that carry their request's number. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from offloader._proto import bookkeeper_pb2 as pb
from offloader.bookkeeper.api import LastConfirmed
from offloader.bookkeeper.availability import decode
from offloader.bookkeeper.frames import frame
from offloader.bookkeeper.requests import Add, EntryRead, ListEntries, ReadLac, Reply, Request, WriteLac
from offloader.bookkeeper.status import OK, status_error
from offloader.errors import AuthenticationFailedError, ProtocolError

VERSION = 3
READ_ENTRY, ADD_ENTRY, AUTH, WRITE_LAC, READ_LAC, START_TLS, LIST_ENTRIES = 1, 2, 5, 6, 7, 9, 11
_HEADER_TAG = 0x0A  # field 1, as bytes
FENCE_LEDGER = 1
RECOVERY_ADD = 1
# What BookKeeper's own client says. A bookie that is read only takes such entries while its disks are not quite full.
URGENT = 100


class _Kind(NamedTuple):
    """One kind of request. `field`: its name, and its answer's. `fill`: its values by their names, None: not set.
    `result`: what its answer says."""

    operation: int
    field: str
    fill: Callable[[Any], dict[str, Any]]
    result: Callable[[Any], Any]


def _read(request: EntryRead) -> dict[str, Any]:
    flag = None if request.fence is None else FENCE_LEDGER
    return {"entry_id": request.entry, "flag": flag, "master_key": request.fence}


def _add(request: Add) -> dict[str, Any]:
    flag = RECOVERY_ADD if request.recovery else None
    return {"entry_id": request.entry, "flag": flag, "master_key": request.master_key, "body": request.stored}


def _write_lac(request: WriteLac) -> dict[str, Any]:
    return {"lac": request.last_confirmed, "master_key": request.master_key, "body": request.body}


def _nothing(_: object) -> dict[str, Any]:
    return {}


def _stored(response: pb.ReadResponse) -> bytes:
    if not response.HasField("body"):
        raise ProtocolError("the bookie answered a read without an entry")
    return response.body


def _last_confirmed(response: pb.ReadLacResponse) -> LastConfirmed:
    return LastConfirmed(explicit=response.lac_body or None, last_entry=response.last_entry_body or None)


_KINDS: dict[type, _Kind] = {
    EntryRead: _Kind(READ_ENTRY, "read", _read, _stored),
    Add: _Kind(ADD_ENTRY, "add", _add, lambda _: None),
    WriteLac: _Kind(WRITE_LAC, "write_lac", _write_lac, lambda _: None),
    ReadLac: _Kind(READ_LAC, "read_lac", _nothing, _last_confirmed),
    ListEntries: _Kind(LIST_ENTRIES, "list_entries", _nothing, lambda answer: decode(answer.availability)),
}


class V3:
    """The `Dialect` of everything but batches."""

    def __init__(self, bookie: str) -> None:
        self._bookie = bookie
        self._asked: dict[int, Request] = {}

    def encode(self, number: int, request: Request) -> bytes:
        kind = _KINDS.get(type(request))
        if kind is None:
            raise ProtocolError(f"version 3 of the protocol has no {request}")
        self._asked[number] = request
        inner = {"ledger_id": request.ledger, **kind.fill(request)}
        message = pb.Request(header=_header(kind.operation, number), **{kind.field: inner})
        if isinstance(request, Add) and request.recovery:
            message.header.priority = URGENT
        return frame(message.SerializeToString())

    def decode(self, body: memoryview) -> list[Reply]:
        response = _parse(body)
        request = self._asked.pop(response.header.txn_id, None)
        return [] if request is None else [self._answered(request, response)]

    def whose(self, beginning: memoryview) -> int | None:
        # the header comes first, and is short
        if len(beginning) < 2 or beginning[0] != _HEADER_TAG or len(beginning) < 2 + beginning[1]:
            return None
        try:
            return int(pb.PacketHeader.FromString(beginning[2 : 2 + beginning[1]].tobytes()).txn_id)
        except DecodeError:
            return None

    def forget(self, number: int) -> None:
        self._asked.pop(number, None)

    def encode_auth(self, plugin: str, payload: bytes) -> bytes:
        message = pb.Request(header=_header(AUTH, 0), auth=pb.AuthMessage(plugin_name=plugin, payload=payload))
        return frame(message.SerializeToString())

    def decode_auth(self, body: memoryview) -> tuple[str, bytes]:
        response = _parse(body)
        if response.status != OK or not response.HasField("auth"):
            raise AuthenticationFailedError(f"the bookie does not accept who we are (status {response.status})")
        return response.auth.plugin_name, response.auth.payload

    def _answered(self, request: Request, response: pb.Response) -> Reply:
        number, kind = response.header.txn_id, _KINDS[type(request)]
        inner = getattr(response, kind.field) if response.HasField(kind.field) else None
        # A bookie that refuses a request as such (authentication, version) answers without the inner part.
        status = response.status if response.status != OK or inner is None else inner.status
        if status != OK:
            return Reply(number, None, status_error(status, f"{self._bookie}: {request}"))
        if inner is None or not _same(request, inner):
            raise ProtocolError(f"the bookie answered the {request} with something else")
        return Reply(number, kind.result(inner))


def encode_start_tls() -> bytes:
    """The frame that asks for TLS."""
    return frame(pb.Request(header=_header(START_TLS, 0), start_tls=pb.Empty()).SerializeToString())


def accepts_tls(body: memoryview) -> bool:
    """Whether the bookie agreed to it. Raises ProtocolError."""
    response = _parse(body)
    return response.header.operation == START_TLS and response.status == OK


def _header(operation: int, number: int) -> pb.PacketHeader:
    return pb.PacketHeader(version=VERSION, operation=operation, txn_id=number)


def _parse(body: memoryview) -> pb.Response:
    try:
        response = pb.Response.FromString(body.tobytes())
    except DecodeError as error:
        raise ProtocolError("the bookie sent an answer that cannot be parsed") from error
    if not response.IsInitialized():
        raise ProtocolError("the bookie sent an answer with a part missing")
    return response


def _same(request: Any, inner: Any) -> bool:
    """Whether an answer is to this request; a read of the last entry is answered with -1 or with its id."""
    if inner.ledger_id != request.ledger:
        return False
    return not isinstance(request, EntryRead | Add) or request.entry < 0 or bool(inner.entry_id == request.entry)
