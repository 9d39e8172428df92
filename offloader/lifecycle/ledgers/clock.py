"""ZooKeeper's clock. No request asks for it: only what is written shows it."""

from __future__ import annotations

from collections.abc import Iterable

from offloader.lifecycle.ledgers.patient import PatientNodes


def clock_by_reading(sessions: Iterable[PatientNodes], ours_ms: int) -> int:
    """As late as any node that was read, and no later than our own clock: what was created before it is at least as
    old as it looks. Brokers write their load every quarter of an hour at the latest, so it is not far behind."""
    return min([max((one.newest_ms for one in sessions), default=0), ours_ms])
