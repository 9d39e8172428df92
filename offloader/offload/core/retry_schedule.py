"""When to ask again who did not answer, so that what hangs is asked less and less often."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

SOON_MS = 1_000
SLOW_MS = 1_000  # an answer that took longer was waited for
FIRST_MS = 30_000
LAST_MS = 240_000
BACKOFF_FIRST_MS = 1_000
BACKOFF_LAST_MS = 300_000


def back_off_ms(attempts: int, jitter: float) -> int:
    """How long to wait after so many failures in a row: 1 s, doubling to 5 min, less up to a quarter (`jitter`, 0 to
    1)."""
    delay = min(BACKOFF_FIRST_MS << min(attempts - 1, 20), BACKOFF_LAST_MS)
    return int(delay * (1 - 0.25 * jitter))


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """One thing to do, of one topic. What fails at once is tried again soon; what had to be waited for less and less
    often, at full multiples of its delay since the epoch, so that topics of one hung broker wait together."""

    again_at: int = 0
    in_vain: int = 0  # how often in a row it was waited for
    refused: int = 0  # how often in a row the commit in it failed

    def failed(self, began: int, ended: int) -> Self:
        """After it was tried in vain from `began` to `ended`, in milliseconds."""
        if ended - began < SLOW_MS:
            return replace(self, again_at=ended + SOON_MS)
        delay = min(FIRST_MS << self.in_vain, LAST_MS)
        return replace(self, again_at=(ended // delay + 1) * delay, in_vain=min(self.in_vain + 1, 8))

    def not_committed(self, now: int, jitter: float) -> Self:
        """After a commit failed: each try repeats all the steps before it, and may leave objects behind."""
        refused = self.refused + 1
        return replace(self, again_at=now + back_off_ms(refused, jitter), refused=refused)

    def succeeded(self) -> Self:
        """After it was done: the next failure is a first one."""
        return replace(self, in_vain=0, refused=0)
