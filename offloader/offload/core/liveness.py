"""Which shards show no sign of life, and which of them a process should run beside its own. Pure: a frozen value, and
what follows from it at a moment.

Only our own clock counts, between two of our own looks: whoever's sign does not change for so long is silent. What is
between two looks that are far apart does not count, and after a long time without looks all begins anew: after an
outage of the store each would take the others for dead that come back a little later."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from offloader.metadata.deal import Deal
from offloader.metadata.heartbeats import FoundSign, Heartbeat

LOOKS = 4  # in the time that a shard may be silent
LONGEST_WAIT_MS = 3_600_000
LIVED_WELL = 30  # times `after_ms`: then what was before is forgotten


@dataclass(frozen=True, slots=True)
class SeenSign:
    """A shard's sign of life since when it is the same; `moved`: we saw it change."""

    data: bytes
    heartbeat: Heartbeat | None
    since: int
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Liveness:
    """What the process of shard `deal.index` has seen since `began`. `after_ms`: how long a shard may be silent.
    `blind_ms`: how long nobody looked, of the time since it began; what `SeenSign.since` says is without that. Times
    are in milliseconds."""

    deal: Deal
    after_ms: int
    began: int
    seen: Mapping[int, SeenSign] = field(default_factory=dict)
    looked: int | None = None
    blind_ms: int = 0

    def observed(self, found: Mapping[int, FoundSign], now: int) -> Self:
        """After one more look."""
        apart = now - (self.began if self.looked is None else self.looked)
        if apart > self.after_ms:
            as_new = {index: replace(each, since=now) for index, each in self.seen.items()}
            return replace(self, began=now, seen=as_new, looked=now, blind_ms=0).observed(found, now)
        blind = self.blind_ms + max(apart - self.after_ms // LOOKS, 0)
        since = now - blind
        seen = {index: self._seen(self.seen.get(index), each, since) for index, each in found.items()}
        gone = {
            i: SeenSign(b"", None, self.seen[i].since if not self.seen[i].data else since)
            for i in self.seen
            if i not in found
        }
        there = seen | {index: each for index, each in gone.items() if index < self.deal.count}
        return replace(self, seen=there, looked=now, blind_ms=blind)

    @staticmethod
    def _seen(before: SeenSign | None, found: FoundSign, since: int) -> SeenSign:
        if before is not None and before.data == found.data:
            return before
        return SeenSign(found.data, found.heartbeat, since, moved=before is not None)

    def silence(self, index: int, now: int) -> int:
        """For how long a shard has shown no sign of life, as far as we know."""
        return now - self.blind_ms - (self.seen[index].since if index in self.seen else self.began)

    def agrees(self, index: int, now: int) -> bool:
        """Whether we have seen a shard live, and it deals as we do."""
        seen = self.seen.get(index)
        if seen is None or seen.heartbeat is None or not seen.moved:
            return False
        return self.silence(index, now) < self.after_ms and seen.heartbeat.deals_as(self.deal)

    def silent(self, now: int) -> list[int]:
        """Shards that nobody seems to run, also those that are to end."""
        return [index for index in sorted(self._all()) if self.silence(index, now) >= self.after_ms]

    def due(self, own: Collection[int], now: int) -> list[int]:
        """Which shards this process should run as well; `own`: those that it runs. The next living process behind a
        silent shard is the first, and each one further behind waits once more as long."""
        others = (index for index in self.silent(now) if index not in own and index != self.deal.index)
        return [index for index in others if self.silence(index, now) >= self.after_ms * (1 + self._rank(index, now))]

    def _rank(self, silent: int, now: int) -> int:
        """How many living processes come before ours."""
        mine = self._distance(silent, self.deal.index)
        living = (index for index in self.seen if index != self.deal.index and self._lives(index, now))
        return sum(self._distance(silent, index) < mine for index in living)

    def _lives(self, index: int, now: int) -> bool:
        """Whether a shard's own process lives, and is one of those that are to be."""
        heartbeat = self.seen[index].heartbeat
        own = heartbeat is not None and heartbeat.host == index and index < self.deal.count
        return own and self.silence(index, now) < self.after_ms

    def _distance(self, silent: int, index: int) -> int:
        return (index - silent - 1) % self.deal.count

    def _all(self) -> set[int]:
        return {*range(self.deal.count), *self.seen}


def wait_before_return(taken: int, after_ms: int) -> int:
    """How long the process of a shard leaves it to the one that runs it meanwhile: nothing the first time, and longer
    each time that it had to be taken over again. So topics do not travel each time that a process dies at once."""
    return 0 if taken < 2 else min(after_ms << min(taken - 2, 16), LONGEST_WAIT_MS)
