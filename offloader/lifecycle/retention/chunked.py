"""Whether a message that is kept begins before what is kept: its chunks may lie 64 MiB apart, as far as readers look
back."""

from __future__ import annotations

from collections.abc import Iterable

from offloader.errors import DamagedObjectError, ObjectNotFoundError
from offloader.format.entry import message_metadata
from offloader.format.reader import entries, read_blocks
from offloader.metadata.layout import data_key
from offloader.model import MIB, Segment, TopicName
from offloader.ports.object_store import ObjectStore

LOOK_BACK = 64 * MIB


def begins_before(store: ObjectStore, topic: TopicName, kept: Iterable[Segment]) -> bool:
    """Whether any chunked message in the first bytes of these segments has its first chunk before them. Reads as far as
    readers look back; what cannot be read counts as if it had. Raises what the store raises."""
    begun: set[tuple[str, str]] = set()
    left = LOOK_BACK
    for segment in kept:
        for part in segment.parts:
            if left <= 0:
                return False
            left -= part.size
            try:
                data, _ = store.read(data_key(topic, segment.uuid), part.offset, part.size)
                if any(_continues(entry.data, begun) for block in read_blocks(data) for entry in entries(block)):
                    return True
            except (DamagedObjectError, ObjectNotFoundError):
                return True
    return False


def _continues(entry: bytes, begun: set[tuple[str, str]]) -> bool:
    """Whether an entry is a later chunk of a message whose first one was not seen."""
    metadata = message_metadata(entry)
    if metadata is None or metadata.num_chunks_from_msg < 2:
        return False
    key = metadata.producer_name, metadata.uuid
    if metadata.chunk_id == 0:
        begun.add(key)
    return metadata.chunk_id > 0 and key not in begun
