"""Which lane a topic travels in. Pure: it follows from what the topic's receipts say.

In one micro-batch everybody waits for the slowest slice. So a topic that cannot fill a part in the time of the fast
lane goes to the slow one, whose slices keep what they read until it is a part. It comes back when it proves fast."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from offloader.model import MIB, Lane, Receipt, SliceStop

ALIKE = 3  # a topic of a third of the best rate is not slower than others because of itself
MOST_PROOFS = 8
SECOND_MS = 1_000
LONGEST_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """What one micro-batch of a lane may hold. `tasks` are dealt out, each with `threads` threads; `cores` of them run
    at the same time (None: all). `silent_ms`: after so long no broker will deliver what is stored. `longest_ms`: a
    slice that holds the only slot takes no longer; None: others do not wait for it. `history`: so many segments of one
    topic's history are read at the same time at most; `history_span_ms`: how far apart the entries of one may be."""

    tasks: int
    threads: int
    byte_budget: int
    time_budget_ms: int = 5_000
    hard_limit_ms: int = 15_000
    silent_ms: int = 15_000
    max_gap_lookups: int = 1_000
    queue_factor: int = 4
    read_ahead: int = 16 * MIB
    longest_ms: int | None = None
    history: int = 8
    history_span_ms: int = 24 * 3_600_000
    cores: int | None = None

    @property
    def slots(self) -> int:
        return self.tasks * self.threads

    @property
    def running(self) -> int:
        """So many of its tasks run at the same time."""
        return self.tasks if self.cores is None else min(self.cores, self.tasks)

    @property
    def at_once(self) -> int:
        """So many segments of one topic's history are read at the same time: each in a task that runs by itself. One
        that shares a core is no quicker than one after the other, and has more to do."""
        return min(self.running, self.history)


@dataclass(frozen=True, slots=True)
class Speed:
    """What a topic's slices have shown so far. `rate`: object bytes a second, 0: unknown. `in_vain`: slices of the slow
    lane in a row with nothing to show. `proofs`: those in a row that the fast lane could have done, of `needed`."""

    lane: Lane = Lane.FAST
    rate: float = 0.0
    in_vain: int = 0
    proofs: int = 0
    needed: int = 1


def best_rate(receipts: Iterable[Receipt]) -> float:
    """Object bytes a second of the quickest slice of a batch that had parts to show."""
    return max((_rate(r) for r in receipts if r.parts), default=0.0)


def after(speed: Speed, receipt: Receipt, fast: LaneLimits, best: float) -> Speed:
    """The speed after one more slice. `fast`: the fast lane's limits; `best`: the best rate in the batch."""
    speed = replace(speed, rate=_learnt(speed.rate, receipt))
    if receipt.id.lane is Lane.FAST:
        return replace(speed, lane=Lane.SLOW, in_vain=0, proofs=0) if _holds_others(receipt, fast, best) else speed
    if receipt.stop is SliceStop.SLOW:
        return replace(speed, in_vain=speed.in_vain + 1, proofs=0)
    quick = receipt.stop is not SliceStop.FAILED and _a_part_took(receipt) <= fast.time_budget_ms / 2
    speed = replace(speed, in_vain=0, proofs=speed.proofs + 1 if quick else 0)
    if speed.proofs < speed.needed:
        return speed
    # Each return has to be proven better: what a slice in the fast lane reads in vain is read twice.
    return replace(speed, lane=Lane.FAST, proofs=0, needed=min(speed.needed * 2, MOST_PROOFS))


def slow_limit_ms(speed: Speed, goal: int, limits: LaneLimits) -> int:
    """How long a slow lane's slice may wait for `goal` bytes: twice what it should take, longer after failures."""
    expected = int(1000 * goal / speed.rate) if speed.rate else 0
    return min(max(limits.hard_limit_ms, 2 * expected) << _doublings(speed), _longest_ms(speed, limits))


def stall_ms(speed: Speed, limits: LaneLimits) -> int:
    """How long a slice may wait for its topic's next entry. Longer after failures: an entry may be large."""
    return min(limits.hard_limit_ms << _doublings(speed), LONGEST_MS)


def sure_bytes(speed: Speed, limits: LaneLimits) -> int | None:
    """What a slice of the slow lane brings in half its time; None: it may take as long as a part does."""
    if speed.lane is Lane.FAST or limits.longest_ms is None:
        return None
    half_ms = _longest_ms(speed, limits) / 2
    return int(speed.rate * half_ms / SECOND_MS)


def _longest_ms(speed: Speed, limits: LaneLimits) -> int:
    """Where others wait for it, it is given more only when it had nothing at all to show."""
    return LONGEST_MS if limits.longest_ms is None else min(limits.longest_ms << _doublings(speed), LONGEST_MS)


def _doublings(speed: Speed) -> int:
    return min(speed.in_vain, 6)


def _learnt(before: float, receipt: Receipt) -> float:
    """What comes at once after a pause says little: at most twice the known rate, and within a second nothing."""
    now = _rate(receipt)
    if not now or not before:
        return now or before
    return min(now, 2 * before if receipt.reading_ms >= SECOND_MS else before)


def _rate(receipt: Receipt) -> float:
    if receipt.reading_ms <= 0:
        return 0.0
    return (sum(p.size for p in receipt.parts) + receipt.seen_bytes) * 1000 / receipt.reading_ms


def _holds_others(receipt: Receipt, fast: LaneLimits, best: float) -> bool:
    """Whether the topic itself is slow: where the store is, or the cores, another lane would not help."""
    late = _a_part_took(receipt) > fast.time_budget_ms
    alike = bool(receipt.parts) and ALIKE * _rate(receipt) >= best
    return receipt.stop is SliceStop.SLOW or (late and not alike)


def _a_part_took(receipt: Receipt) -> float:
    """Milliseconds; where there is none, the whole slice."""
    return receipt.reading_ms / max(len(receipt.parts), 1)
