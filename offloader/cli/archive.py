"""`offloader archive retention plan|run`, `archive delete|undelete`: what goes of the archive, and when.

Only the running application does it; these ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock

import click

from offloader.ahead import map_ahead, unawaited_pool
from offloader.cli.archive_shown import plan_fields, plan_texts, range_fields
from offloader.cli.asking import ask, outcomes
from offloader.cli.command import ERROR, OK, CommandSession, command
from offloader.cli.output import say
from offloader.cli.owners import shard_to_ask
from offloader.cli.topics import TIMEOUT, chosen, journals_of
from offloader.config.units import format_size
from offloader.cursors.stored import subscription_marks
from offloader.errors import (
    ClaimedByOtherError,
    FatalError,
    FormatVersionError,
    IntegrityError,
    MetadataUnavailableError,
    OffloadError,
    RetryableError,
)
from offloader.lifecycle.retention.handing_over import NOTHING_HANDED_OVER, HandingOver
from offloader.lifecycle.retention.outlook import RetentionOutlook, foreseen_deletion, outlook
from offloader.lifecycle.retention.own_copies import OwnCopy, bucket_url, copies_of
from offloader.lifecycle.retention.plan import DueRange, who_waits
from offloader.lifecycle.retention.policy import NOT_FOLLOWED, may_follow
from offloader.lifecycle.retention.retention import with_brokers
from offloader.metadata import listing
from offloader.metadata.bridge_reader import BridgeReader
from offloader.metadata.deletions import day
from offloader.metadata.requests import RequestKind
from offloader.model import TopicName
from offloader.offload.settings import retention as retention_of

WAIT_MS = 60_000
READERS = 8  # topics whose catalogs are read at a time
STAYS = "the newest as long as the topic is offloaded, and those in which a message begins that is kept"
YES = click.option("--yes", is_flag=True, help="Do it; without this, only what would be done is shown.")
_CONNECTING = Lock()
NAMES = click.argument("names", nargs=-1, metavar="[TOPIC|NAMESPACE]...")


@click.group("archive")
def archive_group() -> None:
    """What goes of the archive, by policy or on request."""


@archive_group.group()
def retention() -> None:
    """What goes by policy: archiveRetentionTimeInMinutes, archiveRetentionSizeInMB and their like."""


@retention.command("plan")
@NAMES
@command()
def plan_retention(session: CommandSession, names: tuple[str, ...]) -> int:
    """What goes by policy now, what comes next, and what is under way, with dates and bytes. Changes nothing.

    It is by this configuration, and by what the application has recorded of topics' ends in Pulsar.

    \b
    JSON: one object a line, {topic, due, waiting, pending, deleted, note}. due: an array of {incarnation, start, end,
    segments, entries, bytes, reasons, policies, since, notBefore, onlyCopy}; since is null where no time says it.
    waiting: an array of {incarnation, start, end, due, why, bytes}; due is null where no time says it. pending: null or
    {number, reason, policy, by, at, notBefore, ranges}. deleted: what went before, {segments, bytes}. Times in ms.
    """
    found, code = _outlooks(session, _topics(session, names))
    shown = [each for each in found if each.says_anything or names]
    _show(session, shown, len(found) - len(shown))
    return code


@retention.command("run")
@NAMES
@YES
@TIMEOUT
@command()
def run_retention(session: CommandSession, names: tuple[str, ...], *, yes: bool, timeout: int | None) -> int:
    """Have the application do now what is due by policy: record what goes, or take what is under way a phase further.

    It is asked for each topic that is named, whatever `archive retention plan` says of it; where none is named, for
    each of which a policy says that anything may go, or of which something is under way. It does so by itself every
    `lifecycle.deletionInterval`.

    \b
    JSON: one object a line, {message, topic, request, ok}; without --yes, as `archive retention plan`.
    """
    topics = _topics(session, names)
    if yes and names:
        return _ask(session, RequestKind.ARCHIVE_RETENTION, topics, timeout)
    found, code = _outlooks(session, topics)
    chosen = [each for each in found if each.says_anything or names]
    if not yes or not chosen:
        _show(session, chosen, len(found) - len(chosen))
        return code
    return max(code, _ask(session, RequestKind.ARCHIVE_RETENTION, [each.plan.topic for each in chosen], timeout))


@archive_group.command()
@click.argument("name", metavar="TOPIC|NAMESPACE")
@YES
@TIMEOUT
@command()
def delete(session: CommandSession, name: str, *, yes: bool, timeout: int | None) -> int:
    """Delete what is archived of a topic, or of all topics of a namespace, in the same phases.

    It can be taken back until the grace (`lifecycle.archiveGrace`) is over.

    Of a topic that is offloaded the newest segment stays: `offloader topics release` it first. Without --yes it says
    what would go, or why nothing would; exit code 1 where --yes would be refused for any topic.

    \b
    JSON: one object a line, {message, topic, request, ok}; without --yes {message, topic, ok, segments, bytes,
    notBefore, due}, due as of `archive retention plan`.
    """
    topics = _topics(session, (name,))
    if yes:
        return _ask(session, RequestKind.ARCHIVE_DELETE, topics, timeout)
    shown = [_show_deletion(session, topic) for topic in topics]
    return OK if all(shown) else ERROR


@archive_group.command()
@click.argument("name", metavar="TOPIC|NAMESPACE")
@TIMEOUT
@command()
def undelete(session: CommandSession, name: str, *, timeout: int | None) -> int:
    """Take back what is under way to be deleted, as long as its grace is not over: all of it can be read again.

    \b
    JSON: one object a line, {message, topic, request, ok}.
    """
    heads = session.catalogs.heads(_topics(session, (name,)))
    pending = [topic for topic, head in heads.found.items() if head.removed.pending is not None]
    for why in heads.failed.values():
        say(why, err=True)
    if not pending:
        raise FatalError(f"{name}: no deletion is under way")
    return max(_ask(session, RequestKind.ARCHIVE_UNDELETE, pending, timeout), ERROR if heads.failed else OK)


def _ask(session: CommandSession, kind: RequestKind, topics: list[TopicName], timeout: int | None) -> int:
    taken = {ask(session, kind, topic, None): topic for topic in topics}
    return outcomes(session, taken, WAIT_MS if timeout is None else timeout)


def _topics(session: CommandSession, names: Iterable[str]) -> list[TopicName]:
    """The archived topics that are named: each a topic, one with partitions, or a namespace; all where none is."""
    wanted = list(names)
    if not wanted:
        return sorted(listing.topics(session.store))
    found: dict[TopicName, None] = {}
    for name in wanted:
        found |= dict.fromkeys(_named(session, name))
    return list(found)


def _named(session: CommandSession, name: str) -> list[TopicName]:
    if "://" not in name and name.count("/") == 1:
        there = [topic for topic in sorted(listing.topics(session.store)) if topic.namespace == name]
        if not there:
            raise FatalError(f"nothing of namespace {name} is in the archive")
        return there
    try:
        return chosen(session, journals_of(session), TopicName.parse(name))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


class _Following:
    """Whether the topics' retention in Pulsar can be followed. A Pulsar that does not answer is asked once. Thread
    safe."""

    def __init__(self, session: CommandSession) -> None:
        self._session = session
        self._silent = ""
        self._lock = Lock()

    def why_not(self, topic: TopicName) -> str:
        """Empty: it can."""
        with self._lock:
            return self._silent or self._asked(topic)

    def _asked(self, topic: TopicName) -> str:
        try:
            return "" if may_follow(self._session.admin.retention(topic)) else NOT_FOLLOWED
        except OffloadError as error:
            why = f"followPulsarRetention: the retention in Pulsar cannot be read: {error}"
            self._silent = why if isinstance(error, RetryableError) else ""
            return why


def _outlooks(session: CommandSession, topics: Iterable[TopicName]) -> tuple[list[RetentionOutlook], int]:
    """Of each topic whose catalog can be read; the others are an error, each in one line."""
    found, code, following = [], OK, _Following(session)

    def one(topic: TopicName) -> tuple[TopicName, RetentionOutlook | OffloadError]:
        try:
            return topic, _outlook(session, topic, following)
        except (IntegrityError, FormatVersionError, MetadataUnavailableError) as error:
            return topic, error

    _ = session.catalogs  # opened before others use it
    with unawaited_pool(READERS, "retention-reader") as pool:
        for topic, each in map_ahead(pool, one, topics, 2 * READERS):
            if isinstance(each, OffloadError):
                say(f"{topic}: {str(each).removeprefix(f'{topic}: ')}", err=True)
                code = ERROR
            else:
                found.append(each)
    return found, code


def _outlook(session: CommandSession, topic: TopicName, following: _Following) -> RetentionOutlook:
    """By the policy as the application follows it."""
    head, config = session.catalogs.head(topic), session.config
    keep = config.bridge.keep_segments
    policy = retention_of(config.policies.of(topic), keep_segments=keep)
    not_followed = following.why_not(topic) if policy.follow_pulsar else ""
    policy = replace(policy, follow_pulsar=policy.follow_pulsar and not not_followed)
    grace, now = config.lifecycle.archive_grace_ms, session.dependencies.clock_ms()
    handing_over = NOTHING_HANDED_OVER
    if not keep:
        own = partial(_own_copies, session)
        handing_over = HandingOver(BridgeReader(session.store), session.buckets.open, own=own)
    found = outlook(session.store, head, policy, shard_to_ask(session, topic), now, grace, handing_over)
    return replace(found, note="; ".join(filter(None, (found.note, not_followed))))


def _own_copies(session: CommandSession, topic: TopicName) -> Mapping[int, OwnCopy]:
    """What brokers have offloaded by themselves, where Pulsar's record of a topic can be read."""
    if not session.config.pulsar.metadata_service_uri:
        return {}
    with _CONNECTING:
        metadata, _ = session.bookkeeper(0)
    node = metadata.nodes.get(metadata.topic_path(topic), latest=True)
    return {} if node is None else copies_of(node.value, bucket_url)


