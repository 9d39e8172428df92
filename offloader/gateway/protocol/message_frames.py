"""MESSAGE frames, written by hand: they are nearly all that a server sends, and protobuf's objects take three times as
long. Pure.

    [u32 total][u32 size][BaseCommand{1: 9, 9: CommandMessage}][entry]
    CommandMessage{1: consumer, 2: MessageIdData, 3: redeliveries, 4: word*, 5: epoch}
    MessageIdData{1: ledger, 2: entry, 3: partition}
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct, pack, unpack

from offloader.gateway.values import ServedEntry

_LENGTHS = Struct(">II")


class MessageFrames:
    """Of entries that go to one consumer together. `partition`: -1, it is none."""

    def __init__(self, consumer: int, partition: int = -1, redeliveries: int = 0, epoch: int | None = None) -> None:
        self._consumer = b"\x08" + varint(consumer) + b"\x12"
        self._partition = b"\x18" + varint(partition) if partition >= 0 else b""
        self._redeliveries = b"\x18" + varint(redeliveries) if redeliveries else b""
        self._epoch = b"\x28" + varint(epoch) if epoch is not None else b""

    def of(self, entries: Iterable[ServedEntry], *, whole: bool) -> tuple[list[bytes | memoryview], int]:
        """The frames' pieces, and their bytes. `whole`: with broker entry metadata.

        Neighbours in a ledger have nearly the same head: all of it but the lengths and the lowest digit of the entry's
        number is made once for up to 128 of them."""
        pieces: list[bytes | memoryview] = []
        add, lengths = pieces.append, _LENGTHS.pack
        made: tuple[int, int, int | None] | None = None
        before = after = b""
        command = total = 0
        for (ledger, number), data, skip, _, _, _, left in entries:
            if made != (ledger, number >> 7, left):
                made = ledger, number >> 7, left
                before, after = self._around(ledger, number >> 7, left)
                command = len(before) + 1 + len(after)
            sent = data if whole or not skip else memoryview(data)[skip:]
            size = 4 + command + len(sent)
            add(lengths(size, command) + before + (_GOES_ON if number > 0x7F else _SHORT)[number & 0x7F] + after)
            add(sent)
            total += 4 + size
        return pieces, total

    def _around(self, ledger: int, high: int, left: int | None) -> tuple[bytes, bytes]:
        """The command before and behind the lowest digit of an entry's number; `high`: the other digits."""
        ledger_id = b"\x08" + varint(ledger) + b"\x10"
        digits = varint(high) if high else b""
        size = len(ledger_id) + 1 + len(digits) + len(self._partition)
        before = self._consumer + varint(size) + ledger_id
        words = b"" if left is None else b"".join(b"\x20" + varint(word) for word in words_of(left))
        after = digits + self._partition + self._redeliveries + words + self._epoch
        return b"\x08\x09\x4a" + varint(len(before) + 1 + len(after)) + before, after


def words_of(left: int) -> list[int]:
    """An ack set's words, unsigned: the first message is the lowest bit of the first one."""
    count = (left.bit_length() + 63) // 64
    return list(unpack(f"<{count}Q", left.to_bytes(8 * count, "little")))


def bits_of(words: Sequence[int]) -> int:
    """An ack set from the wire, where words are signed. A frame has room for a set of a million words: the time that
    this takes must not grow faster than their number."""
    return int.from_bytes(pack(f"<{len(words)}q", *words), "little")


def varint(number: int) -> bytes:
    """Of a number that is not negative."""
    if number < 0x80:
        return _SHORT[number]
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


_SHORT = [bytes([number]) for number in range(0x80)]
_GOES_ON = [bytes([number | 0x80]) for number in range(0x80)]
