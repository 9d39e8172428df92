"""Every event is counted once, the number of series is bounded, and the probes tell the truth."""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path
from typing import get_args

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dev.docs.metrics import render
from offloader.config.running import MetricsSettings
from offloader.errors import ConfigError
from offloader.metrics import Metrics, TopicLag
from offloader.metrics.definitions import ALL
from offloader.metrics.health import Health
from offloader.metrics.metrics import Verb
from offloader.metrics.server import MetricsServer
from offloader.model import FailureKind, GapKind, Lane, RollReason, TopicName

TOPIC = TopicName.parse("persistent://public/orders/a")
PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def lag(name: str, size: int, age_ms: int = 0, pinned: int = 0, pinned_ms: int = 0) -> TopicLag:
    return TopicLag(TopicName.parse(f"public/orders/{name}"), size, age_ms, pinned, pinned_ms)


def everything(metrics: Metrics) -> None:
    """Every event there is."""
    metrics.offloaded(TOPIC, 100, 7)
    metrics.entries_read(TOPIC, 120)
    metrics.gap(TOPIC, GapKind.ABORTED, 3)
    metrics.unreadable(TOPIC, 2)
    metrics.receipt_dropped("stale")
    metrics.failure(FailureKind.RETRYABLE, TOPIC)
    metrics.batch(Lane.FAST, 0.5, 4)
    metrics.segment(RollReason.SIZE, TOPIC, 1 << 30)
    metrics.seal(0.2)
    metrics.abandoned(TOPIC)
    metrics.loss(TOPIC)
    metrics.pin_moved(TOPIC)
    metrics.throttled(TOPIC, 1.5)
    metrics.journaled(900)
    metrics.request("close", "done")
    metrics.deletion_sent("LEDGER")
    metrics.deletion_not_sent("failed")
    metrics.deletion_received()
    metrics.deletion_message("acknowledged")
    metrics.deletion_ended("LEDGER", "deleted")
    metrics.deletion_failed("LEDGER")
    metrics.deletion_gave_up("LEDGER")
    metrics.deletions_pending([("LEDGER", "marked", 3)], 1)
    metrics.deletions_refused(1)
    metrics.orphans_scanned("bookkeeper", [("confirmed", 2, 100)], 2, 1)
    metrics.visited("trimmed", 300)
    metrics.unloaded_topics(2, {"due": 70}, {"a node of it is damaged": 1})
    metrics.cursor_removal("removed")
    metrics.cursor_removals_pending({"marked": 3}, 3)
    metrics.cursors_copied(TOPIC)
    metrics.cursor_copy_failed(TOPIC)
    metrics.cursor_copies(12.5)
    metrics.facts_failed()
    metrics.bridge_round(TOPIC, "proven", 3, 900)
    metrics.bridge_swapped(0.3)
    metrics.bridge_failed("swap")
    metrics.bridge_repaired("repaired")
    metrics.bridges({"a/b": 2}, {"a/b": 50}, {"blocked": 1})
    metrics.store_request("put", 0.01, "unknown")
    metrics.topics([lag("a", 5, 2000, 9, 4000)])
    metrics.round(0.5)
    metrics.work("seal", 3, 2, 7.5)
    metrics.topic_lanes({Lane.SLOW: 1})
    metrics.paused({"public/default": 5})
    metrics.topic_states({"assigned": 2})


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_every_event_reaches_its_series() -> None:
    metrics = Metrics(clock=Clock())
    everything(metrics)
    space = {"namespace": "public/orders"}
    assert value(metrics, "offloader_parts_total", **space) == 1
    assert value(metrics, "offloader_bytes_total", **space) == 100
    assert value(metrics, "offloader_entries_total", **space) == 7
    assert value(metrics, "offloader_read_bytes_total", **space) == 120
    assert value(metrics, "offloader_gap_entries_total", **space, kind="aborted") == 3
    assert value(metrics, "offloader_receipts_dropped_total", reason="stale") == 1
    assert value(metrics, "offloader_failures_total", **space, kind="retryable") == 1
    assert value(metrics, "brk_ledgeroffloader_offload_error_total", **space) == 1
    assert value(metrics, "offloader_batch_seconds_sum", lane="fast") == 0.5
    assert value(metrics, "offloader_slices_total", lane="fast") == 4
    assert value(metrics, "offloader_segments_total", **space, reason="size") == 1
    assert value(metrics, "offloader_segment_size_bytes_sum") == 1 << 30
    assert value(metrics, "offloader_seal_seconds_count") == 1
    assert value(metrics, "offloader_uploads_abandoned_total", **space) == 1
    assert value(metrics, "offloader_losses_total", **space) == 1
    assert value(metrics, "offloader_pin_moved_total", **space) == 1
    assert value(metrics, "offloader_throttled_seconds_total", **space) == 1.5
    assert value(metrics, "offloader_journal_records_total") == 1
    assert value(metrics, "offloader_journal_bytes_total") == 900
    assert value(metrics, "offloader_requests_total", command="close", outcome="done") == 1
    assert value(metrics, "offloader_store_requests_total", verb="put", outcome="unknown") == 1
    assert value(metrics, "offloader_store_seconds_count", verb="put") == 1
    assert value(metrics, "brk_ledgeroffloader_write_storage_error_total") == 1
    assert value(metrics, "offloader_visits_total", end="trimmed") == 1
    assert value(metrics, "offloader_visits_freed_bytes_total") == 300
    assert value(metrics, "offloader_visits_due_topics") == 2
    assert value(metrics, "offloader_visits_not_freed_bytes", reason="due") == 70
    assert value(metrics, "offloader_visits_passed_over_topics", reason="a node of it is damaged") == 1
    assert value(metrics, "offloader_cursor_removals_total", outcome="removed") == 1
    assert value(metrics, "offloader_cursor_removals_pending", state="marked") == 3
    assert value(metrics, "offloader_cursor_removals_in_flight") == 3
    assert value(metrics, "offloader_cursor_copies_total", namespace=TOPIC.namespace) == 1
    assert value(metrics, "offloader_cursor_copy_failures_total", namespace=TOPIC.namespace) == 1
    assert value(metrics, "offloader_cursor_copy_oldest_seconds") == 12.5
    assert value(metrics, "offloader_topic_facts_failures_total") == 1
    assert value(metrics, "offloader_bridge_rounds_total", namespace=TOPIC.namespace, outcome="proven") == 1
    assert value(metrics, "offloader_bridge_ledgers_total", namespace=TOPIC.namespace) == 3
    assert value(metrics, "offloader_bridge_bytes_total", namespace=TOPIC.namespace) == 900
    assert value(metrics, "offloader_bridge_lag_ledgers", namespace="a/b") == 2
    assert value(metrics, "offloader_bridge_topics", state="blocked") == 1
    assert value(metrics, "offloader_topics", state="assigned") == 2
    assert value(metrics, "offloader_lane_topics", lane="slow") == 1
    assert value(metrics, "offloader_round_seconds_sum") == value(metrics, "offloader_longest_round_seconds") == 0.5
    assert value(metrics, "offloader_work_queued", kind="seal") == 3
    assert value(metrics, "offloader_work_running", kind="seal") == 2
    assert value(metrics, "offloader_work_oldest_seconds", kind="seal") == 7.5
    assert value(metrics, "offloader_lag_bytes", topic=str(TOPIC)) == 5
    assert value(metrics, "offloader_lag_seconds", topic=str(TOPIC)) == 2
    assert value(metrics, "offloader_pinned_bytes", topic=str(TOPIC)) == 9
    assert value(metrics, "offloader_pinned_seconds", topic=str(TOPIC)) == 4


