"""The envelopes of many entries at once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from offloader._proto.pulsar_messages_pb2 import BrokerEntryMetadata, KeyValue, MessageMetadata
from offloader.archive.messages.entries import Entries
from offloader.format.many import frames
from offloader.format.scan import Fields, Int64s, Mask, Ranges, scan

_BROKER_FIELDS = frozenset(BrokerEntryMetadata.DESCRIPTOR.fields_by_name)


@dataclass(frozen=True, slots=True)
class Needs:
    """`fields`: of the metadata of entries and of messages in batches. `payloads`: open also what is no batch."""

    fields: frozenset[str]
    payloads: bool


@dataclass(frozen=True)
class Envelopes:
    """What stands in front of the payloads. `irregular` entries are no messages, or need protobuf itself to be read."""

    metadata: Fields
    broker: Fields
    payload: Ranges
    irregular: Mask

    @cached_property
    def compression(self) -> Int64s:
        return self.metadata.number("compression")

    @cached_property
    def encrypted(self) -> Mask:
        return self.metadata.has("encryption_keys")

    @cached_property
    def chunk(self) -> Mask:
        return self.metadata.number("num_chunks_from_msg") > 1

    @cached_property
    def batch(self) -> Mask:
        return self.metadata.has("num_messages_in_batch") & ~self.chunk

    @cached_property
    def messages(self) -> Int64s:
        """As many messages as the metadata claim that a batch has; 1 for what is none."""
        return np.where(self.batch, np.maximum(self.metadata.number("num_messages_in_batch"), 0), 1)

    @cached_property
    def size(self) -> Int64s:
        """Bytes of the payload in clear, as the metadata say."""
        said = self.metadata.number("uncompressed_size")
        return np.where(self.compression != 0, said, self.payload.end - self.payload.begin)


def parse_envelopes(entries: Entries, wanted: Collection[str]) -> Envelopes:
    """The wanted fields of the entries' metadata."""
    data = entries.data
    split = frames(data, entries.ranges)
    metadata = scan(data, split.message, MessageMetadata, {*wanted, "publish_time"})
    broker_fields = scan(data, split.broker, BrokerEntryMetadata, _BROKER_FIELDS & set(wanted))
    odd = split.irregular | metadata.irregular | broker_fields.irregular | ~metadata.has("publish_time")
    if "properties" in wanted:  # the only field that has others inside
        properties = metadata.repeated("properties")
        odd[properties.row[scan(data, properties.ranges, KeyValue, {"key", "value"}).irregular]] = True
    payload = Ranges(np.where(odd, 0, split.message.end), np.where(odd, 0, entries.ranges.end))
    return Envelopes(metadata, broker_fields, payload, odd)
