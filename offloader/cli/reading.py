"""What the reading commands have in common: which topic, which part of it, and what damage does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, cast

import click

from offloader.archive.archive import Archive
from offloader.archive.ledgers.bucket import LedgerBucket
from offloader.archive.messages.encryption import PemFiles
from offloader.archive.messages.message import DEFAULT_LIMITS, MessageLimits, parse_message_size
from offloader.archive.reading.reader import OnDamage, ReadOptions
from offloader.archive.selection import parse_bound
from offloader.archive.topic import ArchivedTopic
from offloader.cli.command import CommandSession
from offloader.cli.parsing import C, parse_pair, parsed, with_options
from offloader.errors import ConfigError, DataLostError, FatalError
from offloader.metadata.listing import holds_data
from offloader.model import TopicName
from offloader.runtime.connections import pulsar_settings

log = logging.getLogger(__name__)

SEE_LIST = "; `offloader topics list` shows what is"


@dataclass(frozen=True)
class LedgersOption:
    """Where stock brokers have offloaded to, and who says what is whose there."""

    url: str | None
    cluster: str | None
    ask_pulsar: bool

    @property
    def says_anything(self) -> bool:
        """Whether any of it was said."""
        return self.url is not None or self.cluster is not None or self.ask_pulsar

    def bucket(self, session: CommandSession) -> LedgerBucket | None:
        """Raises ConfigError."""
        if self.url is None:
            if self.says_anything:
                raise ConfigError(
                    "--cluster and --ask-pulsar are for --ledgers, the bucket that stock brokers have offloaded to"
                )
            return None
        admin = pulsar_settings(session.config) if self.ask_pulsar else None
        return LedgerBucket(session.storage.beside(self.url, "--ledgers"), admin=admin, cluster=self.cluster)


def range_options(*names_of_end: str) -> Callable[[C], C]:
    """`--from`, and what the end is called."""

    def option(what: str, *names: str) -> Callable[[C], C]:
        help_text = (
            f"The {what} position, or the {what} publish time (ISO 8601, or ms since 1970); the archive's {what} by "
            "default."
        )
        return click.option(*names, metavar="LEDGER:ENTRY|TIME", callback=parsed(parse_bound), help=help_text)

    return lambda command: with_options(
        command, option("first", "--from", "start"), option("last", *names_of_end, "end")
    )


def ledger_options(command: C) -> C:
    """`--ledgers` and what belongs to it, which the command gets as one `ledgers`."""

    @wraps(command)
    def run(*, ledgers: str | None, cluster: str | None, ask_pulsar: bool, **others: Any) -> Any:
        return command(ledgers=LedgersOption(ledgers, cluster, ask_pulsar), **others)

    return with_options(
        cast("C", run),
        click.option(
            "--ledgers", metavar="URL", help="Also read what Pulsar's own offloader has put into this bucket."
        ),
        click.option(
            "--cluster", metavar="NAME", help="Whose ledgers these are, where several clusters share the bucket."
        ),
        click.option(
            "--ask-pulsar",
            is_flag=True,
            help="Let the brokers say which ledgers are the topic's; else nothing proves that none is missing.",
        ),
    )


def _key_files(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> PemFiles | None:
    files = dict(parsed(parse_pair)(ctx, param, value))
    return PemFiles(files) if files else None


def reading_options(command: C) -> C:
    """What all that reads topics can be told: the command gets `private_keys`, `reading` and `ledgers`."""
    return message_options(ledger_options(command))


def message_options(command: C) -> C:
    """What all that reads messages can be told: the command gets `private_keys` and `reading`."""

    @wraps(command)
    def run(
        *, on_damage: str, max_message_size: int | None, max_chunked_message_size: int | None, **others: Any
    ) -> Any:
        limits = MessageLimits(
            max_message_size or DEFAULT_LIMITS.message, max_chunked_message_size or DEFAULT_LIMITS.chunked
        )
        return command(reading=ReadOptions(on_damage=OnDamage(on_damage), limits=limits), **others)

    return with_options(
        cast("C", run),
        click.option(
            "--private-key",
            "private_keys",
            metavar="NAME=FILE",
            multiple=True,
            callback=_key_files,
            help="A PEM file that opens messages which were encrypted for the key NAME.",
        ),
        click.option(
            "--on-damage",
            type=click.Choice([choice.value for choice in OnDamage]),
            default=OnDamage.FAIL.value,
            show_default=True,
            help=(
                "What to do where stored data cannot be read: stop with an error, or go on after it and say what is "
                "left out."
            ),
        ),
        click.option(
            "--max-message-size",
            metavar="SIZE",
            callback=parsed(parse_message_size),
            help="A message or batch that is larger uncompressed is damage; 5M and 10K by default, as for brokers.",
        ),
        click.option(
            "--max-chunked-message-size",
            metavar="SIZE",
            callback=parsed(parse_message_size),
            help="The same for one message in chunks, and for all chunks that wait for others; 128M by default.",
        ),
    )


def archived(session: CommandSession, topic: TopicName, ledgers: LedgersOption) -> ArchivedTopic:
    """One topic. Raises FatalError where the archive does not have it."""
    archive = session.open_archive(ledgers.bucket(session))
    found = Archive(archive).find(topic)
    if found is None:
        raise archive.unknown(topic, SEE_LIST)
    return found


def archived_partitions(
    session: CommandSession, topic: TopicName, ledgers: LedgersOption, options: ReadOptions, *, follow: bool = False
) -> list[ArchivedTopic]:
    """A topic, or the partitions of that name, by number. Raises FatalError where the archive has neither."""
    opening = session.open_archive(ledgers.bucket(session))
    archive = Archive(opening, options=options, pulsar=session.dependencies.live(session.config) if follow else None)
    whole = archive.find(topic)
    if whole is not None:
        if names := opening.partitions(topic):
            log.warning(
                "%s was partitioned once, too: name one of its %d archived partitions to read that",
                topic,
                len(names),
                extra={"see": "partitioned-once"},
            )
        return [whole]
    scanned = opening.scan(lambda name: name.partitioned_name == str(topic))
    names = opening.partitions(topic, scanned)
    found = {name: one for name in names if (one := archive.find(name, scanned)) is not None}
    lost = next((name for name in (topic, *names) if name not in found and holds_data(session.store, name)), None)
    if lost is not None:
        raise catalog_is_gone(lost)
    if not found:
        raise not_archived(topic)
    return list(found.values())


def not_archived(topic: TopicName) -> FatalError:
    """Of a topic that the archive does not know."""
    return FatalError(f"{topic} is not in the archive{SEE_LIST}")


def catalog_is_gone(topic: TopicName) -> DataLostError:
    """Of a topic whose objects are there."""
    return DataLostError(
        f"{topic} has segments in the archive, but its catalog is gone; `offloader catalog rebuild {topic}` makes it "
        "anew"
    )
