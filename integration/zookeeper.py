"""The values of ZooKeeper's nodes, as far as tests need them: one session, one request after the other."""

from __future__ import annotations

import socket
from struct import Struct
from types import TracebackType
from typing import Self

_GET_DATA = 4
_NO_NODE = -101
_LENGTH = Struct(">i")
_CONNECT = Struct(">iqiqi16sB")  # protocol version, last zxid, time-out in ms, session, password, read only
_REQUEST = Struct(">ii")  # number, kind
_REPLY = Struct(">iqi")  # number, zxid, error


class ZooKeeper:
    """A session with the server at `host:port`."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=10.0)
        self._stream = self._socket.makefile("rb")
        self._number = 0
        self._call(_CONNECT.pack(0, 0, 8000, 0, 16, bytes(16), 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stream.close()
        self._socket.close()

    def get(self, path: str) -> bytes | None:
        """A node's value, None where there is no such node."""
        self._number += 1
        name = path.encode()
        answer = self._call(_REQUEST.pack(self._number, _GET_DATA) + _LENGTH.pack(len(name)) + name + b"\0")
        number, _, error = _REPLY.unpack_from(answer)
        assert number == self._number
        if error == _NO_NODE:
            return None
        assert error == 0, error
        length = _LENGTH.unpack_from(answer, _REPLY.size)[0]
        begin = _REPLY.size + _LENGTH.size
        return answer[begin : begin + max(length, 0)]

    def _call(self, request: bytes) -> bytes:
        self._socket.sendall(_LENGTH.pack(len(request)) + request)
        return self._stream.read(_LENGTH.unpack(self._stream.read(_LENGTH.size))[0])
