"""Version 2 of the wire protocol: reads of one entry and of many. Pure.

```
READ        [u32 header][i64 ledger][i64 entry]
answer      [u32 header][i32 status][i64 ledger][i64 entry][stored entry]
BATCH_READ  [u32 header][i64 ledger][i64 first][i64 request][i32 count][i64 size]
answer      [u32 header][i32 status][i64 ledger][i64 first][i64 request] then { [u32 length][stored entry] }*
AUTH        [u32 header][AuthMessage], and so the answer
```
The header is `version 2 << 24 | operation << 16`. Status codes are others than in version 3 (`STATUS`). Answers to READ
name no request: what is asked twice is answered by either.
A bookie resets a connection that carries both versions. BATCH_READ came with BookKeeper 4.17.
"""

from __future__ import annotations

from collections import defaultdict
from struct import Struct

from google.protobuf.message import DecodeError

from offloader._proto.bookkeeper_pb2 import AuthMessage
from offloader.bookkeeper.frames import frame
from offloader.bookkeeper.requests import BatchRead, Reply, Request
from offloader.bookkeeper.status import OK, status_error
from offloader.errors import OffloadError, ProtocolError

READ, AUTH, BATCH_READ = 2, 3, 7
# This version's codes, and what they are in version 3.
STATUS = {0: OK, 1: 402, 2: 403, 100: 404, 101: 501, 102: 502, 103: 503, 104: 504, 105: 505, 106: 506, 107: 507}

READ_REQUEST = Struct(">Iqq")
READ_ANSWER = Struct(">Iiqq")
BATCH_REQUEST = Struct(">Iqqqiq")
BATCH_ANSWER = Struct(">Iiqqq")
NOBODYS = 0  # no request has this number
_WORD = Struct(">I")


def header(operation: int) -> int:
    """A request's or an answer's first word."""
    return 2 << 24 | operation << 16


class V2:
    """The `Dialect` of batches. A batch of one entry goes as READ, which older bookies know, too."""

    def __init__(self, bookie: str) -> None:
        self._bookie = bookie
        self._batches: dict[int, BatchRead] = {}
        self._reads: defaultdict[tuple[int, int], dict[int, BatchRead]] = defaultdict(dict)

    def encode(self, number: int, request: Request) -> bytes:
        if not isinstance(request, BatchRead):
            raise ProtocolError(f"version 2 of the protocol has no {request}")
        if request.count == 1:
            self._reads[request.ledger, request.first][number] = request
            return frame(READ_REQUEST.pack(header(READ), request.ledger, request.first))
        self._batches[number] = request
        body = BATCH_REQUEST.pack(
            header(BATCH_READ), request.ledger, request.first, number, request.count, request.size
        )
        return frame(body)

    def decode(self, body: memoryview) -> list[Reply]:
        match _operation(body):
            case 0x0207:
                return self._decode_batch(body)
            case 0x0202:
                return self._decode_read(body)
            case other:
                raise ProtocolError(f"the bookie answered in version 2 with the operation {other:#06x}")

    def whose(self, beginning: memoryview) -> int | None:
        if len(beginning) < BATCH_ANSWER.size:
            return None
        _, _, ledger, entry, number = BATCH_ANSWER.unpack_from(beginning)
        if _operation(beginning) == 0x0207:
            return int(number)
        return next(iter(self._reads.get((ledger, entry), ())), NOBODYS)

    def forget(self, number: int) -> None:
        self._batches.pop(number, None)
        for key, waiting in self._reads.items():
            if waiting.pop(number, None) is not None:
                if not waiting:
                    del self._reads[key]
                return

    def encode_auth(self, plugin: str, payload: bytes) -> bytes:
        return frame(_WORD.pack(header(AUTH)) + AuthMessage(plugin_name=plugin, payload=payload).SerializeToString())

    def decode_auth(self, body: memoryview) -> tuple[str, bytes]:
        if _operation(body) != 0x0203:
            raise ProtocolError("the bookie answered authentication with something else")
        try:
            message = AuthMessage.FromString(body[_WORD.size :].tobytes())
        except DecodeError as error:
            raise ProtocolError("the bookie sent an authentication that cannot be parsed") from error
        return message.plugin_name, message.payload

    def _decode_read(self, body: memoryview) -> list[Reply]:
        if len(body) < READ_ANSWER.size:
            raise ProtocolError(f"the bookie sent a read's answer of {len(body)} bytes")
        _, status, ledger, entry = READ_ANSWER.unpack_from(body)
        waiting = self._reads.pop((ledger, entry), {})
        result = [body[READ_ANSWER.size :].tobytes()] if status == OK else None
        return [Reply(number, result, self._error(status, request)) for number, request in waiting.items()]

    def _decode_batch(self, body: memoryview) -> list[Reply]:
        if len(body) < BATCH_ANSWER.size:
            raise ProtocolError(f"the bookie sent a batch of {len(body)} bytes")
        _, status, ledger, first, number = BATCH_ANSWER.unpack_from(body)
        request = self._batches.pop(number, None)
        if request is None:
            return []
        if (ledger, first) != (request.ledger, request.first):
            raise ProtocolError(f"the bookie answered the {request} with {ledger}:{first}")
        if status != OK:
            return [Reply(number, None, self._error(status, request))]
        return [Reply(number, _entries(body, request))]

    def _error(self, status: int, request: BatchRead) -> OffloadError | None:
        if status == OK:
            return None
        # A code that is not in the list must not be taken for one of version 3's.
        return status_error(STATUS.get(status, -status), f"{self._bookie}: {request}")


def _operation(body: memoryview) -> int:
    """Version and operation."""
    return int.from_bytes(body[:2])


def _entries(body: memoryview, request: BatchRead) -> list[bytes]:
    entries: list[bytes] = []
    at, end, unpack = BATCH_ANSWER.size, len(body), _WORD.unpack_from
    while at < end:
        begin = at + 4
        at = begin + unpack(body, at)[0] if begin <= end else end + 1
        entries.append(body[begin:at].tobytes())
    if at != end or not 1 <= len(entries) <= request.count:
        raise ProtocolError(
            f"the bookie answered the {request} with a batch of {len(entries)} that does not end where it must"
        )
    return entries
