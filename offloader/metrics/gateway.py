"""The metrics of `offloader gateway`: all series, by name, and what collects them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from offloader.metrics.definitions import Definition, counter, gauge, histogram
from offloader.metrics.health import Health

LIVENESS = 60.0  # seconds without a turn of the loop

CONNECTIONS = gauge("offloader_gateway_connections", "Clients that are connected.")
ACCEPTED = counter("offloader_gateway_connections_accepted", "Connections of clients, those that have ended, too.")
FULL = counter("offloader_gateway_connections_full", "Clients sent away: there were `gateway.connections`.")
REFUSED = counter("offloader_gateway_refused", "Requests answered with an error, by its name.", "error")
BUFFERED = gauge("offloader_gateway_buffered_bytes", "Bytes that clients have not taken from their sockets yet.")
TOPICS = gauge("offloader_gateway_topics", "Topics that are served at the moment.")
OWNED = gauge("offloader_gateway_owned_topics", "Topics whose durable subscriptions are at this gateway.")
OWNERSHIP = counter(
    "offloader_gateway_ownership_changes",
    "Topics that this gateway claimed, that another one took over, and that it gave back because nobody used them.",
    "change",
)
LEFT_TO_OTHERS = gauge(
    "offloader_gateway_truces", "Topics left to gateways that took them over while this one lived, for a while."
)
AWAY = gauge(
    "offloader_gateway_away", "1: the store has not answered for long, and other gateways may serve the topics."
)
SUBSCRIPTIONS = gauge("offloader_gateway_subscriptions", "Subscriptions that are served at the moment.", "durable")
CONSUMERS = gauge("offloader_gateway_consumers", "Consumers and readers that are subscribed.")
ENTRIES = counter("offloader_gateway_entries", "Entries delivered, those that came again, too.", "namespace")
MESSAGES = counter("offloader_gateway_messages", "Messages delivered, those that came again, too.", "namespace")
BYTES = counter("offloader_gateway_bytes", "Bytes of entries delivered.", "namespace")
REDELIVERED = counter("offloader_gateway_redelivered_entries", "Entries delivered once more.", "namespace")
ACKNOWLEDGEMENTS = counter(
    "offloader_gateway_acknowledgements",
    "Entries acknowledged; a cumulative one counts once.",
    "namespace",
)
WRITES = counter(
    "offloader_gateway_writes",
    "Writes of acknowledgements, by outcome.",
    "namespace",
    "outcome",
)
UNWRITTEN_AGE = gauge(
    "offloader_gateway_unwritten_seconds", "For how long acknowledgements have been waiting to be written at most."
)
WORK = gauge("offloader_gateway_work", "What waits for a thread, or is being done, by kind.", "kind")
WORK_AGE = gauge(
    "offloader_gateway_work_age_seconds", "For how long the oldest work has been in a thread, by kind.", "kind"
)
WORK_SECONDS = histogram(
    "offloader_gateway_work_seconds",
    "Duration of work in threads, waiting included: reading entries, looking into catalogs, acknowledgements in "
    "memory, writing them, patterns, names of other gateways, files of keys.",
    "kind",
)
TICKED = gauge("offloader_gateway_loop_age_seconds", "Time since the gateway's loop last turned.")

ALL = tuple(value for value in list(globals().values()) if isinstance(value, Definition))


class Sample(NamedTuple):
    """One series at one moment."""

    definition: Definition
    labels: Sequence[str]
    value: float


class GatewayMetrics:
    """`samples`: all series but the histogram's, whenever somebody asks for them. Safe to use from several threads."""

    def __init__(self, samples: Callable[[], Iterable[Sample]], clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        self.health = Health(LIVENESS, 0, clock, services=("store",))
        self._seconds = Histogram(
            WORK_SECONDS.name,
            WORK_SECONDS.help,
            WORK_SECONDS.labels,
            buckets=WORK_SECONDS.buckets,
            registry=self.registry,
        )
        self.registry.register(_Samples(samples, lambda: self.health.age))

    def worked(self, kind: str, seconds: float) -> None:
        """A thread has done something; `seconds` since it was asked to."""
        self._seconds.labels(kind).observe(seconds)


class _Samples(Collector):
    """Families of samples, in the order of their definitions."""

    def __init__(self, samples: Callable[[], Iterable[Sample]], age: Callable[[], float]) -> None:
        self._samples = samples
        self._age = age

    def describe(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        """Nothing, so that registering asks for no sample."""
        return ()

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        found: dict[Definition, CounterMetricFamily | GaugeMetricFamily] = {
            one: _family(one) for one in ALL if one is not WORK_SECONDS
        }
        for definition, labels, value in (*self._samples(), Sample(TICKED, (), self._age())):
            found[definition].add_metric(labels, value)
        yield from found.values()


def _family(definition: Definition) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if definition.kind == "counter" else GaugeMetricFamily
    return kind(definition.name, definition.help, labels=definition.labels)
