"""`offloader archive retention plan|run`, `archive delete|undelete|lift-hold`: what goes of the archive, and when.

Only the running application does it; these ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from threading import Lock

import click

from offloader.ahead import map_ahead, unawaited_pool
from offloader.cli.archive_shown import plan_fields, plan_texts, range_fields
from offloader.cli.asking import ask, outcomes
from offloader.cli.command import ERROR, OK, CommandSession, command
from offloader.cli.output import say
from offloader.cli.topics import TIMEOUT, chosen, journals_of, shard_to_ask
from offloader.config.units import format_size
from offloader.cursors.stored import subscription_marks
from offloader.errors import (
    ClaimedByOtherError,
    ConfigError,
    FatalError,
    FormatVersionError,
    IntegrityError,
    OffloadError,
    RemovedFeatureError,
    RetryableError,
)
from offloader.lifecycle.retention.holds import LONGEST_NAME, PlacedHolds
from offloader.lifecycle.retention.outlook import RetentionOutlook, foreseen_deletion, outlook
from offloader.lifecycle.retention.plan import DueRange, who_waits
from offloader.lifecycle.retention.policy import NOT_FOLLOWED, may_follow
from offloader.metadata import listing
from offloader.metadata.deletions import day
from offloader.metadata.requests import RequestKind
from offloader.metadata.root import read_root
from offloader.model import TopicName
from offloader.offload.settings import retention as retention_of

WAIT_MS = 60_000
READERS = 8  # topics whose catalogs are read at a time
STAYS = "the newest as long as the topic is offloaded, and those in which a message begins that is kept"
YES = click.option("--yes", is_flag=True, help="Do it; without this, only what would be done is shown.")
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
    _show(session, shown, len(found) - len(shown), is_whole=code == OK)
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
        _show(session, chosen, len(found) - len(chosen), is_whole=code == OK)
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
@click.option("--hold", default="", metavar="TEXT", help="Also place a hold of this name: nothing goes any more.")
@TIMEOUT
@command()
def undelete(session: CommandSession, name: str, *, hold: str, timeout: int | None) -> int:
    """Undo a deletion that is under way: all of it can be read again.

    It is possible until the grace (`lifecycle.archiveGrace`) is over, and later while every object is still there.

    A retention policy deletes the same data again; the answer says so. With --hold, no policy and no request deletes
    anything of the topics that are named, also of those of which no deletion is under way, until `offloader archive
    lift-hold`.

    \b
    JSON: one object a line, {message, topic, request, ok}.
    """
    if hold:
        return _ask(session, RequestKind.ARCHIVE_HOLD, _topics(session, (name,)), timeout, _checked_hold(hold))
    heads = session.catalogs.heads(_topics(session, (name,)))
    pending = [topic for topic, head in heads.found.items() if head.removed.pending is not None]
    for why in heads.failed.values():
        say(why, err=True)
    if not pending and not heads.failed:
        raise FatalError(f"{name}: no deletion is under way")
    if not pending:
        return ERROR
    return max(_ask(session, RequestKind.ARCHIVE_UNDELETE, pending, timeout), ERROR if heads.failed else OK)


@archive_group.command("lift-hold")
@click.argument("name", metavar="TOPIC|NAMESPACE")
@TIMEOUT
@command()
def lift_hold(session: CommandSession, name: str, *, timeout: int | None) -> int:
    """Lift the hold that `archive undelete --hold` has placed: policies say again what goes.

    A hold of the configuration (`hold: NAME`) is lifted there.

    \b
    JSON: one object a line, {message, topic, request, ok}.
    """
    placed = _placed(session)
    held = [topic for topic in _topics(session, (name,)) if topic in placed]
    if not held:
        raise FatalError(f"{name}: no hold was placed by command; lift one of the configuration there")
    return _ask(session, RequestKind.ARCHIVE_LIFT_HOLD, held, timeout)


def _checked_hold(name: str) -> str:
    if len(name) > LONGEST_NAME or not name.isprintable() or not name.strip():
        raise click.BadParameter(f"a hold's name has 1 to {LONGEST_NAME} printable characters", param_hint="--hold")
    return name


def _placed(session: CommandSession) -> Mapping[TopicName, str]:
    """The holds that were placed by command."""
    try:
        cluster = read_root(session.store).cluster
    except ConfigError:  # nothing was ever written to it
        return {}
    return PlacedHolds(session.store, cluster).read()


def _ask(
    session: CommandSession, kind: RequestKind, topics: list[TopicName], timeout: int | None, hold: str = ""
) -> int:
    taken = {ask(session, kind, topic, None, hold): topic for topic in topics}
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
    found, code, following, placed = [], OK, _Following(session), _placed(session)

    def one(topic: TopicName) -> tuple[TopicName, RetentionOutlook | OffloadError]:
        try:
            return topic, _outlook(session, topic, following, placed.get(topic, ""))
        except (IntegrityError, FormatVersionError, RemovedFeatureError) as error:
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


def _outlook(session: CommandSession, topic: TopicName, following: _Following, hold: str) -> RetentionOutlook:
    """By the policy as the application follows it. `hold`: the one that was placed by command."""
    head, config = session.catalogs.head(topic), session.config
    policy = retention_of(config.policies.of(topic))
    not_followed = following.why_not(topic) if policy.follow_pulsar else ""
    follows = policy.follow_pulsar and not not_followed
    policy = replace(policy, follow_pulsar=follows, hold=policy.hold or hold)
    grace, now = config.lifecycle.archive_grace_ms, session.dependencies.clock_ms()
    found = outlook(session.store, head, policy, shard_to_ask(session, topic), now, grace)
    return replace(found, note="; ".join(filter(None, (found.note, not_followed))))


def _show_deletion(session: CommandSession, topic: TopicName) -> bool:
    """What `--yes` would come to: the same rules, but that only the application knows whether the topic is gone."""
    config, clock_ms = session.config, session.dependencies.clock_ms
    fields: dict[str, object] = {"topic": str(topic), "ok": False, "segments": 0, "bytes": 0, "notBefore": None}
    policy = retention_of(config.policies.of(topic))
    policy = replace(policy, hold=policy.hold or _placed(session).get(topic, ""))
    try:
        found = foreseen_deletion(
            session.catalogs, session.store, topic, policy, shard_to_ask(session, topic), clock_ms
        )
    except (ClaimedByOtherError, IntegrityError, FormatVersionError, RemovedFeatureError) as error:
        message = f"{topic}: nothing would go: {str(error).removeprefix(f'{topic}').lstrip(': ')}"
        session.output.line(message, {"message": message, **fields, "due": []})
        return False
    segments, size = sum(len(each.due) for each in found), sum(each.bytes for each in found)
    not_before = clock_ms() + config.lifecycle.archive_grace_ms
    stays = session.catalogs.head(topic).kept[0] - segments
    kept = f"; {stays} stay: {STAYS}" if stays else ""
    message = (
        f"{topic}: {segments} segments of {format_size(size)} bytes would go, not before {day(not_before)}{kept}"
        f"{_unacknowledged(session, topic, found)}; "
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


def _show(session: CommandSession, found: Sequence[RetentionOutlook], others: int, *, is_whole: bool) -> None:
    """`others`: topics of which there is nothing to say. `is_whole`: every topic could be read."""
    for each in found:
        session.output.lines(plan_texts(each), plan_fields(each))
    if others:
        of = f"{others} {'other ' if found else ''}topics"
        say(f"{of}: no policy of {session.config.application} says that anything goes", err=True)
    elif not found and is_whole:
        say("nothing is archived", err=True)