def test_every_series_is_defined_and_every_definition_is_served_with_its_labels() -> None:
    metrics = Metrics(clock=Clock())
    everything(metrics)
    families = {f.name: f for f in text_string_to_metric_families(generate_latest(metrics.registry).decode())}
    served = {name: family for name, family in families.items() if not name.endswith("_created")}
    assert {(f.name, f.type) for f in served.values()} == {(x.name, x.kind) for x in ALL}
    for x in ALL:
        labels = {name for sample in served[x.name].samples for name in sample.labels} - {"le"}
        assert labels == set(x.labels), x.name


def test_each_instance_has_a_registry_of_its_own() -> None:
    one, two = Metrics(), Metrics()
    one.offloaded(TOPIC, 1, 1)
    assert value(two, "offloader_parts_total", namespace="public/orders") is None


def test_shards_of_one_process_are_served_together_each_family_once() -> None:
    own = Metrics()
    own.loss(TOPIC)
    with own.of_shard(3) as other:
        other.loss(TOPIC)
        other.loss(TOPIC)
        families = list(text_string_to_metric_families(generate_latest(own.together).decode()))
        assert len({family.name for family in families}) == len(families)
        losses = next(family for family in families if family.name == "offloader_losses")
        told = {sample.labels.get("shard"): sample.value for sample in losses.samples if sample.name.endswith("_total")}
        assert told == {None: 1.0, "3": 2.0}
    assert b'shard="3"' not in generate_latest(own.together)


def test_failures_and_segments_without_a_topic_count_too() -> None:
    metrics = Metrics()
    metrics.failure(FailureKind.INTEGRITY)
    metrics.segment(RollReason.AGE)
    assert value(metrics, "offloader_failures_total", namespace="", kind="integrity") == 1
    assert value(metrics, "offloader_segments_total", namespace="", reason="age") == 1


