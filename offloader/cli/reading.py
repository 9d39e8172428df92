"""What the reading commands have in common: which topic, which part of it, and what damage does."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import click

from offloader.archive.following.live import Following
from offloader.archive.ledgers.joined import joined
from offloader.archive.ledgers.source import LedgerBucket
from offloader.archive.messages.encryption import PemFiles
from offloader.archive.reading.reader import OnDamage, ReadOptions
from offloader.archive.reading.stores import Stores
from offloader.archive.spark.values import parse_publish_time
from offloader.archive.topic import ArchivedTopic
from offloader.archive.view import TopicView
from offloader.cli.parsing import parse_pair, parsed
from offloader.cli.session import Session
from offloader.errors import ConfigError, FatalError
from offloader.metadata.layout import partitions
from offloader.model import Position, TopicName
from offloader.streaming import settings

Bound = Position | int
C = TypeVar("C", bound=Callable[..., Any])

# Fewer milliseconds than this (in 1973) are rather seconds, or a position that was not written to its end.
LEAST_TIME = 10**11


class Range(NamedTuple):
    """What of a topic is read, as `ArchivedTopic` takes it."""

    start: Position | None = None
    end: Position | None = None
    published_from: int | None = None
    published_to: int | None = None

    @classmethod
    def of(cls, start: Bound | None, end: Bound | None) -> Range:
        """Bounds by position or by publish time (ms)."""
        return cls(
            start if isinstance(start, Position) else None,
            end if isinstance(end, Position) else None,
            start if isinstance(start, int) else None,
            end if isinstance(end, int) else None,
        )


@dataclass(frozen=True)
class Ledgers:
    """Where stock brokers have offloaded to, and who says what is whose there."""

    url: str | None
    cluster: str | None
    ask_pulsar: bool

    def bucket(self, session: Session) -> LedgerBucket | None:
        """Raises ConfigError."""
        if self.url is None:
            if self.cluster is not None or self.ask_pulsar:
                raise ConfigError("--cluster and --ask-pulsar are for --ledgers, the bucket that stock brokers have offloaded to")
            return None
        admin = settings.pulsar(session.config) if self.ask_pulsar else None
        return LedgerBucket(replace(session.storage, root=self.url), admin=admin, cluster=self.cluster)


def parse_bound(text: str) -> Bound:
    """A position, or a time in ms. Raises ValueError."""
    if re.fullmatch(r"\d+:(-1|\d+)", text):
        return Position.parse(text)
    try:
        time = parse_publish_time(text)
    except ValueError:
        time = -1
    if time < LEAST_TIME:
        raise ValueError(
            f"{text!r} is neither a position nor a time; write LEDGER:ENTRY, for example 12:345, or a publish time as "
            "2026-11-21T14:00:00Z or in ms since 1970"
        )
    return time


BOUND = parsed(parse_bound)


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


def archived(
    session: Session, topic: TopicName, ledgers: Ledgers, *, on_damage: str = OnDamage.FAIL, follow: bool = False
) -> ArchivedTopic:
    """A topic to be read. Raises FatalError where the archive does not have it."""
    found = _opened(session, topic, ledgers.bucket(session), on_damage, follow=follow)
    if found is None:
        several = partitions(session.store, topic)
        if several:
            raise FatalError(
                f"{topic} is partitioned; name one of its {len(several)} archived partitions, for example {several[0]}"
            )
        raise FatalError(_unknown(topic))
    return found


def archived_partitions(session: Session, topic: TopicName, ledgers: Ledgers, *, on_damage: str) -> list[ArchivedTopic]:
    """A topic, or the partitions of that name, by number. Raises FatalError where the archive has neither."""
    bucket = ledgers.bucket(session)
    whole = _opened(session, topic, bucket, on_damage)
    if whole is not None:
        return [whole]
    names = {*partitions(session.store, topic)}
    if bucket is not None:
        names |= {name for name in bucket.scan().topics if name.partitioned_name == str(topic)}
    ordered = sorted(names, key=lambda name: name.partition)
    found = [one for name in ordered if (one := _opened(session, name, bucket, on_damage)) is not None]
    if not found:
        raise FatalError(_unknown(topic))
    return found


def _opened(
    session: Session, topic: TopicName, bucket: LedgerBucket | None, on_damage: str, *, follow: bool = False
) -> ArchivedTopic | None:
    """None where the archive does not have it."""
    catalog = session.catalogs.load(topic)
    view = TopicView.of(catalog) if bucket is None else joined(catalog, bucket.find(topic))
    if catalog.claim is None and not view.ledgers:
        return None
    others = () if bucket is None else (bucket.store,)
    stores = Stores(session.storage, others, borrowed=session.store)
    following = Following(session.doors.live(session.config), session.catalogs.refresh) if follow else None
    return ArchivedTopic(stores, view, ReadOptions(on_damage=OnDamage(on_damage)), following)


def _unknown(topic: TopicName) -> str:
    return f"{topic} is not in the archive; `offloader topics list` shows what is"
