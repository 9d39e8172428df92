"""`offloader topics cursors list`: who holds back how much."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import click

from offloader.ahead import map_ahead, unawaited_pool
from offloader.cli.command import CommandSession, command
from offloader.cli.cursors import cursors
from offloader.cli.orphans.deletion_parts import stored_topics
from offloader.cli.output import say
from offloader.cli.parsing import TIME, parsed
from offloader.errors import DamagedRecordError, OffloadError, TopicNotFoundError
from offloader.lifecycle.explaining.words import moment_text, size_text
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames, why_never_removed
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.lifecycle.topics.cursors.stored import ListedSubscription, by_bytes_held, listed
from offloader.model import TopicName
from offloader.ports.subscriptions import SubscriptionUse
from offloader.runtime.deletion import names_of

READERS = 8  # topics that are read at a time
TOLD = 1000  # topics between two lines that say how far it is

TIMEOUT = click.option(
    "--timeout", metavar="TIME", callback=TIME, default="10s", show_default=True,
    help="How long a bookie may take to answer.",
)  # fmt: skip
OFFLINE = click.option("--offline", is_flag=True, help="Do not ask brokers how many consumers there are.")
COLUMNS = (
    "topic", "subscription", "kind", "bytes", "alone", "entries", "backlog", "last active", "consumers", "owner",
    "note",
)  # fmt: skip


class Target(NamedTuple):
    """A topic, all partitions of one, or all topics of a namespace."""

    namespace: str
    topic: TopicName | None = None


def parse_target(text: str) -> Target:
    """`tenant/namespace`, or a topic's name. Raises ValueError."""
    if "://" not in text and text.count("/") == 1:
        if not all(text.split("/")):
            raise ValueError(f"{text!r} is neither a namespace nor a topic; write tenant/namespace")
        return Target(text)
    topic = TopicName.parse(text)
    return Target(topic.namespace, topic)


def partitions_of(stored: StoredTopics, topic: TopicName) -> list[TopicName]:
    """The topic, or its partitions. Raises TopicNotFoundError where there is neither."""
    found = [
        one
        for one in stored.tree_of_topics.topics(topic.namespace)
        if topic in (one, TopicName.parse(one.partitioned_name))
    ]
    if not found:
        raise TopicNotFoundError(
            f"{topic} has no managed ledger in {stored.tree.uri}: there is no such topic, or nobody has used it yet"
        )
    return [topic] if topic in found else found


@cursors.command("list")
@click.argument("target", metavar="[TOPIC|NAMESPACE]", required=False, callback=parsed(parse_target))
@OFFLINE
@TIMEOUT
@command()
def list_cursors(session: CommandSession, target: Target | None, *, offline: bool, timeout: int) -> None:
    """List subscriptions by what they hold back.

    Those that hold most come first. From the metadata service and the bookies: no topic is loaded. `bytes`: of the
    ledgers that it keeps; `alone`: of those that would go without it; `entries`, `backlog`: not acknowledged,
    counted and estimated in bytes. The last activity is the last one that is stored. Consumers are those of topics
    that a broker has loaded; for super users.

    \b
    JSON: an array of {topic, subscription, kind, bytes, alone, entries, backlog, last active, consumers, owner, note};
    kind is user, pin (our own), compaction, replication, deduplication, transactions or system; bytes, alone, entries
    and backlog are null where nobody can say; consumers is null where only a broker could tell that has not loaded
    the topic, or was not asked.
    """
    stored = stored_topics(session, timeout / 1000)
    uses = {} if offline else _uses(session)
    names = names_of(session, offline=offline)
    found: list[ListedSubscription] = []
    with unawaited_pool(READERS, "cursor-reader") as pool:
        topics = map_ahead(
            pool, lambda topic: _lines(stored, topic, names, uses), chosen_topics(stored, target), 2 * READERS
        )
        for number, lines in enumerate(topics, 1):
            found += lines
            if number % TOLD == 0:
                say(f"{number} topics so far", err=True)
    shown = size_text if session.output.name == "text" else int
    session.output.table(COLUMNS, [_row(one, shown) for one in by_bytes_held(found)], "there are no subscriptions")


def chosen_topics(stored: StoredTopics, target: Target | None) -> Iterator[TopicName]:
    """A target's topics; None: all. Raises TopicNotFoundError for a topic that is not there."""
    if target is not None and target.topic is not None:
        yield from partitions_of(stored, target.topic)
        return
    namespaces = stored.tree_of_topics.namespaces() if target is None else [target.namespace]
    found = False
    for topic in (one for namespace in namespaces for one in stored.tree_of_topics.topics(namespace)):
        found = True
        yield topic
    if not found:  # a misspelt name, or a wrong chroot
        where = stored.tree.uri if target is None else target.namespace
        say(f"{where}: no topic has a ledger list there", err=True)


def _lines(
    stored: StoredTopics,
    topic: TopicName,
    names: SubscriptionNames,
    uses: Mapping[TopicName, Mapping[str, SubscriptionUse]],
) -> list[ListedSubscription]:
    try:
        return listed(stored.read(topic), names, uses.get(topic))
    except TopicNotFoundError:  # deleted meanwhile
        return []
    except DamagedRecordError as error:
        say(f"error: {error}", err=True)
        return []


def _uses(session: CommandSession) -> Mapping[TopicName, Mapping[str, SubscriptionUse]]:
    try:
        return session.subscriptions.uses()
    except OffloadError as error:
        say(f"consumers are not known: {error}", err=True)
        return {}


def _row(one: ListedSubscription, size: Callable[[int], object]) -> tuple[Any, ...]:
    held = one.held
    counts = (size(held.size), size(held.alone), held.entries, size(held.backlog)) if held else (None,) * 4
    active = None if one.last_active_ms is None else moment_text(one.last_active_ms)
    return (str(one.topic), one.subscription, str(one.kind), *counts, active, one.consumers, one.owner, _note(one))


def _note(one: ListedSubscription) -> str:
    said = [one.problem, why_never_removed(one.kind)]
    if one.by_name_only:
        said.append(f"no policy removes it: {one.by_name_only}")
    if one.held is not None and one.held.uncounted:
        said.append("its bytes without those of a ledger that is still open")
    return "; ".join(filter(None, said))
