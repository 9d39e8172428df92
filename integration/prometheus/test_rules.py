"""The rules in conf/prometheus, by Prometheus' own promtool: each alert fires when it must, and is silent before."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.promtool import promtool

RULES = Path(__file__).parents[2] / "conf" / "prometheus" / "offloader.rules.yaml"
pytestmark = pytest.mark.promtool

ALIVE = {"offloader_loop_age_seconds": "0x10000"}
FIRST_EVENT = "_x120 1x10000"  # no series for two hours, then one
FIRST_AT = 120


@dataclass(frozen=True)
class Case:
    """`series`: a value a minute. In minutes: still `silent`, `fires`, and silent again `after`."""

    alert: str
    series: dict[str, str]
    silent: int
    fires: int
    labels: dict[str, str]
    severity: str = "warning"
    after: int | None = None


def selector(name: str, labels: dict[str, str]) -> str:
    """A series, as it is written."""
    return f"{name}{{{','.join(f'{label}={json.dumps(value)}' for label, value in labels.items())}}}"


def once(alert: str, name: str, labels: dict[str, str], by: str, severity: str = "warning", window: int = 15) -> Case:
    """The first event of a counter that has no series before it."""
    series = {selector(name, labels): FIRST_EVENT}
    seen = {by: labels[by]}
    return Case(alert, series, FIRST_AT - 1, FIRST_AT + 1, seen, severity, FIRST_AT + window + 6)


def above(alert: str, name: str, value: int, minutes: int, labels: dict[str, str], severity: str = "warning") -> Case:
    """A gauge that is at a value from the tenth minute on."""
    return Case(
        alert, {selector(name, labels): f"0x9 {value}x10000"}, 10 + minutes - 1, 10 + minutes + 1, labels, severity
    )


NAMESPACE = {"namespace": "public/orders"}
DIFFERENT = {**NAMESPACE, "kind": "integrity"}
DAY = 24 * 60
HERE = {"instance": "a:9464"}
GATEWAY = {"instance": "g:9466"}
CASES = (
    Case("OffloaderGone", {"offloader_loop_age_seconds": "0x30 stale"}, 35, 40, {}, "critical"),
    above("OffloaderLoopStuck", "offloader_loop_age_seconds", 130, 5, HERE, "critical"),
    above("OffloaderTopicsPaused", "offloader_paused_bytes", 1, 60, NAMESPACE),
    above("OffloaderOrphanScanRefused", "offloader_orphan_scan_refusals", 1, 60, {"side": "bucket"}),
    above("OffloaderBatchStuck", "offloader_batch_age_seconds", 4000, 5, {"lane": "slow"}, "critical"),
    Case(
        "OffloaderStoreFails",
        {
            'offloader_store_requests_total{instance="a:9464",verb="put",outcome="ok"}': "0+50x1000",
            'offloader_store_requests_total{instance="a:9464",verb="put",outcome="error"}': "0x59 0+50x1000",
        },
        60, 85, HERE, "critical",
    ),
    Case(
        "OffloaderJournalSlow",
        {
            'offloader_round_seconds_bucket{instance="a:9464",le="1.0"}': "0x10000",
            'offloader_round_seconds_bucket{instance="a:9464",le="10.0"}': "0+60x10000",
            'offloader_round_seconds_bucket{instance="a:9464",le="+Inf"}': "0+60x10000",
        },
        10, 30, HERE,
    ),
    above("OffloaderWorkHangs", "offloader_work_oldest_seconds", 1000, 5, {"kind": "seal"}),
    above("OffloaderTopicsFailed", "offloader_topics", 2, 15, {"state": "Failed"}),
    above("OffloaderTopicBehind", "offloader_lag_seconds", 1300, 15, {"topic": "persistent://public/orders/a"}),
    Case(
        "OffloaderAcknowledgementsMissing",
        {
            'offloader_pinned_bytes{topic="persistent://public/orders/a"}': "0+100000000x1000",
            'offloader_lag_bytes{topic="persistent://public/orders/a"}': "1000x1000",
        },
        20, 300, {"topic": "persistent://public/orders/a"},
    ),
    once("OffloaderPinMoved", "offloader_pin_moved_total", NAMESPACE, "namespace", "critical"),
    once("OffloaderDataLost", "offloader_losses_total", NAMESPACE, "namespace", "critical"),
    once("OffloaderBytesDiffer", "offloader_failures_total", DIFFERENT, "namespace", "critical"),
    Case(
        "OffloaderRightsMissing",
        {'offloader_failures_total{namespace="public/orders",kind="fatal"}': "_x60 1+1x1000"},
        62, 70, NAMESPACE,
    ),
    Case(
        "OffloaderUploadsAbandoned",
        {'offloader_uploads_abandoned_total{namespace="public/orders"}': "0x60 2x100 2+1x20 22x2000"},
        150, 170, NAMESPACE, after=600,
    ),
    above("OffloaderShardSilent", "offloader_shards_silent", 1, 15, {}, "critical"),
    above("OffloaderShardTakenOver", "offloader_shards_stood_in", 2, 30, {}),
    above("OffloaderSubscriptionsNotCopied", "offloader_cursor_copy_oldest_seconds", 3700, 10, {}),
    Case("OffloaderSchemasNotCopied", {"offloader_topic_facts_failures_total": "0x60 0+1x1000"}, 65, 110, {}),
    once("OffloaderDeletionGivenUp", "offloader_deletion_gave_up_total", {"type": "LEDGER"}, "type"),
    above("OffloaderDeletionRefused", "offloader_deletion_refusals", 1, 60, {}),
    above("OffloaderDeletionDamaged", "offloader_deletion_damaged_records", 1, 15, {}),
    Case(
        "OffloaderDeletionsNotAnnounced",
        {'offloader_deletion_not_sent_total{why="refused"}': "0x60 0+1x1000"},
        110, 130, {"why": "refused"},
    ),
    above("OffloaderSubscriptionRemovalGivenUp", "offloader_cursor_removals_pending", 1, 15, {"state": "given up"}),
    above("OffloaderUnloadedTopicsNotFreed", "offloader_visits_not_freed_bytes", 1000, 2 * DAY, {"reason": "in vain"}),
    above("OffloaderUnloadedTopicsPassedOver", "offloader_visits_passed_over_topics", 1, DAY, {"reason": "x"}, "info"),
    above("OffloaderBridgeBlocked", "offloader_bridge_topics", 1, 60, {"state": "blocked"}),
    once("OffloaderPinPastBridge", "offloader_bridge_failures_total", {"step": "pin"}, "step", "critical"),
    once("OffloaderBridgeBroken", "offloader_bridge_failures_total", {"step": "objects"}, "step", "critical", 90),
    Case(
        "OffloaderBridgeFails",
        {'offloader_bridge_failures_total{step="swap"}': "0x60 0+1x1000"},
        110, 130, {"step": "swap"},
    ),
    above("GatewayLoopStuck", "offloader_gateway_loop_age_seconds", 70, 2, GATEWAY, "critical"),
    above("GatewayAcknowledgementsUnwritten", "offloader_gateway_unwritten_seconds", 70, 2, GATEWAY, "critical"),
    above("GatewayAway", "offloader_gateway_away", 1, 1, GATEWAY, "critical"),
    Case(
        "GatewayOvertaken",
        {'offloader_gateway_ownership_changes_total{instance="g:9466",change="overtaken"}': "0x60 1x1000"},
        59, 61, {**GATEWAY, "change": "overtaken"}, after=80,
    ),
    above("GatewayHangs", "offloader_gateway_work_age_seconds", 70, 2, {**GATEWAY, "kind": "entries"}),
    above("GatewayThreadsBusy", "offloader_gateway_work", 8, 10, {**GATEWAY, "kind": "entries"}),
    Case(
        "GatewayFull",
        {'offloader_gateway_connections_full_total{instance="g:9466"}': "0x60 1x1000"},
        59, 61, GATEWAY, after=80,
    ),
)  # fmt: skip
# Nothing is wrong: events that nobody must come for, and numbers below their bounds.
QUIET = {
    "offloader_loop_age_seconds": "1x600",
    'offloader_topics{state="Failed"}': "0x60 1x10 0x530",
    'offloader_topics{state="Loading"}': "9x600",
    'offloader_lag_seconds{topic="persistent://public/orders/a"}': "590x600",
    'offloader_failures_total{namespace="public/orders",kind="retryable"}': "_x60 1+1x600",
    'offloader_store_requests_total{instance="a:9464",verb="put",outcome="ok"}': "0+50x600",
    'offloader_store_requests_total{instance="a:9464",verb="put",outcome="error"}': "0+1x600",
    'offloader_losses_total{namespace="public/orders"}': "3x600",
    'offloader_bridge_failures_total{step="swap"}': "0x60 1x600",
    'offloader_visits_not_freed_bytes{reason="waits"}': "1000x600",
    'offloader_gateway_ownership_changes_total{instance="g:9466",change="claimed"}': "0+1x600",
}
# An application that was started anew counts from 0 again: a second event is one, though the number is smaller.
RESTARTED = Case(
    "OffloaderDataLost",
    {'offloader_losses_total{namespace="public/orders"}': "5x100 stale _x60 1x100"},
    158, 164, NAMESPACE, "critical", 190,
)  # fmt: skip


def firing(alert: str, minute: int, *labels: dict[str, str]) -> dict[str, Any]:
    """What fires at a minute: one alert with these labels each."""
    named = {"alertname": alert, "alertstate": "firing"} if alert else {"alertstate": "firing"}
    samples = [{"labels": selector("ALERTS", {**named, **each}), "value": 1} for each in labels]
    return {"expr": selector("ALERTS", named), "eval_time": f"{minute}m", "exp_samples": samples}


def as_test(case: Case) -> dict[str, Any]:
    """As promtool wants it."""
    labels = {**case.labels, "severity": case.severity}
    expected = [firing(case.alert, case.silent), firing(case.alert, case.fires, labels)]
    if case.after is not None:
        expected.append(firing(case.alert, case.after))
    alive = {} if case.alert == "OffloaderGone" else ALIVE
    return written({**alive, **case.series}, expected)


def written(series: dict[str, str], expected: list[dict[str, Any]]) -> dict[str, Any]:
    """One test of promtool's."""
    given = [{"series": name, "values": values} for name, values in series.items()]
    return {"interval": "1m", "input_series": given, "promql_expr_test": expected}


