"""How long the archive keeps a topic, as its policy says. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from offloader.metadata.deletions import DeletionReason
from offloader.model import MIB

FOR_EVER = -1
MINUTE_MS = 60_000
NOT_FOLLOWED = "followPulsarRetention is refused, its retention in Pulsar is 0"
"""Of a topic where acknowledging deletes: then the archive would be gone with it."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """In Pulsar's form: -1 is for ever. A segment goes when it is past the time *or* beyond the size, as a ledger does.

    `gone_minutes`: of topics that are gone, and of former incarnations. `hold`: nothing goes as long as it has a name.
    `follow_doubt`: whether Pulsar's retention can be followed is not known now. `hands_over`: a segment goes once
    brokers have all of its ledgers, and is read from there. `keep_unacknowledged`: what a subscription of the gateway
    has not acknowledged stays."""

    minutes: int = FOR_EVER
    megabytes: int = FOR_EVER
    gone_minutes: int = FOR_EVER
    follow_pulsar: bool = False
    hold: str = ""
    follow_doubt: bool = False
    hands_over: bool = False
    keep_unacknowledged: bool = True

    @property
    def says_anything(self) -> bool:
        """Whether anything may ever go by it."""
        limits = (self.minutes, self.megabytes, self.gone_minutes)
        return self.follow_pulsar or self.hands_over or any(limit != FOR_EVER for limit in limits)

    def of(self, reason: DeletionReason) -> RetentionPolicy:
        """The part by which a deletion for this reason goes on: what brokers get is not deleted, and the other way."""
        if reason is DeletionReason.BRIDGED:
            return RetentionPolicy(hold=self.hold, hands_over=self.hands_over)
        return replace(self, hands_over=False)

    @property
    def time_ms(self) -> int | None:
        """None: for ever."""
        return None if self.minutes < 0 else self.minutes * MINUTE_MS

    @property
    def gone_ms(self) -> int | None:
        """None: for ever."""
        return None if self.gone_minutes < 0 else self.gone_minutes * MINUTE_MS

    @property
    def size(self) -> int | None:
        """Bytes; None: any number."""
        return None if self.megabytes < 0 else self.megabytes * MIB


def may_follow(retention: tuple[int, int]) -> bool:
    """Whether a topic's retention in Pulsar (minutes, MB) is one that the archive may follow: `NOT_FOLLOWED`."""
    return 0 not in retention
