"""Produces within transactions. pulsar-client has none, so the few commands needed are written here, field by field.

A transaction's messages travel like any others, with the transaction's id in command and metadata.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
import time
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import crc32c

CONNECT, PRODUCER, SEND, SEND_RECEIPT, PING, PONG = 2, 5, 6, 7, 18, 19
CLOSE_PRODUCER, PRODUCER_SUCCESS, SUCCESS = 15, 17, 13
NEW_TXN, ADD_PARTITION_TO_TXN, END_TXN, TC_CLIENT_CONNECT = 50, 52, 56, 62
LOOKUP = 23
COORDINATOR_TOPIC = "persistent://pulsar/system/transaction_coordinator_assign-partition-0"
TTL_MS = 3_600_000
PATIENCE = 120.0  # seconds for an answer: for hanging

Fields = dict[int, "int | str | bytes"]


class Transactions:
    """A client of transaction coordinator 0 on one connection. Use as a context manager.

    A thread receives: the broker cuts off a connection that does not answer PING, also one that has nothing to send.
    """

    def __init__(self, service_url: str) -> None:
        parts = urlsplit(service_url)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=30)
        self._socket.settimeout(None)
        self._sending = threading.Lock()
        self._answers: queue.Queue[dict[int, int | bytes] | None] = queue.Queue()
        self._ids = 0
        self._producers: dict[str, int] = {}
        self.sent = b""
        threading.Thread(target=self._receiving, daemon=True).start()
        self._call(CONNECT, {1: "test", 4: 21}, answer=3)
        self._call(
            LOOKUP, {1: COORDINATOR_TOPIC, 2: self._id()}, answer=24
        )  # a broker must own it before it coordinates
        self._call(TC_CLIENT_CONNECT, {1: self._id(), 2: 0}, answer=63, error=2)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the broker was first
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._socket.close()

    def begin(self, *topics: str) -> tuple[int, int]:
        """A new transaction that will write to these topics."""
        answer = self._call(NEW_TXN, {1: self._id(), 2: TTL_MS, 3: 0}, answer=51, error=4)
        txn = (int(answer.get(2, 0)), int(answer.get(3, 0)))
        for topic in topics:
            self._call(ADD_PARTITION_TO_TXN, {1: self._id(), 2: txn[0], 3: txn[1], 4: topic}, answer=53, error=4)
        return txn

    def send(self, topic: str, data: bytes, txn: tuple[int, int] | None = None) -> tuple[int, int]:
        """One message as one entry, in a transaction or not; returns its (ledger, entry)."""
        producer = self._producer(topic)
        sequence = self._id()
        command: Fields = {1: producer, 2: sequence, 3: 1}
        metadata: Fields = {1: "test", 2: sequence, 3: int(time.time() * 1000)}
        if txn is not None:
            command |= {4: txn[0], 5: txn[1]}
            metadata |= {22: txn[0], 23: txn[1]}
        encoded = _encode(metadata)
        body = struct.pack(">I", len(encoded)) + encoded + data
        payload = b"\x0e\x01" + struct.pack(">I", crc32c.crc32c(body)) + body
        self.sent = payload
        answer = self._call(SEND, command, payload, answer=SEND_RECEIPT)
        position = _decode(answer[3])
        return int(position[1]), int(position[2])

    def forget(self, topic: str) -> None:
        """After an unload: the next message opens a new producer."""
        self._producers.pop(topic, None)

    def end(self, txn: tuple[int, int], *, commit: bool) -> None:
        """Commit or abort; its marker is in the topics once this returns."""
        self._call(END_TXN, {1: self._id(), 2: txn[0], 3: txn[1], 4: 0 if commit else 1}, answer=57, error=4)

    def _producer(self, topic: str) -> int:
        if topic not in self._producers:
            self._producers[topic] = self._id()
            self._call(PRODUCER, {1: topic, 2: self._producers[topic], 3: self._id()}, answer=PRODUCER_SUCCESS)
        return self._producers[topic]

    def _id(self) -> int:
        self._ids += 1
        return self._ids

    def _call(
        self, kind: int, fields: Fields, payload: bytes = b"", *, answer: int, error: int = 0
    ) -> dict[int, int | bytes]:
        self._send(kind, fields, payload)
        while True:
            received = self._answers.get(timeout=PATIENCE)
            assert received is not None, "the broker closed the connection"
            if received[1] == answer:
                answered = _decode(bytes(received[answer]))
                assert error not in answered, answered
                return answered
            if received[1] != CLOSE_PRODUCER:
                raise AssertionError(f"expected an answer of type {answer}, got {received}")

    def _send(self, kind: int, fields: Fields, payload: bytes = b"") -> None:
        command = _encode({1: kind, kind: _encode(fields)})
        with self._sending:
            self._socket.sendall(struct.pack(">II", 4 + len(command) + len(payload), len(command)) + command + payload)

    def _receiving(self) -> None:
        """Answers each PING at once, and keeps the rest for the call that waits. None is the end of the connection."""
        try:
            while True:
                received = self._receive()
                if received[1] == PING:
                    self._send(PONG, {})
                else:
                    self._answers.put(received)
        except (OSError, EOFError):
            self._answers.put(None)

    def _receive(self) -> dict[int, int | bytes]:
        total, size = struct.unpack(">II", self._read(8))
        return _decode(self._read(total - 4)[:size])

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data


def _encode(fields: Fields) -> bytes:
    out = b""
    for number, value in fields.items():
        if isinstance(value, int):
            out += _varint(number << 3) + _varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += _varint(number << 3 | 2) + _varint(len(data)) + data
    return out


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _decode(data: bytes) -> dict[int, int | bytes]:
    """The last value of each field."""
    fields: dict[int, int | bytes] = {}
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        value, at = _read_varint(data, at)
        if key & 7 == 2:
            fields[key >> 3], at = data[at : at + value], at + value
        else:
            fields[key >> 3] = value
    return fields


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
