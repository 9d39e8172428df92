"""What of a topic's bridge is told: in the log, in metrics, to people."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from offloader.bridge.core.rounds import BridgePhase, BridgeState, UnbridgedLedger
from offloader.bridge.core.schedule import blocking, not_bridged
from offloader.bridge.driver.progress import facets_of, is_wanted, progress_of
from offloader.metrics import Metrics
from offloader.model import TopicName
from offloader.offload.core.topic import Topic
from offloader.offload.driver.context import Context

log = logging.getLogger(__name__)

TOLD_EVERY_MS = 10_000
GIVE_UP_AFTER = 5  # rounds that were withdrawn: nobody waits for brokers any more


def tell_step(metrics: Metrics, before: BridgeState | None, after: BridgeState) -> None:
    """What a record says that the one before it did not."""
    topic, under_way = after.topic, after.round
    former = before.round if before is not None else None
    if after.finished is not None:
        done = after.finished
        size = sum(each.size for each in done.ledgers)
        metrics.bridge_round(topic, "proven", len(done.ledgers), size)
        log.info(
            "bridged topic=%s round=%d ledgers=%d bytes=%d up to %s",
            topic, done.number, len(done.ledgers), size, after.up_to,
        )  # fmt: skip
        if under_way is not None:
            log.info("bridge topic=%s: its others come later: %s", topic, under_way.why)
    elif under_way is not None and under_way.phase is BridgePhase.WITHDRAWING:
        if under_way.repairs:
            log.error(
                "bridge topic=%s: ledgers that brokers could read cannot be made readable again: %s",
                topic, under_way.why, extra={"see": "bridge-broken"},
            )  # fmt: skip
        else:
            log.error(
                "bridge topic=%s round=%d is withdrawn: %s",
                topic, under_way.number, under_way.why, extra={"see": "bridge-withdrawn"},
            )  # fmt: skip
    elif under_way is None and former is not None and former.repairs:
        outcome = "repaired" if former.phase is BridgePhase.SWAPPING else "failed"
        metrics.bridge_repaired(outcome)
        log.info("bridge topic=%s round=%d, a repair, is over: %s", topic, former.number, outcome)
    elif under_way is None and former is not None:
        outcome = "withdrawn" if former.phase is BridgePhase.WITHDRAWING else "dropped"
        metrics.bridge_round(topic, outcome)
        log.info("bridge topic=%s round=%d is %s", topic, former.number, outcome)
    if after.blocked is not None and under_way is None and (before is None or after.blocked != before.blocked):
        tell_blocked(after)
    if after.let_go is not None:
        log.info("bridge topic=%s: ledger %d stays in the archive alone", topic, after.let_go.ledger)


def tell_blocked(state: BridgeState) -> None:
    """An operator is needed."""
    if state.blocked is not None:
        log.error("bridge topic=%s: %s", state.topic, unbridged_line(state.blocked), extra={"see": "bridge-blocked"})


def tell_broken(topic: TopicName, broken: Mapping[int, str]) -> None:
    """Brokers list ledgers whose objects are not there. Each is told once in a turn."""
    first = min(broken)
    log.error(
        "bridge topic=%s: %s; ledgers that brokers cannot read: %s; bring the objects back",
        topic, broken[first], ", ".join(map(str, sorted(broken))), extra={"see": "bridge-broken"},
    )  # fmt: skip


def unbridged_line(ledger: UnbridgedLedger) -> str:
    """Why a ledger is not bridged, for people."""
    return f"ledger {ledger.ledger} cannot be bridged ({ledger.verdict}): {ledger.why}"


def behind(topic: Topic) -> tuple[int, int]:
    """Closed ledgers that brokers cannot read as objects yet, and their bytes in BookKeeper."""
    sizes = [topic.info.sizes.get(span.ledger, (0, 0))[1] for span in not_bridged(facets_of(topic))]
    return len(sizes), sum(sizes)


class _Lag(NamedTuple):
    word: str
    ledgers: int
    size: int


class BridgeLags:
    """How far brokers' reading is behind. Only topics of which something changed are counted anew."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._agenda = context.changes.agenda()
        self._told_at = 0
        self._lags: dict[TopicName, _Lag] = {}
        self._words = Counter[str]()  # these four are sums of `_lags`, three of them by namespace
        self._topics, self._ledgers, self._sizes = Counter[str](), Counter[str](), Counter[str]()

    def tell(self, topics: Mapping[TopicName, Topic], now: int) -> None:
        """Tell the metrics, when it is time."""
        if now - self._told_at < TOLD_EVERY_MS:
            return
        self._told_at = now
        for name in self._agenda.names(topics, now):
            topic = topics.get(name)
            if name in self._lags:
                self._add(name, self._lags.pop(name), -1)
            if topic is not None and is_wanted(topic):
                self._lags[name] = lag = _Lag(bridge_word(topic), *behind(topic))
                self._add(name, lag, 1)
            self._agenda.rest(name)
        there = [namespace for namespace, count in self._topics.items() if count]
        ledgers, sizes = ({each: sums[each] for each in there} for sums in (self._ledgers, self._sizes))
        self._context.metrics.bridges(ledgers, sizes, +self._words)

    def _add(self, name: TopicName, lag: _Lag, sign: int) -> None:
        self._words[lag.word] += sign
        self._topics[name.namespace] += sign
        self._ledgers[name.namespace] += sign * lag.ledgers
        self._sizes[name.namespace] += sign * lag.size


def bridge_word(topic: Topic) -> str:
    """Where a topic's bridge stands, in a word."""
    facets = facets_of(topic)
    state = facets.current
    if blocking(facets) is not None:
        return "blocked"
    if state is not None and state.round is not None:
        return str(state.round.phase)
    if progress_of(topic).error or (state is not None and state.in_vain):
        return "waiting"
    return "behind" if behind(topic)[0] else "bridged"


def hopeless(topic: Topic) -> str:
    """Why its bridge comes to no end by itself; empty: it may. Also of one that nobody wants any more: what is under
    way has to end. From any thread."""
    bridge, facets = progress_of(topic), facets_of(topic)
    if bridge.hopeless:
        return f"brokers cannot read it: {bridge.error}"
    if not facets.wanted:
        return ""
    if (blocked := blocking(facets)) is not None:
        return unbridged_line(blocked)
    withdrawn = bridge.withdrawn >= GIVE_UP_AFTER and facets.current is not None
    return f"brokers cannot read it: {facets.current.why}" if withdrawn and facets.current is not None else ""
