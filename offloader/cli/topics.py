"""`offloader topics list|segments|offload-status`: what is offloaded, and what is under way."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum

import click

from offloader.archive.opened import OpenArchive
from offloader.archive.shown import time_text
from offloader.bridge.log import BridgeLog
from offloader.cli.command import ERROR, OK, CommandSession, command
from offloader.cli.groups import SpreadGroup
from offloader.cli.output import say, text_or_none
from offloader.cli.parsing import TIME, TOPIC
from offloader.cli.reading import not_archived
from offloader.config.units import format_time
from offloader.errors import ConfigError, FatalError, IntegrityError, OffloadError, TopicNotFoundError
from offloader.metadata import layout, listing, requests
from offloader.metadata.deal import is_shard_of
from offloader.metadata.deletions import DeletedRange, range_of
from offloader.metadata.journal_reading import applications, read_journals
from offloader.metadata.journals import Journals
from offloader.metadata.log import READERS
from offloader.metadata.state import CatalogHead, TopicState
from offloader.model import OpenSegment, Segment, SegmentStatus, TopicName
from offloader.offload.core.check import Verdict
from offloader.offload.core.namespace_policies import backlog_quotas
from offloader.offload.settings import deal
from offloader.ports.object_store import ObjectStore

POLL = 0.5  # seconds

TIMEOUT = click.option(
    "--timeout", metavar="TIME", callback=TIME, help="Wait no longer than this; for ever by default."
)

log = logging.getLogger(__name__)


# Those that `topics list` and `topics segments` do without.
MODULES = tuple(
    f"offloader.cli.{name}"
    for name in (
        "cat",
        "cursors",
        "export",
        "orphan_tail",
        "peek",
        "restore",
        "schemas",
        "topic_requests",
        "trim_unloaded",
    )
)


def shard_to_ask(session: CommandSession, topic: TopicName) -> str:
    """The name of the shard that has the topic; where none has it, of the one to which it is dealt."""
    config = session.config
    if config.shards is None:
        return config.application
    owner = "" if (claim := session.catalogs.head(topic).claim) is None else claim.application
    return owner if is_shard_of(owner, config.application) else deal(config).owner_of(topic)


def is_ours(session: CommandSession, owner: str) -> bool:
    """Whether an owner is the configured application, or a shard of it."""
    config = session.config
    return owner == config.application if config.shards is None else is_shard_of(owner, config.application)


@click.group(cls=SpreadGroup, modules=MODULES)
def topics() -> None:
    """What is offloaded of each topic, and manual work on topics."""


def journals_of(session: CommandSession) -> Journals:
    """All journals of the root, as far as they can be read: what is archived does not depend on them."""
    found = read_journals(session.store, applications(session.store))
    if not found.readable:
        log.warning("what is under way may not be shown: %s", found.damaged[0].why, extra={"see": "journal-damaged"})
    return found


def archived_topics(session: CommandSession, journals: Journals) -> list[TopicName]:
    """Every topic that has a catalog or stands in a journal."""
    return sorted({*listing.topics(session.store), *_in_journals(journals)})


def _in_journals(journals: Journals) -> set[TopicName]:
    return {topic for states in journals.states.values() for topic in states}


def chosen(session: CommandSession, journals: Journals, topic: TopicName) -> list[TopicName]:
    """The topic, or the partitions of that name. Raises FatalError where the archive knows none."""
    found = matching(topic, archived_topics(session, journals))
    if not found:
        raise not_archived(topic)
    return found


def matching(topic: TopicName, topics: Iterable[TopicName]) -> list[TopicName]:
    """Of the topics, this one, or its partitions."""
    return [each for each in topics if each == topic or each.partitioned_name == str(topic)]


def state_of(journals: Journals, topic: TopicName) -> TopicState:
    """What the journal of the application that works on the topic holds."""
    held = [state for name, state in journals.of(topic) if name not in journals.ended]
    return held[0] if held else TopicState(topic)


@topics.command("list")
@command()
def list_topics(session: CommandSession) -> int:
    """All topics of the archive. Exit code 1 where a topic's catalog cannot be read: the others are shown.

    \b
    JSON: an array of {topic, application, segments, entries, bytes, end, open, failure, bridged, paused,
    keptInPulsar}; bridged: up to where stock brokers can read it, null where they are not to; paused: since when no
    policy enables it, null where it is not; keptInPulsar: bytes in BookKeeper of a paused topic, where Pulsar answers.
    """
    journals = journals_of(session)
    names = archived_topics(session, journals)
    heads, failed = session.catalogs.heads(names)
    held = _in_journals(journals)
    found = {
        topic: head
        for topic, head in heads.items()
        if head.next_slot or topic in held or listing.holds_objects(session.store, topic)
    }
    columns = (
        *("topic", "application", "segments", "entries", "bytes", "end", "open", "failure", "bridged"),
        *("paused", "keptInPulsar"),
    )
    bridged = _bridged(session, journals, found)
    states = {topic: state_of(journals, topic) for topic in found}
    kept, notes = _kept_in_pulsar(session, [topic for topic, state in states.items() if state.paused_at])
    rows = [
        (
            *_topic_row(catalog, states[topic]),
            bridged.get(topic),
            time_text(states[topic].paused_at) if states[topic].paused_at else None,
            kept.get(topic),
        )
        for topic, catalog in found.items()
    ]
    note = _no_root(session.store)
    empty = "No topic can be shown" if names else f"Nothing is offloaded yet{note and ': '}{note}"
    session.output.table(columns, rows, empty)
    if note and (names or session.output.name == "json"):
        say(note, err=True)
    for line in notes:
        say(line, err=True)
    for line in failed.values():
        say(f"error: {line}", err=True)
    return ERROR if failed else OK


def _kept_in_pulsar(session: CommandSession, topics: Sequence[TopicName]) -> tuple[Mapping[TopicName, int], list[str]]:
    """Bytes in BookKeeper of paused topics, as far as Pulsar answers, and what is to be said of them."""
    sizes: dict[TopicName, int] = {}
    if not topics:
        return sizes, []
    notes = [
        f"{len(topics)} topics are paused: Pulsar keeps what is written to them. Enable them again, or give their "
        "subscriptions up with `offloader topics release`"
    ]
    try:
        for topic in topics:
            with suppress(TopicNotFoundError):  # deleted since: nothing is kept
                sizes[topic] = sum(size for _, size in session.admin.topic_info(topic).sizes.values())
        for namespace in sorted({topic.namespace for topic in topics}):
            quotas = backlog_quotas(namespace, session.admin.namespace_policies(namespace).get("backlog_quota_map"))
            notes += [check.message for check in quotas if check.verdict is not Verdict.OK]
    except OffloadError as error:
        notes.append(f"it is not known how much Pulsar keeps of them: {error}")
    return sizes, notes


def _no_root(store: ObjectStore) -> str:
    """A note where the store has no root, which must not pass for a root that nothing was offloaded to; else ""."""
    if store.stat(layout.ROOT) is not None:
        return ""
    remedy = "unless `offloader run` has never been started, storage.root is wrong"
    return f"there is no {layout.ROOT} in {store.url}; {remedy}"


def _topic_row(catalog: CatalogHead, state: TopicState) -> tuple[object, ...]:
    return (
        str(catalog.topic),
        catalog.claim.application if catalog.claim else "",
        *catalog.kept,
        text_or_none(catalog.end),
        next((str(_open_status(state, segment)) for segment in state.unfinished), None),
        None if state.failure is None else state.failure.reason,
    )


def _bridged(session: CommandSession, journals: Journals, found: Iterable[TopicName]) -> dict[TopicName, str]:
    """Up to where brokers can read those that they are to read. A configuration for reading says of none."""
    try:
        policies = session.config.policies
    except ConfigError:
        return {}
    wanted = [topic for topic in found if policies.of(topic).broker_readable or state_of(journals, topic).handed_over]
    log_of = BridgeLog(session.store, session.dependencies.new_token)

    def told(topic: TopicName) -> str:
        try:
            state = log_of.load(topic).state
        except IntegrityError as error:
            return str(error)
        if state is None:
            return "nothing yet"
        return f"{state.up_to or 'nothing'}{', blocked' if state.blocked else ''}"

    with ThreadPoolExecutor(READERS, "bridge-log") as pool:
        return dict(zip(wanted, pool.map(told, wanted), strict=True))


def _open_status(state: TopicState, segment: OpenSegment) -> SegmentStatus:
    """PIP-76's word for an open segment: Failed while it waits to be resumed."""
    return SegmentStatus.FAILED if state.failure_of(segment.uuid) is not None else segment.status


