"""What a migration would do, gathered from Pulsar and the catalogs, and told. And the proof of its way back: what the
archive and Pulsar's list let one expect of a topic, and whether a client gets it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from offloader.archive.items import EntryRun, ReadItem
from offloader.archive.messages.message import Message
from offloader.archive.messages.unpack import Unpacker
from offloader.archive.selection import Selection
from offloader.archive.topic import ArchivedTopic
from offloader.cli.command import CommandSession
from offloader.cli.reading import LedgersOption, archived
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
from offloader.migrate.proof import Delivery, DeliveryProof, ExpectedEntry, MessageProof, RawExpected, Shown
from offloader.model import EntryRange, Position, Taking, TopicName
from offloader.operations.cost.prices import PriceList
from offloader.operations.cost.requests import Requests
from offloader.ports.admin import TopicInfo
from offloader.state.managed_ledger import OffloadContext

DRIVER = "managedLedgerOffloadDriver"
ESTIMATES = "requests and prices are estimates"
QUIET, SILENCE = 2.0, 30.0  # seconds
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


@dataclass(frozen=True)
class ListedTopic:
    """What there is of a topic: each entry that Pulsar lists, in order, and what is archived of it. `archived` None:
    nothing of the topic as it is now."""

    ranges: tuple[EntryRange, ...]
    archived: ArchivedTopic | None
    incarnation: int

    @classmethod
    def of(cls, session: CommandSession, topic: TopicName, info: TopicInfo) -> ListedTopic:
        """As it is listed; one that was deleted and made anew has ledgers of its own, whatever ids these have."""
        head = session.catalogs.head(topic)
        if head.claim is None or not head.is_of(info.created, info.ledgers):
            return cls(tuple(_listed(info)), None, 0)
        found = archived(session, topic, LedgersOption(None, None, ask_pulsar=False))
        return cls(tuple(_listed(info)), found, head.claim.incarnation)

    def expected(self) -> Iterator[ExpectedEntry]:
        """What a client has to get, entry by entry."""
        if self.archived is None:
            yield from _unarchived(self.ranges)
            return
        # What is before the first entry here is not there for a client, either: no chunk is looked for behind it.
        options = replace(self.archived.unpacking(), look_back=None, keep_damaged=True)
        unpacker = Unpacker(options)
        for item in self._items(self.archived, self.ranges):
            if isinstance(item, EntryRange):
                yield from _unarchived([item])
            else:
                yield from _of_run(item, unpacker.messages(item))

    def raw(self, wanted: EntryRange) -> Iterator[RawExpected]:
        """The bytes of some of them."""
        listed = [found for each in self.ranges if (found := _common(each, wanted)) is not None]
        if self.archived is None:
            yield from ((each.ledger, entry, None) for each in listed for entry in each.ids)
            return
        for item in self._items(self.archived, listed):
            if isinstance(item, EntryRange):
                yield from ((item.ledger, entry, None) for entry in item.ids)
            else:
                yield from ((*entry.position.place, entry.data) for entry in item.entries())

    def _items(self, topic: ArchivedTopic, ranges: Iterable[EntryRange]) -> Iterator[EntryRun | EntryRange]:
        """These ranges: what is archived of them, and the parts that are not. Recorded gaps are left out."""
        left = list(ranges)
        if not left:
            return
        first, last = left[0], left[-1]
        selection = Selection(
            Position(self.incarnation, first.ledger, first.first), Position(self.incarnation, last.ledger, last.last)
        )
        pending = iter(left)
        at = next(pending, None)
        for item in self._stored(topic, selection):
            start, end = item.start.place, item.end.place
            while at is not None and (at.ledger, at.first) < start:
                before = at.between(after=start)
                if before is not None:
                    yield before
                at = at.between(begin=start) or next(pending, None)
            while at is not None and (common := at.between(begin=start, after=(end[0], end[1] + 1))) is not None:
                if isinstance(item, EntryRun):
                    yield item.part(common.first, common.after)
                at = at.between(begin=(common.ledger, common.after)) or next(pending, None)
        while at is not None:
            yield at
            at = next(pending, None)

    def _stored(self, topic: ArchivedTopic, selection: Selection) -> Iterator[ReadItem]:
        """What is stored of the topic as it is now, and its recorded gaps: the catalog says that no consumer gets
        them. Losses and deletions are not archived."""
        for item in topic.read(topic.records.plan(selection)):
            if item.start.incarnation != self.incarnation:
                continue
            if isinstance(item, EntryRun) or item.kind is not None:
                yield item


def proven(session: CommandSession, topic: TopicName) -> DeliveryProof:
    """Read the whole topic, as it is listed now, through a stock client."""
    config, admin = session.config, session.admin
    info = admin.topic_info(topic)
    listed = ListedTopic.of(session, topic, info)
    if not listed.ranges:
        return DeliveryProof()
    average = max((size // max(entries, 1) for entries, size in info.sizes.values()), default=0)
    with (
        session.dependencies.live(config).connect() as (source, _),
        session.dependencies.stock_reader(config, topic, average) as reader,
    ):
        delivery = Delivery(source, topic, lambda ledger: ledger in admin.topic_info(topic).ledgers, SILENCE)
        proof = MessageProof(reader, delivery, listed.raw, quiet=QUIET, patience=SILENCE).of(listed.expected())
    if not proof.wrong and admin.topic_info(topic).created != info.created:
        return replace(proof, wrong="it was deleted and created again while it was read: prove it anew")
    return proof


def _listed(info: TopicInfo) -> Iterator[EntryRange]:
    """What can be read of each ledger, up to the topic's end."""
    end = info.last_confirmed or (-1, -1)
    for span in info.ledgers.spans:
        last = span.last if span.last is not None else end[1] if span.ledger == end[0] else -1
        if last >= 0:
            yield EntryRange.closed(span.ledger, 0, last)


def _common(one: EntryRange, other: EntryRange) -> EntryRange | None:
    return one.between(begin=(other.ledger, other.first), after=(other.ledger, other.after))


def _unarchived(ranges: Iterable[EntryRange]) -> Iterator[ExpectedEntry]:
    return (ExpectedEntry(each.ledger, entry, None, archived=False) for each in ranges for entry in each.ids)


def _of_run(run: EntryRun, messages: Iterator[Message]) -> Iterator[ExpectedEntry]:
    """Each entry of a run, with the messages that a client gets of it."""
    at = run.first
    for position, found in groupby(messages, lambda message: message.position):
        yield from (ExpectedEntry(run.ledger, entry, ()) for entry in range(at, position.entry))
        whole = list(found)
        told = None if any(each.problem for each in whole) else tuple(map(shown, whole))
        yield ExpectedEntry(run.ledger, position.entry, told)
        at = position.entry + 1
    yield from (ExpectedEntry(run.ledger, entry, ()) for entry in range(at, run.after))


def shown(message: Message) -> Shown:
    """A message as clients show it."""
    return Shown(
        *message.position.place,
        max(message.batch_index, 0),
        message.value or b"",
        (message.key or b"").decode(errors="replace"),
        tuple(sorted(message.properties.items())),
        message.publish_time or 0,
        message.event_time or 0,
    )
