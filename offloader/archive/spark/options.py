"""What one `load()` asks for, as values: tasks get them too. Imports little, since every worker pays for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from offloader.archive.messages.message import MAX_CHUNKED, MAX_MESSAGE
from offloader.archive.spark.values import NOWHERE, Positions
from offloader.model import MIB, TopicName
from offloader.storage.settings import StoreSettings


class Form(StrEnum):
    """What a row is."""

    MESSAGES = "messages"
    ENTRIES = "entries"


@dataclass(frozen=True, slots=True)
class LedgerBucketOptions:
    """A bucket that stock brokers have offloaded to, and who knows whose its objects are (`LedgerBucket`)."""

    store: StoreSettings
    admin_url: str | None = None
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Times are publish times in ms, both bounds included; sizes in bytes. Can be pickled."""

    store: StoreSettings
    topics: tuple[TopicName, ...] = ()
    pattern: str | None = None
    namespace: str | None = None
    form: Form = Form.MESSAGES
    columns: tuple[str, ...] = ()
    starting_position: Positions = NOWHERE
    ending_position: Positions = NOWHERE
    starting_time: int | None = None
    ending_time: int | None = None
    from_latest: bool = False
    max_partition_bytes: int = 128 * MIB
    max_bytes_per_trigger: int | None = None
    poll_ms: int = 5000
    read_size: int = 4 * MIB
    prefetch: int = 2
    skip_damage: bool = False
    max_message_size: int = MAX_MESSAGE
    max_chunked_message_size: int = MAX_CHUNKED
    fail_on_data_loss: bool = True
    wait_for_topics: bool = False
    push_filters: bool = False
    metrics: str | None = None
    ledgers: LedgerBucketOptions | None = None
    private_keys: tuple[tuple[str, str], ...] = ()

    @property
    def positions(self) -> tuple[tuple[str, Positions], ...]:
        """The bounds by position, with the names of their options."""
        return ("startingPosition", self.starting_position), ("endingPosition", self.ending_position)

    @property
    def metrics_store(self) -> StoreSettings | None:
        """Where metrics go: an S3 bucket is reached like the archive's."""
        if self.metrics is None:
            return None
        alone = StoreSettings(self.metrics, setting="metrics")
        return self.store.beside(self.metrics, "metrics") if alone.scheme == self.store.scheme == "s3" else alone
