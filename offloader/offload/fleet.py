"""The shards of an application as one process sees them: it shows signs of life of those that it runs, looks at those
of the others, and says which of these it should run as well."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from offloader.metadata.deal import Deal, index_of_shard
from offloader.metadata.heartbeats import Heartbeat, Heartbeats
from offloader.offload.core.liveness import LIVED_WELL, LOOKS, Liveness, wait_before_return

log = logging.getLogger(__name__)

MOST_STAND_INS = 2  # of one process: each needs as much memory as its own shard


@dataclass(slots=True)
class _Run:
    """A shard that this process runs. `rounds`: how often its main loop has turned; only then it shows a sign."""

    rounds: Callable[[], int]
    since: int
    taken: int
    told_rounds: int = -1
    beat: int = 0


class Fleet:
    """`look` and `may_return` reach the store; the rest does not. Safe to use from several threads."""

    def __init__(
        self,
        heartbeats: Heartbeats,
        deal: Deal,
        after_ms: int,
        clock_ms: Callable[[], int],
        run: str,
    ) -> None:
        self.deal = deal
        self.look_ms = after_ms // LOOKS
        self._heartbeats = heartbeats
        self._after_ms = after_ms
        self._clock_ms = clock_ms
        self._run = run
        self._lock = threading.Lock()
        self._runs: dict[int, _Run] = {}
        self._left_at: dict[int, int] = {}  # whoever has these now needs time to show a sign of life
        self._liveness = Liveness(deal, after_ms, clock_ms())
        self._may_return_at: int | None = None

    def may_return(self) -> bool:
        """Whether this process may begin to run its own shard: at once, mostly. Where another process does because this
        one has ended again and again, not for a while; but at once where that one is silent, too."""
        self._observe()
        now, seen = self._clock_ms(), self._liveness.seen.get(self.deal.index)
        heartbeat = None if seen is None else seen.heartbeat
        if heartbeat is None or heartbeat.host == self.deal.index:
            return True
        if self._may_return_at is None:
            wait = wait_before_return(heartbeat.taken, self._after_ms)
            self._may_return_at = now + wait
            if wait:
                log.warning(
                    "shard %d was taken over %d times lately: shard %d goes on with it for %d s",
                    self.deal.index, heartbeat.taken, heartbeat.host, wait // 1000, extra={"see": "shard-waits"},
                )  # fmt: skip
        return now >= self._may_return_at or self._liveness.silence(self.deal.index, now) >= self._after_ms

    def joins(self, index: int, rounds: Callable[[], int]) -> None:
        """This process runs a shard from now on. It has its journal."""
        seen = self._liveness.seen.get(index)
        taken = 0 if seen is None or seen.heartbeat is None else seen.heartbeat.taken
        with self._lock:
            self._runs[index] = _Run(rounds, self._clock_ms(), taken + (index != self.deal.index))

    def leaves(self, index: int, *, is_over: bool) -> None:
        """It does not any more. `is_over`: the shard was to end, and has nothing left."""
        with self._lock:
            self._runs.pop(index, None)
            self._left_at[index] = self._clock_ms()
        if is_over:
            self._heartbeats.remove(index)

    def look(self) -> list[int]:
        """Show signs of life, look at those of the others. Returns the shards that this process should run as well."""
        self._show()
        self._observe()
        now = self._clock_ms()
        with self._lock:
            own = set(self._runs)
            left = {index for index, at in self._left_at.items() if now - at < self._after_ms}
        room = MOST_STAND_INS - len(own - {self.deal.index})
        return [index for index in self._liveness.due(own, now) if index not in left][: max(room, 0)]

    @property
    def silent(self) -> int:
        """How many shards nobody seems to run."""
        with self._lock:
            own = set(self._runs)
        return len(set(self._liveness.silent(self._clock_ms())) - own)

    @property
    def stood_in(self) -> int:
        """How many others this process runs."""
        with self._lock:
            return len(set(self._runs) - {self.deal.index})

    def agrees(self, name: str) -> bool:
        """Whether the shard of this name runs, here or elsewhere, and deals as we do."""
        index = index_of_shard(name)
        with self._lock:
            if index in self._runs:
                return True
        return self._liveness.agrees(index, self._clock_ms())

    def _observe(self) -> None:
        self._liveness = self._liveness.observed(self._heartbeats.all(), self._clock_ms())

    def _show(self) -> None:
        with self._lock:
            runs = dict(self._runs)
        for index, run in runs.items():
            rounds = run.rounds()
            if rounds == run.told_rounds:  # it hangs, or waits for the store as we do
                continue
            if index == self.deal.index and self._clock_ms() - run.since > LIVED_WELL * self._after_ms:
                run.taken = 0
            run.told_rounds, run.beat = rounds, run.beat + 1
            deal = self.deal
            beat = Heartbeat(index, deal.count, deal.by, deal.index, self._run, run.beat, run.taken)
            self._heartbeats.write(beat)
