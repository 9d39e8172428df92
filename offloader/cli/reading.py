"""What the reading commands have in common: which topic, which part of it, and what damage does."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from offloader.archive.catalog_cache import CatalogCache
from offloader.archive.following.live import Following
from offloader.archive.ledgers.bucket import BucketScan
from offloader.archive.ledgers.ledger_bucket import LedgerBucket
from offloader.archive.ledgers.opening import with_ledgers
from offloader.archive.messages.encryption import PemFiles
from offloader.archive.messages.limits import DEFAULT_LIMITS, MessageLimits, parse_message_size
from offloader.archive.read_model import Selection
from offloader.archive.reading.reader import DEFAULTS, OnDamage, ReadOptions
from offloader.archive.reading.stores import Stores
from offloader.archive.records import TopicRecords
from offloader.archive.spark.values import parse_publish_time
from offloader.archive.topic import ArchivedTopic
from offloader.cli.parsing import parse_pair, parsed
from offloader.cli.session import CommandSession
from offloader.errors import ConfigError, DataLostError, FatalError
from offloader.metadata.listing import holds_data, partitions
from offloader.model import Position, TopicName
from offloader.offload import settings

log = logging.getLogger(__name__)

Bound = Position | int
C = TypeVar("C", bound=Callable[..., Any])

# A mere number below this (in 1973, if it were milliseconds) is rather seconds, or a position that was not written to its end.
LEAST_TIME = 10**11


@dataclass(frozen=True)
class LedgersOption:
    """Where stock brokers have offloaded to, and who says what is whose there."""

    url: str | None
    cluster: str | None
    ask_pulsar: bool

    def bucket(self, session: CommandSession) -> LedgerBucket | None:
        """Raises ConfigError."""
        if self.url is None:
            if self.cluster is not None or self.ask_pulsar:
                raise ConfigError("--cluster and --ask-pulsar are for --ledgers, the bucket that stock brokers have offloaded to")
            return None
        admin = settings.pulsar(session.config) if self.ask_pulsar else None
        return LedgerBucket(session.storage.beside(self.url, "--ledgers"), admin=admin, cluster=self.cluster)


def parse_bound(text: str) -> Bound:
    """A position, or a time in ms. Raises ValueError."""
    if re.fullmatch(r"[0-9]+:(-1|[0-9]+)", text):
        return Position.parse(text)
    time: int | None
    try:
        time = parse_publish_time(text)
    except ValueError:
        time = None
    if time is None or (time < LEAST_TIME and text.strip().isdecimal()):
        raise ValueError(
            f"{text!r} is neither a position nor a time; write LEDGER:ENTRY, for example 12:345, or a publish time as "
            "2026-11-21T14:00:00Z or in ms since 1970"
        )
    return time


BOUND = parsed(parse_bound)


def selected(start: Bound | None, end: Bound | None) -> Selection:
    """What lies between bounds by position or by publish time (ms). Raises ConfigError where the end comes before the start."""
    positions = isinstance(start, Position) and isinstance(end, Position) and end < start
    times = isinstance(start, int) and isinstance(end, int) and end < start
    if positions or times:
        raise ConfigError("the range ends before it begins; exchange its two bounds")
    return Selection(
        start if isinstance(start, Position) else None,
        end if isinstance(end, Position) else None,
        start if isinstance(start, int) else None,
        end if isinstance(end, int) else None,
    )


def range_options(*names_of_end: str) -> Callable[[C], C]:
    """`--from`, and what the end is called."""

    def add(command: C) -> C:
        for names, parameter, what in ((names_of_end, "end", "last"), (("--from",), "start", "first")):
            command = click.option(
                *names,
                parameter,
                metavar="LEDGER:ENTRY|TIME",
                callback=BOUND,
                help=f"The {what} position, or the {what} publish time (ISO 8601, or ms since 1970); the archive's {what} by default.",
            )(command)
        return command

    return add


def ledger_options(command: C) -> C:
    """`--ledgers` and what belongs to it."""
    options = (
        click.option("--ledgers", metavar="URL", help="Also read what Pulsar's own offloader has put into this bucket."),
        click.option("--cluster", metavar="NAME", help="Whose ledgers these are, where several clusters share the bucket."),
        click.option(
            "--ask-pulsar",
            is_flag=True,
            help="Let the brokers say which ledgers are the topic's; else nothing proves that none is missing.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


ON_DAMAGE = click.option(
    "--on-damage",
    type=click.Choice([choice.value for choice in OnDamage]),
    default=OnDamage.FAIL.value,
    show_default=True,
    help="What to do where stored data cannot be read: stop with an error, or go on after it and say what is left out.",
)


def limit_options(command: C) -> C:
    """`--max-message-size` and `--max-chunked-message-size`."""
    options = (
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
    for option in reversed(options):
        command = option(command)
    return command


def limits_of(message: int | None, chunked: int | None) -> MessageLimits:
    """What the options say."""
    return MessageLimits(message or DEFAULT_LIMITS.message, chunked or DEFAULT_LIMITS.chunked)


def _key_files(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> PemFiles | None:
    files = dict(parsed(parse_pair)(ctx, param, value))
    return PemFiles(files) if files else None


PRIVATE_KEYS = click.option(
    "--private-key",
    "private_keys",
    metavar="NAME=FILE",
    multiple=True,
    callback=_key_files,
    help="A PEM file that opens messages which were encrypted for the key NAME.",
)


def archived(session: CommandSession, topic: TopicName, ledgers: LedgersOption) -> ArchivedTopic:
    """One topic. Raises FatalError where the archive does not have it."""
    found = _Archived(session, ledgers.bucket(session)).topic(topic)
    if found is None:
        several = partitions(session.store, topic)
        if several:
            raise FatalError(
                f"{topic} is partitioned; name one of its {len(several)} archived partitions, for example {several[0]}"
            )
        raise FatalError(_unknown(topic))
    return found


def archived_partitions(
    session: CommandSession, topic: TopicName, ledgers: LedgersOption, options: ReadOptions, *, follow: bool = False
) -> list[ArchivedTopic]:
    """A topic, or the partitions of that name, by number. Raises FatalError where the archive has neither."""
    bucket = ledgers.bucket(session)
    following = Following(session.doors.live(session.config), CatalogCache(session.store).records) if follow else None
    opener = _Archived(session, bucket, options, following)
    whole = opener.topic(topic)
    names = {*partitions(session.store, topic)}
    if whole is not None:
        if names:
            log.warning(
                "%s was partitioned once, too: name one of its %d archived partitions to read that",
                topic,
                len(names),
                extra={"see": "partitioned-once"},
            )
        return [whole]
    scanned = None
    if bucket is not None:
        scanned = bucket.scan(lambda name: name.partitioned_name == str(topic))
        names |= scanned.topics.keys()
    ordered = sorted(names, key=lambda name: name.partition)
    found = [one for name in ordered if (one := opener.topic(name, scanned)) is not None]
    lost = [name for name in (topic, *ordered) if name not in {one.name for one in found} and holds_data(session.store, name)]
    if lost:
        raise catalog_is_gone(lost[0])
    if not found:
        raise FatalError(_unknown(topic))
    return found


@dataclass(frozen=True)
class _Archived:
    """What is read from, and how."""

    session: CommandSession
    bucket: LedgerBucket | None
    options: ReadOptions = DEFAULTS
    following: Following | None = None

    def topic(self, name: TopicName, scanned: BucketScan | None = None) -> ArchivedTopic | None:
        """None where the archive does not have it. `scanned`: what the bucket of ledgers has, where that is known already."""
        session, bucket = self.session, self.bucket
        records = TopicRecords(session.catalogs.history(name, kept=session.kept))
        if bucket is not None:
            records = TopicRecords.of(with_ledgers(records.whole.catalog, bucket, scanned))
        if records.head.claim is None and not (bucket is not None and records.whole.ledgers):
            return None
        others = () if bucket is None else (bucket.store,)
        stores = Stores(session.storage, others, borrowed=session.store)
        return ArchivedTopic(stores, records, self.options, self.following)


def catalog_is_gone(topic: TopicName) -> DataLostError:
    """Of a topic whose objects are there."""
    return DataLostError(
        f"{topic} has segments in the archive, but its catalog is gone; `offloader catalog rebuild {topic}` makes it anew"
    )


def _unknown(topic: TopicName) -> str:
    return f"{topic} is not in the archive; `offloader topics list` shows what is"
