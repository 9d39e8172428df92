"""All series, by name. Names that stock Pulsar has for the same thing are kept (`brk_ledgeroffloader_*`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
BYTES = tuple(float(1 << n) for n in (16, 18, 20, 22, 24, 26, 28, 30, 31))


@dataclass(frozen=True, slots=True)
class Definition:
    """One family of series. A counter's series end in `_total`. `buckets`: of a histogram."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()

    @property
    def exposed(self) -> str:
        """The name as it is queried."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


RATE = Definition(
    "gauge", "brk_ledgeroffloader_offload_rate", ("namespace",), "Bytes uploaded a second, over the last minute."
)
ERRORS = Definition("counter", "brk_ledgeroffloader_offload_error", ("namespace",), "Failures of slices and seals.")
WRITE_ERRORS = Definition(
    "counter", "brk_ledgeroffloader_write_storage_error", (), "Writes of the main process to the store that failed."
)

OFFLOADED_BYTES = Definition(
    "counter", "offloader_bytes", ("namespace",), "Object bytes uploaded, in parts that the journal took."
)
OFFLOADED_ENTRIES = Definition(
    "counter", "offloader_entries", ("namespace",), "Entries uploaded, in parts that the journal took."
)
OFFLOADED_PARTS = Definition("counter", "offloader_parts", ("namespace",), "Parts uploaded that the journal took.")
READ_BYTES = Definition(
    "counter", "offloader_read_bytes", ("namespace",), "Entry bytes read from Pulsar, uploaded or not."
)
SEGMENTS = Definition(
    "counter", "offloader_segments", ("namespace", "reason"), "Segments committed, by what closed them."
)
SEGMENT_SIZE = Definition("histogram", "offloader_segment_size_bytes", (), "Sizes of committed segments.", BYTES)
SEAL_SECONDS = Definition(
    "histogram", "offloader_seal_seconds", (), "Duration of seals, from complete to commit.", SECONDS
)
FAILURES = Definition("counter", "offloader_failures", ("namespace", "kind"), "Failures of slices and seals, by kind.")
GAPS = Definition(
    "counter", "offloader_gap_entries", ("namespace", "kind"), "Entries that Pulsar does not deliver, recorded as gaps."
)
UNREADABLE = Definition(
    "counter",
    "offloader_unreadable_entries",
    ("namespace",),
    "Entries uploaded that are no messages: copied as they are.",
)
LOSSES = Definition(
    "counter", "offloader_losses", ("namespace",), "Loss records: ranges that were gone before they were offloaded."
)
PIN_MOVED = Definition(
    "counter", "offloader_pin_moved", ("namespace",), "Subscriptions found moved past data that is not offloaded."
)
ABANDONED = Definition(
    "counter", "offloader_uploads_abandoned", ("namespace",), "Uploads given up; their range is uploaded again."
)
THROTTLED = Definition(
    "counter", "offloader_throttled_seconds", ("namespace",), "Time that topics waited for a rate limit."
)
DROPPED = Definition(
    "counter", "offloader_receipts_dropped", ("reason",), "Receipts that do not continue the journal's state."
)
BATCH_SECONDS = Definition(
    "histogram", "offloader_batch_seconds", ("lane",), "Duration of micro-batches, from plan to journal.", SECONDS
)
BATCH_SLICES = Definition("counter", "offloader_slices", ("lane",), "Slices planned.")
JOURNAL_RECORDS = Definition("counter", "offloader_journal_records", (), "Records appended to the journal.")
JOURNAL_BYTES = Definition("counter", "offloader_journal_bytes", (), "Bytes appended to the journal.")
REQUESTS = Definition(
    "counter", "offloader_requests", ("command", "outcome"), "Requests from the command line, answered."
)
STORE_REQUESTS = Definition(
    "counter",
    "offloader_store_requests",
    ("verb", "outcome"),
    "Calls of the main process to the store; retries within one not counted.",
)
STORE_SECONDS = Definition(
    "histogram", "offloader_store_seconds", ("verb",), "Duration of calls to the store, with retries.", SECONDS
)
STATES = Definition("gauge", "offloader_topics", ("state",), "Topics by state.")
LAG_BYTES = Definition(
    "gauge", "offloader_lag_bytes", ("topic",), "Bytes in the topic that are not in a committed segment."
)
LAG_SECONDS = Definition(
    "gauge", "offloader_lag_seconds", ("topic",), "Age of the oldest entry that is not in a committed segment."
)
PINNED_BYTES = Definition(
    "gauge", "offloader_pinned_bytes", ("topic",), "Bytes that the subscription keeps in BookKeeper."
)
PINNED_SECONDS = Definition(
    "gauge", "offloader_pinned_seconds", ("topic",), "Age of the oldest entry that the subscription keeps."
)
TICKED = Definition("gauge", "offloader_loop_age_seconds", (), "Time since the main loop last turned.")
BATCH_AGE = Definition(
    "gauge",
    "offloader_batch_age_seconds",
    ("lane",),
    "For how long the present micro-batch has been under way, 0 without one.",
)
LANE_TOPICS = Definition("gauge", "offloader_lane_topics", ("lane",), "Topics by the lane that they travel in.")
ROUND_SECONDS = Definition(
    "histogram",
    "offloader_round_seconds",
    (),
    "Duration of the main loop's rounds; they wait for the journal alone.",
    SECONDS,
)
LONGEST_ROUND = Definition("gauge", "offloader_longest_round_seconds", (), "The longest round of the main loop so far.")
WORK_QUEUED = Definition("gauge", "offloader_work_queued", ("kind",), "Work of the main loop that waits for a thread.")
WORK_RUNNING = Definition("gauge", "offloader_work_running", ("kind",), "Work of the main loop that is being done.")
WORK_AGE = Definition("gauge", "offloader_work_oldest_seconds", ("kind",), "Age of the oldest work of the main loop.")

ALL = tuple(value for value in list(globals().values()) if isinstance(value, Definition))
