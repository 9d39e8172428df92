"""How long the archive keeps a topic, as its policy says. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from offloader.model import MIB

FOR_EVER = -1
MINUTE_MS = 60_000
NOT_FOLLOWED = "followPulsarRetention is refused, its retention in Pulsar is 0"
"""Of a topic where acknowledging deletes: then the archive would be gone with it."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """In Pulsar's form: -1 is for ever. A segment goes when it is past the time *or* beyond the size, as a ledger does.

    `gone_minutes`: of topics that are gone, and of former incarnations. `hold`: nothing goes as long as it has a name.
    `follow_doubt`: whether Pulsar's retention can be followed is not known now. `age_doubt`: why no age can be computed
    now. `keep_unacknowledged`: what a subscription of the gateway has not acknowledged stays."""

    minutes: int = FOR_EVER
    megabytes: int = FOR_EVER
    gone_minutes: int = FOR_EVER
    follow_pulsar: bool = False
    hold: str = ""
    follow_doubt: bool = False
    keep_unacknowledged: bool = True
    age_doubt: str = ""

    @property
    def says_anything(self) -> bool:
        """Whether anything may ever go by it."""
        limits = (self.minutes, self.megabytes, self.gone_minutes)
        return self.follow_pulsar or any(limit != FOR_EVER for limit in limits)

    @property
    def has_ages(self) -> bool:
        """Whether an age decides: a time of 0 is none."""
        return self.minutes > 0 or self.gone_minutes > 0

    @property
    def without_doubt(self) -> RetentionPolicy:
        """The part by which something may go while ages are in doubt."""
        if not self.age_doubt:
            return self
        minutes, gone = (FOR_EVER if limit > 0 else limit for limit in (self.minutes, self.gone_minutes))
        return replace(self, minutes=minutes, gone_minutes=gone)

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
