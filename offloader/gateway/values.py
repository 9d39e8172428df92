"""What the parts of the gateway give each other: values. Pure.

A place is (ledger, entry), as clients know it: the archive's incarnations have no room in a message id. Bits of a batch
(`left`) are those of Pulsar's ack sets: 1 = still to be delivered, the first message is the lowest bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import NamedTuple

from offloader.errors import DataLostError, IntegrityError, OffloadError, RetryableError
from offloader.model import Place

ASKS_WHETHER_IT_LIVES = "pulsar-streaming-offloader gateway"
"""The client's version by which gateways that ask others for a sign of life say so."""
BEFORE_ALL: Place = (-1, -1)
"""The mark-delete position of whoever has acknowledged nothing."""
STICKY_HASHES = 1 << 16
"""Key_Shared consumers share out 0..65535; no key is at 0."""


class SubscriptionType(IntEnum):
    """The numbers are the protocol's."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3

    @property
    def is_shared(self) -> bool:
        """Whether several consumers get entries at the same time."""
        return self in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)


class ErrorCode(IntEnum):
    """`ServerError` of the protocol: those that the gateway answers."""

    UNKNOWN = 0
    METADATA = 1
    AUTHENTICATION = 3
    AUTHORIZATION = 4
    CONSUMER_BUSY = 5
    NOT_READY = 6
    TOO_MANY_REQUESTS = 14
    TOPIC_NOT_FOUND = 11
    SUBSCRIPTION_NOT_FOUND = 12
    CONSUMER_NOT_FOUND = 13
    INCOMPATIBLE_SCHEMA = 18
    CONSUMER_ASSIGN = 19
    NOT_ALLOWED = 22


class RefusedError(OffloadError):
    """A request that is answered with an error: the code decides what clients do, the sentence is for people."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def client_text(error: OffloadError) -> str:
    """The sentence that a client gets of an error. Addresses and keys of the store are for the gateway's log alone."""
    if isinstance(error, RefusedError | DataLostError):  # made for clients: topics and positions
        return str(error)
    if isinstance(error, RetryableError):
        return "the archive cannot be read at the moment; try again"
    if isinstance(error, IntegrityError):
        return "what is archived here is damaged; the log of the gateway says where"
    return "the archive refuses it; the log of the gateway says why"


class LookUpAgainError(RefusedError):
    """Another gateway has, or will have, what a client subscribes to. It is subscribed and closed at once: then every
    client looks up again. Where it is refused, C++ clients wait for ever, and Go's give up."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.NOT_READY, f"{text}: look up again")


class ServedEntry(NamedTuple):
    """An entry of at least one message, ready to be sent.

    `data`: as BookKeeper stored it; its first `skip` bytes are broker entry metadata, which not every client takes.
    `messages`: as many as a permit counts. `sticky`: the hash of its key, 31 bits; 0: nobody has asked for it.
    `deliver_at`: ms since 1970, 0: at once. `left`: of a batch that is acknowledged in part what is still to be
    delivered; None: all of it."""

    place: Place
    data: bytes | memoryview
    skip: int
    messages: int
    sticky: int
    deliver_at: int = 0
    left: int | None = None

    @property
    def bits(self) -> int:
        """The messages that are still to be delivered, as bits."""
        return (1 << self.messages) - 1 if self.left is None else self.left

    @property
    def messages_left(self) -> int:
        """How many messages are still to be delivered."""
        return self.messages if self.left is None else self.left.bit_count()

    def without(self, left: int) -> ServedEntry | None:
        """What is still to be delivered once only the messages of `left` are; None: nothing. A set that is larger
        than the batch changes nothing."""
        if left.bit_length() > self.messages:
            return self
        kept = left if self.left is None else self.left & left
        if kept.bit_count() == self.messages_left:
            return self
        return self._replace(left=kept) if kept else None


def size_of(entries: Iterable[ServedEntry]) -> int:
    """Bytes of these entries."""
    return sum(map(len, map(_data, entries)))


_data = attrgetter("data")


class ServedEntries(NamedTuple):
    """What a read gave, in order. Up to and including `covered` there is nothing else that could be delivered (gaps,
    markers, aborted transactions); None: nothing was there."""

    entries: Sequence[ServedEntry]
    covered: Place | None


class ServedEnd(NamedTuple):
    """The last entry that clients can get, and how many messages it has; None: the topic has none.

    `terminated`: nothing comes behind it, ever."""

    last: Place | None
    messages: int = 0
    terminated: bool = False

    @property
    def batch_index(self) -> int:
        """Of the last message; -1: it is in no batch."""
        return self.messages - 1 if self.messages > 1 else -1
