"""What mirror and door tell whoever counts it: PIP-186 asks for these numbers."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from offloader.lifecycle.deletion.records import LedgerType


class NotAnnounced(StrEnum):
    """Why a deletion was not sent to the system topic. It goes on all the same."""

    FOREIGN_CONSUMER = "foreign consumer"
    NO_FORM = "no form"  # PIP-186 has no message for it
    FAILED = "failed"


class SystemTopicEvents(Protocol):
    """Called from whichever thread it happens in."""

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