def run(*arguments: str) -> str:
    """What promtool says. Fails where it does not agree."""
    done = subprocess.run([str(promtool()), *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tried(tests: list[dict[str, Any]], folder: Path) -> None:
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    assert "SUCCESS" in run("test", "rules", str(file))


def test_the_rules_are_rules() -> None:
    assert "SUCCESS" in run("check", "rules", str(RULES))


def test_each_alert_fires_when_it_must_and_is_silent_before(tmp_path: Path) -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    assert {rule["alert"] for group in groups for rule in group["rules"]} == {case.alert for case in CASES}
    tried([as_test(case) for case in (*CASES, RESTARTED)], tmp_path)


def test_where_nothing_is_wrong_nothing_fires(tmp_path: Path) -> None:
    tried([written(QUIET, [firing("", minute) for minute in range(20, 600, 20)])], tmp_path)


def test_an_alert_tells_what_is_wrong_and_where_it_is_written_what_to_do(tmp_path: Path) -> None:
    told = {
        "exp_labels": {"severity": "critical", "namespace": "public/orders"},
        "exp_annotations": {
            "summary": "A subscription in public/orders was moved past data that is not offloaded.",
            "remedy": "Remove the TTL or the backlog quota that moved it, at once; then recover.",
            "runbook": "docs/running.md#pin-moved",
        },
    }
    (case,) = (one for one in CASES if one.alert == "OffloaderPinMoved")
    test = written({**ALIVE, **case.series}, [])
    test["alert_rule_test"] = [{"eval_time": f"{case.fires}m", "alertname": case.alert, "exp_alerts": [told]}]
    tried([test], tmp_path)
