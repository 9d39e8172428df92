"""What the wanted columns and the filter need to be read of entries: what is not needed costs nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from offloader.archive.messages.filters import MessageFilter

# `properties` too: they are the only fields that may be damaged inside, and damage must not depend on the columns.
_ALWAYS = frozenset({
    "publish_time", "compression", "uncompressed_size", "num_messages_in_batch", "encryption_keys", "marker_type",
    "num_chunks_from_msg", "properties",
})  # fmt: skip
_KEY = frozenset({"partition_key", "partition_key_b64_encoded", "null_partition_key"})
_FIELDS = {
    "value": frozenset({"null_value"}),
    "__key": _KEY,
    "__eventTime": frozenset({"event_time"}),
    "__sequenceId": frozenset({"sequence_id"}),
    "__orderingKey": frozenset({"ordering_key"}),
    "__producerName": frozenset({"producer_name"}),
    "__schemaVersion": frozenset({"schema_version"}),
    "__replicatedFrom": frozenset({"replicated_from"}),
    "__brokerPublishTime": frozenset({"broker_timestamp"}),
    "__index": frozenset({"index"}),
}
_IN_PAYLOADS = frozenset({"value", "__problem"})


@dataclass(frozen=True, slots=True)
class Needs:
    """`fields`: of the metadata of entries, and of the messages in batches. `payloads`: also what is no batch must be opened."""

    columns: frozenset[str]
    fields: frozenset[str]
    payloads: bool

    @classmethod
    def of(cls, columns: Iterable[str], wanted: MessageFilter) -> Needs:
        """What these columns and this filter need."""
        read = {*columns}
        if wanted.keys is not None:
            read.add("__key")
        if wanted.properties:
            read.add("__messageProperties")
        fields = _ALWAYS.union(*(_FIELDS.get(column, frozenset()) for column in read))
        return cls(frozenset(read), fields, bool(read & _IN_PAYLOADS))
