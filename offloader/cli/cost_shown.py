"""What `offloader cost` prints: for people, and as JSON has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from offloader.cli.output import plain_table
from offloader.lifecycle.explaining.words import size_text
from offloader.operations.cost.prices import PriceList
from offloader.operations.cost.report import CostReport
from offloader.operations.cost.requests import Requests, total
from offloader.operations.cost.stored import ByteClass

NO_PRICES = (
    "no prices: set them, with their day, in the section `cost` of the configuration (docs/cost.md); bytes and "
    "requests are all that can be told"
)


def lines(made: CostReport, prices: PriceList) -> Iterator[str]:
    """For people."""
    scaled = "" if made.share >= 1 else f", which have {made.share:.1%} of the segments: requests are scaled up"
    yield f"{made.topics} topics; {made.looked_into} looked into{scaled}"
    yield from _block("STORED", ("class", "objects", "bytes", "a month"), _classes(made, prices))
    yield from _block("BY NAMESPACE", ("namespace", "topics", "objects", "bytes", "a month"), _namespaces(made, prices))
    yield from _block("BY AGE", ("newest message", "bytes"), [(age, size_text(size)) for age, size in _ages(made)])
    yield from _block("REQUESTS A MONTH", ("for", "writes", "reads", "lists", "a month"), _requests(made, prices))
    yield ""
    yield from _sums(made, prices)
    plan = [_change(each.setting, each.values, each.saves, each.but, prices) for each in made.plan]
    yield from _block("WHAT WOULD SAVE REQUESTS", ("setting", "value", "saves a month", "worth", "but"), plan)


def _block(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    if rows:
        yield ""
        yield title
        yield from plain_table(columns, rows)


def _classes(made: CostReport, prices: PriceList) -> list[tuple[object, ...]]:
    heap = made.heap
    rows: list[tuple[object, ...]] = [
        (of, heap.objects[of], size_text(heap.size[of]), prices.text(prices.stored(heap.size[of])))
        for of in ByteClass
        if heap.objects[of]
    ]
    if made.uploading:
        rows.append(("open uploads", "", size_text(made.uploading), prices.text(prices.stored(made.uploading))))
    return rows


def _namespaces(made: CostReport, prices: PriceList) -> list[tuple[object, ...]]:
    return [
        (name, heap.topics, heap.objects.total(), size_text(heap.size.total()),
         prices.text(prices.stored(heap.size.total())))
        for name, heap in made.namespaces.items()
    ]  # fmt: skip


def _ages(made: CostReport) -> Iterable[tuple[str, int]]:
    return ((str(age), size) for age, size in made.ages.items())


def _requests(made: CostReport, prices: PriceList) -> list[tuple[object, ...]]:
    return [(kind, *_rounded(each), prices.text(prices.asked(each))) for kind, each in made.monthly.items()]


def _rounded(requests: Requests) -> tuple[int, int, int]:
    return round(requests.writes), round(requests.reads), round(requests.lists)


def _sums(made: CostReport, prices: PriceList) -> Iterator[str]:
    if made.deleting:
        yield f"of the data {size_text(made.deleting)} are marked to be deleted, and cost as long as they are there"
    if made.unnamed:
        yield (
            f"of the data {size_text(made.unnamed)} are in no catalog: being sealed, or orphans "
            "(`offloader orphans scan --bucket-only`)"
        )
    data = made.heap.size[ByteClass.DATA]
    once = _sum(prices.leaving(data), prices.asked(made.read_once))
    yield f"to read all data once: {round(made.read_once.reads)} reads, {size_text(data)} out{_cost(once, prices)}"
    copies = " or ".join(map(str, sorted(set(made.copies.values())))) or "no"
    yield (
        f"on bookies the data would be {size_text(made.on_bookies())} in {copies} "
        f"{'copy' if copies == '1' else 'copies'}{_cost(prices.on_bookies(made.on_bookies()), prices, 'a month')}"
    )
    if made.held is not None:
        held, archived = made.held_on_bookies()
        yield (
            f"BookKeeper still holds {size_text(held)} of the topics looked into, all copies"
            f"{_cost(prices.on_bookies(held), prices, 'a month')}; {size_text(archived)} of that is archived"
        )
    if not prices.known:
        yield NO_PRICES
        return
    whole = _cost(monthly(made, prices), prices, "a month") or ": not known, a price of bytes or requests is missing"
    yield f"in all{whole}; by prices of {prices.settings.as_of}"


def _cost(cost: float | None, prices: PriceList, per: str = "") -> str:
    return "" if cost is None else f": {prices.text(cost)}{' ' if per else ''}{per}"


def _change(setting: str, values: str, saves: Requests, but: str, prices: PriceList) -> tuple[object, ...]:
    writes, reads, lists = _rounded(saves)
    return setting, values, f"{writes} writes, {reads} reads, {lists} lists", prices.text(prices.asked(saves)), but


def monthly(made: CostReport, prices: PriceList) -> float | None:
    """Store and requests; None where a price of these is missing."""
    return _sum(prices.stored(made.size), prices.asked(total(made.monthly)))


def fields(made: CostReport, prices: PriceList) -> dict[str, object]:
    """For programs."""
    heap, data = made.heap, made.heap.size[ByteClass.DATA]
    held = None if made.held is None else made.held_on_bookies()
    return {
        "topics": made.topics,
        "lookedInto": made.looked_into,
        "segmentShare": made.share,
        "classes": [
            {"class": of, "objects": heap.objects[of], "bytes": heap.size[of], "monthly": prices.stored(heap.size[of])}
            for of in ByteClass
        ],
        "namespaces": [
            {
                "namespace": name,
                "topics": each.topics,
                "objects": each.objects.total(),
                "bytes": each.size.total(),
                "monthly": prices.stored(each.size.total()),
            }
            for name, each in made.namespaces.items()
        ],
        "bytes": made.size,
        "uploadingBytes": made.uploading,
        "deletingBytes": made.deleting,
        "unnamedBytes": made.unnamed,
        "ages": [{"age": age, "bytes": size} for age, size in made.ages.items()],
        "requestsAMonth": [
            {"kind": kind, **_request_fields(each), "cost": prices.asked(each)} for kind, each in made.monthly.items()
        ],
        "readOnce": {
            "reads": round(made.read_once.reads),
            "bytes": data,
            "cost": _sum(prices.leaving(data), prices.asked(made.read_once)),
        },
        "bookies": {
            "copies": dict(made.copies),
            "bytes": made.on_bookies(),
            "monthly": prices.on_bookies(made.on_bookies()),
            "heldBytes": None if held is None else held[0],
            "archivedBytes": None if held is None else held[1],
        },
        "plan": [
            {
                "setting": each.setting,
                "factor": each.factor,
                "values": each.values,
                **_request_fields(each.saves),
                "saves": prices.asked(each.saves),
                "but": each.but,
            }
            for each in made.plan
        ],
        "prices": {"currency": prices.settings.currency, "asOf": prices.settings.as_of},
        "monthly": monthly(made, prices),
    }


def _request_fields(requests: Requests) -> dict[str, int]:
    return dict(zip(("writes", "reads", "lists"), _rounded(requests), strict=True))


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second
