"""`offloader explain TOPIC|LEDGER|BOOKIE`: why this data is still there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypeVar

import click

from offloader.bookkeeper.api import ManagedCursor
from offloader.bookkeeper.bookie_http import parse_http_url
from offloader.bookkeeper.managed_ledgers import managed_ledger_of, topic_of
from offloader.cli.command import CommandSession, command
from offloader.cli.cursors.listing import TIMEOUT, names_of, partitions_of, stored_topics
from offloader.cli.orphans.deletion_parts import with_rescues
from offloader.cli.parsing import parsed
from offloader.errors import (
    BookieUnavailableError,
    DamagedRecordError,
    FatalError,
    LedgerNotFoundError,
    OffloadError,
    TopicNotFoundError,
)
from offloader.lifecycle.deletion.configured import close_scanner
from offloader.lifecycle.explaining.bookie_facts import PATHS, bookie_facts
from offloader.lifecycle.explaining.bookies import explain_bookie
from offloader.lifecycle.explaining.ledgers import LedgerFacts, explain_ledger
from offloader.lifecycle.explaining.places import TopicPlaces, topic_places
from offloader.lifecycle.explaining.topics import ExplainedTopic, explain_topic
from offloader.lifecycle.explaining.words import Explanation
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.topics.broker_retention import BrokerRetention, default_retention
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.cursors.listing import listed
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.lifecycle.topics.cursors.stored import StoredTopic
from offloader.lifecycle.topics.node_reader import TopicNodeReader
from offloader.lifecycle.topics.passed_over import PassedOver
from offloader.lifecycle.topics.unloaded import UnloadedTopic
from offloader.lifecycle.topics.visit_plan import VisitPlanner
from offloader.metadata.bridge_reader import BridgeReader
from offloader.model import Place, TopicName
from offloader.ports.subscriptions import SubscriptionUse

T = TypeVar("T")

_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}")
DELETION_LAG = "managedLedgerOffloadDeletionLagMs"


class Explained(StrEnum):
    """What may be asked about."""

    TOPIC = "topic"
    LEDGER = "ledger"
    BOOKIE = "bookie"


_WHY = {
    Explained.TOPIC: "why its data are still there",
    Explained.LEDGER: "why it is still there, or not",
    Explained.BOOKIE: "why the data of deleted ledgers are still there",
}


@click.command("explain")
@click.argument("what", metavar="TOPIC|LEDGER|BOOKIE")
@click.option(
    "--as",
    "kind",
    type=click.Choice([str(one) for one in Explained]),
    help="What it is, where its form does not say so.",
)
@click.option(
    "--bookie-http",
    metavar="URL",
    callback=parsed(parse_http_url),
    help="Where the bookie's HTTP server is, http://HOST:8000; by default what the bookie publishes.",
)
@click.option("--offline", is_flag=True, help="Do not ask brokers: not who is connected, nor what retention keeps.")
@TIMEOUT
@command()
def explain_command(
    session: CommandSession, what: str, *, kind: str | None, bookie_http: str | None, offline: bool, timeout: int
) -> None:
    """Say why data is still there, and what to do: of a topic, of a ledger (its number), of a bookie (its id).

    Changes nothing and loads no topic. A topic: where each of its ledgers can be read from (BookKeeper, brokers'
    copies, bridged or their own, the archive), which subscription holds how much, retention, our own pin, an open
    ledger, nobody has it loaded. A ledger: who refers to it. A bookie: its collection and compaction, thresholds,
    suspension, throttling, disks, by its HTTP server where that is on.

    \b
    JSON: {message, what, name, because, do, unknown}; because, do and unknown are arrays of sentences; of a
    partitioned topic one object a line, for each partition.
    """
    stored = stored_topics(session, timeout)
    if _kind(stored, what, kind) is Explained.BOOKIE:
        _print(session, Explained.BOOKIE, what, _of_bookie(session, stored, what, bookie_http))
    elif _kind(stored, what, kind) is Explained.LEDGER:
        _print(session, Explained.LEDGER, what, _of_ledger(session, stored, _number(what)))
    else:
        said = _BrokersSaid() if offline else _said_by_brokers(session)
        for topic in _partitions(session, stored, _topic(what)):
            found = _of_topic(session, stored, topic, said, offline=offline)
            _print(session, Explained.TOPIC, str(topic), found)


def _kind(stored: StoredTopics, what: str, kind: str | None) -> Explained:
    """What it is by its form. Raises FatalError where that says two things, or nothing."""
    if kind is not None:
        return Explained(kind)
    if "://" not in what and what.count("/") == 1 and all(what.split("/")):
        raise FatalError(
            f"{what} is a namespace: name one of its topics, {what}/TOPIC; of all of them `offloader topics cursors "
            f"{what}` and `offloader topics trim-unloaded plan {what}` tell"
        )
    if "://" in what or "/" in what:
        return Explained.TOPIC
    is_bookie = what in stored.tree.bookies()
    if what.isascii() and what.isdigit():
        if is_bookie:
            raise FatalError(f"{what} is a ledger's number and a bookie's id: say --as ledger or --as bookie")
        return Explained.LEDGER
    if is_bookie or _HOST_AND_PORT.fullmatch(what):
        return Explained.BOOKIE
    raise FatalError(f"{what!r} is no ledger's number and no bookie's id; a topic is written tenant/namespace/topic")


def _partitions(session: CommandSession, stored: StoredTopics, topic: TopicName) -> list[TopicName]:
    """Raises TopicNotFoundError; it says so where the archive has the topic all the same."""
    try:
        return partitions_of(stored, topic)
    except TopicNotFoundError as error:
        archived = _asked([], "", lambda: _archived(session, topic))
        if archived is None:
            raise
        raise TopicNotFoundError(
            f"{error}; the archive has it up to {archived[0]}:{archived[1]}: `offloader topics segments {topic}`"
        ) from error


def _print(session: CommandSession, kind: Explained, name: str, found: Explanation) -> None:
    lines = [*found.because, *(f"To do: {one}" for one in found.do), *(f"Not known: {one}" for one in found.unknown)]
    message = f"{kind} {name}: {_WHY[kind]}"
    session.output.lines(
        [message, *(f"  {line}" for line in lines)],
        {
            "message": message, "what": str(kind), "name": name,
            "because": found.because, "do": found.do, "unknown": found.unknown,
        },
    )  # fmt: skip


def _of_bookie(session: CommandSession, stored: StoredTopics, bookie: str, url: str | None) -> Explanation:
    known = stored.tree.bookies()
    if bookie not in known and url is None:
        raise FatalError(f"there is no bookie {bookie}; there are {', '.join(sorted(known)) or 'none'}")
    url = url or stored.tree.http_url(bookie)
    answers: dict[str, bytes] = {}
    failed: dict[str, str] = {}
    if url is not None:
        http = session.dependencies.bookie_http(url, stored.timeout)
        for path in PATHS:
            try:
                answers[path] = http.get(path)
            except FatalError as error:
                failed[path] = str(error)
            except BookieUnavailableError as error:
                failed[path] = str(error)
                break  # it would not answer the others either
    return explain_bookie(bookie_facts(bookie, url, answers, failed), registered=bookie in stored.tree.available())


def _of_ledger(session: CommandSession, stored: StoredTopics, ledger: int) -> Explanation:
    unknown: list[str] = []
    scan = _asked(unknown, "the scan", lambda: _scan(session, stored, ledger))
    try:
        metadata = stored.tree.read(ledger).metadata
    except LedgerNotFoundError:
        return explain_ledger(LedgerFacts(ledger, None, scan=scan, unknown=tuple(unknown)))
    owner = managed_ledger_of(metadata.custom)
    topic = _asked(unknown, "its owner's list", lambda: _owner(stored, owner)) if owner else None
    archived = None
    if topic is not None and metadata.closed:
        end = _asked(unknown, "the archive", lambda: _archived(session, topic.topic))
        archived = end is not None and end >= (ledger, metadata.last_entry)
    places = None
    if topic is not None:
        places = _asked(unknown, "where it can be read from", lambda: _places(session, topic))
    return explain_ledger(LedgerFacts(ledger, metadata, owner, topic, scan, archived, places, tuple(unknown)))


def _owner(stored: StoredTopics, owner: str) -> StoredTopic | None:
    try:
        return stored.read(topic_of(owner))
    except (ValueError, TopicNotFoundError, DamagedRecordError):
        return None


def _scan(session: CommandSession, stored: StoredTopics, ledger: int) -> LedgerScan:
    make = session.dependencies.scanner
    scanner = make(session.config, stored.tree, stored.bookies, session.admin, session.dependencies.clock_ms)
    try:
        return with_rescues(session, scanner.scan([ledger]))
    finally:
        close_scanner(scanner)


@dataclass(frozen=True, slots=True)
class _BrokersSaid:
    """What is the same for all partitions, and large: each broker's statistics. `unknown`: what they did not say."""

    uses: Mapping[TopicName, Mapping[str, SubscriptionUse]] | None = None
    configuration: Mapping[str, str] | None = None
    names: SubscriptionNames | None = None
    unknown: tuple[str, ...] = ()


