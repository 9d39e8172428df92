"""The section `lifecycle`: what may go, when, and how much at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, field_validator

from offloader.bookkeeper.uri import parse_uri
from offloader.config.problems import ConfigProblem
from offloader.config.section import Section
from offloader.config.units import Delay, TimeInSeconds, Wait, format_time
from offloader.config.urls import store_url
from offloader.errors import ConfigError

HOUR_MS = 3_600_000
SystemTopicUse = Literal["off", "publish", "accept", "both"]


class PendingLimits(Section):
    """How much may go at once: more looks like a wrong chroot, or metadata that were restored."""

    number: int = Field(10_000, ge=1, description="Most deletions that may be pending.")
    percent: int = Field(25, ge=1, le=100, description="The same, of all ledgers of the cluster.")
    a_round: int = Field(100, ge=1, description="Most deletions of one round; one scan serves all rounds.")


class Visits(Section):
    """How topics are visited that no broker has loaded, so that retention counts for them."""

    at_once: int = Field(4, ge=1, le=64, description="Topics that are loaded at a time.")
    a_minute: int = Field(60, ge=1, description="Most visits a minute.")
    interval_ms: Delay = Field(3_600_000, gt=0, description="How often the application looks for such topics.")


class OrphanScan(Section):
    """Scans for orphans that the application makes by itself."""

    interval_ms: Delay | None = Field(
        None,
        gt=0,
        description="How often the application scans BookKeeper and the archive for orphans; by default never.",
    )
    quarantine: bool = Field(
        False,
        description="Quarantine the confirmed orphans that a scan finds. Never quarantined: orphans with data, ledgers "
        "of absent topics or namespaces, open ledgers, and ledgers and objects that brokers have copied.",
    )
    most: int = Field(
        100, ge=1, description="Most new orphans of a side that one scan quarantines; if there are more, it takes none."
    )


class Lifecycle(Section):
    """The end of data."""

    bookkeeper_is_not_shared: bool = Field(
        False,
        description="Nobody but this Pulsar cluster (and those whose stores `metadataStores` names) keeps ledgers in "
        "its BookKeeper. Clusters that share one cannot be told apart, so without this nothing is certain and nothing "
        "is deleted.",
    )
    bucket_is_not_shared: bool = Field(
        False,
        description="No other Pulsar cluster (but those whose stores `metadataStores` names) offloads into the bucket "
        "that `--stock` or `stockBucket` names. Objects there have only their cluster's name, so without this nothing "
        "of Pulsar's own offloader is certain and nothing is deleted.",
    )
    metadata_stores: list[str] = Field(
        default_factory=list,
        description="The metadata stores of the other Pulsar clusters that share this BookKeeper, all of them: "
        "`zk://host:2181/chroot`. They are read, too.",
    )
    cluster_names: list[str] = Field(
        default_factory=list,
        description="Former names of this cluster, and names of those in `metadataStores`: a health check's ledger "
        "that names any other stops all deletion.",
    )
    stock_bucket: str = Field(
        "",
        description="The bucket of Pulsar's own offloader as a URL, reached as `storage` is. A ledger that its list "
        "calls deleted from BookKeeper, and that is still there, goes only where its copy reads back from there.",
    )
    topic_two_phase_deletion_enabled: bool = Field(
        False,
        description="Run the second phase of deletions in the application. Off with deletions pending: they stay; on "
        "again: evidence and delay begin anew.",
    )
    two_phase_deletion_ledger_deletion_parallelism: int = Field(
        4, ge=1, le=64, description="Deletions that are made at a time."
    )
    reconsume_later_ms: TimeInSeconds = Field(
        600_000,
        gt=0,
        alias="twoPhaseDeletionReconsumeLaterInSeconds",
        description="Before the second try; each time twice as long.",
    )
    two_phase_deletion_max_retry_delete_count: int = Field(
        10, ge=1, description="Tries after which a deletion is given up, and waits for an operator."
    )
    quarantine_ms: Delay = Field(
        86_400_000,
        gt=0,
        description="How long what is marked, a ledger, an object or a subscription, stays undoable, before it is "
        "looked at again and goes.",
    )
    longest_compaction_ms: Delay = Field(
        0, ge=0, description="The longest that a topic's compaction takes: the quarantine is at least twice as long."
    )
    quarantine_floor_ms: Delay = Field(
        3_600_000,
        ge=0,
        description="The quarantine is longer than this whatever else is set, and an object that is younger is no "
        "orphan. Below 1h for tests only: then `archiveGrace` and `removeCursorsAfter` may be as short, and "
        "`offloader doctor` fails.",
    )
    record_retention_ms: Delay = Field(
        30 * 86_400_000, gt=0, description="How long the record of a deletion that has ended is kept."
    )
    deletion_interval_ms: Wait = Field(
        600_000, gt=0, description="How often the application looks which deletions are due."
    )
    limits: PendingLimits = PendingLimits()
    system_topic: SystemTopicUse = Field(
        "off",
        description="PIP-186's system topic. `publish`: a ledger is sent there when its second phase begins, "
        "which needs `topicTwoPhaseDeletionEnabled`. "
        "`accept`: what others send there is looked at, as a candidate. `both`, or `off`.",
    )
    visit_unloaded: bool = Field(
        False, description="Visit topics that no broker has loaded, so that their retention is applied."
    )
    visits: Visits = Visits()
    orphan_scan: OrphanScan = OrphanScan()
    remove_cursors_after_ms: Delay | None = Field(
        None,
        gt=0,
        description="Remove subscriptions that nobody has used for so long, at least 1h, in two phases; never "
        "replicated ones, nor offload subscriptions of other archives. By default none is removed.",
    )
    archive_grace_ms: Delay = Field(
        86_400_000,
        gt=0,
        description="Between the record that a segment goes and the deletion of its objects, at least 1h: longer than "
        "the longest read of the archive.",
    )

    @field_validator("stock_bucket")
    @classmethod
    def _stock_bucket(cls, value: str) -> str:
        return store_url(value) if value else ""

    @field_validator("metadata_stores")
    @classmethod
    def _metadata_stores(cls, value: list[str]) -> list[str]:
        for one in value:
            try:
                parse_uri(one, "")
            except ConfigError as error:
                raise ValueError(f"{one!r} names no ZooKeeper; write zk://host:2181/chroot") from error
        return value


def unreachable(section: Lifecycle, *, has_bookies: bool) -> Iterator[ConfigProblem]:
    """What is switched on and cannot be done."""
    if section.system_topic in ("publish", "both") and not section.topic_two_phase_deletion_enabled:
        yield ConfigProblem(
            ("lifecycle", "systemTopic"), "what is deleted is sent there: set topicTwoPhaseDeletionEnabled, too"
        )
    if has_bookies:
        return
    for name, on, what in (
        ("topicTwoPhaseDeletionEnabled", section.topic_two_phase_deletion_enabled, "ledgers are looked at"),
        ("orphanScan", section.orphan_scan.interval_ms is not None, "ledgers are scanned"),
        ("visitUnloaded", section.visit_unloaded, "topics that no broker has loaded are found"),
        ("removeCursorsAfter", section.remove_cursors_after_ms is not None, "subscriptions are looked at"),
        ("systemTopic", section.system_topic in ("accept", "both"), "what others ask for is looked at"),
    ):
        if on:
            yield ConfigProblem(("lifecycle", name), f"{what} in ZooKeeper: set pulsar.metadataServiceUri, too")


def too_short(section: Lifecycle) -> Iterator[ConfigProblem]:
    """What would go before anybody can be sure that nobody uses it. Only tests lower the floor."""
    floor = min(section.quarantine_floor_ms, HOUR_MS)
    for name, time_ms, why in (
        ("archiveGrace", section.archive_grace_ms, "make it longer than the longest read of the archive"),
        ("removeCursorsAfter", section.remove_cursors_after_ms, "who only restarts must find it again"),
    ):
        if time_ms is not None and time_ms < floor:
            said = f"{format_time(time_ms)} is less than {format_time(floor)}: {why}"
            yield ConfigProblem(("lifecycle", name), said)
