"""How large the entries to come will be, as far as one can know. Pure."""

from __future__ import annotations

from offloader.bookkeeper.model import LedgerMetadata
from offloader.model import KIB

_UNKNOWN = 64 * KIB
_OVERHEAD = 64  # a stored entry's header, digest and length
_WEIGHT = 0.1  # of what was just seen, against what was seen before


class Sizes:
    """Begins with the ledger's average where the ledger is closed, and follows what is seen."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        entries = metadata.last_entry + 1
        self._mean = metadata.length / entries if metadata.closed and entries > 0 else _UNKNOWN

    def saw(self, size: int, entries: int) -> None:
        """So many bytes in so many entries."""
        self._mean += _WEIGHT * (size / entries - self._mean)

    @property
    def expected(self) -> int:
        """What one entry will probably not exceed, header included."""
        return int(self._mean * 1.25) + _OVERHEAD
