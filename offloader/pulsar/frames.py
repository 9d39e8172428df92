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

    def __init__(self, max_message: int = DEFAULT_MAX_MESSAGE, *, peer: str = "the broker") -> None:
        """`peer`: who sends, for errors."""
        self.max_frame = max_message + FRAME_SLACK
        self._peer = peer
        self._data = bytearray(_CHUNK)
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

    def frames(self) -> Iterator[Frame]:
        """The frames that are complete. Raises ProtocolError."""
        while self._end - self._begin >= 8:
            total, size = _LENGTHS.unpack_from(self._data, self._begin)
            self._check(total, size)
            end = self._begin + 4 + total
            if end > self._end:
                return
            begin, self._begin = self._begin + 8, end
            yield self._frame(begin, begin + size, end)

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
            self._check_text(command)
            return Frame(command, None)
        if middle == end or not command.HasField("message"):
            raise ProtocolError(f"{self._peer} sent a message without an entry")
        return Frame(command, self._view[middle:end].tobytes())

    def _check_text(self, message: Message) -> None:
        """Where text is no UTF-8 the library gives bytes, which nobody expects. Raises ProtocolError."""
        for field, value in message.ListFields():
            if not _may_have_text(field):
                continue  # lists of ids are long
            for one in value if field.is_repeated else (value,):
                if isinstance(one, Message):
                    self._check_text(one)
                elif field.type == field.TYPE_STRING and not isinstance(one, str):
                    raise ProtocolError(f"{self._peer} sent a command whose {field.name} is no text")

    def _make_room(self) -> None:
        """Move what is left to the front; grow where a frame needs it."""
        left = self._view[self._begin : self._end].tobytes()
        needed = _CHUNK
        if len(left) >= 4:
            needed = max(needed, 4 + int.from_bytes(left[:4]))
        if needed > len(self._data):
            self._data = bytearray(min(needed + _CHUNK, self.max_frame + 4 + _CHUNK))
            self._view = memoryview(self._data)
        self._view[: len(left)] = left
        self._begin, self._end = 0, len(left)
