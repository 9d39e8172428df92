"""What a migration would do: gathered from Pulsar and the catalogs, and told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from offloader.cli.command import CommandSession
from offloader.cli.topics import is_ours
from offloader.config.units import format_size
from offloader.errors import LedgerNotFoundError
from offloader.metadata.state import CatalogHead
from offloader.migrate.plan import (
    AbsentRange,
    ArchivedExtent,
    Cost,
    CostShape,
    LedgerAction,
    PlannedLedger,
    TopicLedger,
    cost_of,
    drivers_out_of_reach,
    pause_of,
    plan_to_ledger_based,
    plan_to_streaming,
    state_of,
)
from offloader.model import Taking, TopicName
from offloader.operations.cost.prices import PriceList
from offloader.operations.cost.requests import Requests
from offloader.state.managed_ledger import OffloadContext

DRIVER = "managedLedgerOffloadDriver"
ESTIMATES = "requests and prices are estimates"
SECONDS = 10.0  # that a bookie may take; none is asked here


@dataclass(frozen=True)
class TopicReport:
    """A topic's plan. `pause`: about how many seconds its producers wait, in all. `claimed_by`: another application;
    "": nobody else."""

    topic: TopicName
    ledgers: tuple[PlannedLedger, ...]
    cost: Cost
    pause: float = 0
    claimed_by: str = ""

    @property
    def refusals(self) -> list[str]:
        """Why it cannot be done, each reason once."""
        why = [one.why for one in self.ledgers if one.action is LedgerAction.REFUSED]
        if self.claimed_by:
            why.append(f"it is claimed by application {self.claimed_by}")
        return [f"{self.topic}: {one}" for one in dict.fromkeys(why)]

    def of(self, action: LedgerAction) -> list[PlannedLedger]:
        """The ledgers to which this happens."""
        return [one for one in self.ledgers if one.action is action]

    def fields(self, prices: PriceList) -> dict[str, Any]:
        """The JSON of one topic."""
        return {
            "topic": str(self.topic),
            "ledgers": [
                {
                    "ledger": one.ledger,
                    "entries": one.entries,
                    "bytes": one.size,
                    "state": str(one.state),
                    "action": str(one.action),
                    "why": one.why,
                }
                for one in self.ledgers
            ],
            "refused": self.refusals,
            **cost_fields(self.cost, prices),
            "pauseSeconds": self.pause,
        }

    def lines(self, prices: PriceList) -> Iterator[str]:
        """The same for people."""
        yield f"{self.topic}:"
        for action in LedgerAction:
            found = self.of(action)
            if found:
                entries, size = sum(one.entries for one in found), sum(one.size for one in found)
                yield f"  {action}: {len(found)} ledgers, {entries} entries, {format_size(size)}"
        yield from (f"  refused: {one}" for one in self.refusals)
        yield f"  {cost_line(self.cost, prices)}; a pause of about {self.pause:.1f} s"


def cost_fields(cost: Cost, prices: PriceList) -> dict[str, Any]:
    """The JSON of a cost."""
    return {
        "writes": cost.writes,
        "reads": cost.reads,
        "storedBytes": cost.stored,
        "outBytes": cost.out,
        "estimatedOnce": _rounded(_once(cost, prices)),
        "estimatedMonthly": _rounded(prices.stored(cost.stored)),
    }


def cost_line(cost: Cost, prices: PriceList) -> str:
    """The same for people."""
    once, monthly = prices.text(_once(cost, prices)), prices.text(prices.stored(cost.stored))
    asked = f"about {cost.writes} writes and {cost.reads} reads{once and f': {once} once'}"
    return f"{asked}; {format_size(cost.stored)} more in the store{monthly and f': {monthly} a month'}"


def _once(cost: Cost, prices: PriceList) -> float | None:
    """What is paid once; None where a price is missing."""
    asked, leaving = prices.asked(Requests(cost.writes, cost.reads)), prices.leaving(cost.out) if cost.out else 0.0
    return None if asked is None or leaving is None else asked + leaving


def _rounded(price: float | None) -> float | None:
    return None if price is None else round(price, 4)


def report_of(session: CommandSession, topics: Iterable[TopicName], taking: Taking | None) -> list[TopicReport]:
    """One topic after the other. `taking` None: of the way back."""
    records = _records(session)
    return [_report(session, topic, taking, records(topic)) for topic in topics]


def _report(
    session: CommandSession, topic: TopicName, taking: Taking | None, contexts: Mapping[int, OffloadContext]
) -> TopicReport:
    config, admin = session.config, session.admin
    catalog, info = session.catalogs.head(topic), admin.topic_info(topic)
    said = str(admin.offload_policies(topic).get(DRIVER) or "") if info.offloaded else ""
    facts = tuple(
        TopicLedger(
            span,
            *info.sizes.get(span.ledger, (0, 0)),
            state_of(span, info.offloaded, _attempted(contexts), _moved(contexts)),
            contexts[span.ledger].driver or said if span.ledger in contexts else said,
        )
        for span in info.ledgers.spans
    )
    scheme = config.lifecycle.stock_bucket.partition("://")[0].lower()
    refusals = drivers_out_of_reach(scheme, {one.driver for one in facts})
    extent = _archived(session, catalog) if catalog.is_of(info.created, info.ledgers) else ArchivedExtent()
    back = taking is None
    ledgers = (
        plan_to_ledger_based(facts, extent) if taking is None else plan_to_streaming(facts, extent, taking, refusals)
    )
    policy = config.policies.of(topic)
    inside = scheme == session.storage.scheme == "s3"
    cost = cost_of(ledgers, CostShape(policy.layout.part_size, policy.max_segment_size, inside), back=back)
    pause = pause_of(ledgers, config.bridge.ledgers_at_once) if back else 0
    owner = catalog.claim.application if catalog.claim is not None else ""
    return TopicReport(topic, ledgers, cost, pause, "" if not owner or is_ours(session, owner) else owner)


def _archived(session: CommandSession, catalog: CatalogHead) -> ArchivedExtent:
    """Of the catalog's records only those that tell of losses are read."""
    if catalog.claim is None:
        return ArchivedExtent()
    incarnation = catalog.claim.incarnation
    history = session.catalogs.history(catalog.topic, catalog)
    losses = (
        AbsentRange(loss.start, loss.end, f"{loss.start}..{loss.end} was gone before it was offloaded")
        for slot in history.slots(lambda row: row.losses > 0)
        for loss in history.catalog(range(slot.number, slot.number + 1)).losses
    )
    deleted = (
        AbsentRange(gone.start, gone.end, f"{gone.start}..{gone.end} is deleted from the archive: {gone.policy}")
        for gone in catalog.removed.told
    )
    absent = (each for each in (*losses, *deleted) if each.end.incarnation == incarnation)
    return ArchivedExtent(catalog.begin, catalog.end, tuple(absent))


def _attempted(contexts: Mapping[int, OffloadContext]) -> set[int]:
    return {ledger for ledger, one in contexts.items() if one.uuid and not one.complete}


def _moved(contexts: Mapping[int, OffloadContext]) -> set[int]:
    return {ledger for ledger, one in contexts.items() if one.bookkeeper_deleted}


def _records(session: CommandSession) -> Callable[[TopicName], Mapping[int, OffloadContext]]:
    """The contexts of a topic's ledgers, from ZooKeeper where it is configured: brokers do not tell all of them."""
    if session.config.pulsar.metadata_service_uri is None:
        return lambda _: {}
    tree, _ = session.bookkeeper(SECONDS)

    def read(topic: TopicName) -> Mapping[int, OffloadContext]:
        try:
            record = tree.managed_ledger(topic)
        except LedgerNotFoundError:
            return {}
        return {one.ledger: one.copy for one in record.ledgers}

    return read
