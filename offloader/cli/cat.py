"""`offloader topics cat`: reading back."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping

import click

from offloader.archive.following.merge import as_they_come
from offloader.archive.items import ArchivedEntry, Item, Missing
from offloader.archive.messages.encryption import KeyReader
from offloader.archive.messages.filters import MessageFilter
from offloader.archive.messages.message import Message
from offloader.archive.messages.unpack import Unpacker
from offloader.archive.reading.reader import ReadOptions
from offloader.archive.selection import Bound, Selection, selected
from offloader.archive.topic import ArchivedTopic
from offloader.cli.command import CommandSession, command
from offloader.cli.formats import FORMATS, Format
from offloader.cli.groups import INTERRUPTED
from offloader.cli.parsing import TOPIC, parse_pair, parsed
from offloader.cli.reading import (
    LedgersOption,
    archived_partitions,
    range_options,
    reading_options,
)
from offloader.cli.topics import topics
from offloader.errors import ConfigError
from offloader.model import Position, TopicName

Found = Iterator[Item | Message]


@topics.command()
@click.argument("topic", callback=TOPIC)
@range_options("--to", "--until")
@click.option("--entries", is_flag=True, help="The entries as BookKeeper stored them instead of messages.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    help="How to print; `raw` is the bytes alone, one after another, nothing between them. Like --output by default.",
)
@click.option("--key", "keys", metavar="KEY", multiple=True, help="Only messages with this key; with any of several.")
@click.option(
    "--property",
    "properties",
    metavar="NAME=VALUE",
    multiple=True,
    callback=parsed(parse_pair),
    help="Only messages with this property; with all of several.",
)
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="No more than so many messages (entries).")
@click.option(
    "--follow",
    is_flag=True,
    help="Go on into the live topic where the archive ends, for ever. Needs the section `pulsar`.",
)
@reading_options
@command()
def cat(
    session: CommandSession,
    topic: TopicName,
    *,
    start: Bound | None,
    end: Bound | None,
    entries: bool,
    form: str | None,
    keys: tuple[str, ...],
    properties: tuple[tuple[str, str], ...],
    limit: int | None,
    follow: bool,
    private_keys: KeyReader | None,
    reading: ReadOptions,
    ledgers: LedgersOption,
) -> int | None:
    """Read a topic's archived messages, unpacked from batches, compression and chunks. Needs no Pulsar, and may only
    read the bucket.

    Text is a line each, fields separated by tabs: position (with the index in the batch), bytes, publish time, key,
    payload. A value that is not there is a reason in parentheses. With --entries: position, bytes, SHA-256. What is
    recorded as missing (gaps, losses) is a line that begins with `#`; with `raw` on standard error. Times are publish
    times, by producers' clocks; what certainly holds no such message is not read.

    The name of a partitioned topic means its archived partitions: one after the other, by number; with --follow all at
    once, as messages come. Where another partition begins, a line `# TOPIC` says so (in JSON `topic` does, with `raw`
    nothing). --follow ends with Ctrl-C, exit code 130.

    \b
    JSON: one object a line, {topic, position, batchIndex, size, publishTime, eventTime, key, keyBytes, properties,
    producer, sequenceId, orderingKey, schemaVersion, replicatedFrom, brokerTime, index, encryptionKeys, payload,
    problem}, bytes in base64; with --entries {topic, position, size, publishTime, messages, unreadable, brokerTime,
    index, sha256, data}, data in base64; and {topic, missing: {from, to}, why}.
    """
    if entries and (keys or properties):
        raise ConfigError("--key and --property choose messages; leave out --entries")
    if follow and isinstance(end, int):
        raise ConfigError("--follow: no time ends a live topic, clocks differ; give --to a position, or leave it out")
    selection = selected(start, end)
    sources = archived_partitions(session, topic, ledgers, reading, follow=follow)
    if len(sources) > 1 and (isinstance(start, Position) or isinstance(end, Position)):
        raise ConfigError(
            f"a position is in one of the {len(sources)} partitions: name that, for example {sources[0].name}"
        )
    chosen = frozenset(os.fsencode(key) for key in keys) if keys else None
    filters = MessageFilter(selection.published_from, selection.published_to, chosen, dict(properties))
    found = {
        source.name: source.items(selection, follow=follow)
        if entries
        else messages_of(source, selection, filters, private_keys, follow=follow)
        for source in sources
    }
    live = follow or sys.stdout.isatty()
    try:
        show(_in_turn(found, follow=follow), FORMATS[form or session.output.name](topic), limit, live=live)
    except KeyboardInterrupt:
        if not follow:
            raise
        return INTERRUPTED  # there is no other way to end it
    return None


def messages_of(
    source: ArchivedTopic,
    selection: Selection,
    filters: MessageFilter,
    keys: KeyReader | None,
    *,
    follow: bool = False,
) -> Found:
    """The messages of a topic that are wanted, and what is missing."""
    unpacker = Unpacker(source.unpacking(keys), filters)
    for item in source.runs(selection, follow=follow):
        if isinstance(item, Missing):
            yield item
        else:
            yield from unpacker.messages(item)


def _in_turn(found: Mapping[TopicName, Found], *, follow: bool) -> Iterator[tuple[TopicName, Item | Message]]:
    """Everything with its topic: one topic after the other, but at once where each goes on for ever."""
    if follow and len(found) > 1:
        yield from as_they_come(found, _size)
        return
    for name, items in found.items():
        for item in items:
            yield name, item


def _size(item: Item | Message) -> int:
    """The bytes that a user wrote, which is nearly all that an item holds."""
    match item:
        case Missing():
            return 0
        case ArchivedEntry():
            return len(item.data)
        case Message():
            return len(item.value or b"") + sum(len(key) + len(value) for key, value in item.properties.items())


def show(found: Iterator[tuple[TopicName, Item | Message]], form: Format, limit: int | None, *, live: bool) -> None:
    """Print up to a limit; `live`: at once."""
    left = limit
    try:
        for name, item in found:
            if name != form.topic:
                form.turn_to(name)
            _show_one(item, form)
            if live:
                form.flush()
            if left is not None and not isinstance(item, Missing):
                left -= 1
                if left == 0:
                    return
    finally:
        form.flush()


def _show_one(item: Item | Message, form: Format) -> None:
    match item:
        case Missing():
            form.missing(item)
        case ArchivedEntry():
            form.entry(item)
        case Message():
            form.message(item)
