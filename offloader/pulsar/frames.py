"""Frames of the binary protocol: bytes to commands and back. Pure.

command:        [u32 total][u32 size][BaseCommand]
MESSAGE, SEND:  [u32 total][u32 size][BaseCommand][entry: the rest of the frame, as BookKeeper stores it]
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from offloader._proto.pulsar_wire_pb2 import BaseCommand
from offloader.errors import ProtocolError
from offloader.model import KIB, MIB

MESSAGE = BaseCommand.MESSAGE_FIELD_NUMBER
# What a frame may have beside the message itself: command, broker entry metadata, and room for a sender that counts
# otherwise.
FRAME_SLACK = 64 * KIB
DEFAULT_MAX_MESSAGE = 5 * MIB

_LENGTHS = Struct(">II")
_CHUNK = 256 * KIB
_MOST_VALUES = 4_000  # texts, and messages that may hold some, of a stranger's command: some ms of work


_WITHOUT_TEXT = frozenset({"MessageIdData"})


def _may_have_text(field: FieldDescriptor) -> bool:
    """Whether there may be text in it, or below it."""
    if field.type != field.TYPE_MESSAGE:
        return field.type == field.TYPE_STRING
    return field.message_type is None or field.message_type.name not in _WITHOUT_TEXT


class Frame(NamedTuple):
    """One command; `entry` only with a MESSAGE."""

    command: BaseCommand
    entry: bytes | None


def encode(command: BaseCommand, entry: bytes = b"") -> bytes:
    """The frame of a command; a MESSAGE or a SEND also has an entry."""
    data = command.SerializeToString()
    return _LENGTHS.pack(4 + len(data) + len(entry), len(data)) + data + entry


class FrameBuffer:
    """Collects received bytes and cuts them into frames; holds at most one frame and one chunk.

    Received bytes go into `space()`, then `received(n)`, then `frames()`.
    """

    def __init__(
        self,
        max_message: int = DEFAULT_MAX_MESSAGE,
        *,
        peer: str = "the broker",
        chunk: int = _CHUNK,
        trusted: bool = True,
    ) -> None:
        """`peer`: who sends, for errors. Not `trusted`: memory grows with what has come, not with what is announced,
        and shrinks when a large frame is over; a command has few values beside ids."""
        self.max_frame = max_message + FRAME_SLACK
        self._peer = peer
        self._chunk = chunk
        self._trusted = trusted
        self._data = bytearray(chunk)
        self._view = memoryview(self._data)
        self._begin = 0
        self._end = 0

    def allow(self, max_message: int) -> None:
        """The broker said how large its messages may be."""
        self.max_frame = max_message + FRAME_SLACK

    def space(self) -> memoryview:
        """Where the next bytes go, never empty."""
        if self._end == len(self._data) or self._begin == self._end:
            self._make_room()
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """So many bytes were put into `space()`."""
        self._end += count

    @property
    def memory(self) -> int:
        """Bytes that it takes now beside its first chunk."""
        return len(self._data) - self._chunk

    @property
    def next_size(self) -> int:
        """Bytes of the next frame, where it is complete; else 0. Raises ProtocolError."""
        if self._end - self._begin < 8:
            return 0
        total, size = _LENGTHS.unpack_from(self._data, self._begin)
        self._check(total, size)
        return 4 + int(total) if self._begin + 4 + total <= self._end else 0

    def frames(self) -> Iterator[Frame]:
        """The frames that are complete. Raises ProtocolError."""
        while frame_size := self.next_size:
            size = int(_LENGTHS.unpack_from(self._data, self._begin)[1])
            begin, end = self._begin + 8, self._begin + frame_size
            self._begin = end
            frame = self._frame(begin, begin + size, end)
            if self.memory and not self._trusted and self._end - end <= self._chunk // 2:
                self._make_room()
            yield frame

    def _check(self, total: int, size: int) -> None:
        if total > self.max_frame:
            raise ProtocolError(f"{self._peer} announced a frame of {total} bytes, more than {self.max_frame}")
        if total < 4 or size > total - 4:
            raise ProtocolError(f"{self._peer} sent a frame of {total} bytes with a command of {size}")

    def _frame(self, begin: int, middle: int, end: int) -> Frame:
        try:
            command = BaseCommand.FromString(self._view[begin:middle].tobytes())
        except DecodeError as error:
            raise ProtocolError(f"{self._peer} sent a command that cannot be parsed") from error
        if command.type != MESSAGE:
            values = self._check_text(command)
            if values > _MOST_VALUES and not self._trusted:
                raise ProtocolError(f"{self._peer} sent a command of more than {_MOST_VALUES} values")
            return Frame(command, None)
        if middle == end or not command.HasField("message"):
            raise ProtocolError(f"{self._peer} sent a message without an entry")
        return Frame(command, self._view[middle:end].tobytes())

    def _check_text(self, message: Message, values: int = 0) -> int:
        """Where text is no UTF-8 the library gives bytes, which nobody expects. Returns how many values were looked at,
        with those before. Raises ProtocolError."""
        for field, value in message.ListFields():
            if not _may_have_text(field):
                continue  # lists of ids are long
            for one in value if field.is_repeated else (value,):
                values += 1
                if values > _MOST_VALUES and not self._trusted:
                    return values
                if isinstance(one, Message):
                    values = self._check_text(one, values)
                elif field.type == field.TYPE_STRING and not isinstance(one, str):
                    raise ProtocolError(f"{self._peer} sent a command whose {field.name} is no text")
        return values

    def _make_room(self) -> None:
        """Move what is left to the front; grow where a frame needs it."""
        left = self._view[self._begin : self._end].tobytes()
        size = self._size_for(left)
        if size != len(self._data):
            self._data = bytearray(size)
            self._view = memoryview(self._data)
        self._view[: len(left)] = left
        self._begin, self._end = 0, len(left)

    def _size_for(self, left: bytes) -> int:
        needed = 4 + int.from_bytes(left[:4]) if len(left) >= 4 else 0
        if not self._trusted:
            if len(left) <= self._chunk // 2:
                return self._chunk
            return max(len(left) + self._chunk, min(2 * len(left), needed))
        if needed <= len(self._data):
            return len(self._data)
        return min(needed + self._chunk, self.max_frame + 4 + self._chunk)
