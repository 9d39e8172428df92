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


def counter(name: str, meaning: str, *labels: str) -> Definition:
    """`name`: without `_total`."""
    return Definition("counter", name, labels, meaning)


def gauge(name: str, meaning: str, *labels: str) -> Definition:
    """Goes up and down."""
    return Definition("gauge", name, labels, meaning)


def histogram(name: str, meaning: str, *labels: str, buckets: tuple[float, ...] = SECONDS) -> Definition:
    """By default of seconds."""
    return Definition("histogram", name, labels, meaning, buckets)


RATE = gauge("brk_ledgeroffloader_offload_rate", "Bytes uploaded a second, over the last minute.", "namespace")
ERRORS = counter("brk_ledgeroffloader_offload_error", "Failures of slices and seals.", "namespace")
WRITE_ERRORS = counter(
    "brk_ledgeroffloader_write_storage_error", "Writes of the main process to the store that failed."
)

OFFLOADED_BYTES = counter("offloader_bytes", "Object bytes uploaded, in parts that the journal took.", "namespace")
OFFLOADED_ENTRIES = counter("offloader_entries", "Entries uploaded, in parts that the journal took.", "namespace")
OFFLOADED_PARTS = counter("offloader_parts", "Parts uploaded that the journal took.", "namespace")
READ_BYTES = counter("offloader_read_bytes", "Entry bytes read from Pulsar, uploaded or not.", "namespace")
SEGMENTS = counter("offloader_segments", "Segments committed, by what closed them.", "namespace", "reason")
SEGMENT_SIZE = histogram("offloader_segment_size_bytes", "Sizes of committed segments.", buckets=BYTES)
SEAL_SECONDS = histogram("offloader_seal_seconds", "Duration of seals, from complete to commit.")
FAILURES = counter("offloader_failures", "Failures of slices and seals, by kind.", "namespace", "kind")
GAPS = counter("offloader_gap_entries", "Entries that Pulsar does not deliver, recorded as gaps.", "namespace", "kind")
UNREADABLE = counter(
    "offloader_unreadable_entries", "Entries uploaded that are no messages: copied as they are.", "namespace"
)
LOSSES = counter("offloader_losses", "Loss records: ranges that were gone before they were offloaded.", "namespace")
PIN_MOVED = counter("offloader_pin_moved", "Subscriptions found moved past data that is not offloaded.", "namespace")
ABANDONED = counter("offloader_uploads_abandoned", "Uploads given up; their range is uploaded again.", "namespace")
THROTTLED = counter("offloader_throttled_seconds", "Time that topics waited for a rate limit.", "namespace")
DROPPED = counter("offloader_receipts_dropped", "Receipts that do not continue the journal's state.", "reason")
BATCH_SECONDS = histogram("offloader_batch_seconds", "Duration of micro-batches, from plan to journal.", "lane")
BATCH_SLICES = counter("offloader_slices", "Slices planned.", "lane")
JOURNAL_RECORDS = counter("offloader_journal_records", "Records appended to the journal.")
JOURNAL_BYTES = counter("offloader_journal_bytes", "Bytes appended to the journal.")
REQUESTS = counter("offloader_requests", "Requests from the command line, answered.", "command", "outcome")
STORE_REQUESTS = counter(
    "offloader_store_requests",
    "Calls of the main process to the store; retries within one not counted. That something is not there is `ok`.",
    "verb",
    "outcome",
)
STORE_SECONDS = histogram("offloader_store_seconds", "Duration of calls to the store, with retries.", "verb")
PAUSED_BYTES = gauge(
    "offloader_paused_bytes",
    "Bytes that the subscriptions of paused topics keep in BookKeeper; what counts against a backlog quota.",
    "namespace",
)
STATES = gauge("offloader_topics", "Topics by state.", "state")
LAG_BYTES = gauge("offloader_lag_bytes", "Bytes in the topic that are not in a committed segment.", "topic")
LAG_SECONDS = gauge("offloader_lag_seconds", "Age of the oldest entry that is not in a committed segment.", "topic")
PINNED_BYTES = gauge("offloader_pinned_bytes", "Bytes that the subscription keeps in BookKeeper.", "topic")
PINNED_SECONDS = gauge("offloader_pinned_seconds", "Age of the oldest entry that the subscription keeps.", "topic")
TICKED = gauge("offloader_loop_age_seconds", "Time since the main loop last turned.")
BATCH_AGE = gauge(
    "offloader_batch_age_seconds", "For how long the present micro-batch has been under way, 0 without one.", "lane"
)
LANE_TOPICS = gauge("offloader_lane_topics", "Topics by the lane that they travel in.", "lane")
ROUND_SECONDS = histogram(
    "offloader_round_seconds", "Duration of the main loop's rounds; they wait for the journal alone."
)
LONGEST_ROUND = gauge("offloader_longest_round_seconds", "The longest round of the main loop so far.")
WORK_QUEUED = gauge("offloader_work_queued", "Work of the main loop that waits for a thread.", "kind")
WORK_RUNNING = gauge("offloader_work_running", "Work of the main loop that is being done.", "kind")
WORK_AGE = gauge("offloader_work_oldest_seconds", "Age of the oldest work of the main loop.", "kind")

