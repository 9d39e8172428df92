"""Where an entry is in its topic."""

from __future__ import annotations

import re
from typing import NamedTuple


class Position(NamedTuple):
    """An entry's place in its topic. The order of the fields is the order of positions.

    Ledger ids grow within an incarnation but are not consecutive: a position's successor needs the ledger list.
    `entry == -1` means "before the ledger's first entry".
    """

    incarnation: int
    ledger: int
    entry: int

    @classmethod
    def parse(cls, text: str, incarnation: int = 0) -> Position:
        """Read `ledger:entry`. Raises ValueError."""
        match = re.fullmatch(r"([0-9]+):(-1|[0-9]+)", text)
        if match is None:
            raise ValueError(f"{text!r} is not a position; write LEDGER:ENTRY, for example 12:345")
        return cls(incarnation, int(match.group(1)), int(match.group(2)))

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"
