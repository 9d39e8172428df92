"""How large a message may be: what a producer claims must not decide how much memory a reader takes."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.config.units import parse_size
from offloader.errors import ConfigError
from offloader.model import KIB, MIB

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
