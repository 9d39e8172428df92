"""`offloader topics cat`: reading back."""

from __future__ import annotations

from collections.abc import Iterator

import click

from offloader.archive.items import ArchivedEntry, Item, Missing
from offloader.archive.messages.encryption import KeyReader
from offloader.archive.messages.filters import MessageFilter
from offloader.archive.messages.message import Message
from offloader.archive.messages.unpack import Unpacker
from offloader.archive.stored import ReadItem
from offloader.cli.formats import FORMATS, Format
from offloader.cli.parsing import TOPIC, parse_pair, parsed
from offloader.cli.reading import ON_DAMAGE, PRIVATE_KEYS, Bound, Ledgers, Range, archived, ledger_options, range_options
from offloader.cli.session import Session, command
from offloader.cli.topics import topics
from offloader.errors import ConfigError
from offloader.model import TopicName


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
    "--follow", is_flag=True, help="Go on into the live topic where the archive ends, for ever. Needs the section `pulsar`."
)
@PRIVATE_KEYS
@ON_DAMAGE
@ledger_options
@command()
def cat(
    session: Session,
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
    on_damage: str,
    ledgers: str | None,
    cluster: str | None,
    ask_pulsar: bool,
) -> None:
    """Read a topic's archived messages, unpacked from batches, compression and chunks. Needs no Pulsar, and may only read the bucket.

    Text is a line each, fields separated by tabs: position (with the index in the batch), bytes, publish time, key, payload. A value
    that is not there is a reason in parentheses. With --entries: position, bytes, SHA-256.
    What is recorded as missing (gaps, losses) is a line that begins with `#`; with `raw` on standard error.
    Times are publish times, by producers' clocks; what certainly holds no such message is not read.

    \b
    JSON: one object a line, {position, batchIndex, size, publishTime, eventTime, key, keyBytes, properties, producer,
    sequenceId, orderingKey, schemaVersion, replicatedFrom, brokerTime, index, encryptionKeys, payload, problem}, bytes in
    base64; with --entries {position, size, publishTime, messages, brokerTime, index, sha256, data}, data in base64;
    and {missing: {from, to}, why}.
    """
    if entries and (keys or properties):
        raise ConfigError("--key and --property choose messages; leave out --entries")
    if follow and isinstance(end, int):
        raise ConfigError("--follow: no time ends a live topic, clocks differ; give --to a position, or leave it out")
    source = archived(session, topic, Ledgers(ledgers, cluster, ask_pulsar), on_damage=on_damage, follow=follow)
    wanted = Range.of(start, end)
    if entries:
        found: Iterator[Item | Message] = source.items(*wanted, follow=follow)
    else:
        chosen = frozenset(key.encode() for key in keys) if keys else None
        filters = MessageFilter(wanted.published_from, wanted.published_to, chosen, dict(properties))
        unpacker = Unpacker(source.unpacking(private_keys))
        found = _messages(source.runs(*wanted, follow=follow), unpacker, filters)
    _show(found, FORMATS[form or session.output.name](), limit)


def _messages(items: Iterator[ReadItem], unpacker: Unpacker, filters: MessageFilter) -> Iterator[Message | Missing]:
    for item in items:
        if isinstance(item, Missing):
            yield item
        else:
            yield from filter(filters.matches, unpacker.messages(item))


def _show(found: Iterator[Item | Message], form: Format, limit: int | None) -> None:
    left = limit
    for item in found:
        match item:
            case Missing():
                form.missing(item)
                continue
            case ArchivedEntry():
                form.entry(item)
            case Message():
                form.message(item)
        if left is not None:
            left -= 1
            if left == 0:
                return
