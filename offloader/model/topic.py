"""A topic's name."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

_SUFFIX = "-partition-"
_LARGEST_INDEX = 2**31 - 1  # Java's int


def split_partition(name: str) -> tuple[str, int]:
    """A topic's name, full or local, without the suffix of a partition, and the partition's number (-1: it has none).

    This is Pulsar's own rule (`TopicName.getPartitionIndex`): a number with a leading zero, or one that is no Java int,
    is part of an ordinary name."""
    base, suffix, digits = name.rpartition(_SUFFIX)
    ordinary = name, -1
    # Java reads decimal digits of any script, but none outside of the basic plane. An int has ten digits at most.
    if not suffix or len(digits) > 10 or not digits.isdecimal() or max(digits) > "\uffff":
        return ordinary
    if not base or base.endswith("/"):  # there is no topic without a name
        return ordinary
    index = int(digits)
    return (base, index) if index <= _LARGEST_INDEX and len(str(index)) == len(digits) else ordinary


_SYSTEM_NAMESPACE = "pulsar/system"
_EVENT_TOPICS = frozenset(
    {
        "__change_events",
        "__transaction_buffer_snapshot",
        "__transaction_buffer_snapshot_segments",
        "__transaction_buffer_snapshot_indexes",
    }
)
_PENDING_ACKS = "__transaction_pending_ack"
_HEALTH_CHECK = "healthcheck"


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A persistent topic, or one partition of one: `persistent://tenant/namespace/name[-partition-N]`."""

    tenant: str
    namespace_part: str
    name: str

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Read a full or a short name (`tenant/ns/name`, `name` = public/default). Raises ValueError."""
        rest = text
        if "://" in text:
            domain, _, rest = text.partition("://")
            if domain != "persistent":
                raise ValueError(f"{text!r}: only persistent topics can be offloaded")
        pieces = rest.split("/", 2)
        if len(pieces) == 1:
            pieces = ["public", "default", *pieces]
        if len(pieces) != 3 or not all(pieces):
            raise ValueError(f"{text!r} is not a topic name; write persistent://tenant/namespace/name")
        if any("\ud800" <= character <= "\udfff" for character in text):  # bytes of a command line that are no UTF-8
            raise ValueError(f"{text!r} is not a topic name; it is not UTF-8")
        return cls(*pieces)

    @property
    def namespace(self) -> str:
        return f"{self.tenant}/{self.namespace_part}"

    @property
    def partition(self) -> int:
        """The partition's number, -1 where the topic is not a partition."""
        return split_partition(self.name)[1]

    @property
    def partitioned_name(self) -> str:
        """The partitioned topic's full name (the topic's own where it is not a partition)."""
        return split_partition(str(self))[0]

    @property
    def schema_name(self) -> str:
        """What brokers call its schemas, which its partitions share."""
        return f"{self.namespace}/{quote(split_partition(self.name)[0], safe='')}"

    @property
    def is_system(self) -> bool:
        """Whether Pulsar made the topic for itself: policies, transactions, health checks. By the names that Pulsar
        itself knows (`SystemTopicNames`); any other name may be a user's, `__consumer_offsets` for example."""
        name = split_partition(self.name)[0]
        return (
            self.namespace == _SYSTEM_NAMESPACE
            or name in _EVENT_TOPICS
            or name.endswith(_PENDING_ACKS)
            or (self.tenant == "pulsar" and name == _HEALTH_CHECK)
        )

    @property
    def rest_path(self) -> str:
        """`persistent/tenant/namespace/name`, encoded for Pulsar's admin REST."""
        return f"persistent/{self.tenant}/{self.namespace_part}/{self.encoded}"

    @property
    def encoded(self) -> str:
        """The local name as it stands in an object key or a URL."""
        return quote(self.name, safe="")

    def __str__(self) -> str:
        return f"persistent://{self.tenant}/{self.namespace_part}/{self.name}"