def _said_by_brokers(session: CommandSession) -> _BrokersSaid:
    unknown: list[str] = []
    uses = _asked(unknown, "which topics are loaded", session.subscriptions.uses)
    configuration = _asked(unknown, "the brokers' settings", session.admin.runtime_configuration)
    return _BrokersSaid(uses, configuration, names_of(session), tuple(unknown))


def _of_topic(
    session: CommandSession, stored: StoredTopics, topic: TopicName, said: _BrokersSaid, *, offline: bool
) -> Explanation:
    unknown = [*said.unknown]
    found, uses, configuration = stored.read(topic), said.uses, said.configuration
    names = said.names or names_of(session, offline=True)
    lag = (configuration or {}).get(DELETION_LAG, "")

    def default() -> BrokerRetention | None:
        return _asked(unknown, "what brokers keep", lambda: default_retention(configuration)) if configuration else None

    stays = partial(_stays, session, stored, found, default, names)
    facts = ExplainedTopic(
        stored=found,
        subscriptions=listed(found, names, (uses or {}).get(topic)),
        now_ms=session.dependencies.clock_ms(),
        loaded=None if uses is None else topic in uses,
        found=None if offline else _asked(unknown, "what retention comes to", stays),
        archived=_asked(unknown, "the archive", lambda: _archived(session, topic)),
        deletion_lag_ms=int(lag) if lag.isdigit() else None,
        places=_asked(unknown, "where it can be read from", lambda: _places(session, found)),
        unknown=tuple(unknown),
    )
    return explain_topic(facts)


