"""Writes docs/metrics.md from the definitions: `python -m dev.docs.metrics docs/metrics.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from dev.docs.lines import wrapped
from offloader.metrics.definitions import ALL

_INTRO = """\
# Metrics and health

Generated from the code by `python -m dev.docs.metrics docs/metrics.md`; a test keeps it up to date.

The application listens on `metrics.host`:`metrics.port` (127.0.0.1:9464 by default, port 0 turns it off):

| path | says |
| --- | --- |
| `/metrics` | the series below, in Prometheus' text format or as OpenMetrics |
| `/healthz` | 200 while the main loop turns, or waits for the store within its retry deadline, and batches end; 503 when it has not for `metrics.livenessTimeout`, or a batch has not ended \
`metrics.batchTimeout` after the time that its slices may take: restart the process |
| `/readyz` | 200 when the store and Pulsar answered when they were last asked; 503 and the reason otherwise: do not restart |

There is no access control: the address is loopback unless the configuration says otherwise.

All series are those of the main process. What workers read and upload is counted when their receipts are taken, so
each part counts once however often a task was tried. Names that stock Pulsar has for the same thing are kept
(`brk_ledgeroffloader_*`).

"""

_TOPICS = """
**The label `topic`**: only the `metrics.maxTopicLabels` topics that lag most have series of their own, the rest stand
together under `other`: bytes added up, of the ages the greatest. So the sum over all topics is always complete, and
the number of series bounded.

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


def render() -> str:
    """The page."""
    rows = "".join(
        f"| `{x.exposed}` | {x.kind} | {', '.join(f'`{label}`' for label in x.labels) or '-'} | {x.help} |\n"
        for x in ALL
    )
    return wrapped(f"{_INTRO}| series | type | labels | meaning |\n| --- | --- | --- | --- |\n{rows}{_TOPICS}")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
