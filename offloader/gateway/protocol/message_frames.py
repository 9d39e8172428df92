"""MESSAGE frames, written by hand: they are nearly all that a server sends, and protobuf's objects take three times as
long. Pure.

    [u32 total][u32 size][BaseCommand{1: 9, 9: CommandMessage}][entry]
    CommandMessage{1: consumer, 2: MessageIdData, 3: redeliveries, 4: word*, 5: epoch}
    MessageIdData{1: ledger, 2: entry, 3: partition}
"""

from __future__ import annotations

from struct import Struct

_LENGTHS = Struct(">II")
_WORD = 1 << 64


def message_head(
    consumer: int,
    place: tuple[int, int],
    size: int,
    *,
    partition: int = -1,
    redeliveries: int = 0,
    left: int | None = None,
    epoch: int | None = None,
) -> bytes:
    """What comes before an entry of `size` bytes. `left`: the bits of a batch that is acknowledged in part."""
    message_id = b"\x08" + varint(place[0]) + b"\x10" + varint(place[1])
    if partition >= 0:
        message_id += b"\x18" + varint(partition)
    message = b"\x08" + varint(consumer) + b"\x12" + varint(len(message_id)) + message_id
    if redeliveries:
        message += b"\x18" + varint(redeliveries)
    if left is not None:
        message += b"".join(b"\x20" + varint(word) for word in words_of(left))
    if epoch is not None:
        message += b"\x28" + varint(epoch)
    command = b"\x08\x09\x4a" + varint(len(message)) + message
    return _LENGTHS.pack(4 + len(command) + size, len(command)) + command


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