@topics.command()
@click.argument("topic", callback=TOPIC)
@command()
def segments(session: CommandSession, topic: TopicName) -> None:
    """The segments of a topic: what was deleted as one, the offloaded ones, then the one that is open and those of its
    history that are uploaded ahead.

    \b
    JSON: an array of {topic, uuid, status, start, end, entries, bytes, assigned, offloaded, reason}.
    """
    journals = journals_of(session)
    columns = ("topic", "uuid", "status", "start", "end", "entries", "bytes", "assigned", "offloaded", "reason")
    archive, names = session.open_archive(), chosen(session, journals, topic)
    rows = [row for name in names for row in _segment_rows(archive, name, state_of(journals, name))]
    session.output.table(columns, rows, f"{topic} has no segments yet")


def _segment_rows(archive: OpenArchive, topic: TopicName, state: TopicState) -> Iterator[tuple[object, ...]]:
    left = {segment.uuid: segment for segment in state.unfinished}
    told: set[DeletedRange] = set()
    for view, _ in archive.records(topic).first():
        for segment in view.catalog.segments:
            deleted = range_of(view.catalog.head.removed.told, segment.end)
            if deleted in told:
                continue
            told |= {deleted} if deleted is not None else set()
            yield _offloaded_row(topic, segment, deleted)
            left.pop(segment.uuid, None)
    yield from (_open_row(state, segment) for segment in left.values())


