"""What the demo's producers write: a shop's events as JSON, the same each time. Pure."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

GOODS = {
    "tea-assam-250g": 890,
    "tea-sencha-100g": 1150,
    "coffee-huila-500g": 1490,
    "coffee-decaf-250g": 840,
    "mug-blue": 1200,
    "teapot-1l": 3450,
    "filter-papers-100": 320,
    "chocolate-70": 275,
}
TOWNS = ("Berlin", "Graz", "Lyon", "Porto", "Uppsala", "Utrecht", "Wrocław", "Zürich")
CARRIERS = ("DHL", "GLS", "PostNL")
METHODS = ("card", "invoice", "transfer")
LARGEST = 40  # lines of an order


class Event(NamedTuple):
    """A message: what happened to one order, under its customer's name."""

    key: str
    payload: bytes
    properties: dict[str, str]


def events(topic: str) -> Iterator[Event]:
    """A topic's events, without end: orders are `created`, `paid` or `shipped`; `audit-log` says who did it."""
    for number in count(1):
        order = _Order(number)
        name, customer = f"order-{number:06}", f"customer-{order.customer:02}"
        content = {"event": f"order-{topic}", "order": name, "customer": customer, **_details(topic, order)}
        payload = json.dumps(content, ensure_ascii=False).encode()
        yield Event(customer, payload, {"number": str(number)})


class _Order:
    """An order of this number is the same in every topic. Most are small, a few are not."""

    def __init__(self, number: int) -> None:
        self.dice = random.Random(number)  # noqa: S311 (data of a demo)
        self.customer = self.dice.randrange(100)
        self.town = self.dice.choice(TOWNS)
        lines = min(int(self.dice.paretovariate(1.2)), LARGEST)
        self.items = [(sku, self.dice.randrange(1, 5)) for sku in self.dice.choices(tuple(GOODS), k=lines)]

    @property
    def cents(self) -> int:
        return sum(quantity * GOODS[sku] for sku, quantity in self.items)


def _details(topic: str, order: _Order) -> dict[str, Any]:
    dice = order.dice
    match topic:
        case "created":
            items = [{"sku": sku, "quantity": quantity, "cents": GOODS[sku]} for sku, quantity in order.items]
            return {"town": order.town, "items": items, "cents": order.cents, "currency": "EUR"}
        case "paid":
            return {"method": dice.choice(METHODS), "cents": order.cents, "currency": "EUR"}
        case "shipped":
            return {"carrier": dice.choice(CARRIERS), "parcels": dice.randrange(1, 4), "town": order.town}
        case _:
            kind = dice.choice(("created", "paid", "shipped"))
            return {
                "event": f"audit-{kind}",
                "by": f"clerk-{dice.randrange(7)}",
                "from": f"10.0.0.{dice.randrange(20)}",
            }
