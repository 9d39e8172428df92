"""The fields of a policy, as one level of the file sets them and as a topic gets them after the merge.

An unset field is None at every level, and defaults come after the merge: a level that says nothing never shadows one
that does (Pulsar's own `OffloadPoliciesImpl` has defaults inside the levels and does shadow).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field

from offloader.config.section import Section
from offloader.config.units import SIZE, TIME, Size, Time, TimeInSeconds, at_least
from offloader.model import GIB, KIB, MIB, V2, V3, SegmentLayout, Source

# Values of the file; with a metadata service `broker` becomes `Source.BROKER_WITH_BOOKIES`.
ChosenSource = Literal[Source.BROKER, Source.BOOKKEEPER]

# Room for what an entry has besides its payload: message metadata, broker entry metadata, frame.
ENTRY_OVERHEAD = 64 * KIB


class PolicyLevel(Section):
    """What one level says; None: nothing."""

    enabled: bool | None = Field(
        None,
        description="Whether the topics are offloaded. A topic that was offloaded and is not enabled any more is "
        "paused: its subscription stays, and Pulsar keeps the data, until it is enabled again or released "
        "(`offloader topics release`).",
    )
    max_segment_size: Annotated[Size | None, at_least(1, SIZE)] = Field(
        None,
        alias="maxOffloadSegmentSizeInBytes",
        description="A segment is closed before it would exceed this; only a single larger entry exceeds it.",
    )
    max_rollover_ms: Annotated[TimeInSeconds | None, at_least(1, TIME)] = Field(
        None,
        alias="maxOffloadSegmentRolloverTimeInSeconds",
        description=(
            "A segment is closed at this age (up to 10 % earlier, spread by topic). The longest that an entry waits."
        ),
    )
    min_rollover_ms: TimeInSeconds | None = Field(
        None,
        alias="minOffloadSegmentRolloverTimeInSeconds",
        description="A segment that is not full is not closed by a request before this age.",
    )
    part_size: Annotated[Size | None, at_least(1, SIZE)] = Field(
        None,
        alias="partSizeInBytes",
        description=(
            "An upload part ends at the first block end at or past this; at least 5M on S3. Fixed when a segment is "
            "assigned."
        ),
    )
    equal_parts: bool | None = Field(
        None,
        description="Each upload part but the last has exactly `partSizeInBytes`, filled up with padding: Cloudflare "
        "R2 takes no others. An entry that does not fit begins the next part. Fixed when a segment is assigned.",
    )
    block_size: Annotated[Size | None, at_least(4 * KIB, SIZE)] = Field(
        None,
        alias="blockSizeInBytes",
        description="Longest block; an entry that is larger gets a block of its own. Fixed when a segment is assigned.",
    )
    index_step: Annotated[Size | None, at_least(4 * KIB, SIZE)] = Field(
        None,
        alias="indexStepInBytes",
        description=(
            "An index entry every so many bytes: what a reader reads in vain at most. Fixed when a segment is assigned."
        ),
    )
    max_entry_size: Annotated[Size | None, at_least(1, SIZE)] = Field(
        None,
        alias="maxEntrySizeInBytes",
        description="The brokers' `maxMessageSize`. A guard: with it a segment must stay below 2 GiB.",
    )
    fail_on_data_loss: bool | None = Field(
        None,
        description="Entries that are gone before they were offloaded stop the topic until somebody accepts the loss; "
        "`false` records the loss and goes on.",
    )
    pin_holds_last_entry: bool | None = Field(
        None,
        description="The last offloaded entry stays unacknowledged until a later segment is offloaded, so that "
        "whatever moves the subscription is noticed by its ledger being gone; the price is one ledger a topic that "
        "Pulsar keeps. `false` frees that ledger once it is closed, and gives this up: what message TTL, a skip or a "
        "reset removes behind it, while nobody looks, is missed silently.",
    )
    start_after_offloaded: bool | None = Field(
        None,
        description=(
            "Begin after the ledgers that Pulsar's own offloader has already copied, instead of refusing the topic."
        ),
    )
    broker_readable: bool | None = Field(
        None,
        description="Stock brokers, and so every Pulsar client, go on reading what is offloaded: each closed ledger is "
        "bridged, a V1 object made of the archive's blocks, before the subscription lets go of it. Needs "
        "`pulsar.metadataServiceUri`, and brokers with Pulsar's tiered-storage offloader; see docs/bridge.md.",
    )
    source: ChosenSource | None = Field(
        None,
        description="`broker`: what consumers get, and what they do not get as gaps or, with "
        "`pulsar.metadataServiceUri`, from bookies. `bookkeeper`: every entry from bookies, several times as fast for "
        "small ones. Fixed when a segment is assigned.",
    )
    max_bytes_per_second: Annotated[Size | None, at_least(1, SIZE)] = Field(
        None,
        description="Rate limit. Not merged, all three hold: at cluster level of the whole application, at namespace "
        "level of the namespace's topics together, at topic level of the topic (of each partition by itself).",
    )
    archive_retention_minutes: Annotated[int | None, Field(ge=-1)] = Field(
        None,
        alias="archiveRetentionTimeInMinutes",
        description="A segment of the archive goes so long after its newest message, and after it was sealed; -1: "
        "never. Whole segments, oldest first, never the newest of a topic that is offloaded. 0 only together with "
        "archiveRetentionSizeInMB 0, as in Pulsar: all but the newest is due at once, and goes after "
        "lifecycle.archiveGrace.",
    )
    archive_retention_mb: Annotated[int | None, Field(ge=-1)] = Field(
        None,
        alias="archiveRetentionSizeInMB",
        description="A segment goes where those behind it alone have so much; -1: any size stays. What is past the "
        "time or beyond the size goes, as in Pulsar.",
    )
    deleted_topic_retention_minutes: Annotated[int | None, Field(ge=-1)] = Field(
        None,
        alias="deletedTopicRetentionTimeInMinutes",
        description="The archive of a deleted topic, and of a former topic of the same name, goes so long after that "
        "was over; -1: only as the other two say.",
    )
    follow_pulsar_retention: bool | None = Field(
        None,
        description="A segment goes when Pulsar has deleted all of its ledgers (PIP-76). What Pulsar has deleted then "
        "exists nowhere. Not followed where the topic's retention in Pulsar is 0: `doctor` and `archive retention "
        "plan` say so.",
    )
    archive_cursors: bool | None = Field(
        None,
        description="The durable subscriptions of users are copied into the archive, as a history, at each seal (at "
        "most once a minute) and every `cursorInterval`, where they have changed; see docs/cursors.md. Which messages "
        "of batches are acknowledged needs `pulsar.metadataServiceUri`.",
    )
    cursor_interval_ms: Annotated[Time | None, at_least(1000, TIME)] = Field(
        None,
        alias="cursorInterval",
        description="How often the subscriptions are looked at, at least 1s. A look is three or four admin requests.",
    )
    keep_unacknowledged: bool | None = Field(
        None,
        description="Retention keeps what a durable subscription of the gateway has not acknowledged. `false`: what is "
        "deleted counts as acknowledged. A deletion on request is not bound by it.",
    )
    hold: str | None = Field(
        None,
        description="A name, for example of a legal hold: nothing of the archive goes as long as this is set, also no "
        "orphan in the bucket. What had begun to go stops where it is.",
    )


DEFAULTS: Mapping[str, object] = MappingProxyType(
    {
        "enabled": False,
        "max_segment_size": 1 * GIB,
        "max_rollover_ms": 600_000,
        "min_rollover_ms": 0,
        "part_size": 8 * MIB,
        "equal_parts": False,
        "block_size": 1 * MIB,
        "index_step": 256 * KIB,
        "max_entry_size": 5 * MIB,
        "fail_on_data_loss": True,
        "pin_holds_last_entry": True,
        "start_after_offloaded": False,
        "broker_readable": False,
        "source": Source.BROKER,
        "max_bytes_per_second": None,
        "archive_retention_minutes": -1,
        "archive_retention_mb": -1,
        "deleted_topic_retention_minutes": -1,
        "follow_pulsar_retention": False,
        "archive_cursors": False,
        "cursor_interval_ms": 300_000,
        "keep_unacknowledged": True,
        "hold": "",
    }
)


class TopicSection(Section):
    """What the file says of one topic, of one partition, or of all partitions of a topic."""

    policies: PolicyLevel = PolicyLevel()


class NamespaceSection(TopicSection):
    """What the file says of a namespace and of single topics in it."""

    topics: dict[str, TopicSection] = Field(default_factory=dict)


class Level(IntEnum):
    """Who set a value; a higher level wins."""

    DEFAULT = 0
    CLUSTER = 1
    PROPERTY = 2
    NAMESPACE = 3
    TOPIC = 4
    PARTITION = 5


@dataclass(frozen=True, slots=True)
class Rates:
    """The three rate limits in bytes a second, all in force at the same time; None: no limit."""

    application: int | None
    namespace: int | None
    topic: int | None


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """A topic's policy after the merge: every field has its value. Sizes in bytes, times in milliseconds."""

    enabled: bool
    max_segment_size: int
    max_rollover_ms: int
    min_rollover_ms: int
    part_size: int
    equal_parts: bool
    block_size: int
    index_step: int
    max_entry_size: int
    fail_on_data_loss: bool
    pin_holds_last_entry: bool
    start_after_offloaded: bool
    broker_readable: bool
    source: Source
    archive_retention_minutes: int
    archive_retention_mb: int
    deleted_topic_retention_minutes: int
    follow_pulsar_retention: bool
    archive_cursors: bool
    cursor_interval_ms: int
    keep_unacknowledged: bool
    hold: str
    rates: Rates

    @property
    def layout(self) -> SegmentLayout:
        """The layout of a segment that is assigned now, fixed for ever."""
        version = V3 if self.equal_parts else V2
        return SegmentLayout(self.part_size, self.block_size, self.index_step, version)
