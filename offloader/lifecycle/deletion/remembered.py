"""What a service remembers of records for which nothing is to be done yet, so that an idle round reads none of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from offloader.lifecycle.deletion.machine import due_at
from offloader.lifecycle.deletion.queue import StoredDeletion
from offloader.lifecycle.deletion.records import DeletionState, DeletionSwitch, LedgerType
from offloader.lifecycle.deletion.timing import DeletionTiming

MOST = 50_000  # records; others are read each time


class _Waiting(NamedTuple):
    slot: int
    kind: LedgerType
    state: DeletionState
    since: int
    until: float


@dataclass
class RememberedDeletions:
    """By name. A version of a record never changes, so its number is enough."""

    timing: DeletionTiming
    _switch: DeletionSwitch | None = None
    _waiting: dict[str, _Waiting] = field(default_factory=dict)

    def begin(self, switch: DeletionSwitch | None) -> None:
        """A round begins. Another switch makes other records due."""
        if switch != self._switch:
            self._waiting.clear()
        self._switch = switch

    def waits(self, name: str, slot: int, now: int) -> tuple[LedgerType, DeletionState] | None:
        """Type and state of a record that need not be read again at that time."""
        known = self._waiting.get(name)
        waits = known and known.slot == slot and known.since <= now < known.until
        return (known.kind, known.state) if known and waits else None

    def note(self, stored: StoredDeletion, now: int) -> None:
        """A record of which nothing is to be done now. A clock that goes back afterwards has it read again."""
        record = stored.record
        until: float = math.inf  # somebody must decide
        if record.has_ended and not record.stays:
            until = record.ended_at + self.timing.kept + 1
        elif record.is_in_flight and self._switch is not None and self._switch.on:
            until = due_at(record, self.timing)
        if len(self._waiting) < MOST or record.name in self._waiting:
            self._waiting[record.name] = _Waiting(stored.slot, record.ledger_type, record.state, now, until)

    def forget(self, name: str) -> None:
        """It was removed, or is dealt with."""
        self._waiting.pop(name, None)