DELETION_SENT = counter("offloader_deletion_sent", "Deletions sent to PIP-186's system topic.", "type")
DELETION_NOT_SENT = counter(
    "offloader_deletion_not_sent", "Deletions that were not sent to PIP-186's system topic, and why.", "why"
)
DELETION_RECEIVED = counter("offloader_deletion_received", "Messages received from PIP-186's system topic.")
DELETION_MESSAGES = counter(
    "offloader_deletion_messages",
    "Messages of PIP-186's system topic, by what became of them: acknowledged, sent again, gave up.",
    "outcome",
)
DELETION_ACKNOWLEDGED = counter(
    "offloader_deletion_acknowledged", "Deletions that came to an end, whichever: nothing is left to do.", "type"
)
DELETION_DELETED = counter("offloader_deletion_deleted", "Ledgers deleted.", "type")
DELETION_ENDED = counter(
    "offloader_deletion_ended", "Deletions that came to an end, by their answer.", "type", "answer"
)
DELETION_FAILED = counter("offloader_deletion_failed", "Looks and tries that came to nothing; repeated.", "type")
DELETION_GAVE_UP = counter(
    "offloader_deletion_gave_up", "Deletions given up: an operator retries or drops them.", "type"
)
DELETION_PENDING = gauge("offloader_deletion_records", "Records of deletions, by state.", "type", "state")
DELETION_IN_FLIGHT = gauge(
    "offloader_deletion_in_flight", "Deletions whose second phase is still to come, or under way.", "type"
)
DELETION_DAMAGED = gauge("offloader_deletion_damaged_records", "Records of deletions that cannot be read.")
DELETION_REFUSALS = gauge("offloader_deletion_refusals", "Reasons why nothing at all is deleted now.")
ORPHANS = gauge(
    "offloader_orphans",
    "Orphans that the last scheduled scan found: confirmed, suspected, or with data.",
    "side",
    "class",
)
ORPHAN_BYTES = gauge("offloader_orphans_bytes", "Bytes of these orphans, one copy.", "side", "class")
ORPHANS_QUARANTINED = counter("offloader_orphans_quarantined", "Orphans that scheduled scans quarantined.", "side")
ORPHAN_SCANS = counter("offloader_orphan_scans", "Scheduled scans for orphans that came to an end.", "side")
ORPHAN_SCAN_REFUSALS = gauge(
    "offloader_orphan_scan_refusals", "Reasons why the last scheduled scan quarantined nothing.", "side"
)

