"""One method for each event, so that a misspelled one does not pass the type checker."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Literal, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

import offloader.metrics.definitions as d
from offloader.config.running import MetricsSettings
from offloader.metrics.health import LONGEST_START, Health
from offloader.metrics.recent import Recent
from offloader.metrics.server import MetricsServer
from offloader.metrics.topics import Together, TopicLag, TopicsCollector
from offloader.model import FailureKind, GapKind, Lane, RollReason, TopicName
from offloader.pages.site import Site

DropReason = Literal["unknown-run", "unknown-topic", "stale"]
Outcome = Literal["ok", "error", "unknown", "expired"]
Verb = Literal[
    "put", "begin", "put_part", "copy_part", "commit", "abort", "list_uploads", "read", "stat", "list", "delete"
]
WRITES: frozenset[Verb] = frozenset(("put", "begin", "put_part", "copy_part", "commit", "abort", "delete"))
RATE_SECONDS = 60
# The other gauges are those of the collectors.
GAUGES = (
    *(
        d.STATES,
        d.TICKED,
        d.BATCH_AGE,
        d.LONGEST_ROUND,
        d.WORK_QUEUED,
        d.WORK_RUNNING,
        d.WORK_AGE,
        d.LANE_TOPICS,
        d.PAUSED_BYTES,
    ),
    *(d.DELETION_PENDING, d.DELETION_IN_FLIGHT, d.DELETION_DAMAGED, d.DELETION_REFUSALS),
    *(d.ORPHANS, d.ORPHAN_BYTES, d.ORPHAN_SCAN_REFUSALS),
    *(d.VISITS_DUE, d.VISITS_NOT_FREED, d.VISITS_PASSED_OVER, d.CURSOR_REMOVALS_PENDING, d.CURSOR_REMOVALS_IN_FLIGHT),
    *(d.BRIDGE_LAG, d.BRIDGE_LAG_BYTES, d.BRIDGE_TOPICS, d.CURSOR_COPY_AGE),
    *(d.SHARDS_STOOD_IN, d.SHARDS_SILENT, d.SHARD_STRANGERS, d.SHARD_WAITING),
)


class Metrics:
    """The main process's metrics. Thread safe. Workers tell by their receipts what they did."""

    def __init__(self, settings: MetricsSettings | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        settings = settings or MetricsSettings()
        self.registry = CollectorRegistry()
        self.together = Together(self.registry)
        self._settings = settings
        timeouts = settings.liveness_timeout_ms / 1000, settings.batch_timeout_ms / 1000
        self.health = Health(*timeouts, clock, start=LONGEST_START)
        self.server: MetricsServer | None = None
        self._topics = TopicsCollector(settings.max_topic_labels)
        self._rate = RateCollector(clock)
        self.recent = Recent(clock)
        self.registry.register(self._topics)
        self.registry.register(self._rate)
        self._counters = {x: self._counter(x) for x in d.ALL if x.kind == "counter"}
        self._histograms = {x: self._histogram(x) for x in d.ALL if x.kind == "histogram"}
        self._gauges = {x: self._gauge(x) for x in GAUGES}
        self._gauges[d.TICKED].set_function(lambda: self.health.age)
        for lane in Lane:
            self._gauges[d.BATCH_AGE].labels(lane).set_function(partial(self.health.batch_age, lane))
        self._longest_round = 0.0
        self._work: dict[str, tuple[int, int, float]] = {}

    @classmethod
    def start(cls, settings: MetricsSettings, site: Callable[[Self], Site] | None = None) -> Self:
        """With the HTTP endpoint, unless the settings turn it off. `site`: pages beside it. Raises ConfigError where it
        cannot listen."""
        metrics = cls(settings)
        if settings.port:
            pages = None if site is None else site(metrics)
            metrics.server = MetricsServer(metrics.together, metrics.health, settings.host, settings.port, site=pages)
        return metrics

    def told(self, gauge: d.Definition) -> dict[tuple[str, ...], float]:
        """The values of a gauge, by its labels. From any thread."""
        (family,) = self._gauges[gauge].collect()
        return {tuple(sample.labels[label] for label in gauge.labels): sample.value for sample in family.samples}

    def close(self) -> None:
        """Close the HTTP endpoint."""
        if self.server is not None:
            self.server.close()
            self.server = None

    @contextmanager
    def of_shard(self, index: int) -> Iterator[Metrics]:
        """Of another shard that the same process runs: exposed beside ours as long as this lasts."""
        other = Metrics(self._settings)
        self.together.add(str(index), other.registry)
        try:
            yield other
        finally:
            self.together.remove(str(index))

    # What workers did

    def offloaded(self, topic: TopicName, size: int, entries: int) -> None:
        """The journal took a part."""
        self._count(d.OFFLOADED_PARTS, topic.namespace)
        self._count(d.OFFLOADED_BYTES, topic.namespace, by=size)
        self._count(d.OFFLOADED_ENTRIES, topic.namespace, by=entries)
        self._rate.add(topic.namespace, size)
        self.recent.uploaded(size, entries)

    def entries_read(self, topic: TopicName, size: int) -> None:
        """A slice read so many entry bytes."""
        self._count(d.READ_BYTES, topic.namespace, by=size)

    def gap(self, topic: TopicName, kind: GapKind, entries: int) -> None:
        """A gap was recorded."""
        self._count(d.GAPS, topic.namespace, kind, by=entries)

    def unreadable(self, topic: TopicName, entries: int) -> None:
        """Entries that are no messages were uploaded."""
        self._count(d.UNREADABLE, topic.namespace, by=entries)

    def receipt_dropped(self, reason: DropReason) -> None:
        """A receipt does not continue the journal's state."""
        self._count(d.DROPPED, reason)

    def failure(self, kind: FailureKind, topic: TopicName | None = None) -> None:
        """A slice or a seal failed."""
        namespace = topic.namespace if topic else ""
        self._count(d.FAILURES, namespace, kind)
        self._count(d.ERRORS, namespace)

    # What the main process did

    def batch(self, lane: Lane, seconds: float, slices: int) -> None:
        """A micro-batch ended."""
        self._histograms[d.BATCH_SECONDS].labels(lane).observe(seconds)
        self._count(d.BATCH_SLICES, lane, by=slices)

    def segment(self, reason: RollReason, topic: TopicName | None = None, size: int | None = None) -> None:
        """A segment was committed."""
        self._count(d.SEGMENTS, topic.namespace if topic else "", reason)
        if size is not None:
            self._histograms[d.SEGMENT_SIZE].observe(size)
        if topic is not None:
            self.recent.committed(topic, reason, size or 0)

    def seal(self, seconds: float) -> None:
        """A seal took so long, successful or not."""
        self._histograms[d.SEAL_SECONDS].observe(seconds)

    def abandoned(self, topic: TopicName) -> None:
        """An upload was given up."""
        self._count(d.ABANDONED, topic.namespace)

    def loss(self, topic: TopicName) -> None:
        """A loss was recorded in a catalog."""
        self._count(d.LOSSES, topic.namespace)

    def pin_moved(self, topic: TopicName) -> None:
        """A subscription was moved past data that is not offloaded."""
        self._count(d.PIN_MOVED, topic.namespace)

    def throttled(self, topic: TopicName, seconds: float) -> None:
        """A topic waited for a rate limit."""
        self._count(d.THROTTLED, topic.namespace, by=seconds)

    def journaled(self, size: int) -> None:
        """A record was appended to the journal."""
        self._count(d.JOURNAL_RECORDS)
        self._count(d.JOURNAL_BYTES, by=size)

    def request(self, command: str, outcome: Literal["done", "refused", "failed"]) -> None:
        """A request from the command line was answered. `command`: one of its few words."""
        self._count(d.REQUESTS, command, outcome)

    def store_request(self, verb: Verb, seconds: float, outcome: Outcome) -> None:
        """A call to the store ended. `unknown`: its write may have happened."""
        self._count(d.STORE_REQUESTS, verb, outcome)
        if outcome in ("ok", "expired"):
            self.health.credentials(expired=outcome == "expired")
        self._histograms[d.STORE_SECONDS].labels(verb).observe(seconds)
        if verb in WRITES and outcome != "ok":
            self._count(d.WRITE_ERRORS)

    def round(self, seconds: float) -> None:
        """A round of the main loop ended. Told by the main loop alone."""
        self._histograms[d.ROUND_SECONDS].observe(seconds)
        self._longest_round = max(self._longest_round, seconds)
        self._gauges[d.LONGEST_ROUND].set(self._longest_round)

    # How things stand

    def work(self, kind: str, queued: int, running: int, oldest: float) -> None:
        """How much work of a kind the main loop has posted. `oldest` in seconds."""
        if self._work.get(kind) == (queued, running, oldest):
            return  # most kinds stay idle, and a gauge costs more than this look
        self._work[kind] = queued, running, oldest
        for definition, value in ((d.WORK_QUEUED, queued), (d.WORK_RUNNING, running), (d.WORK_AGE, oldest)):
            self._gauges[definition].labels(kind).set(value)

    def topics(self, lags: Iterable[TopicLag]) -> None:
        """How far each topic is behind; replaces what was said before."""
        self._topics.set(lags)

    def topic_states(self, counts: Mapping[str, int]) -> None:
        """How many topics are in which state; replaces what was said before."""
        self._gauges[d.STATES].clear()
        for state, count in counts.items():
            self._gauges[d.STATES].labels(state).set(count)

    def paused(self, sizes: Mapping[str, int]) -> None:
        """What the subscriptions of paused topics keep in BookKeeper, by namespace; replaces what was said before."""
        self._set_all(d.PAUSED_BYTES, sizes)

    def topic_lanes(self, counts: Mapping[Lane, int]) -> None:
        """How many topics travel in which lane; replaces what was said before."""
        for lane in Lane:
            self._gauges[d.LANE_TOPICS].labels(lane).set(counts.get(lane, 0))

    # The end of data

    def deletion_sent(self, kind: str) -> None:
        """A deletion was sent to the system topic. `kind`: LEDGER or OFFLOAD_LEDGER, here and below."""
        self._count(d.DELETION_SENT, kind)

    def deletion_not_sent(self, why: str) -> None:
        """It goes on all the same."""
        self._count(d.DELETION_NOT_SENT, why)

    def deletion_received(self) -> None:
        """A message came from the system topic."""
        self._count(d.DELETION_RECEIVED)

    def deletion_message(self, outcome: str) -> None:
        """A message of the system topic was acknowledged, sent again or given up."""
        self._count(d.DELETION_MESSAGES, outcome)

    def deletion_ended(self, kind: str, answer: str) -> None:
        """Nothing more is done about it."""
        self._count(d.DELETION_ACKNOWLEDGED, kind)
        self._count(d.DELETION_ENDED, kind, answer)
        if answer == "deleted":
            self._count(d.DELETION_DELETED, kind)

    def deletion_failed(self, kind: str) -> None:
        """A look or a try came to nothing."""
        self._count(d.DELETION_FAILED, kind)

    def deletion_gave_up(self, kind: str) -> None:
        """That was the last try."""
        self._count(d.DELETION_GAVE_UP, kind)

    def deletions_pending(self, counts: Iterable[tuple[str, str, int]], damaged: int) -> None:
        """What a round has found, by type and state."""
        for one in (d.DELETION_PENDING, d.DELETION_IN_FLIGHT):
            self._gauges[one].clear()
        for kind, state, number in counts:
            self._gauges[d.DELETION_PENDING].labels(kind, state).set(number)
            if state in ("marked", "deleting"):
                self._gauges[d.DELETION_IN_FLIGHT].labels(kind).inc(number)
        self._gauges[d.DELETION_DAMAGED].set(damaged)

    def deletions_refused(self, reasons: int) -> None:
        """Why a round deleted nothing; 0: it may have."""
        self._gauges[d.DELETION_REFUSALS].set(reasons)

    def orphans_scanned(
        self, side: str, orphans: Iterable[tuple[str, int, int]], quarantined: int, refusals: int
    ) -> None:
        """A scheduled scan of a side has ended. `orphans`: class, number and bytes."""
        for name, number, size in orphans:
            self._gauges[d.ORPHANS].labels(side, name).set(number)
            self._gauges[d.ORPHAN_BYTES].labels(side, name).set(size)
        self._gauges[d.ORPHAN_SCAN_REFUSALS].labels(side).set(refusals)
        self._count(d.ORPHANS_QUARANTINED, side, by=quarantined)
        self._count(d.ORPHAN_SCANS, side)

    def visited(self, end: str, freed: int) -> None:
        """A topic that nobody had loaded was visited, or should have been. `freed`: bytes."""
        self._count(d.VISITS, end)
        self._count(d.VISITS_FREED, by=freed)

    def unloaded_topics(self, due: int, not_freed: Mapping[str, int], passed_over: Mapping[str, int]) -> None:
        """What a look at all topics has found: topics due, bytes by reason, topics by reason."""
        self._gauges[d.VISITS_DUE].set(due)
        self._set_all(d.VISITS_NOT_FREED, not_freed)
        self._set_all(d.VISITS_PASSED_OVER, passed_over)

    def cursor_removal(self, outcome: str) -> None:
        """Something was done about the removal of a subscription."""
        self._count(d.CURSOR_REMOVALS, outcome)

    def cursor_removals_pending(self, states: Mapping[str, int], in_flight: int) -> None:
        """What a round has found."""
        self._set_all(d.CURSOR_REMOVALS_PENDING, states)
        self._gauges[d.CURSOR_REMOVALS_IN_FLIGHT].set(in_flight)

    # Copies of subscriptions and schemas

    def cursors_copied(self, topic: TopicName) -> None:
        """A copy of a topic's subscriptions was written."""
        self._count(d.CURSOR_COPIES, topic.namespace)

    def cursor_copy_failed(self, topic: TopicName) -> None:
        """A topic's subscriptions could not be looked at, or not copied."""
        self._count(d.CURSOR_COPY_FAILURES, topic.namespace)

    def cursor_copies(self, oldest: float) -> None:
        """The longest time since a look that succeeded, in seconds."""
        self._gauges[d.CURSOR_COPY_AGE].set(oldest)

    def facts_failed(self) -> None:
        """A topic's schemas could not be looked at, or not copied."""
        self._count(d.FACTS_FAILURES)

    # The bridge

    def bridge_round(self, topic: TopicName, outcome: str, ledgers: int = 0, size: int = 0) -> None:
        """A round of a topic's bridge ended. `ledgers`, `size`: what brokers can read by it."""
        self._count(d.BRIDGE_ROUNDS, topic.namespace, outcome)
        self._count(d.BRIDGE_LEDGERS, topic.namespace, by=ledgers)
        self._count(d.BRIDGE_BYTES, topic.namespace, by=size)

    def bridge_swapped(self, seconds: float) -> None:
        """A topic was unloaded for its bridge, until it was proven or given up."""
        self._histograms[d.BRIDGE_PAUSE].observe(seconds)

    def bridge_failed(self, step: str) -> None:
        """A step of a bridge failed."""
        self._count(d.BRIDGE_FAILURES, step)

    def bridge_repaired(self, outcome: str) -> None:
        """Ledgers that should be offloaded, and were not, were looked at."""
        self._count(d.BRIDGE_REPAIRS, outcome)

    def bridges(self, ledgers: Mapping[str, int], size: Mapping[str, int], states: Mapping[str, int]) -> None:
        """How far brokers' reading is behind: ledgers and bytes by namespace, topics by state."""
        self._set_all(d.BRIDGE_LAG, ledgers)
        self._set_all(d.BRIDGE_LAG_BYTES, size)
        self._set_all(d.BRIDGE_TOPICS, states)

    # Shards

    def shards(self, stood_in: int, silent: int) -> None:
        """How many others this process runs, and how many nobody seems to run."""
        self._gauges[d.SHARDS_STOOD_IN].set(stood_in)
        self._gauges[d.SHARDS_SILENT].set(silent)

    def shard_topics(self, strangers: int, waiting: int) -> None:
        """Topics that are not where they are dealt to: with this shard, and with others."""
        self._gauges[d.SHARD_STRANGERS].set(strangers)
        self._gauges[d.SHARD_WAITING].set(waiting)

    def passed_on(self) -> None:
        """A topic was passed on to another shard."""
        self._count(d.SHARD_PASSED_ON)

    def shard_taken_over(self) -> None:
        """This process has begun to run another shard."""
        self._count(d.SHARD_TAKEOVERS)

    def _set_all(self, definition: d.Definition, values: Mapping[str, int]) -> None:
        """What is not named any more has no series any more."""
        self._gauges[definition].clear()
        for label, value in values.items():
            self._gauges[definition].labels(label).set(value)

    def _count(self, definition: d.Definition, *labels: str, by: float = 1) -> None:
        counter = self._counters[definition]
        (counter.labels(*labels) if labels else counter).inc(by)

    def _counter(self, definition: d.Definition) -> Counter:
        return Counter(definition.name, definition.help, definition.labels, registry=self.registry)

    def _gauge(self, definition: d.Definition) -> Gauge:
        return Gauge(definition.name, definition.help, definition.labels, registry=self.registry)

    def _histogram(self, definition: d.Definition) -> Histogram:
        return Histogram(
            definition.name, definition.help, definition.labels, buckets=definition.buckets, registry=self.registry
        )


class RateCollector(Collector):
    """Bytes a second over the last minute, as Pulsar's own offloader metric gives them.

    One sliding window for each namespace. `clock` in seconds. Safe to use from several threads.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seconds: dict[str, deque[tuple[int, int]]] = {}

    def add(self, namespace: str, size: int) -> None:
        """Count bytes of now."""
        now = int(self._clock())
        with self._lock:
            seconds = self._seconds.setdefault(namespace, deque(maxlen=RATE_SECONDS + 1))
            before = seconds.pop()[1] if seconds and seconds[-1][0] == now else 0
            seconds.append((now, before + size))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The present rates; a namespace that was ever counted stays, with 0."""
        oldest = int(self._clock()) - RATE_SECONDS
        family = GaugeMetricFamily(d.RATE.name, d.RATE.help, labels=d.RATE.labels)
        with self._lock:
            for namespace, seconds in self._seconds.items():
                family.add_metric([namespace], sum(size for second, size in seconds if second > oldest) / RATE_SECONDS)
        yield family
