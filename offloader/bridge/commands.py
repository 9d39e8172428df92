"""`offloader bridge status|let-go`: what stock brokers can read of the archive's topics, and what is in the way."""

from __future__ import annotations

from collections.abc import Iterator

import click

from offloader.archive.shown import time_text
from offloader.bridge.core.record import RecordSize, size_of
from offloader.bridge.core.schedule import BridgeFacets, blocking, not_bridged
from offloader.bridge.log import BridgeLog
from offloader.cli.asking import ask, outcomes
from offloader.cli.command import ERROR, FINDINGS, OK, CommandSession, command
from offloader.cli.output import say, say_failed, text_or_none
from offloader.cli.parsing import TOPIC
from offloader.cli.topic_requests import WAIT, claimed
from offloader.cli.topics import TIMEOUT, journals_of, matching, state_of
from offloader.errors import FatalError, OffloadError, RetryableError, TopicNotFoundError
from offloader.metadata import listing
from offloader.metadata.deletions import range_of
from offloader.metadata.history import History
from offloader.metadata.journals import Journals
from offloader.metadata.requests import RequestKind
from offloader.metadata.state import CatalogHead
from offloader.model import Position, Segment, TopicName

GONE = "Pulsar has no such topic any more"
COLUMNS = (
    *("topic", "state", "ledgers", "bytes", "up_to", "behind", "behind_bytes", "archive_only", "rounds", "unloaded"),
    *("record_bytes", "why"),
)


@click.group("bridge")
def bridge_group() -> None:
    """What stock brokers can read of topics that are `brokerReadable`."""


@bridge_group.command()
@click.argument("topic", callback=TOPIC, required=False)
@command()
def status(session: CommandSession, topic: TopicName | None) -> int:
    """How far topics are bridged: all that are brokerReadable, are handed over, or once were, or one, or the partitions
    of that name.

    `behind`: closed ledgers that brokers do not read as objects yet; the last one of a terminated topic, which brokers
    read from BookKeeper only, is not among them, and `why` says so. `archive_only` (of a topic that is named): ledgers
    that are not on Pulsar's list any more and were never bridged; clients of brokers do not get them. `record_bytes`
    (alike): what the topic's record has in Pulsar's metadata store, where that is configured. Exit code 2 where a
    ledger is in the way that cannot be bridged, 1 where a topic cannot be looked at: the others are shown. A
    topic that Pulsar has no more is `gone`.

    \b
    JSON: an array of {topic, state, ledgers, bytes, up_to, behind, behind_bytes, archive_only, rounds, unloaded,
    record_bytes, why}.
    """
    journals, names = journals_of(session), list(_chosen(session, topic))
    if topic is not None and not names:
        raise FatalError(f"nothing of {topic} is archived")
    rows, failed = [], False
    for name in names:
        try:
            row = _row(session, journals, name, in_full=topic is not None)
        except OffloadError as error:
            say_failed(name, error)
            failed = True
            continue
        if row is not None:
            rows.append(row)
    nothing = "No topic could be looked at" if failed else "No topic is brokerReadable, and none ever was"
    session.output.table(COLUMNS, rows, nothing)
    if failed:
        return ERROR
    return FINDINGS if any(row[1] == "blocked" for row in rows) else OK


@bridge_group.command("let-go")
@click.argument("topic", callback=TOPIC)
@click.argument("ledger", type=click.IntRange(min=0))
@click.option("--yes", is_flag=True, help="Do it: clients of brokers will not get this ledger once Pulsar deletes it.")
@WAIT
@TIMEOUT
@command()
def let_go(
    session: CommandSession, topic: TopicName, ledger: int, *, yes: bool, wait: bool, timeout: int | None
) -> int:
    """Let a ledger go that cannot be bridged: it stays in the archive alone, and the bridge goes on behind it.

    Without --yes it says what it would do.

    \b
    JSON: one object a line, as of `topics offload`; without --yes {message, topic, ledger, why}.
    """
    catalog = claimed(session, topic)
    state = BridgeLog(session.store, session.dependencies.new_token).load(topic).state
    blocked = None if state is None else state.blocked
    if blocked is None or blocked.ledger != ledger:
        why = "nothing" if blocked is None else f"ledger {blocked.ledger}"
        raise FatalError(f"ledger {ledger} is not in the way of the bridge of {topic}: {why} is")
    if not yes:
        text = f"{topic}: ledger {ledger} would stay in the archive alone ({blocked.why}); say --yes to do it"
        session.output.line(text, {"message": text, "topic": str(topic), "ledger": ledger, "why": blocked.why})
        return OK
    position = Position(catalog.incarnation, ledger, max(blocked.last, 0))
    request = ask(session, RequestKind.BRIDGE_LET_GO, topic, position)
    text = f"Letting go of ledger {ledger} of {topic} is asked for"
    session.output.line(text, {"message": text, "topic": str(topic), "request": request})
    return outcomes(session, {request: topic}, timeout) if wait else OK


