"""What the mirror and the door need from outside: a Pulsar client, with the values that go through it, and who counts
what they do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Protocol

from offloader.lifecycle.deletion.records import LedgerType


class SystemTopicName(Enum):
    """PIP-186's three."""

    DELETION = "persistent://pulsar/system/__ledger_deletion"
    RETRY = "persistent://pulsar/system/__ledger_deletion-RETRY"
    DEAD = "persistent://pulsar/system/__ledger_deletion-DLQ"


@dataclass(frozen=True, slots=True)
class ArrivedMessage:
    """`schema_version`: None where it was written without a schema. `redeliveries`: how often it came before. `handle`:
    the consumer's own. `published` in ms, by its producer's clock."""

    topic: str
    message_id: str
    data: bytes = field(repr=False)
    properties: Mapping[str, str]
    schema_version: int | None
    redeliveries: int
    published: int
    handle: object = field(default=None, compare=False, repr=False)

    @property
    def size(self) -> int:
        """Bytes, properties included."""
        return len(self.data) + sum(len(key) + len(value) for key, value in self.properties.items())


class SystemTopicProducer(Protocol):
    """Writes PIP-186's Avro records, to one of its topics."""

    def send(self, data: bytes, properties: Mapping[str, str], delay: int = 0) -> None:
        """Returns once the broker has stored it; it is delivered after `delay` ms. Raises OutcomeUnknownError: it may
        be stored; any other OffloadError: it is not."""
        ...

    def close(self) -> None: ...


class SystemTopicConsumer(Protocol):
    """A Shared consumer of the deletions and their retry letters, as `ledger-deletion-worker`."""

    @property
    def is_connected(self) -> bool: ...

    def receive(self, seconds: float) -> ArrivedMessage | None:
        """The next message, waiting for it so long; None: none came. Raises OffloadError."""
        ...

    def acknowledge(self, message: ArrivedMessage) -> None:
        """It does not come again, unless this is lost on its way."""
        ...

    def put_back(self, message: ArrivedMessage) -> None:
        """It comes again, after a while."""
        ...

    def close(self) -> None:
        """What was not acknowledged comes again, to others at once."""
        ...


class SystemTopicChannel(Protocol):
    """A client. Opening raises OffloadError."""

    def producer(self, topic: SystemTopicName) -> SystemTopicProducer: ...

    def consumer(self, name: str, properties: Mapping[str, str]) -> SystemTopicConsumer: ...

    def close(self) -> None: ...


class NotAnnounced(StrEnum):
    """Why a deletion was not sent to the system topic. It goes on all the same."""

    FOREIGN_CONSUMER = "foreign consumer"
    NO_FORM = "no form"  # PIP-186 has no message for it
    FAILED = "failed"


class SystemTopicEvents(Protocol):
    """The numbers that PIP-186 asks for. Called from whichever thread it happens in."""

    def sent(self, ledger_type: LedgerType) -> None:
        """A deletion was sent to the system topic."""
        ...

    def not_sent(self, why: NotAnnounced) -> None: ...

    def received(self) -> None:
        """A message came that may be of anybody."""
        ...

    def acknowledged(self) -> None:
        """It does not come again: it has its answer, or its letter is sent."""
        ...

    def sent_again(self) -> None:
        """It failed, and its retry letter is sent."""
        ...

    def gave_up(self) -> None:
        """It failed for the last time, and its dead letter is sent."""
        ...
