"""What went to clients and what came back, counted on the loop since the gateway has started."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from offloader.gateway.core.events import Deliver


@dataclass(slots=True)
class Traffic:
    """Of one subscription, or of a namespace's. `beyond`: counts the same for more than this one.

    `size`: bytes. `redelivered`: entries, they count as `entries`, too. `acknowledgements`: entries that clients named;
    a cumulative one is one. `writes`: of acknowledgements to the store, `failed_writes` left out."""

    beyond: Traffic | None = None
    entries: int = 0
    messages: int = 0
    size: int = 0
    redelivered: int = 0
    acknowledgements: int = 0
    writes: int = 0
    failed_writes: int = 0

    def delivered(self, what: Deliver) -> None:
        """It went to a client."""
        for counted in self._counted():
            counted.entries += len(what.entries)
            counted.messages += what.messages
            counted.size += what.size
            counted.redelivered += len(what.entries) if what.redeliveries else 0

    def acknowledged(self, count: int) -> None:
        """A client has named so many entries."""
        for counted in self._counted():
            counted.acknowledgements += count

    def wrote(self, *, failed: bool) -> None:
        """Acknowledgements went to the store, or did not."""
        for counted in self._counted():
            counted.writes += not failed
            counted.failed_writes += failed

    def _counted(self) -> tuple[Traffic, ...]:
        return (self,) if self.beyond is None else (self, self.beyond)


@dataclass(slots=True)
class ConnectionTraffic:
    """Of all connections. `full`: sent away, because there were enough. `refused`: answers by their error."""

    accepted: int = 0
    full: int = 0
    refused: Counter[str] = field(default_factory=Counter)