def test_only_failed_writes_are_write_errors() -> None:
    metrics = Metrics()
    for verb in get_args(Verb):
        metrics.store_request(verb, 0.1, "ok")
    metrics.store_request("read", 0.1, "error")
    assert value(metrics, "brk_ledgeroffloader_write_storage_error_total") == 0
    metrics.store_request("commit", 0.1, "error")
    assert value(metrics, "brk_ledgeroffloader_write_storage_error_total") == 1


def test_the_rate_is_that_of_the_last_minute() -> None:
    clock = Clock()
    metrics = Metrics(clock=clock)

    def rate() -> float | None:
        return value(metrics, "brk_ledgeroffloader_offload_rate", namespace="public/orders")

    for _ in range(120):
        metrics.offloaded(TOPIC, 300, 1)
        metrics.offloaded(TOPIC, 300, 1)
        clock.now += 1
    clock.now -= 1
    assert rate() == 600
    clock.now += 30
    assert rate() == 300
    clock.now += 30
    assert rate() == 0


# Topics


def shown(metrics: Metrics, name: str) -> dict[str, float]:
    (family,) = (f for f in metrics.registry.collect() if f.name == name)
    return {s.labels["topic"]: s.value for s in family.samples}


def test_only_those_that_lag_most_have_a_name() -> None:
    metrics = Metrics(MetricsSettings(maxTopicLabels=2))
    metrics.topics([lag("a", 1, 500, 4, 70), lag("b", 9, 10), lag("c", 5, 20), lag("d", 3, 100, 5, 60)])
    assert shown(metrics, "offloader_lag_bytes") == {
        "persistent://public/orders/b": 9,
        "persistent://public/orders/c": 5,
        "other": 4,
    }
    assert shown(metrics, "offloader_lag_seconds")["other"] == 0.5
    assert shown(metrics, "offloader_pinned_bytes")["other"] == 9
    assert shown(metrics, "offloader_pinned_seconds")["other"] == 0.07


def test_a_topic_that_is_gone_is_gone_from_the_metrics() -> None:
    metrics = Metrics()
    metrics.topics([lag("a", 1), lag("b", 2)])
    metrics.topics([lag("b", 2)])
    assert set(shown(metrics, "offloader_lag_bytes")) == {"persistent://public/orders/b"}
    metrics.topic_states({"failed": 1, "paused": 2})
    metrics.topic_states({"paused": 1})
    assert value(metrics, "offloader_topics", state="failed") is None


LAGS = st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**9)), max_size=40)


