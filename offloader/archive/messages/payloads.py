"""From an entry's payload to what its producer gave: decrypted, put together from chunks, decompressed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from offloader.archive.messages.chunks import LOOK_BACK, Assembler, Chunk, ChunkHistory, ChunkKey, LookBack
from offloader.archive.messages.encryption import Decryptor, KeyReader
from offloader.archive.messages.envelope import Envelope, text
from offloader.archive.messages.message import DEFAULT_LIMITS, MessageLimits, MessageProblem, Payload
from offloader.errors import DamagedObjectError, MessageTooLargeError
from offloader.format.compression import decompress
from offloader.model import Position, Transaction


@dataclass(frozen=True, slots=True)
class UnpackOptions:
    """What messages are unpacked with.

    `keys` decrypts; without it encrypted entries stay closed. `look_back` finds the first chunks of messages whose last
    chunk is what is read first, at most `look_back_bytes` back. `limits`: how large a message may be. `keep_damaged`:
    an entry that cannot be unpacked is a message with a problem, not an error. `aborted` gives the transactions whose
    entries are left out, as far as they are known by now. `object_of` names the object that an entry is in, "" where it
    is in none.
    """

    keys: KeyReader | None = None
    look_back: LookBack | None = None
    look_back_bytes: int = LOOK_BACK
    limits: MessageLimits = DEFAULT_LIMITS
    keep_damaged: bool = False
    aborted: Callable[[], Collection[Transaction]] = frozenset
    object_of: Callable[[Position], str] = lambda _: ""


class Payloads:
    """Opens payloads in the topic's order; remembers chunks and data keys."""

    def __init__(self, options: UnpackOptions) -> None:
        self._options = options
        self._decryptor = None if options.keys is None else Decryptor(options.keys)
        self._assembler = Assembler(self._past_chunks, options.limits.chunked)
        self._start: Position | None = None
        self._past: ChunkHistory | None = None

    def starts(self, position: Position) -> None:
        """Told of the first entry that is read; what is before it can only be looked back at."""
        if self._start is None:
            self._start = position

    def open(self, position: Position, envelope: Envelope) -> Payload | None:
        """None where a consumer gets nothing: markers, chunks that are not the last. Raises DamagedObjectError."""
        if envelope.is_marker:
            return None
        if envelope.is_chunk:
            return self._open_chunked(position, envelope)
        payload = self._decrypted(envelope)
        if payload is None:
            return Payload(None, MessageProblem.UNDECRYPTABLE)
        return Payload(_decompressed(envelope, payload, self._options.limits.message))

    def _open_chunked(self, position: Position, envelope: Envelope) -> Payload | None:
        found = self._assembler.add(self._chunk(position, envelope))
        limit = self._options.limits.chunked
        if found is not None and found.problem is MessageProblem.TOO_LARGE:
            raise MessageTooLargeError(f"the chunked message has more bytes than the limit of {limit}")
        if found is None or found.payload is None:
            return found
        size, said = len(found.payload), envelope.metadata.total_chunk_msg_size
        if said and size != said:
            raise DamagedObjectError(f"the chunked message has {size} bytes, its metadata say {said}")
        return found._replace(payload=_decompressed(envelope, found.payload, limit))

    def _chunk(self, position: Position, envelope: Envelope) -> Chunk:
        metadata = envelope.metadata
        number, total = metadata.chunk_id, metadata.num_chunks_from_msg
        if not 0 <= number < total:
            raise DamagedObjectError(f"the entry says it is chunk {number} of {total}")
        payload = self._decrypted(envelope)
        key = (text(metadata.producer_name), text(metadata.uuid))
        return Chunk(key, number, total, position, None if payload is None else bytes(payload))

    def _past_chunks(self, key: ChunkKey) -> list[Chunk] | MessageProblem:
        if self._start is None:
            return MessageProblem.CHUNKS_MISSING
        if self._past is None:
            self._past = ChunkHistory(self._options.look_back, self._start, self._chunk, self._options.look_back_bytes)
        return self._past.chunks_of(key)

    def _decrypted(self, envelope: Envelope) -> bytes | memoryview | None:
        if not envelope.metadata.encryption_keys:
            return envelope.payload
        return None if self._decryptor is None else self._decryptor.decrypt(envelope.metadata, envelope.payload)


def _decompressed(envelope: Envelope, payload: bytes | memoryview, limit: int) -> bytes | memoryview:
    metadata = envelope.metadata
    if not metadata.compression:
        return payload
    return decompress(metadata.compression, payload, metadata.uncompressed_size, limit)
