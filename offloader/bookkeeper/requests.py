"""What may be asked of a bookie, whatever the version of the protocol. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from offloader.errors import OffloadError


@dataclass(frozen=True, slots=True)
class EntryRead:
    """One stored entry; `entry` -1: the last one. `fence`: the master key with which to fence the ledger first."""

    ledger: int
    entry: int
    fence: bytes | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{'fencing read of' if self.fence is not None else 'read of'} {self.ledger}:{self.entry}"


@dataclass(frozen=True, slots=True)
class BatchRead:
    """Consecutive stored entries, at least one, at most `count`, in an answer of about `size` bytes."""

    ledger: int
    first: int
    count: int
    size: int

    def __str__(self) -> str:
        return f"read of up to {self.count} entries from {self.ledger}:{self.first}"


@dataclass(frozen=True, slots=True)
class Add:
    """Store an entry. `recovery`: also in a fenced ledger."""

    ledger: int
    entry: int
    stored: bytes = field(repr=False)
    master_key: bytes = field(repr=False)
    recovery: bool = False

    def __str__(self) -> str:
        return f"{'recovery add' if self.recovery else 'add'} of {self.ledger}:{self.entry}"


@dataclass(frozen=True, slots=True)
class ReadLac:
    """What the bookie knows of the ledger's last confirmed entry."""

    ledger: int

    def __str__(self) -> str:
        return f"read of ledger {self.ledger}'s last confirmed entry"


@dataclass(frozen=True, slots=True)
class WriteLac:
    """Tell the bookie the last confirmed entry; `body` is `entry_codec.encode_lac`'s."""

    ledger: int
    last_confirmed: int
    body: bytes = field(repr=False)
    master_key: bytes = field(repr=False)

    def __str__(self) -> str:
        return f"write of ledger {self.ledger}'s last confirmed entry"


@dataclass(frozen=True, slots=True)
class ListEntries:
    """Which entries of the ledger the bookie holds."""

    ledger: int

    def __str__(self) -> str:
        return f"list of ledger {self.ledger}'s entries"


Request = EntryRead | BatchRead | Add | ReadLac | WriteLac | ListEntries
WRITES = (Add, WriteLac)


class Reply(NamedTuple):
    """One request's answer: its result or its error."""

    number: int
    result: Any
    error: OffloadError | None = None


class Dialect(Protocol):
    """One version of the protocol on one connection: requests to frames, frames' bodies to answers. Does no I/O.

    It remembers the requests, as an answer does not repeat them.
    """

    def encode(self, number: int, request: Request) -> bytes:
        """The request's frame. Raises ProtocolError where this version has no such request."""
        ...

    def decode(self, body: memoryview) -> Iterable[Reply]:
        """The requests that this answers; none where nobody waits for it any more. Raises ProtocolError."""
        ...

    def whose(self, beginning: memoryview) -> int | None:
        """Which request a broken answer is to, by its beginning, even if nobody waits for it now; None: no telling."""
        ...

    def forget(self, number: int) -> None:
        """Nobody waits for this one any more."""
        ...

    def encode_auth(self, plugin: str, payload: bytes) -> bytes:
        """The frame of one step of authentication."""
        ...

    def decode_auth(self, body: memoryview) -> tuple[str, bytes]:
        """The bookie's plugin and its payload. Raises ProtocolError, AuthenticationFailedError."""
        ...