def _show_deletion(session: CommandSession, topic: TopicName) -> bool:
    """What `--yes` would come to: the same rules, but that only the application knows whether the topic is gone."""
    config, clock_ms = session.config, session.dependencies.clock_ms
    fields: dict[str, object] = {"topic": str(topic), "ok": False, "segments": 0, "bytes": 0, "notBefore": None}
    policy = retention_of(config.policies.of(topic))
    try:
        found = foreseen_deletion(
            session.catalogs, session.store, topic, policy, shard_to_ask(session, topic), clock_ms
        )
    except (ClaimedByOtherError, IntegrityError, FormatVersionError) as error:
        message = f"{topic}: nothing would go: {str(error).removeprefix(f'{topic}').lstrip(': ')}"
        session.output.line(message, {"message": message, **fields, "due": []})
        return False
    segments, size = sum(len(each.due) for each in found), sum(each.bytes for each in found)
    not_before = clock_ms() + config.lifecycle.archive_grace_ms
    stays = session.catalogs.head(topic).kept[0] - segments
    kept = f"; {stays} stay: {STAYS}" if stays else ""
    message = (
        f"{topic}: {segments} segments of {format_size(size)} bytes would go, not before {day(not_before)}{kept}"
        f"{with_brokers(session.catalogs.head(topic))}{_unacknowledged(session, topic, found)}; "
        "nothing is done without --yes"
    )
    due = [range_fields(each, not_before) for each in found]
    told = {"ok": True, "segments": segments, "bytes": size, "notBefore": not_before, "due": due}
    session.output.line(message, {"message": message, **fields, **told})
    return True


def _unacknowledged(session: CommandSession, topic: TopicName, found: Sequence[DueRange]) -> str:
    """In words which subscriptions of the gateway would lose something; "": none."""
    end = max((each.range.end for each in found), default=None)
    marks = subscription_marks(session.store, topic) if end is not None else []
    waits = [each for each in marks if end is not None and (each.mark_delete is None or each.mark_delete < end)]
    return f"; {who_waits(waits)}, and it counts as acknowledged then" if waits else ""


def _show(session: CommandSession, found: Sequence[RetentionOutlook], others: int) -> None:
    """`others`: topics of which there is nothing to say."""
    for each in found:
        session.output.lines(plan_texts(each), plan_fields(each))
    if others:
        of = f"{others} {'other ' if found else ''}topics"
        say(f"{of}: no policy of {session.config.application} says that anything goes", err=True)
    elif not found:
        say("nothing is archived", err=True)