def _chosen(session: CommandSession, topic: TopicName | None) -> Iterator[TopicName]:
    archived = listing.topics(session.store)
    yield from archived if topic is None else matching(topic, archived)


def _row(session: CommandSession, journals: Journals, topic: TopicName, *, in_full: bool) -> tuple[object, ...] | None:
    """None: brokers are not, and were never, to read it."""
    wanted = session.config.policies.of(topic).broker_readable or state_of(journals, topic).handed_over
    recorded = BridgeLog(session.store, session.dependencies.new_token).load(topic).state
    if not wanted and recorded is None and not in_full:
        return None
    catalog = session.catalogs.head(topic)
    try:
        info = session.admin.topic_info(topic)
    except TopicNotFoundError:  # with it brokers delete what they have of it; its log stays
        return str(topic), "gone", 0, 0, None, 0, 0, None, 0 if recorded is None else recorded.rounds, None, None, GONE
    facets = BridgeFacets(recorded, catalog, info, wanted=wanted)
    state = facets.current
    size = _record_size(session, topic) if in_full else None
    behind = [span.ledger for span in not_bridged(facets)] if wanted else []
    return (
        str(topic),
        _word(facets, behind),
        state.ledgers if state else 0,
        state.size if state else 0,
        text_or_none(state.up_to if state else None),
        len(behind),
        sum(info.sizes.get(ledger, (0, 0))[1] for ledger in behind),
        _archive_only(session, facets) if in_full else None,
        state.rounds if state else 0,
        time_text(state.swapped_at) if state and state.swapped_at else None,
        size.stored if size else None,
        _why(facets) or (size.advice or None if size else None),
    )


def _record_size(session: CommandSession, topic: TopicName) -> RecordSize | None:
    if not session.config.pulsar.metadata_service_uri:
        return None
    try:
        metadata, _ = session.bookkeeper(0)
        node = metadata.nodes.get(metadata.topic_path(topic), latest=True)
    except RetryableError as error:
        say(f"note: {topic}: its record cannot be looked at: {error}", err=True)
        return None
    return None if node is None else size_of(node.value, session.config.bridge.record_size)


def _word(facets: BridgeFacets, behind: list[int]) -> str:
    state = facets.current
    if state is not None and state.round is not None:
        return str(state.round.phase)
    if blocking(facets) is not None:
        return "blocked"
    if not facets.wanted:
        return "off"
    return "behind" if behind else "bridged"


def _why(facets: BridgeFacets) -> str | None:
    state = facets.current
    if (blocked := blocking(facets)) is not None:
        return f"ledger {blocked.ledger} ({blocked.verdict}): {blocked.why}"
    if state is not None and state.round is not None and state.round.why:
        return state.round.why
    if state is not None and state.in_vain:
        return f"withdrawn {state.in_vain} times: {state.why}"
    if facets.wanted and facets.info.terminated and facets.first_unfit >= 0:
        return f"the topic is terminated: brokers read its last ledger, {facets.first_unfit}, from BookKeeper only"
    return None


def _archive_only(session: CommandSession, facets: BridgeFacets) -> int:
    """How many ledgers with archived entries Pulsar does not list any more, and were never bridged. Only their ids are
    held of records, which are read one after the other."""
    catalog, listed = facets.catalog, facets.info.ledgers
    found = {ledger for ledger in _archived(session, catalog) if ledger not in listed}
    first = min(found, default=0)
    log = BridgeLog(session.store, session.dependencies.new_token)
    for past in log.finished_rounds(catalog.topic) if found else ():
        bridged = [each.ledger for each in past.finished.ledgers] if past.finished is not None else []
        found.difference_update(bridged)
        if not found or (bridged and bridged[-1] < first):
            break
    return len(found)


def _archived(session: CommandSession, catalog: CatalogHead) -> Iterator[int]:
    """The ledgers of which the archive has entries."""
    incarnation, deleted, history = catalog.incarnation, catalog.removed.told, History(session.store, catalog)
    slots = history.slots(lambda row: row.end is not None and row.end.incarnation >= incarnation)
    for read in history.read(slot.number for slot in slots):
        segment = read.record
        if not isinstance(segment, Segment) or segment.start.incarnation != incarnation:
            continue
        if range_of(deleted, segment.end) is None:
            yield from (held.ledger for held in segment.ledgers)
