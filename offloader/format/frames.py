"""The frames of many entries at once: where broker metadata, checksum and message metadata lie (see
`offloader.format.entry`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offloader.format.scan import Bytes, Int64s, Mask, Ranges, u32s


@dataclass(frozen=True)
class Frames:
    """Ranges in the buffer; `covered`: from where on, counted from the entry's begin, its checksum (where `checked`)
    covers it.

    Odd entries end inside a frame: nothing is said of them.
    """

    broker: Ranges
    checked: Mask
    checksum: Int64s
    covered: Int64s
    message: Ranges
    odd: Mask


def frames(data: Bytes, entries: Ranges) -> Frames:
    """The frames of the entries that lie in these ranges of `data`, which may be only their begin."""
    at = entries.begin
    has_broker = _starts_with(data, at, 0x0E, 0x02)
    broker = Ranges(np.where(has_broker, at + 6, at), np.where(has_broker, at + 6 + u32s(data, at + 2), at))
    odd = broker.end > entries.end
    at = np.where(odd, entries.begin, broker.end)
    checked = _starts_with(data, at, 0x0E, 0x01)
    checksum = u32s(data, at + 2)
    at = np.where(checked, at + 6, at)
    message = Ranges(at + 4, at + 4 + u32s(data, at))
    odd |= message.end > entries.end
    return Frames(_without(broker, odd), checked & ~odd, checksum, at - entries.begin, _without(message, odd), odd)


def _without(ranges: Ranges, odd: Mask) -> Ranges:
    return Ranges(np.where(odd, 0, ranges.begin), np.where(odd, 0, ranges.end))


def _starts_with(data: Bytes, at: Int64s, first: int, second: int) -> Mask:
    return np.equal(data.take(at, mode="clip"), first) & np.equal(data.take(at + 1, mode="clip"), second)
