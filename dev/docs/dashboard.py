"""Writes conf/grafana/offloader.json, a dashboard: `python -m dev.docs.dashboard conf/grafana/offloader.json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["timeseries", "stat"]
COLUMNS, HEIGHT, SMALL = 24, 8, 4
SOURCE = {"type": "prometheus", "uid": "${source}"}
OF_NAMESPACES = '{namespace=~"$namespace"}'
STEP = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries`: expression and legend. `bad`: from this value on a stat is red."""

    title: str
    about: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    kind: Kind = "timeseries"
    width: int = 8
    bad: float | None = None
    stacked: bool = False


def _rate(counter: str, *by: str, where: str = "") -> str:
    return f"sum by ({', '.join(by)}) (rate({counter}{where}[{STEP}]))"


def _quantile(of: float, histogram: str, *by: str) -> str:
    return f"histogram_quantile({of}, sum by ({', '.join((*by, 'le'))}) (rate({histogram}_bucket[{STEP}])))"


ROWS: Sequence[tuple[str, Sequence[Panel]]] = (
    (
        "At a glance",
        (
            Panel(
                "Failed topics",
                "`offloader topics list` says why.",
                [('sum(offloader_topics{state="Failed"}) or vector(0)', "")],
                kind="stat",
                width=4,
                bad=1,
            ),
            Panel("Topics", "All that are offloaded.", [("sum(offloader_topics)", "")], kind="stat", width=4),
            Panel(
                "Not in a segment yet",
                "Of all topics.",
                [("sum(offloader_lag_bytes)", "")],
                "bytes",
                "stat",
                width=4,
            ),
            Panel(
                "Oldest open segment",
                "Well above maxOffloadSegmentRolloverTimeInSeconds: a topic does not advance.",
                [("max(offloader_lag_seconds)", "")],
                "s",
                "stat",
                width=4,
                bad=1200,
            ),
            Panel(
                "Losses, subscriptions moved",
                "Since the start of the application: data may be missing from the archive.",
                [
                    ("sum(offloader_losses_total) or vector(0)", "losses"),
                    ("sum(offloader_pin_moved_total) or vector(0)", "moved"),
                ],
                kind="stat",
                width=4,
                bad=1,
            ),
            Panel(
                "Main loop",
                "Time since it last turned.",
                [("max(offloader_loop_age_seconds)", "")],
                "s",
                "stat",
                width=4,
                bad=60,
            ),
        ),
    ),
    (
        "Topics",
        (
            Panel("Topics by state", "", [("sum by (state) (offloader_topics)", "{{state}}")], stacked=True),
            Panel(
                "Lag in bytes, the most",
                "Bytes that are in no committed segment. `other`: the topics without series of their own.",
                [("topk(10, max by (topic) (offloader_lag_bytes))", "{{topic}}")],
                "bytes",
            ),
            Panel(
                "Lag in time, the most",
                "Age of the oldest entry that is in no committed segment.",
                [("topk(10, max by (topic) (offloader_lag_seconds))", "{{topic}}")],
                "s",
            ),
            Panel(
                "Kept in BookKeeper, the most",
                "It grows while the lag does not: acknowledgements do not arrive.",
                [("topk(10, max by (topic) (offloader_pinned_bytes))", "{{topic}}")],
                "bytes",
            ),
            Panel(
                "Failures by kind",
                "The table of kinds in docs/running.md says what to do.",
                [
                    (
                        _rate("offloader_failures_total", "namespace", "kind", where=OF_NAMESPACES),
                        "{{namespace}} {{kind}}",
                    )
                ],
            ),
            Panel(
                "Segments by what closed them",
                "",
                [(_rate("offloader_segments_total", "reason", where=OF_NAMESPACES), "{{reason}}")],
                stacked=True,
            ),
        ),
    ),
    (
        "Throughput",
        (
            Panel(
                "Uploaded",
                "Object bytes in parts that the journal took.",
                [(_rate("offloader_bytes_total", "namespace", where=OF_NAMESPACES), "{{namespace}}")],
                "Bps",
                stacked=True,
            ),
            Panel(
                "Read from Pulsar",
                "Uploaded or not.",
                [(_rate("offloader_read_bytes_total", "namespace", where=OF_NAMESPACES), "{{namespace}}")],
                "Bps",
                stacked=True,
            ),
            Panel(
                "Entries",
                "",
                [(_rate("offloader_entries_total", "namespace", where=OF_NAMESPACES), "{{namespace}}")],
                "cps",
                stacked=True,
            ),
            Panel(
                "Segment sizes",
                "",
                [(_quantile(q, "offloader_segment_size_bytes"), f"{q:.0%}") for q in (0.5, 0.95)],
                "bytes",
            ),
            Panel(
                "Seals",
                "From complete to commit.",
                [(_quantile(q, "offloader_seal_seconds"), f"{q:.0%}") for q in (0.5, 0.95)],
                "s",
            ),
            Panel(
                "Waiting for rate limits",
                "Seconds of waiting a second.",
                [(_rate("offloader_throttled_seconds_total", "namespace", where=OF_NAMESPACES), "{{namespace}}")],
                "s",
            ),
        ),
    ),
    (
        "Lanes, the main loop and the store",
        (
            Panel("Topics by lane", "", [("sum by (lane) (offloader_lane_topics)", "{{lane}}")]),
            Panel(
                "Batch under way",
                "For how long.",
                [("max by (lane) (offloader_batch_age_seconds)", "{{lane}}")],
                "s",
            ),
            Panel("Batches", "", [(_quantile(0.95, "offloader_batch_seconds", "lane"), "{{lane}} 95%")], "s"),
            Panel(
                "Rounds of the main loop",
                "They wait for the journal alone.",
                [
                    (_quantile(0.99, "offloader_round_seconds"), "99%"),
                    ("max(offloader_longest_round_seconds)", "longest since the start"),
                ],
                "s",
            ),
            Panel(
                "Oldest work by kind",
                "It grows for one kind: what that asks does not answer.",
                [("max by (kind) (offloader_work_oldest_seconds) > 0", "{{kind}}")],
                "s",
            ),
            Panel("Work that waits", "", [("sum by (kind) (offloader_work_queued) > 0", "{{kind}}")], stacked=True),
            Panel(
                "Calls to the store",
                "Of the main process.",
                [(_rate("offloader_store_requests_total", "verb"), "{{verb}}")],
                "reqps",
                stacked=True,
            ),
            Panel(
                "Calls to the store that failed",
                "",
                [
                    (
                        _rate("offloader_store_requests_total", "verb", "outcome", where='{outcome!="ok"}'),
                        "{{verb}} {{outcome}}",
                    )
                ],
                "reqps",
            ),
            Panel(
                "How long the store takes",
                "",
                [(_quantile(0.95, "offloader_store_seconds", "verb"), "{{verb}} 95%")],
                "s",
            ),
        ),
    ),
    (
        "Shards",
        (
            Panel(
                "Shards that nobody runs, and those that are run for others",
                "Of an application in several processes; docs/scaling.md.",
                [
                    ("max(offloader_shards_silent)", "silent"),
                    ("sum by (instance) (offloader_shards_stood_in)", "{{instance}} stands in"),
                ],
                width=12,
            ),
            Panel(
                "Topics on their way to another shard",
                "",
                [
                    ("sum by (instance) (offloader_shard_strangers)", "{{instance}} has others'"),
                    ("sum by (instance) (offloader_shard_waiting)", "{{instance}} waits for"),
                    (_rate("offloader_shard_passed_on_total", "instance"), "{{instance}} passed on, a second"),
                ],
                width=12,
            ),
        ),
    ),
    (
        "Subscriptions, bridge and the end of data",
        (
            Panel(
                "Bridges by state",
                "Topics that brokers are to read.",
                [("sum by (state) (offloader_bridge_topics)", "{{state}}")],
                stacked=True,
            ),
            Panel(
                "Not bridged yet",
                "Of closed ledgers.",
                [("sum by (namespace) (offloader_bridge_lag_bytes)", "{{namespace}}")],
                "bytes",
                stacked=True,
            ),
            Panel(
                "Bridge's failures",
                "",
                [(_rate("offloader_bridge_failures_total", "step"), "{{step}}")],
            ),
            Panel(
                "Deletions by state",
                "",
                [("sum by (type, state) (offloader_deletion_records)", "{{type}} {{state}}")],
                stacked=True,
            ),
            Panel(
                "Why nothing is deleted",
                "Reasons against every deletion; records that cannot be read; deletions given up.",
                [
                    ("sum(offloader_deletion_refusals)", "reasons"),
                    ("sum(offloader_deletion_damaged_records)", "damaged records"),
                    ("sum(offloader_deletion_gave_up_total)", "given up"),
                ],
            ),
            Panel(
                "Kept past retention",
                "Bytes of topics that nobody has loaded.",
                [("sum by (reason) (offloader_visits_not_freed_bytes)", "{{reason}}")],
                "bytes",
                stacked=True,
            ),
            Panel(
                "Oldest copy of subscriptions",
                "",
                [("max(offloader_cursor_copy_oldest_seconds)", "since the last look")],
                "s",
            ),
            Panel(
                "Copies of subscriptions",
                "",
                [
                    (_rate("offloader_cursor_copies_total", "namespace", where=OF_NAMESPACES), "{{namespace}}"),
                    (
                        _rate("offloader_cursor_copy_failures_total", "namespace", where=OF_NAMESPACES),
                        "{{namespace}} failed",
                    ),
                ],
            ),
            Panel(
                "Removals of subscriptions",
                "That have not ended.",
                [("sum by (state) (offloader_cursor_removals_pending)", "{{state}}")],
                stacked=True,
            ),
        ),
    ),
    (
        "Gateway",
        (
            Panel(
                "Clients",
                "",
                [
                    ("sum by (instance) (offloader_gateway_connections)", "{{instance}} connections"),
                    ("sum by (instance) (offloader_gateway_consumers)", "{{instance}} consumers"),
                ],
            ),
            Panel(
                "Delivered",
                "Those that came again, too.",
                [(_rate("offloader_gateway_bytes_total", "namespace", where=OF_NAMESPACES), "{{namespace}}")],
                "Bps",
                stacked=True,
            ),
            Panel(
                "Messages",
                "",
                [
                    (_rate("offloader_gateway_messages_total", "namespace", where=OF_NAMESPACES), "{{namespace}}"),
                    (
                        _rate("offloader_gateway_redelivered_entries_total", "namespace", where=OF_NAMESPACES),
                        "{{namespace}} again",
                    ),
                ],
                "cps",
            ),
            Panel(
                "Acknowledgements that wait to be written",
                "Above some gateway.flushInterval: they would be forgotten.",
                [("max by (instance) (offloader_gateway_unwritten_seconds)", "{{instance}}")],
                "s",
            ),
            Panel(
                "Oldest work by kind",
                "",
                [("max by (instance, kind) (offloader_gateway_work_age_seconds) > 0", "{{instance}} {{kind}}")],
                "s",
            ),
            Panel(
                "How long work takes",
                "",
                [(_quantile(0.95, "offloader_gateway_work_seconds", "kind"), "{{kind}} 95%")],
                "s",
            ),
            Panel(
                "Topics",
                "",
                [
                    ("sum by (instance) (offloader_gateway_topics)", "{{instance}} served"),
                    ("sum by (instance) (offloader_gateway_owned_topics)", "{{instance}} owned"),
                    ("sum by (instance) (offloader_gateway_away)", "{{instance}} away"),
                ],
            ),
            Panel(
                "Changes of owners",
                "",
                [(_rate("offloader_gateway_ownership_changes_total", "instance", "change"), "{{instance}} {{change}}")],
            ),
            Panel(
                "Refused, and sent away",
                "",
                [
                    (_rate("offloader_gateway_refused_total", "error"), "{{error}}"),
                    (_rate("offloader_gateway_connections_full_total", "instance"), "{{instance}} full"),
                ],
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """What Grafana imports."""
    return {
        "uid": "pulsar-offloader",
        "title": "Pulsar offloader",
        "tags": ["pulsar", "offloader"],
        "schemaVersion": 39,
        "timezone": "browser",
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "graphTooltip": 1,
        "templating": {"list": [_source(), _namespaces()]},
        "panels": _panels(),
    }


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _namespaces() -> dict[str, Any]:
    query = "label_values(offloader_read_bytes_total, namespace)"
    return {
        "name": "namespace",
        "label": "namespace",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": "namespaces"},
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        place = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": place})
        top, left, high = top + 1, 0, 0
        for panel in row:
            if left + panel.width > COLUMNS:
                top, left = top + high, 0
            high = SMALL if panel.kind == "stat" else HEIGHT
            panels.append(_panel(panel, len(panels) + 1, {"x": left, "y": top, "w": panel.width, "h": high}))
            left += panel.width
        top += high
    return panels


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": place,
        "targets": [
            {"refId": chr(ord("A") + n), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
            for n, (expression, legend) in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _stat() if panel.kind == "stat" else _series(),
    }


def _field(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.bad is not None:
        steps.append({"color": "red", "value": panel.bad})
    field: dict[str, Any] = {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        field["custom"] = {"fillOpacity": 25 if panel.stacked else 5, "lineWidth": 1, "stacking": stacking}
    return field


def _stat() -> dict[str, Any]:
    return {"colorMode": "value", "graphMode": "area", "reduceOptions": {"calcs": ["lastNotNull"], "values": False}}


def _series() -> dict[str, Any]:
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def render() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
