"""Which whole entries a subscription has acknowledged, as sets that can be compared. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from offloader.cursors.core.ledger_acks import LedgerAcks
from offloader.model import AcknowledgedRange, EntryRange, Place, by_ledger

Lengths = Sequence[tuple[int, int | None]]
"""A topic's ledgers in order, with their entries; None: not known yet."""


@dataclass(frozen=True, slots=True)
class AcknowledgedSet:
    """Everything up to and including `mark_delete`, and `bits` behind it: by ledger, bit n is entry n."""

    mark_delete: Place
    bits: Mapping[int, int] = field(default_factory=dict)

    def is_of(self, ledger: int, length: int) -> int:
        """The first `length` entries of a ledger that are acknowledged, as bits."""
        every = (1 << length) - 1
        if ledger < self.mark_delete[0]:
            return every
        below = (1 << self.mark_delete[1] + 1) - 1 if ledger == self.mark_delete[0] else 0
        return (below | self.bits.get(ledger, 0)) & every

    def has(self, ledger: int, entry: int) -> bool:
        """Whether an entry is acknowledged."""
        return (ledger, entry) <= self.mark_delete or bool(self.bits.get(ledger, 0) >> entry & 1)

    def length_of(self, ledger: int) -> int:
        """Up to where it speaks of a ledger's entries."""
        at_mark = self.mark_delete[1] + 1 if ledger == self.mark_delete[0] else 0
        return max(at_mark, self.bits.get(ledger, 0).bit_length())

    def without(self, other: AcknowledgedSet, lengths: Lengths) -> dict[int, int]:
        """What this has acknowledged and the other has not, by ledger. Of ledgers that the topic lists."""
        found = {}
        for ledger, entries in lengths:
            if ledger < min(self.mark_delete[0], other.mark_delete[0]):
                continue
            length = max(self.length_of(ledger), other.length_of(ledger)) if entries is None else entries
            left = self.is_of(ledger, length) & ~other.is_of(ledger, length)
            if left:
                found[ledger] = left
        return found

    def is_same(self, other: AcknowledgedSet, lengths: Lengths) -> bool:
        """Whether both have acknowledged the same entries, however they are written."""
        return not self.without(other, lengths) and not other.without(self, lengths)


def acknowledged(mark_delete: Place, ranges: Iterable[AcknowledgedRange], lengths: Lengths) -> AcknowledgedSet:
    """From a broker's or a record's words. What lies in ledgers that the topic does not list is left out, as brokers
    do. Raises ValueError for what no ledger has."""
    acks: dict[int, LedgerAcks] = {}
    for one in by_ledger(ranges, lengths):
        acks.setdefault(one.ledger, LedgerAcks()).acknowledge(one.first, one.last)
    return AcknowledgedSet(
        mark_delete, {ledger: bits_of(one) for ledger, one in acks.items() if ledger >= mark_delete[0]}
    )


def bits_of(acks: LedgerAcks) -> int:
    """The entries that are acknowledged as a whole."""
    return int.from_bytes(acks.bits, "little") << acks.base


def acks_of_bits(bits: int) -> LedgerAcks:
    """The opposite of `bits_of`."""
    return LedgerAcks(bits=bits.to_bytes((bits.bit_length() + 7) // 8, "little"))


def entries_of(bits: Mapping[int, int]) -> Iterator[EntryRange]:
    """Bits by ledger as ranges, in order."""
    for ledger, of_ledger in sorted(bits.items()):
        for first, last in acks_of_bits(of_ledger).runs():
            yield EntryRange(ledger, first, last + 1)