def _offloaded_row(topic: TopicName, s: Segment, deleted: DeletedRange | None) -> tuple[object, ...]:
    times = time_text(s.assigned_at), time_text(s.offloaded_at)
    if deleted is not None:  # one row for all that went together
        return (str(topic), "", "Deleted", str(deleted.start), str(deleted.end), 0, 0, *times, deleted.told)
    status = str(SegmentStatus.OFFLOADED)
    return (str(topic), s.uuid, status, str(s.start), str(s.end), s.entries, s.size, *times, str(s.roll_reason))


def _open_row(state: TopicState, s: OpenSegment) -> tuple[object, ...]:
    failure = state.failure_of(s.uuid)
    reason = failure.reason if failure is not None else s.roll_reason
    return (
        str(state.topic), s.uuid, str(_open_status(state, s)), str(s.start), text_or_none(s.closing_end or s.covered),
        sum(p.entries for p in s.parts), s.size, time_text(s.assigned_at), None, text_or_none(reason),
    )  # fmt: skip


class Status(Enum):
    """pulsar-admin's words."""

    NOT_RUN = "Offload has not been run for {topic}"
    RUNNING = "Offload is currently running"
    SUCCESS = "Offload was a success"
    ERROR = "Error in offload: {reason}"


@topics.command("offload-status")
@click.argument("topic", callback=TOPIC)
@click.option("-w", "--wait-complete", is_flag=True, help="Wait until it is not running.")
@TIMEOUT
@command()
def offload_status(session: CommandSession, topic: TopicName, *, wait_complete: bool, timeout: int | None) -> int:
    """How a topic's offload stands. Exit code 1 where it has an error.

    Running: somebody asked to close the segment, or a closed one is being sealed. A topic whose segment is just
    open, waiting for more entries, is a success.

    \b
    JSON: {message, topic, status}; status is not_run, running, success or error.
    """
    dependencies = session.dependencies
    until = None if timeout is None else dependencies.clock_ms() + timeout
    status, reason = _status(session, topic)
    while wait_complete and status is Status.RUNNING:
        if until is not None and dependencies.clock_ms() >= until:
            raise FatalError(f"{topic}: offload is still running after {format_time(timeout or 0)}")
        dependencies.sleep(POLL)
        status, reason = _status(session, topic)
    text = status.value.format(topic=topic, reason=reason)
    session.output.message(text, topic=str(topic), status=status.name.lower())
    return int(status is Status.ERROR)


def _status(session: CommandSession, topic: TopicName) -> tuple[Status, str]:
    """Of a partitioned topic, that of the worst partition."""
    journals = journals_of(session)
    if not journals.readable:
        raise OffloadError(journals.damaged[0].why)
    names = matching(topic, archived_topics(session, journals))
    asked, now = {shard_to_ask(session, t) for t in names}, session.dependencies.clock_ms()
    requested = {r.topic for shard in sorted(asked) for _, r in requests.pending(session.store, shard, now)}
    found = [_status_of(session.catalogs.head(t), state_of(journals, t), requested=t in requested) for t in names]
    order = (Status.ERROR, Status.RUNNING, Status.SUCCESS)
    return next(((s, reason) for wanted in order for s, reason in found if s is wanted), (Status.NOT_RUN, ""))


def _status_of(catalog: CatalogHead, state: TopicState, *, requested: bool) -> tuple[Status, str]:
    if state.failure is not None:
        return Status.ERROR, state.failure.reason
    sealing = any(segment.status is not SegmentStatus.ASSIGNED for segment in state.unfinished)
    if requested or state.requests or sealing:
        return Status.RUNNING, ""
    return (Status.SUCCESS if catalog.segments else Status.NOT_RUN), ""
