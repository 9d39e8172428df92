"""What a ZooKeeper client's frames write. Pure.

A frame is an int32 length and a payload. The first payload of a connection asks for a session; each later one begins
with the request's number and its type. A transaction (*multi*) has a header before each operation, and one behind the
last.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

_INT = Struct(">i")
_HEADER = Struct(">ii")
_MULTI_HEADER = Struct(">i?i")
_LENGTH = Struct(">i")
_MULTI, _CREATE_2, _CREATE_CONTAINER, _CREATE_TTL, _CHECK = 14, 15, 19, 21, 13
_CLOSE_SESSION = -11
_LONG_BYTES = 8


class Write(IntEnum):
    """What is done to a node, as the protocol numbers it."""

    CREATE = 1
    DELETE = 2
    SET = 5


class NodeWrite(NamedTuple):
    """One node that is written. `value`: empty for a delete. `version`: the one that it must have; -1: any."""

    write: Write
    path: str
    value: bytes = b""
    version: int = -1


class FrameError(Exception):
    """These bytes are no request that we know."""


def writes(payload: bytes) -> tuple[NodeWrite, ...]:
    """What the request writes, in order; nothing where it reads only. Not for the first frame of a connection.

    Raises FrameError where it is cut off.
    """
    reader = _Reader(payload)
    _, kind = reader.take(_HEADER)
    if kind == _MULTI:
        return tuple(_transaction(reader))
    found = _operation(reader, kind)
    return () if found is None else (found,)


def close_session() -> bytes:
    """The frame by which a client ends its session."""
    payload = _HEADER.pack(0, _CLOSE_SESSION)
    return _LENGTH.pack(len(payload)) + payload


class Frames:
    """Cuts a stream into payloads."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that are whole now."""
        self._held += data
        found = []
        while len(self._held) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._held)
            end = _LENGTH.size + size
            if len(self._held) < end:
                break
            found.append(self._held[_LENGTH.size : end])
            self._held = self._held[end:]
        return found


def framed(payload: bytes) -> bytes:
    """A payload with its length before it."""
    return _LENGTH.pack(len(payload)) + payload


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, record: Struct) -> tuple[int, ...]:
        if self._at + record.size > len(self._data):
            raise FrameError(f"cut off after {len(self._data)} bytes")
        found = record.unpack_from(self._data, self._at)
        self._at += record.size
        return found

    def number(self) -> int:
        return self.take(_INT)[0]

    def buffer(self) -> bytes:
        size = max(self.number(), 0)  # -1: none
        if self._at + size > len(self._data):
            raise FrameError(f"cut off after {len(self._data)} bytes")
        found = self._data[self._at : self._at + size]
        self._at += size
        return found

    def text(self) -> str:
        return self.buffer().decode(errors="replace")

    def skip(self, count: int) -> None:
        self._at += count


def _transaction(reader: _Reader) -> Iterator[NodeWrite]:
    while True:
        kind, done, _ = reader.take(_MULTI_HEADER)
        if done:
            return
        found = _operation(reader, kind)
        if found is not None:
            yield found
        elif kind != _CHECK:
            raise FrameError(f"a transaction with an operation of type {kind}")


def _operation(reader: _Reader, kind: int) -> NodeWrite | None:
    """None: it writes nothing. What it checks is read, so that the next operation of a transaction is found."""
    if kind in (Write.CREATE, _CREATE_2, _CREATE_CONTAINER, _CREATE_TTL):
        return _created(reader, kind)
    if kind == Write.DELETE:
        return NodeWrite(Write.DELETE, reader.text(), version=reader.number())
    if kind == Write.SET:
        return NodeWrite(Write.SET, reader.text(), reader.buffer(), reader.number())
    if kind == _CHECK:
        reader.text()
        reader.number()
    return None


def _created(reader: _Reader, kind: int) -> NodeWrite:
    path, value = reader.text(), reader.buffer()
    for _ in range(max(reader.number(), 0)):  # who may do what
        reader.number()
        reader.buffer()
        reader.buffer()
    reader.number()  # ephemeral, sequential
    if kind == _CREATE_TTL:
        reader.skip(_LONG_BYTES)
    return NodeWrite(Write.CREATE, path, value)
