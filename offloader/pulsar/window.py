"""How many messages a broker may send, so that what arrives fits. Pure.

Permits count messages, the broker sends entries. With N permits left it sends at most N entries, since each has at
least one message. So we grant N permits where N entries of the size seen last have room, and count each entry's
messages as the broker does.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from offloader._proto.pulsar_wire_pb2 import MessageCount

MAX_ENTRIES = 10_000
MAGIC_BROKER_METADATA = b"\x0e\x02"
MAGIC_CHECKSUM = b"\x0e\x01"


class Window:
    """What is granted, what is held, and what may be granted next."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._size = 0.0  # of an entry: the largest one, forgotten slowly
        self._trust = 1  # entries that may be outstanding: doubles as sizes become known
        self._permits = 0  # as the broker counts them; below 0 after a batch that had more
        self.held = 0

    def fits(self, size: int) -> bool:
        """Whether an entry can be kept; one that is alone always can."""
        return self.held == 0 or self.held + size <= self._max_bytes

    def arrived(self, size: int, messages: int) -> None:
        """An entry arrived and is kept."""
        self.held += size
        self._permits -= messages
        self._size = max(size, self._size - (self._size - size) / 64)
        self._trust = min(self._trust * 2, MAX_ENTRIES)

    def skipped(self, messages: int) -> None:
        """An entry arrived and is not kept."""
        self._permits -= messages

    def taken(self) -> None:
        """Everything that was held was handed over."""
        self.held = 0

    def reset(self) -> None:
        """A new subscription: it has no permits yet."""
        self._permits = 0
        self._trust = 1

    def grant(self) -> int:
        """How many permits to give now; 0 while that is not worth a command."""
        room = self._room()
        wanted = room - self._permits
        if room == 0 or wanted < max(1, room / 2):
            return 0
        self._permits += wanted
        return wanted

    def _room(self) -> int:
        if self._size == 0:
            return self._trust
        fitting = int((self._max_bytes - self.held) / max(self._size, 1))
        if self.held == 0:
            fitting = max(fitting, 1)
        return max(0, min(fitting, self._trust))


def message_count(entry: bytes) -> int:
    """Messages in the entry's batch, 1 if it is none, as the broker counts them. The entry need not be sound."""
    at = 0
    if entry.startswith(MAGIC_BROKER_METADATA):
        at = 6 + int.from_bytes(entry[2:6])
    if entry.startswith(MAGIC_CHECKSUM, at):
        at += 6
    size = int.from_bytes(entry[at : at + 4])
    try:
        return max(1, MessageCount.FromString(entry[at + 4 : at + 4 + size]).num_messages_in_batch)
    except DecodeError:
        return 1