@given(LAGS, st.integers(0, 20))
def test_the_number_of_series_is_bounded_and_the_sum_complete(lags, most) -> None:
    metrics = Metrics(MetricsSettings(maxTopicLabels=most))
    metrics.topics([lag(f"t{i}", size, age, size // 2, age // 2) for i, (size, age) in enumerate(lags)])
    sizes, ages = shown(metrics, "offloader_lag_bytes"), shown(metrics, "offloader_lag_seconds")
    assert len(sizes) <= most + 1
    assert sum(sizes.values()) == sum(size for size, _ in lags)
    assert max(ages.values(), default=0) == max((age for _, age in lags), default=0) / 1000
    assert sum(shown(metrics, "offloader_pinned_bytes").values()) == sum(size // 2 for size, _ in lags)


# Health and the endpoint


def test_alive_while_the_loop_turns() -> None:
    clock = Clock()
    health = Health(60, 600, clock)
    clock.now += 60
    assert health.alive() == (True, "ok")
    clock.now += 1
    assert health.alive() == (False, "the main loop has not turned for 61 s")
    health.tick()
    assert health.alive().good


def test_a_start_may_take_long_and_is_over_with_the_first_turn() -> None:
    clock = Clock()
    health = Health(60, 600, clock, start=600)
    with health.waiting("journal", 10):
        clock.now += 500
    clock.now += 100
    assert health.alive().good
    clock.now += 61
    assert health.alive() == (False, "the main loop has not turned for 161 s")
    health.tick()
    assert health.alive().good
    clock.now += 61
    assert not health.alive().good


def test_what_the_loop_waits_for_may_take_as_long_as_it_takes_at_most() -> None:
    clock = Clock()
    health = Health(60, 600, clock)
    with health.waiting("journal", 200):
        clock.now += 260
        assert health.alive().good
        with health.waiting("pause", 10):
            assert health.alive().good
        clock.now += 61
        assert health.alive() == (False, "the main loop has not turned for 61 s")
    assert health.alive().good
    clock.now += 61
    assert not health.alive().good


def test_credentials_that_stay_expired_are_not_alive() -> None:
    clock = Clock()
    metrics = Metrics(clock=clock)
    metrics.store_request("put", 0.1, "expired")
    clock.now += 600
    metrics.store_request("put", 0.1, "expired")
    metrics.store_request("read", 0.1, "error")
    metrics.health.tick()
    assert metrics.health.alive().good
    clock.now += 1
    metrics.health.tick()
    assert metrics.health.alive() == (False, "the store's credentials expired 601 s ago and were not renewed")
    metrics.store_request("put", 0.1, "ok")
    assert metrics.health.alive().good


def test_a_batch_that_does_not_end_is_not_alive() -> None:
    clock = Clock()
    health = Health(10_000, 600, clock)
    clock.now += 1_000
    assert (health.alive(), health.batch_age(Lane.FAST)) == ((True, "ok"), 0)
    health.batch_began(Lane.FAST, 15)
    clock.now += 615
    assert (health.alive(), health.batch_age(Lane.FAST)) == ((True, "ok"), 615)
    clock.now += 1
    assert health.alive() == (False, "a batch of the fast lane has been under way for 616 s")
    health.batch_ended(Lane.FAST)
    assert (health.alive().good, health.batch_age(Lane.FAST)) == (True, 0)


def test_a_batch_of_the_slow_lane_may_take_what_its_slices_may_take() -> None:
    clock = Clock()
    health = Health(10_000, 600, clock)
    health.batch_began(Lane.SLOW, 7_200)
    clock.now += 7_000
    health.batch_began(Lane.FAST, 15)
    assert health.alive().good
    clock.now += 616
    assert "fast lane" in health.alive().text
    health.batch_ended(Lane.FAST)
    assert health.alive().good
    clock.now += 185
    assert health.alive() == (False, "a batch of the slow lane has been under way for 7801 s")


def test_ready_when_store_and_pulsar_answered_when_last_asked() -> None:
    health = Health(60, 600)
    assert health.ready() == (False, "store: not asked yet\npulsar: not asked yet")
    health.checked("store")
    health.checked("pulsar", "no broker answered")
    assert health.ready() == (False, "pulsar: no broker answered")
    health.checked("pulsar")
    assert health.ready() == (True, "ok")
    health.checked("store", "down")
    assert not health.ready().good


@pytest.fixture
def served():
    clock = Clock()
    metrics = Metrics(clock=clock)
    metrics.server = MetricsServer(metrics.registry, metrics.health, "127.0.0.1", 0)
    with httpx.Client(base_url=metrics.server.url, trust_env=False) as client:
        yield metrics, client, clock
    metrics.close()


def test_on_loopback_only_names_of_this_machine_are_answered(served) -> None:
    _, client, _ = served
    for path in ("/metrics", "/healthz"):
        assert client.get(path, headers={"Host": "attacker.example"}).status_code == 403
        assert client.get(path, headers={"Host": "localhost:1"}).status_code == 200


def test_the_endpoint_serves_the_metrics(served) -> None:
    metrics, client, _ = served
    everything(metrics)
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert 'offloader_bytes_total{namespace="public/orders"} 100.0' in answer.text


def test_the_endpoint_answers_probes(served) -> None:
    metrics, client, clock = served
    assert (client.get("/healthz").status_code, client.get("/healthz").text) == (200, "ok\n")
    assert client.get("/readyz").status_code == 503
    metrics.health.checked("store")
    metrics.health.checked("pulsar")
    assert client.get("/readyz").status_code == 200
    metrics.health.tick()
    clock.now += 61
    assert client.get("/healthz").status_code == 503
    assert "has not turned" in client.get("/healthz").text


def test_the_endpoint_knows_nothing_else(served) -> None:
    _, client, _ = served
    assert client.get("/").status_code == 404
    assert client.get("/metrics/x").status_code == 404
    assert client.post("/metrics").status_code == 405
    assert client.head("/healthz").status_code == 200


def test_a_client_that_says_nothing_does_not_block_the_others(served) -> None:
    metrics, client, _ = served
    host, port = re.fullmatch(r"http://(.*):(\d+)", metrics.server.url).groups()
    with socket.create_connection((host, int(port))):
        assert client.get("/healthz", timeout=60).status_code == 200


def test_start_and_close() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    metrics = Metrics.start(MetricsSettings(port=port))
    assert metrics.server is not None
    assert metrics.server.url == f"http://127.0.0.1:{port}"
    with pytest.raises(
        ConfigError, match=rf"^metrics\.port: cannot listen on 127\.0\.0\.1:{port} \(Address already in use\)"
    ):
        Metrics.start(MetricsSettings(port=port))
    metrics.close()
    metrics.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "web"]
    again = Metrics.start(MetricsSettings(port=port))
    again.close()


@pytest.mark.parametrize("port", [0, None])
def test_the_endpoint_can_be_turned_off(port) -> None:
    metrics = Metrics.start(MetricsSettings(port=port))
    assert metrics.server is None
    metrics.close()


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python -m dev.docs.metrics docs/metrics.md"
