"""From entries to messages, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf.message import DecodeError

from offloader._proto.pulsar_messages_pb2 import MessageMetadata, SingleMessageMetadata
from offloader.archive.items import EntryRun
from offloader.archive.messages.encryption import encryption_of
from offloader.archive.messages.entries import committed
from offloader.archive.messages.envelope import Envelope, parse_envelope, raw, signed, text, unbase64
from offloader.archive.messages.filters import MessageFilter
from offloader.archive.messages.message import Message, MessageProblem, Payload
from offloader.archive.messages.payloads import Payloads, UnpackOptions
from offloader.errors import DamagedObjectError, MessageTooLargeError
from offloader.model import Position


class Single(NamedTuple):
    """A message of a batch as it lies there."""

    metadata: SingleMessageMetadata
    payload: memoryview


class Unpacker:
    """Unpacks a topic's entries in their order, and gives the messages that are wanted. Remembers chunks only."""

    def __init__(
        self,
        options: UnpackOptions | None = None,
        wanted: MessageFilter | None = None,
        payloads: Payloads | None = None,
    ) -> None:
        self._options = options or UnpackOptions()
        self._wanted = wanted or MessageFilter()
        self._payloads = payloads or Payloads(self._options)

    def messages(self, run: EntryRun) -> Iterator[Message]:
        """The messages that a consumer would get, and rows for what it could not get.

        Raises DamagedObjectError naming position and offset, unless damage is kept.
        """
        for kept in committed(run, self._options.aborted()):
            for number in range(kept.count):
                begin, end = kept.bounds[2 * number], kept.bounds[2 * number + 1]
                position = Position(kept.incarnation, kept.ledger, kept.first + number)
                yield from self.entry_messages(position, kept.data[begin:end], kept.offset + begin)

    def entry_messages(self, position: Position, entry: bytes | memoryview, offset: int = 0) -> list[Message]:
        """The messages of one entry, which stands at `offset` of its object. Raises DamagedObjectError.

        What was published at a time that is not wanted is not opened, but for chunks.
        """
        self._payloads.starts(position)
        envelope = None
        try:
            envelope = parse_envelope(entry)
            if not envelope.is_chunk and not self._wanted.covers(signed(envelope.metadata.publish_time)):
                return []
            opened = self._payloads.open(position, envelope)
            if opened is None:
                return []
            if envelope.is_batch and opened.payload is not None:
                found = _of_batch(position, envelope, opened.payload)
            else:
                found = [_closed(position, envelope, opened)]
        except DamagedObjectError as error:
            found = [self.damaged(position, offset, error, envelope)]
        return [message for message in found if self._wanted.matches(message)]

    def damaged(self, position: Position, offset: int, error: DamagedObjectError, envelope: Envelope | None) -> Message:
        """What stands for an entry that cannot be unpacked. Raises DamagedObjectError, unless damage is kept."""
        if not self._options.keep_damaged:
            key = self._options.object_of(position)
            raise type(error)(f"{key and key + ': '}{position} (offset {offset}): {error}") from error
        problem = MessageProblem.TOO_LARGE if isinstance(error, MessageTooLargeError) else MessageProblem.DAMAGED
        if envelope is None:
            return Message(position, problem=problem, unknown=True)
        found = _closed(position, envelope, Payload(None, problem))
        found.unknown = envelope.is_batch
        return found


def unpack_batch(payload: bytes | memoryview, count: int) -> Iterator[Single]:
    """A batch's messages. Raises DamagedObjectError where there are fewer than `count`."""
    view = memoryview(payload)
    at = 0
    for number in range(count):
        begin = at + 4
        end = begin + int.from_bytes(view[at:begin])
        try:
            metadata = SingleMessageMetadata.FromString(bytes(view[begin:end]))
        except DecodeError as error:
            raise DamagedObjectError(f"the metadata of message {number} of {count} cannot be parsed") from error
        at = end + metadata.payload_size
        if at > len(view) or not metadata.HasField("payload_size") or metadata.payload_size < 0:
            raise DamagedObjectError(f"message {number} of {count} does not lie in its batch")
        yield Single(metadata, view[end:at])


def _closed(position: Position, envelope: Envelope, opened: Payload) -> Message:
    """The entry as one message."""
    metadata = envelope.metadata
    has = metadata.HasField
    value = None if opened.payload is None or metadata.null_value else bytes(opened.payload)
    return Message(
        position,
        -1,
        metadata.num_messages_in_batch,
        value,
        _key(metadata) if has("partition_key") else None,
        _properties(metadata),
        signed(metadata.publish_time),
        _time(metadata.event_time),
        text(metadata.producer_name) if has("producer_name") else None,
        signed(metadata.sequence_id),
        metadata.ordering_key if has("ordering_key") else None,
        metadata.schema_version if has("schema_version") else None,
        text(metadata.replicated_from) if has("replicated_from") else None,
        envelope.broker_time,
        envelope.broker_index,
        encryption_of(metadata),
        opened.problem,
        opened.first_chunk,
    )


def _of_batch(position: Position, envelope: Envelope, payload: bytes | memoryview) -> list[Message]:
    """Key, ordering key and properties are each message's own; event time and sequence id may be the entry's."""
    outer = _closed(position, envelope, Payload(None))
    null = envelope.metadata.null_value
    last = outer.batch_size - 1
    index = outer.broker_index
    found = []
    for number, (metadata, value) in enumerate(unpack_batch(payload, outer.batch_size)):
        if metadata.compacted_out:
            continue
        has = metadata.HasField
        message = Message(
            position,
            number,
            outer.batch_size,
            None if null or metadata.null_value else bytes(value),
            _key(metadata) if has("partition_key") else None,
            _properties(metadata),
            outer.publish_time,
            _time(metadata.event_time) if has("event_time") else outer.event_time,
            outer.producer_name,
            signed(metadata.sequence_id) if has("sequence_id") else outer.sequence_id,
            metadata.ordering_key if has("ordering_key") else None,
            outer.schema_version,
            outer.replicated_from,
            outer.broker_time,
            None if index is None else index - (last - number),
            outer.encryption,
        )
        found.append(message)
    return found


def _time(event_time: int) -> int | None:
    """Event time 0 means none, as in clients."""
    return signed(event_time) or None


def _key(metadata: MessageMetadata | SingleMessageMetadata) -> bytes | None:
    if metadata.null_partition_key:
        return None
    key = raw(metadata.partition_key)
    return unbase64(key) if metadata.partition_key_b64_encoded else key


def _properties(metadata: MessageMetadata | SingleMessageMetadata) -> dict[str, str]:
    return {text(pair.key): text(pair.value) for pair in metadata.properties}
