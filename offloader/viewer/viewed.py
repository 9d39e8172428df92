"""The archive as its pages read it: a few requests a page, and nothing that grows with history.

`outline` shows a topic's catalog in few pieces, however long it is: sums from its manifests, single records where they
are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from offloader.archive.messages.encryption import KeyReader
from offloader.archive.messages.message import Message, MessageLimits
from offloader.archive.messages.unpack import Unpacker
from offloader.archive.opened import OpenArchive
from offloader.archive.peek.place import Peeked
from offloader.archive.reading.reader import OnDamage, ReadOptions
from offloader.archive.records import LazyTopicRecords
from offloader.archive.topic import ArchivedTopic
from offloader.cursors.facts import read_facts
from offloader.errors import ConfigError, FatalError, IntegrityError
from offloader.format.entry import inspect
from offloader.metadata.catalog import Catalogs, Heads
from offloader.metadata.history import History
from offloader.metadata.manifest import FAN, ManifestNode, frontier, row_of
from offloader.model import KIB, MIB, Position, TopicName
from offloader.ports.admin import TopicSchema
from offloader.viewer.directory import Directory
from offloader.viewer.schemas import version_of
from offloader.viewer.timeline import Piece

# Damage is shown in its place. Whoever looks at a page wants its entries, and not what follows them.
LIMITS = MessageLimits(chunked=32 * MIB)
A_LITTLE = ReadOptions(read_size=256 * KIB, prefetch=0, on_damage=OnDamage.SKIP, limits=LIMITS)
MUCH = ReadOptions(on_damage=OnDamage.SKIP, limits=LIMITS)

MOST_MESSAGES = 20_000  # of one entry
MOST_RECORDS, MOST_TOPICS = 1_000, 1_000  # that are remembered: some 50 MiB
MOST_PIECES = 256  # pieces


class ViewedArchive:
    """`keys`: opens encrypted messages. `clock`: seconds that only grow. Threads may share it."""

    def __init__(self, opened: OpenArchive, clock: Callable[[], float], keys: KeyReader | None = None) -> None:
        self.url = opened.store.url
        self.directory = Directory(opened.store, clock)
        self.opened = opened
        self._catalogs = Catalogs(opened.store, "")  # nothing is appended
        self.keys = keys

    def records(self, topic: TopicName) -> LazyTopicRecords | None:
        """What the catalog has; None: nothing. Raises as `CatalogCache.records`."""
        records = self.opened.catalogs.records(topic)
        return records if records.head.next_slot else None

    def topic(self, topic: TopicName, options: ReadOptions = A_LITTLE) -> ArchivedTopic:
        """To be read. Raises FatalError where the archive does not have it."""
        records = self.records(topic)
        if records is None:
            raise self.opened.unknown(topic, "; the first page lists what is")
        return ArchivedTopic(self.opened.stores, records, options)

    def heads(self, topics: Iterable[TopicName]) -> Heads:
        """What the catalogs of several topics add up to; one that cannot be read says why."""
        return self._catalogs.heads(topics)

    def messages(self, topic: ArchivedTopic, found: Peeked) -> list[Message]:
        """Of one entry; one that cannot be unpacked says its problem. Empty: consumers get nothing of it. Raises
        FatalError where there are too many."""
        if found.stored is None:
            return []
        count = inspect(found.stored.entry.data).messages
        if count > MOST_MESSAGES:
            raise FatalError(
                f"{topic.name}: {found.position} is a batch of {count:,} messages, too many for a page; `offloader "
                "topics cat` shows them"
            )
        unpacker = Unpacker(topic.unpacking(self.keys))
        return unpacker.entry_messages(found.position, found.stored.entry.data, found.stored.offset)

    def schema(self, topic: TopicName, message: Message) -> tuple[TopicSchema | None, str]:
        """By which a message was written, as far as it is archived; and why it is not known."""
        number = version_of(message.schema_version)
        if number is None:
            return None, ""
        try:
            facts = read_facts(self.opened.store, topic)
        except IntegrityError as error:
            return None, f"the copy of the topic's schemas is damaged: {error}"
        schemas = () if facts is None else facts.schemas
        found = next((one for one in schemas if one.version == number), None)
        return found, "" if found else f"schema version {number} is not archived (`archiveCursors` copies schemas)"


def topic_named(text: str) -> TopicName:
    """Raises ConfigError."""
    try:
        return TopicName.parse(text)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def position_named(text: str) -> Position:
    """Raises ConfigError."""
    try:
        return Position.parse(text)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def outline(history: History, first: int, after: int, most: int = MOST_PIECES) -> list[Piece]:
    """The slots from `first` up to `after` in at most about `most` pieces. Records are read where all of them are not
    more than that; else manifests alone, some few. Raises DamagedRecordError, and what the store raises."""
    if after - first <= most:
        numbers = range(first, after)
        read = zip(numbers, history.read(numbers), strict=True)
        return [Piece(number, number + 1, row_of(written.record), written.record) for number, written in read]

    def within(pieces: Iterator[tuple[ManifestNode | None, Piece]]) -> list[tuple[ManifestNode | None, Piece]]:
        return [(node, piece) for node, piece in pieces if piece.first < after and piece.after > first]

    found = within(_top(history))
    while found:
        at = max(range(len(found)), key=lambda index: found[index][1].count)
        node = found[at][0]
        if node is None:
            break
        below = within(_below(history, node))
        if len(found) - 1 + len(below) > most:
            break
        found[at : at + 1] = below
    return [piece for _, piece in found]


def _top(history: History) -> Iterator[tuple[ManifestNode | None, Piece]]:
    leaves = history.leaves
    for node, row in zip(frontier(leaves), history.before(leaves), strict=True):
        yield node, Piece(node.slots.start, node.slots.stop, row)
    tail = range(leaves * FAN, history.head.next_slot)
    for number, written in zip(tail, history.read(tail), strict=True):
        yield None, Piece(number, number + 1, row_of(written.record), written.record)


def _below(history: History, node: ManifestNode) -> Iterator[tuple[ManifestNode | None, Piece]]:
    for index, row in enumerate(history.manifest(node).rows):
        if node.level > 0:
            child = node.child(index)
            yield child, Piece(child.slots.start, child.slots.stop, row)
        else:
            number = node.slots[index]
            yield None, Piece(number, number + 1, row)
