"""A message as a consumer sees it, with all that its entry says of it; and how large one may be.

What a producer claims must not decide how much memory a reader takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from offloader.config.units import parse_size
from offloader.errors import ConfigError
from offloader.model import KIB, MIB, Position

# What a broker takes by default (maxMessageSize), and what it adds for the metadata beside it.
MAX_MESSAGE = 5 * MIB + 10 * KIB
MAX_CHUNKED = 128 * MIB
LARGEST = 2**31 - 1  # clients hold sizes in 32 bits


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Bytes, uncompressed. `message`: a message or batch; `chunked`: a message in chunks, and all waiting chunks."""

    message: int = MAX_MESSAGE
    chunked: int = MAX_CHUNKED

    def __post_init__(self) -> None:
        for name, value in (("message", self.message), ("chunked", self.chunked)):
            if not 1 <= value <= LARGEST:
                raise ConfigError(f"limits.{name}: no message can have at most {value} bytes; write 1 to {LARGEST}")


DEFAULT_LIMITS = MessageLimits()


def parse_message_size(text: str) -> int:
    """Bytes. Raises ValueError."""
    size = parse_size(text)
    if not 1 <= size <= LARGEST:
        raise ValueError(f"{text!r}: clients hold sizes in 32 bits; write 1 to {LARGEST}")
    return size


class MessageProblem(StrEnum):
    """Why a message has no value although its producer gave it one."""

    CHUNKS_MISSING = "chunks-missing"  # some of its chunks are not in the archive
    CHUNKS_TOO_FAR = "chunks-too-far"  # its first chunks lie further back than is read
    CHUNKS_DROPPED = "chunks-dropped"  # too many chunked messages were open at once, this one had waited long
    UNDECRYPTABLE = "undecryptable"  # encrypted, and no key that was given opens it
    TOO_LARGE = "too-large"  # larger than is allowed to be read; only where damage is not to be raised
    DAMAGED = "damaged"  # its bytes are no message; only where damage is not to be raised


class Payload(NamedTuple):
    """A message's payload, or an entry's; None where `problem` stands in the way."""

    payload: bytes | memoryview | None
    problem: MessageProblem | None = None
    first_chunk: Position | None = None


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """A key that the data key was encrypted with: name and metadata, as the producer's key reader gave them."""

    name: str
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Encryption:
    """How an entry was encrypted. `algorithm` is "" where the producer named none (Pulsar's own clients do not)."""

    keys: tuple[EncryptionKey, ...]
    algorithm: str = ""


@dataclass(slots=True)
class Message:
    """One message. Times are in ms; None where the entry does not say.

    `position` is the entry's: the last chunk's, where a message was chunked; its first chunk is at `first_chunk`.
    `batch_index` is -1 where it was not in a batch. `value` is None for a null value (a tombstone), and where `problem`
    says why. `key` and `ordering_key` are bytes; a key that the client had put into base64 is decoded. `sequence_id` is
    signed, as in clients. `encryption` is None for a message that was not encrypted. An entry that stays closed, or is
    damaged, is one message, whatever `batch_size` says; `unknown`: it may have had any keys and properties, as a
    batch's messages have their own.
    """

    position: Position
    batch_index: int = -1
    batch_size: int = 1
    value: bytes | None = None
    key: bytes | None = None
    properties: dict[str, str] = field(default_factory=dict)
    publish_time: int | None = None
    event_time: int | None = None
    producer_name: str | None = None
    sequence_id: int | None = None
    ordering_key: bytes | None = None
    schema_version: bytes | None = None
    replicated_from: str | None = None
    broker_time: int | None = None
    broker_index: int | None = None
    encryption: Encryption | None = None
    problem: MessageProblem | None = None
    first_chunk: Position | None = None
    unknown: bool = False
