"""Whether a subscription may go from the archive to the live brokers: from what both say of the topic. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from offloader.metadata.state import CatalogHead
from offloader.model import Place
from offloader.ports.admin import TopicInfo

BACK_WITHIN = 60.0  # seconds: a consumer that comes back sooner did not get to the broker
MOST_TIMES = 2  # by the address that it is told, then by its lookup


def objection(head: CatalogHead, served: Sequence[tuple[int, int, int]], mark: Place, live: TopicInfo) -> str:
    """Why it may not; empty: brokers have the very topic that was archived, and all of it behind the mark-delete
    position. `served`: (incarnation, ledger, last entry) of what the archive has."""
    claim, end = head.claim, head.end
    if claim is None or claim.created is None or end is None:
        return "nothing is recorded that says which of Pulsar's topics was archived"
    if live.created != claim.created:
        return "the brokers' topic was made anew: it is not the one that was archived"
    if head.next_start(live.ledgers) is None:
        return f"nothing proves that the brokers still have what follows {end}"
    for incarnation, ledger, last in served:
        if (ledger, last) <= mark:
            continue
        if incarnation != claim.incarnation or ledger not in live.ledgers:
            return f"the brokers do not have ledger {ledger} any more, and it is not acknowledged"
        closed = live.ledgers.closed_with(ledger)
        if closed is not None and closed < last:
            return f"the brokers' ledger {ledger} ends with entry {closed}, and the archive's with {last}"
    return ""


def readers_objection(served: Sequence[tuple[int, int, int]], last: Place | None, mark: Place, live: TopicInfo) -> str:
    """Why a reader may not yet, where nothing but this stands against it. It keeps nothing at the broker, which may
    trim what it has not read in the very moment: but for the ledger that is written, and that of the archive's end,
    which our pin keeps. `last`: the last entry that is delivered; readers of batches never acknowledge all of it."""
    end = served[-1][1:] if served else mark
    newest = live.ledgers.spans[-1].ledger if live.ledgers.spans else -1
    if mark >= end or mark[0] == end[0] == newest:
        return ""
    if last is not None and last[0] == end[0] and mark >= _before(last, served):
        return ""
    return "it has not read on to the end"


def _before(place: Place, served: Sequence[tuple[int, int, int]]) -> Place:
    if place[1] > 0:
        return place[0], place[1] - 1
    return max((each[1:] for each in served if each[1] < place[0]), default=(-1, -1))


class ComingBack:
    """How often consumers have come back after they were led away: whoever cannot reach a broker is not led there
    without end. `now`: seconds of any clock."""

    def __init__(self) -> None:
        self._led: dict[Hashable, tuple[int, float]] = {}

    def times(self, consumer: Hashable, now: float) -> int:
        """How often it was led away, without that it stayed away for a while."""
        times, at = self._led.get(consumer, (0, now))
        return times if now - at < BACK_WITHIN else 0

    def led(self, consumer: Hashable, now: float) -> None:
        """It is led away once more."""
        times = self.times(consumer, now) + 1
        self._led = {one: (n, at) for one, (n, at) in self._led.items() if now - at < BACK_WITHIN}
        self._led[consumer] = times, now
