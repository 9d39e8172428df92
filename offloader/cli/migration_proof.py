"""The proof of a migration's way back: what the archive and Pulsar's list let one expect of a topic, and whether a
client gets it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from offloader.archive.items import EntryRun, ReadItem
from offloader.archive.messages.message import Message
from offloader.archive.messages.unpack import Unpacker
from offloader.archive.selection import Selection
from offloader.archive.topic import ArchivedTopic
from offloader.cli.command import CommandSession
from offloader.cli.reading import LedgersOption, archived
from offloader.migrate.proof import Delivery, DeliveryProof, ExpectedEntry, MessageProof, RawExpected, Shown
from offloader.model import EntryRange, Position, TopicName
from offloader.ports.admin import TopicInfo

QUIET, SILENCE = 2.0, 30.0  # seconds


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
