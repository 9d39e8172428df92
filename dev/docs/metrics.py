"""Writes docs/metrics.md from the definitions: `python -m dev.docs.metrics docs/metrics.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from dev.docs.lines import wrapped
from offloader.metrics import gateway
from offloader.metrics.definitions import ALL, Definition

_INTRO = """\
# Metrics and health

Generated from the code by `python -m dev.docs.metrics docs/metrics.md`; a test keeps it up to date.

The application listens on `metrics.host`:`metrics.port` (127.0.0.1:9464 by default, port 0 turns it off):

| path | says |
| --- | --- |
| `/metrics` | the series below, in Prometheus' text format or as OpenMetrics |
| `/healthz` | 200 while the main loop turns, or waits for the store within its retry deadline, and batches end, \
and for the first ten minutes of a start; 503 when it has not for `metrics.livenessTimeout`, or a batch has not ended \
`metrics.batchTimeout` after the time that its slices may take, or the store has said for ten minutes that our credentials have expired: restart the process |
| `/readyz` | 200 when the store and Pulsar answered when they were last asked; 503 and the reason otherwise: do not restart |
| `/` | a [page](pages.md#the-page-of-the-application) for people: who needs you, how far each topic is, the last hour |

The address is loopback unless the configuration says otherwise. There only this machine is answered, by the name
`localhost` or an address of loopback, and not through a proxy that says so; others get 403. At any other address there
is no access control but for the page.

All series are those of the main process. What workers read and upload is counted when their receipts are taken, so
each part counts once however often a task was tried. Names that stock Pulsar has for the same thing are kept
(`brk_ledgeroffloader_*`).

"""

_TOPICS = """
**The label `topic`**: only the `metrics.maxTopicLabels` topics that lag most have series of their own, the rest stand
together under `other`: bytes added up, of the ages the greatest. So the sum over all topics is always complete, and
the number of series bounded.

**A dashboard** for Grafana is in `conf/grafana/offloader.json`, **rules** for Prometheus in
`conf/prometheus/offloader.rules.yaml`: each alert says what to do, in a line and by a place of
[running.md](running.md). Both are of all three processes.

**Worth an alert**

* `offloader_lag_seconds` above twice `maxOffloadSegmentRolloverTimeInSeconds`: a topic does not advance.
* `offloader_pinned_bytes` that grows while `offloader_lag_bytes` does not: acknowledgements do not arrive.
* any increase of `offloader_pin_moved_total` or `offloader_losses_total`: data may be missing from the archive.
* any increase of `offloader_failures_total{kind="integrity"}`: bytes or records are not what they must be.
* any increase of `offloader_deletion_gave_up_total` or `offloader_cursor_removals_total{outcome="gave up"}`: an operator
  has to decide.
* `offloader_visits_not_freed_bytes{reason="due"}` or `"in vain"` that lasts for days: visits do not keep up, or free
  nothing.
"""


_GATEWAY = """
## The gateway

`offloader gateway` listens on `gateway.metricsListen` (127.0.0.1:9466 by default, empty: nowhere), with the same three
paths, and `/status`, which `offloader gateway status` shows. It is ready when the store answered when it was last
asked, every ten seconds.

`offloader_gateway_owned_topics`, `offloader_gateway_ownership_changes_total`, `offloader_gateway_truces` and
`offloader_gateway_away` are there only with `gateway.durableSubscriptions: true`.

"""

_ALERTS = """
**Worth an alert**

* `offloader_gateway_unwritten_seconds` above some `gateway.flushInterval`: acknowledgements are not written, and would
  be forgotten.
* any increase of `offloader_gateway_connections_full_total`: clients are sent away.
* `offloader_gateway_work` that stays at 8 or more of a kind: threads wait for the store.
* `offloader_gateway_away` of 1, and any increase of `offloader_gateway_ownership_changes_total{change="overtaken"}`
  while gateways run: they do not reach the bucket, or each other.
* `offloader_gateway_work_age_seconds` above 60: the store neither answers nor fails.
"""


def render() -> str:
    """The page."""
    return wrapped(f"{_INTRO}{_table(ALL)}{_TOPICS}{_GATEWAY}{_table(gateway.ALL)}{_ALERTS}")


def _table(definitions: Iterable[Definition]) -> str:
    rows = "".join(
        f"| `{x.exposed}` | {x.kind} | {', '.join(f'`{label}`' for label in x.labels) or '-'} | {x.help} |\n"
        for x in definitions
    )
    return f"| series | type | labels | meaning |\n| --- | --- | --- | --- |\n{rows}"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
