"""Entries that arrived with a broken frame or checksum: stored like that, or changed on the way?"""

from __future__ import annotations

from hashlib import sha256

from offloader.errors import BrokerUnavailableError
from offloader.format.cutter import Consecutive
from offloader.format.entry import fault


class Arrivals:
    """What arrived broken in one slice. An entry that arrives twice with the same bytes is stored with them."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, int], bytes] = {}

    def trusted(self, entries: Consecutive) -> int:
        """How many of the entries may be taken; the others must be read again, which answers for all doubtful ones.
        Raises BrokerUnavailableError for an entry that arrived in two ways, both of them broken."""
        doubtful = []
        for number in entries.unreadable():
            data, place = entries.entries[number], (entries.ledger, entries.first + number)
            why = fault(data)
            if not why:
                continue
            digest = sha256(data).digest()
            if place not in self._before:
                self._before[place] = digest
                doubtful.append(number)
            elif self._before[place] != digest:
                raise BrokerUnavailableError(
                    f"{place[0]}:{place[1]} arrived twice, differently and broken both times ({why}): something on "
                    "the way changes bytes"
                )
        return min(doubtful, default=len(entries))
