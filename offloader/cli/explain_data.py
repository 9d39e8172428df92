"""`offloader explain TOPIC|LEDGER|BOOKIE`: why this data is still there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

import click

from offloader.bookkeeper.bookie_http import parse_http_url
from offloader.bridge.log import BridgeReader
from offloader.cli.command import CommandSession, command
from offloader.cli.cursors.listing import TIMEOUT, partitions_of
from offloader.cli.orphans.deletion_parts import stored_topics, with_rescues
from offloader.cli.parsing import parsed
from offloader.config.policies import enabled_topics
from offloader.errors import (
    BookieUnavailableError,
    DamagedRecordError,
    FatalError,
    LedgerNotFoundError,
    OffloadError,
    TopicNotFoundError,
)
from offloader.lifecycle.explaining.bookie_facts import PATHS, bookie_facts
from offloader.lifecycle.explaining.bookies import explain_bookie
from offloader.lifecycle.explaining.ledgers import LedgerFacts, explain_ledger
from offloader.lifecycle.explaining.places import TopicPlaces, topic_places
from offloader.lifecycle.explaining.topics import ExplainedTopic, explain_topic
from offloader.lifecycle.explaining.words import Explanation
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.topics.broker_retention import BrokerRetention, default_retention
from offloader.lifecycle.topics.cursors.held import with_counts
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.lifecycle.topics.cursors.stored import StoredTopic, listed
from offloader.lifecycle.topics.node_reader import TopicNodeReader, UnreadableTopic
from offloader.lifecycle.topics.reported import stored_topic
from offloader.lifecycle.topics.unloaded import PassedOver, UnloadedTopic
from offloader.lifecycle.topics.visit_plan import VisitPlanner
from offloader.model import Place, TopicName
from offloader.ports.subscriptions import SubscriptionUse
from offloader.runtime.deletion import names_of, verifying_scanner
from offloader.state.names import managed_ledger_of, topic_of
from offloader.state.subscription import CursorState
from offloader.state.topic import PulsarTopic

T = TypeVar("T")

_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}")
DELETION_LAG = "managedLedgerOffloadDeletionLagMs"
SET_METADATA = "set pulsar.metadataServiceUri"


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

    Ledgers and bookies need pulsar.metadataServiceUri. A topic is explained without it by the admin REST, with what
    that reports: more of a topic that a broker has loaded.

    \b
    JSON: {message, what, name, because, do, unknown}; because, do and unknown are arrays of sentences; of a
    partitioned topic one object a line, for each partition.
    """
    named = _kind_by_name(what, kind)
    if named is Explained.TOPIC and not offline and session.config.pulsar.metadata_service_uri is None:
        _explain_reported(session, _topic(what))
        return
    stored = stored_topics(session, timeout / 1000)
    match named or _kind_by_bookies(stored, what):
        case Explained.BOOKIE:
            _print(session, Explained.BOOKIE, what, _of_bookie(session, stored, what, bookie_http))
        case Explained.LEDGER:
            _print(session, Explained.LEDGER, what, _of_ledger(session, stored, _number(what)))
        case Explained.TOPIC:
            said = _BrokersSaid() if offline else _said_by_brokers(session)
            for topic in _partitions(session, _topic(what), lambda name: partitions_of(stored, name)):
                found = _of_topic(session, stored, topic, said, offline=offline)
                _print(session, Explained.TOPIC, str(topic), found)


def _explain_reported(session: CommandSession, whole: TopicName) -> None:
    """Of a topic, or each partition, what the admin REST reports."""
    names = session.admin.all_topics(whole.namespace)
    said = _said_by_brokers(session)
    for topic in _partitions(session, whole, lambda name: _reported_partitions(names, name)):
        _print(session, Explained.TOPIC, str(topic), _of_reported_topic(session, topic, names, said))


def _reported_partitions(names: Sequence[TopicName], topic: TopicName) -> list[TopicName]:
    found = [topic] if topic in names else [one for one in names if one.partitioned_name == str(topic)]
    if not found:
        raise TopicNotFoundError(f"{topic}: the brokers know no such topic")
    return found


def _kind_by_name(what: str, kind: str | None) -> Explained | None:
    """What it is by its form; None: the bookies' names decide. Raises FatalError for a namespace."""
    if kind is not None:
        return Explained(kind)
    if "://" not in what and what.count("/") == 1 and all(what.split("/")):
        raise FatalError(
            f"{what} is a namespace: name one of its topics, {what}/TOPIC; of all of them `offloader topics cursors "
            f"{what}` and `offloader topics trim-unloaded plan {what}` tell"
        )
    return Explained.TOPIC if "/" in what else None


def _kind_by_bookies(stored: StoredTopics, what: str) -> Explained:
    """Raises FatalError where the form says two things, or nothing."""
    is_bookie = what in stored.tree.bookies()
    if what.isascii() and what.isdigit():
        if is_bookie:
            raise FatalError(f"{what} is a ledger's number and a bookie's id: say --as ledger or --as bookie")
        return Explained.LEDGER
    if is_bookie or _HOST_AND_PORT.fullmatch(what):
        return Explained.BOOKIE
    raise FatalError(f"{what!r} is no ledger's number and no bookie's id; a topic is written tenant/namespace/topic")


