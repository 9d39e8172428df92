"""The archive as its pages read it: a few requests a page, and nothing that grows with history."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from offloader.archive.messages.encryption import KeyReader
from offloader.archive.messages.limits import MessageLimits
from offloader.archive.messages.message import Message
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
from offloader.model import KIB, MIB, Position, TopicName
from offloader.ports.topic_states import TopicSchema
from offloader.viewer.directory import Directory
from offloader.viewer.schemas import version_of

# Damage is shown in its place. Whoever looks at a page wants its entries, and not what follows them.
LIMITS = MessageLimits(chunked=32 * MIB)
A_LITTLE = ReadOptions(read_size=256 * KIB, prefetch=0, on_damage=OnDamage.SKIP, limits=LIMITS)
MUCH = ReadOptions(on_damage=OnDamage.SKIP, limits=LIMITS)

MOST_MESSAGES = 20_000  # of one entry
MOST_RECORDS, MOST_TOPICS = 1_000, 1_000  # that are remembered: some 50 MiB


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
