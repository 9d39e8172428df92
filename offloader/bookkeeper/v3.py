"""Version 3 of the wire protocol: protobuf messages that carry their request's number. Also the list of entries that a
bookie says it holds of a ledger. Pure."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from offloader._proto import bookkeeper_pb2 as pb
from offloader.bookkeeper.api import LastConfirmed
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
_LIST_HEADER = struct.Struct(">II56x")
_GROUP = struct.Struct(">qqII")


class Group(NamedTuple):
    """Runs of `size` entries: the first begins at `first`, the last at `last`, `period` apart."""

    first: int
    last: int
    size: int
    period: int

    @property
    def runs(self) -> range:
        """Where each run begins."""
        return range(self.first, self.last + 1, self.period or 1)


class Availability(Collection[int]):
    """Which entries of a ledger a bookie says it holds. A set of entry ids; as large as the number of its groups,
    whatever the number of entries.

    GET_LIST_OF_ENTRIES_OF_LEDGER packs it as `[u32 version 0][u32 number of groups]`, zeros up to 64 bytes, then for
    each group `[i64 first][i64 last][u32 size][u32 period]`: runs of `size` consecutive entries that begin at `first`,
    `first` + `period`, ... and `last` (period 0: one run). BookKeeper 4.17.2 makes a group of each run, though the
    format would allow a whole striped ledger in one.
    """

    def __init__(self, groups: Iterable[Group]) -> None:
        self._groups = tuple(sorted(groups))
        for group in self._groups:
            _check_group(group)
        if any(a.last + a.size > b.first for a, b in pairwise(self._groups)):
            raise ProtocolError("a bookie's list of entries overlaps itself")
        self._count = sum(len(group.runs) * group.size for group in self._groups)

    def __contains__(self, entry: object) -> bool:
        if not isinstance(entry, int):
            return False
        at = bisect_right(self._groups, entry, key=lambda group: group.first) - 1
        if at < 0:
            return False
        group = self._groups[at]
        offset = entry - group.first
        return entry < group.last + group.size and (offset % group.period if group.period else offset) < group.size

    def __iter__(self) -> Iterator[int]:
        for group in self._groups:
            for begin in group.runs:
                yield from range(begin, begin + group.size)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"Availability({list(self._groups)!r})"


def decode_availability(data: bytes) -> Availability:
    """Read a bookie's answer. Raises ProtocolError."""
    try:
        version, count = _LIST_HEADER.unpack_from(data)
        groups = [Group(*_GROUP.unpack_from(data, _LIST_HEADER.size + number * _GROUP.size)) for number in range(count)]
    except struct.error as problem:
        raise ProtocolError(f"a bookie's list of entries of {len(data)} bytes is cut off") from problem
    if version != 0:
        raise ProtocolError(f"a bookie's list of entries has the version {version}, which is not known")
    return Availability(groups)


def encode_availability(groups: Iterable[Group]) -> bytes:
    """What a bookie answers."""
    packed = [_GROUP.pack(*group) for group in groups]
    return _LIST_HEADER.pack(0, len(packed)) + b"".join(packed)


def _check_group(group: Group) -> None:
    one_run = group.first == group.last
    steps = one_run or (group.period >= max(group.size, 1) and (group.last - group.first) % group.period == 0)
    beyond = group.last + group.size > 2**63 - 1  # no entry has such an id
    if group.first < 0 or group.last < group.first or group.size < 1 or beyond or not steps:
        raise ProtocolError(f"a bookie's list of entries has an impossible group {tuple(group)}")


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
    ListEntries: _Kind(LIST_ENTRIES, "list_entries", _nothing, lambda answer: decode_availability(answer.availability)),
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
