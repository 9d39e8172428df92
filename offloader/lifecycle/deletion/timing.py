"""When a deletion goes on, and how much may go at once: pure, no I/O."""

from __future__ import annotations

from dataclasses import dataclass

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS
FLOOR_MS = HOUR_MS


@dataclass(frozen=True, slots=True)
class DeletionTiming:
    """All in ms. `floor` is lowered by a setting for tests only.

    `kept`: how long a record that has ended is kept; what was given up stays until an operator decides."""

    delay: int = DAY_MS
    longest_compaction: int = 0
    reconsume_later: int = 600_000
    longest_wait: int = DAY_MS
    max_tries: int = 10
    kept: int = 30 * DAY_MS
    floor: int = FLOOR_MS

    @property
    def effective_delay(self) -> int:
        """Between the two phases: more than the floor whatever is set, at least twice the longest compaction."""
        return max(self.delay, 2 * self.longest_compaction, self.floor + 1)

    @property
    def longest(self) -> int:
        """Nothing waits longer, by clocks that differ by less than an hour."""
        return max(self.effective_delay, self.longest_wait, self.reconsume_later) + HOUR_MS

    def wait_after(self, tries: int) -> int:
        """Before the next try: twice as long each time."""
        return min(self.reconsume_later << min(max(tries - 1, 0), 60), max(self.longest_wait, self.reconsume_later))


@dataclass(frozen=True, slots=True)
class DeletionBounds:
    """More than `number` or `percent` of all ledgers pending at once: a wrong chroot, or metadata that were restored.

    `a_round`: how many are deleted before others have their turn."""

    number: int = 10_000
    percent: int = 25
    a_round: int = 100

    def refusal(self, pending: int, ledgers: int | None, what: str = "ledgers") -> str:
        """Why nothing at all may be deleted now; empty: it may. `ledgers`: how many there are, or of `what`; None:
        nobody counts them."""
        if pending > self.number:
            return f"{pending} {what} would go at once, more than {self.number}: look why, or raise the limit"
        if ledgers is not None and 100 * pending > self.percent * ledgers:
            return (
                f"{pending} of {ledgers} {what} would go at once, more than {self.percent} %: look why, or raise the "
                "limit"
            )
        return ""