def _partitions(
    session: CommandSession, topic: TopicName, find: Callable[[TopicName], list[TopicName]]
) -> list[TopicName]:
    """Raises TopicNotFoundError; it says so where the archive has the topic all the same."""
    try:
        return find(topic)
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
    scan = _asked(unknown, "the scan", lambda: _scan(session, ledger))
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


def _scan(session: CommandSession, ledger: int) -> LedgerScan:
    with closing(verifying_scanner(session, session.dependencies.clock_ms)) as scanner:
        return with_rescues(session, scanner.scan([ledger]))


@dataclass(frozen=True, slots=True)
class _BrokersSaid:
    """What is the same for all partitions, and large: each broker's statistics. `unknown`: what they did not say."""

    uses: Mapping[TopicName, Mapping[str, SubscriptionUse]] | None = None
    configuration: Mapping[str, str] | None = None
    names: SubscriptionNames | None = None
    unknown: tuple[str, ...] = ()

    def has_loaded(self, topic: TopicName) -> bool:
        """Whether they say that one of them has it."""
        return self.uses is not None and topic in self.uses


def _said_by_brokers(session: CommandSession) -> _BrokersSaid:
    unknown: list[str] = []
    uses = _asked(unknown, "which topics are loaded", session.subscriptions.uses)
    configuration = _asked(unknown, "the brokers' settings", session.admin.runtime_configuration)
    return _BrokersSaid(uses, configuration, names_of(session), tuple(unknown))


def _of_topic(
    session: CommandSession, stored: StoredTopics, topic: TopicName, said: _BrokersSaid, *, offline: bool
) -> Explanation:
    unknown = [*said.unknown]
    found, names = stored.read(topic), said.names or names_of(session, offline=True)
    if said.has_loaded(topic) and any(one.size is None for one in found.ledgers):
        info = _asked(unknown, "the open ledger's size", lambda: session.admin.topic_info(topic))
        found = found if info is None else replace(found, ledgers=with_counts(found.ledgers, info.sizes))
    retained = None
    if not offline:
        # as visits are planned, with what bookies say of cursors
        placed = {name: one.state for name, one in found.cursors.items() if not one.problem}
        cursors = {name: CursorState(state.mark_delete) for name, state in placed.items() if state is not None}
        reader = TopicNodeReader(stored.tree)

        def read() -> PulsarTopic | UnreadableTopic | None:
            nodes = reader.read_again(topic)
            if not isinstance(nodes, PulsarTopic):
                return nodes
            return replace(nodes, cursors={name: cursors.get(name, one) for name, one in nodes.cursors.items()})

        retained = _retained(session, topic, said, names, unknown, read, lambda: reader.topics(topic.namespace))
    places = _asked(unknown, "where it can be read from", lambda: _places(session, found))
    return _explained(session, found, said, names, unknown, retained, places)


def _of_reported_topic(
    session: CommandSession, topic: TopicName, topics: Sequence[TopicName], said: _BrokersSaid
) -> Explanation:
    unknown = [*said.unknown]
    report = session.subscriptions.report(topic, loaded=said.has_loaded(topic))
    found, names = stored_topic(report), said.names or names_of(session, offline=True)
    retained, places = None, None
    if said.has_loaded(topic):
        retained = _retained(session, topic, said, names, unknown, lambda: report, lambda: topics)
    else:
        unknown.append(f"what retention comes to, which no broker that has it loaded could report: {SET_METADATA}")
    if any(one.copy.complete for one in report.list.ledgers):
        unknown.append(f"whether BookKeeper still has the ledgers that brokers have offloaded: {SET_METADATA}")
    else:
        places = _asked(unknown, "where it can be read from", lambda: _places(session, found))
    unknown += [
        f"where the subscription {name} is now ({cursor.problem}): {SET_METADATA}"
        for name, cursor in found.cursors.items()
        if cursor.problem
    ]
    return _explained(session, found, said, names, unknown, retained, places)


def _explained(
    session: CommandSession,
    found: StoredTopic,
    said: _BrokersSaid,
    names: SubscriptionNames,
    unknown: list[str],
    retained: UnloadedTopic | PassedOver | None,
    places: TopicPlaces | None,
) -> Explanation:
    lag = (said.configuration or {}).get(DELETION_LAG, "")
    archived = _asked(unknown, "the archive", lambda: _archived(session, found.topic))
    facts = ExplainedTopic(
        stored=found,
        subscriptions=listed(found, names, (said.uses or {}).get(found.topic)),
        now_ms=session.dependencies.clock_ms(),
        loaded=None if said.uses is None else said.has_loaded(found.topic),
        found=retained,
        archived=archived,
        deletion_lag_ms=int(lag) if lag.isdigit() else None,
        places=places,
        unknown=tuple(unknown),
    )
    return explain_topic(facts)


def _retained(
    session: CommandSession,
    topic: TopicName,
    said: _BrokersSaid,
    names: SubscriptionNames,
    unknown: list[str],
    read: Callable[[], PulsarTopic | UnreadableTopic | None],
    topics: Callable[[], Sequence[TopicName]],
) -> UnloadedTopic | PassedOver | None:
    configuration = said.configuration

    def default() -> BrokerRetention | None:
        return _asked(unknown, "what brokers keep", lambda: default_retention(configuration)) if configuration else None

    enabled = enabled_topics(session.config.policies, session.admin.namespace_properties)
    planner = VisitPlanner(session.visits, names, session.dependencies.clock_ms, enabled)
    return _asked(unknown, "what retention comes to", lambda: planner.about(topic, read, topics, default))


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
