"""What bytes and requests cost by the configuration's prices. None: a price is missing. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.config.cost import CostSettings
from offloader.model import GIB
from offloader.operations.cost.requests import Requests


@dataclass(frozen=True, slots=True)
class PriceList:
    """Of one day, in one currency."""

    settings: CostSettings

    @property
    def known(self) -> bool:
        """Whether there is any price."""
        return self.settings.priced

    def stored(self, size: float) -> float | None:
        """Bytes in the store, a month."""
        return _times(size / GIB, self.settings.store_gib_month)

    def on_bookies(self, size: float) -> float | None:
        """Bytes on bookies' disks, a month: all copies."""
        return _times(size / GIB, self.settings.bookie_gib_month)

    def leaving(self, size: float) -> float | None:
        """Bytes that leave the store, once."""
        return _times(size / GIB, self.settings.egress_gib)

    def asked(self, requests: Requests) -> float | None:
        """Requests."""
        prices = self.settings
        lists = prices.writes_per_1000 if prices.lists_per_1000 is None else prices.lists_per_1000
        costs = [
            _times(requests.writes / 1000, prices.writes_per_1000),
            _times(requests.reads / 1000, prices.reads_per_1000),
            _times(requests.lists / 1000, lists),
        ]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None

    def text(self, cost: float | None) -> str:
        """With the currency; "" where it is not known."""
        return "" if cost is None else f"{cost:,.2f} {self.settings.currency}".rstrip()


def _times(number: float, price: float | None) -> float | None:
    return None if price is None else number * price
