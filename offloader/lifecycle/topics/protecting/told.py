"""What is told of a protected subscription. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from offloader.lifecycle.explaining.words import counted
from offloader.model import TopicName


class LookOutcome(StrEnum):
    """What came of a look."""

    PROTECTED = "protected"
    NOT_YET = "not yet"  # its last record was not seen twice
    WAITING = "waiting"
    ENDED = "ended"
    WOULD = "would acknowledge"
    RESTORED = "acknowledged again"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Told:
    """Of one subscription; `subscription` empty: of the whole topic. `entries`, `batches`: acknowledged again, or to
    be; where it is protected, what a crash would make the broker forget now."""

    topic: TopicName
    subscription: str
    outcome: LookOutcome
    entries: int = 0
    batches: int = 0
    why: str = ""

    @property
    def is_finding(self) -> bool:
        """Whether an operator should know."""
        return self.outcome in (LookOutcome.ENDED, LookOutcome.FAILED)

    @property
    def text(self) -> str:
        """In one line."""
        where = f"{self.topic} {self.subscription}".rstrip()
        return f"{where}: {self._said}"

    @property
    def _said(self) -> str:
        match self.outcome:
            case LookOutcome.PROTECTED if self.entries:
                return f"protected: after a crash {self._what} would be acknowledged again"
            case LookOutcome.PROTECTED:
                return "protected: its broker would forget nothing now"
            case LookOutcome.NOT_YET:
                return "not protected yet: something was stored since the last look"
            case LookOutcome.ENDED:
                return f"what was acknowledged before is not protected any more: {self.why}"
            case LookOutcome.WOULD | LookOutcome.RESTORED:
                return f"{self.outcome} {self._what}" + (f"; {self.why}" if self.why else "")
            case _:
                return f"{self.outcome}: {self.why}"

    @property
    def _what(self) -> str:
        parts = [counted(self.entries, "entry")] if self.entries or not self.batches else []
        if self.batches:
            parts.append(f"messages of {self.batches} {'batch' if self.batches == 1 else 'batches'}")
        return " and ".join(parts)