def _stays(
    session: CommandSession,
    stored: StoredTopics,
    found: StoredTopic,
    default: Callable[[], BrokerRetention | None],
    names: SubscriptionNames,
) -> UnloadedTopic | PassedOver | None:
    """As visits are planned, with what bookies say of cursors."""
    placed = {name: one.state for name, one in found.cursors.items() if not one.problem}
    cursors = {name: ManagedCursor(None, state.mark_delete) for name, state in placed.items() if state is not None}
    reader, clock_ms = TopicNodeReader(stored.tree), session.dependencies.clock_ms
    planner = VisitPlanner(reader, session.visits, names, clock_ms)
    return planner.about(found.topic, default, cursors)


def _places(session: CommandSession, found: StoredTopic) -> TopicPlaces:
    head = session.catalogs.head(found.topic)
    bridged = BridgeReader(session.store).of(found.topic)
    return topic_places(found.listed, head if head.next_slot else None, bridged)


def _archived(session: CommandSession, topic: TopicName) -> Place | None:
    end = session.catalogs.head(topic).end
    return None if end is None else end.place


def _asked(unknown: list[str], what: str, ask: Callable[[], T]) -> T | None:
    """What cannot be asked is told, and everything else all the same."""
    try:
        return ask()
    except OffloadError as error:
        unknown.append(f"{what}: {error}")
        return None


def _topic(what: str) -> TopicName:
    try:
        return TopicName.parse(what)
    except ValueError as error:
        raise FatalError(str(error)) from error


def _number(what: str) -> int:
    if not (what.isascii() and what.isdigit()):
        raise FatalError(f"{what!r} is no ledger's number")
    return int(what)
