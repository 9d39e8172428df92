"""How a bookie answers on the wire, over a `MemoryBookie`: the other side of `offloader.bookkeeper.v2` and `.v3`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from offloader._proto import bookkeeper_pb2 as pb
from offloader.bookkeeper import v2, v3
from offloader.bookkeeper.status import BookieError
from tests.fakes.memory_bookie import MemoryBookie

OK = 0

Fields = dict[str, Any]
_V2_STATUS = {status: code for code, status in v2.STATUS.items()}


class ScriptedRequest(NamedTuple):
    """A request as tests speak of it. `operation`: read, batch, fence, add, recovery-add, read-lac, write-lac, list."""

    version: int
    operation: str
    ledger: int
    entry: int = -1
    most: int = 0
    size: int = 0
    number: int = 0


def asked_v2(body: bytes) -> ScriptedRequest:
    """What a version 2 request asks for."""
    if int.from_bytes(body[:2]) == 0x0207:
        _, ledger, entry, number, count, size = v2.BATCH_REQUEST.unpack(body)
        return ScriptedRequest(2, "batch", ledger, entry, count, size, number)
    _, ledger, entry = v2.READ_REQUEST.unpack(body)
    return ScriptedRequest(2, "read", ledger, entry)


def answer_v2(bookie: MemoryBookie, asked: ScriptedRequest, status: int | None) -> bytes:
    """An answer's body; `status`: in place of doing what was asked."""
    if asked.operation == "read":
        status, stored = _tried(lambda: bookie.read(asked.ledger, asked.entry), status)
        return v2.READ_ANSWER.pack(v2.header(v2.READ), _V2_STATUS.get(status, status), asked.ledger, asked.entry) + (
            stored or b""
        )
    status, entries = _tried(lambda: bookie.batch(asked.ledger, asked.entry, asked.most, asked.size), status)
    head = v2.BATCH_ANSWER.pack(
        v2.header(v2.BATCH_READ), _V2_STATUS.get(status, status), asked.ledger, asked.entry, asked.number
    )
    return b"".join([head, *(piece for entry in entries or () for piece in (len(entry).to_bytes(4), entry))])


def asked_v3(request: pb.Request) -> ScriptedRequest:
    """What a version 3 request asks for."""
    match request.header.operation:
        case v3.READ_ENTRY:
            name = "fence" if request.read.flag == v3.FENCE_LEDGER else "read"
            return ScriptedRequest(3, name, request.read.ledger_id, request.read.entry_id)
        case v3.ADD_ENTRY:
            name = "recovery-add" if request.add.flag == v3.RECOVERY_ADD else "add"
            return ScriptedRequest(3, name, request.add.ledger_id, request.add.entry_id)
        case v3.READ_LAC:
            return ScriptedRequest(3, "read-lac", request.read_lac.ledger_id)
        case v3.WRITE_LAC:
            return ScriptedRequest(3, "write-lac", request.write_lac.ledger_id, request.write_lac.lac)
        case _:
            return ScriptedRequest(3, "list", request.list_entries.ledger_id)


def answer_v3(bookie: MemoryBookie, request: pb.Request, asked: ScriptedRequest, status: int | None) -> bytes:
    """An answer's body; `status`: in place of doing what was asked."""
    field, do = _ANSWERS[request.header.operation]
    status, fields = _tried(lambda: do(bookie, request), status)
    response = pb.Response(header=request.header, status=status)
    inner = getattr(response, field)
    inner.status, inner.ledger_id = status, asked.ledger
    if field in ("read", "add"):
        inner.entry_id = asked.entry
    for name, value in (fields or {}).items():
        if value is not None:
            setattr(inner, name, value)
    return response.SerializeToString()


def _read(bookie: MemoryBookie, request: pb.Request) -> Fields:
    asked = request.read
    return {
        "body": bookie.read(
            asked.ledger_id, asked.entry_id, asked.master_key if asked.flag == v3.FENCE_LEDGER else None
        )
    }


def _add(bookie: MemoryBookie, request: pb.Request) -> Fields:
    asked = request.add
    bookie.add(asked.ledger_id, asked.entry_id, asked.body, asked.master_key, recovery=asked.flag == v3.RECOVERY_ADD)
    return {}


def _read_lac(bookie: MemoryBookie, request: pb.Request) -> Fields:
    explicit, last = bookie.read_lac(request.read_lac.ledger_id)
    return {"lac_body": explicit, "last_entry_body": last}


def _write_lac(bookie: MemoryBookie, request: pb.Request) -> Fields:
    asked = request.write_lac
    bookie.write_lac(asked.ledger_id, asked.body, asked.master_key)
    return {}


def _list(bookie: MemoryBookie, request: pb.Request) -> Fields:
    return {"availability": v3.encode_availability(bookie.entries_of(request.list_entries.ledger_id))}


_ANSWERS: dict[int, tuple[str, Callable[[MemoryBookie, pb.Request], Fields]]] = {
    v3.READ_ENTRY: ("read", _read),
    v3.ADD_ENTRY: ("add", _add),
    v3.READ_LAC: ("read_lac", _read_lac),
    v3.WRITE_LAC: ("write_lac", _write_lac),
    v3.LIST_ENTRIES: ("list_entries", _list),
}


def _tried(do: Callable[[], Any], status: int | None) -> tuple[int, Any]:
    """Status and result."""
    if status is not None:
        return status, None
    try:
        return OK, do()
    except BookieError as error:
        return error.status, None