VISITS = counter("offloader_visits", "Visits of topics that nobody had loaded, by what came of them.", "end")
VISITS_FREED = counter("offloader_visits_freed_bytes", "Bytes of ledgers that retention dropped at visits.")
VISITS_DUE = gauge("offloader_visits_due_topics", "Topics that were due for a visit at the last look at all topics.")
VISITS_NOT_FREED = gauge(
    "offloader_visits_not_freed_bytes",
    "Bytes of unloaded topics that retention alone would not keep, at the last look at all topics, by why they stay: "
    "a visit is due, waits for others to expire, or was in vain; or whose cursor holds most.",
    "reason",
)
VISITS_PASSED_OVER = gauge(
    "offloader_visits_passed_over_topics", "Topics that cannot be visited, at the last look at all topics.", "reason"
)
CURSOR_REMOVALS = counter(
    "offloader_cursor_removals",
    "Removals of subscriptions, by what came of them: marked, removed, kept, gave up; or failed, and repeated.",
    "outcome",
)
CURSOR_REMOVALS_PENDING = gauge(
    "offloader_cursor_removals_pending", "Removals of subscriptions that have not ended, by state.", "state"
)
CURSOR_REMOVALS_IN_FLIGHT = gauge(
    "offloader_cursor_removals_in_flight",
    "Removals of subscriptions whose second phase is still to come, or under way.",
)
BRIDGE_ROUNDS = counter(
    "offloader_bridge_rounds",
    "Rounds that made ledgers readable for brokers, by what came of them: proven, withdrawn, dropped.",
    "namespace",
    "outcome",
)
BRIDGE_LEDGERS = counter("offloader_bridge_ledgers", "Ledgers that brokers were proven to read.", "namespace")
BRIDGE_BYTES = counter("offloader_bridge_bytes", "Bytes of objects that brokers were proven to read.", "namespace")
BRIDGE_PAUSE = histogram(
    "offloader_bridge_swap_seconds", "From the first unload of a topic for a round to its proof, failed ones too."
)
BRIDGE_FAILURES = counter("offloader_bridge_failures", "Steps of bridges that failed; they are repeated.", "step")
BRIDGE_LAG = gauge("offloader_bridge_lag_ledgers", "Closed ledgers that are not bridged yet.", "namespace")
BRIDGE_LAG_BYTES = gauge("offloader_bridge_lag_bytes", "Bytes of those ledgers in BookKeeper.", "namespace")
BRIDGE_TOPICS = gauge("offloader_bridge_topics", "Topics that brokers are to read, by state of their bridge.", "state")
BRIDGE_REPAIRS = counter(
    "offloader_bridge_repairs",
    "Looks at bridged ledgers that were not offloaded, by what came of them.",
    "outcome",
)

CURSOR_COPIES = counter("offloader_cursor_copies", "Copies of topics' subscriptions written.", "namespace")
CURSOR_COPY_FAILURES = counter(
    "offloader_cursor_copy_failures", "Looks at topics' subscriptions that failed; repeated.", "namespace"
)
CURSOR_COPY_AGE = gauge(
    "offloader_cursor_copy_oldest_seconds",
    "Of the topics whose subscriptions are copied: the longest time since the last look that succeeded.",
)
FACTS_FAILURES = counter("offloader_topic_facts_failures", "Looks at topics' schemas that failed; repeated.")

SHARDS_STOOD_IN = gauge("offloader_shards_stood_in", "Other shards that this process runs, because theirs do not.")
SHARDS_SILENT = gauge("offloader_shards_silent", "Shards of which no process shows a sign of life.")
SHARD_STRANGERS = gauge("offloader_shard_strangers", "Topics that this shard has and that are dealt to another one.")
SHARD_WAITING = gauge("offloader_shard_waiting", "Topics that are dealt to this shard and that another one has.")
SHARD_PASSED_ON = counter("offloader_shard_passed_on", "Topics that were passed on to another shard.")
SHARD_TAKEOVERS = counter("offloader_shard_takeovers", "How often this process began to run another shard.")

ALL = tuple(value for value in list(globals().values()) if isinstance(value, Definition))
