"""MESSAGE frames, written by hand: they are nearly all that a server sends, and protobuf's objects take three times as
long. Pure.

    [u32 total][u32 size][BaseCommand{1: 9, 9: CommandMessage}][entry]
    CommandMessage{1: consumer, 2: MessageIdData, 3: redeliveries, 4: word*, 5: epoch}
    MessageIdData{1: ledger, 2: entry, 3: partition}
"""

from __future__ import annotations

from struct import Struct

from offloader.model import Place

_LENGTHS = Struct(">II")
_WORD = 1 << 64


class MessageHeads:
    """What comes before the entries that go to one consumer together. `partition`: -1, it is none.

    Neighbours in a ledger have nearly the same head: all of it but the lengths and the lowest digit of the entry's
    number is made once for up to 128 of them."""

    def __init__(self, consumer: int, *, partition: int = -1, redeliveries: int = 0, epoch: int | None = None) -> None:
        self._consumer = b"\x08" + varint(consumer)
        self._partition = b"\x18" + varint(partition) if partition >= 0 else b""
        self._redeliveries = b"\x18" + varint(redeliveries) if redeliveries else b""
        self._epoch = b"\x28" + varint(epoch) if epoch is not None else b""
        self._of = (-1, -1)  # the ledger, and the entry's number without its lowest digit
        self._before, self._after = b"", b""

    def head(self, place: Place, size: int, left: int | None = None) -> bytes:
        """Of an entry of `size` bytes. `left`: the bits of a batch that is acknowledged in part."""
        ledger, entry = place
        if left is not None:
            return self._framed(*self._parts(ledger, entry >> 7, left), entry, size)
        if self._of != (ledger, entry >> 7):
            self._of = ledger, entry >> 7
            self._before, self._after = self._parts(ledger, entry >> 7, None)
        return self._framed(self._before, self._after, entry, size)

    def _parts(self, ledger: int, high: int, left: int | None) -> tuple[bytes, bytes]:
        """The command before and behind the lowest digit of the entry's number."""
        number = varint(high) if high else b""
        ledger_id = b"\x08" + varint(ledger) + b"\x10"
        length = len(ledger_id) + 1 + len(number) + len(self._partition)
        before = self._consumer + b"\x12" + varint(length) + ledger_id
        words = b"" if left is None else b"".join(b"\x20" + varint(word) for word in words_of(left))
        after = number + self._partition + self._redeliveries + words + self._epoch
        return b"\x08\x09\x4a" + varint(len(before) + 1 + len(after)) + before, after

    @staticmethod
    def _framed(before: bytes, after: bytes, entry: int, size: int) -> bytes:
        length = len(before) + 1 + len(after)
        digit = _GOES_ON[entry & 0x7F] if entry > 0x7F else _SHORT[entry]
        return _LENGTHS.pack(4 + length + size, length) + before + digit + after


def words_of(left: int) -> list[int]:
    """An ack set's words, unsigned: the first message is the lowest bit of the first one."""
    words = []
    while left:
        words.append(left % _WORD)
        left //= _WORD
    return words


def bits_of(words: list[int]) -> int:
    """An ack set from the wire, where words are signed."""
    return sum(word % _WORD << 64 * number for number, word in enumerate(words))


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
