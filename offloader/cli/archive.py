"""`offloader archive retention plan|run`, `archive delete|undelete`: what goes of the archive, and when.

Only the running application does it; these ask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import click

from offloader.cli.command import ERROR, OK, CommandSession, command
from offloader.cli.output import say
from offloader.cli.topic_requests import ask, outcomes
from offloader.cli.topics import TIMEOUT, chosen, journals_of
from offloader.config.units import format_size
from offloader.errors import FatalError, FormatVersionError, IntegrityError
from offloader.lifecycle.retention.plan import DueRange
from offloader.lifecycle.retention.retention import RetentionPlan, planned
from offloader.metadata import listing
from offloader.metadata.deletions import Deleting, DeletionReason, day
from offloader.metadata.requests import RequestKind
from offloader.model import TopicName
from offloader.offload.settings import retention as retention_of

WAIT_MS = 60_000
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
    """What would go now by policy, and what is under way, with dates and bytes. Changes nothing.

    \b
    JSON: one object a line, {topic, due, pending, note}; due an array of {incarnation, start, end, segments, entries,
    bytes, reasons, policies, since, onlyCopy}; pending null or {number, reason, policy, by, at, notBefore, ranges}.
    """
    code, shown = OK, []
    for topic in _topics(session, names):
        try:
            found = _planned(session, topic)
        except (IntegrityError, FormatVersionError) as error:
            say(f"{topic}: {str(error).removeprefix(f'{topic}: ')}", err=True)
            code = ERROR
            continue
        if found.due or found.pending is not None or names:
            shown.append(found)
    _show(session, shown)
    return code


@retention.command("run")
@NAMES
@YES
@TIMEOUT
@command()
def run_retention(session: CommandSession, names: tuple[str, ...], *, yes: bool, timeout: int | None) -> int:
    """Have the application do now what is due by policy: record what goes, or take what is under way a phase further.

    It does so by itself every `lifecycle.deletionInterval`.

    \b
    JSON: one object a line, {message, topic, request, ok}; without --yes, as `archive retention plan`.
    """
    found = [each for each in (_planned(session, t) for t in _topics(session, names)) if each.due or each.pending]
    if not yes:
        _show(session, found)
        return OK
    return _ask(session, RequestKind.ARCHIVE_RETENTION, [each.topic for each in found], timeout)


@archive_group.command()
@click.argument("name", metavar="TOPIC|NAMESPACE")
@YES
@TIMEOUT
@command()
def delete(session: CommandSession, name: str, *, yes: bool, timeout: int | None) -> int:
    """Delete what is archived of a topic, or of all topics of a namespace, in the same phases.

    It can be taken back until the grace (`lifecycle.archiveGrace`) is over.

    Of a topic that is offloaded the newest segment stays: `offloader topics release` it first.

    \b
    JSON: one object a line, {message, topic, request, ok}; without --yes {message, topic, segments, bytes}.
    """
    topics = _topics(session, (name,))
    if yes:
        return _ask(session, RequestKind.ARCHIVE_DELETE, topics, timeout)
    for topic in topics:
        head = session.catalogs.head(topic)
        segments, _, size = head.kept
        message = f"{topic}: {segments} segments of {format_size(size)} bytes would go; nothing is done without --yes"
        session.output.line(message, {"message": message, "topic": str(topic), "segments": segments, "bytes": size})
    return OK


@archive_group.command()
@click.argument("name", metavar="TOPIC|NAMESPACE")
@TIMEOUT
@command()
def undelete(session: CommandSession, name: str, *, timeout: int | None) -> int:
    """Take back what is under way to be deleted, as long as its grace is not over: all of it can be read again.

    \b
    JSON: one object a line, {message, topic, request, ok}.
    """
    pending = [t for t in _topics(session, (name,)) if session.catalogs.head(t).removed.pending is not None]
    if not pending:
        raise FatalError(f"{name}: no deletion is under way")
    return _ask(session, RequestKind.ARCHIVE_UNDELETE, pending, timeout)


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


def _planned(session: CommandSession, topic: TopicName) -> RetentionPlan:
    head = session.catalogs.head(topic)
    policy = retention_of(session.config.policies.of(topic))
    gone = head.removed.gone
    now = session.dependencies.clock_ms()
    return planned(session.store, head, policy, now, None if gone is None else gone.at)


def _show(session: CommandSession, plans: Sequence[RetentionPlan]) -> None:
    if not plans:
        say("nothing goes of the archive: no policy asks for it", err=True)
    for each in plans:
        session.output.lines(_texts(each), _fields(each))


def _texts(found: RetentionPlan) -> list[str]:
    lines = [f"{found.topic}: {found.why_not or ('nothing goes' if not found.due else 'goes')}"]
    lines += [f"  {line}" for each in found.due for line in _of_range(each)]
    pending = found.pending
    if pending is not None:
        segments, size = sum(r.segments for r in pending.ranges), sum(r.size for r in pending.ranges)
        lines.append(
            f"  deletion {pending.number}: {segments} segments of {format_size(size)} bytes go not before "
            f"{day(pending.not_before)} ({pending.policy}, recorded {day(pending.at)})"
        )
    return lines


def _of_range(found: DueRange) -> Iterator[str]:
    span = found.range
    words = ", ".join(dict.fromkeys(each.words for each in found.due))
    yield f"{span.start}..{span.end}: {span.segments} segments of {format_size(span.size)} bytes ({words})"
    if _only_copy(found):
        yield "Pulsar has deleted these ledgers: then they exist nowhere"


def _only_copy(found: DueRange) -> bool:
    return any(each.reason is DeletionReason.FOLLOWS_PULSAR for each in found.due)


def _fields(found: RetentionPlan) -> dict[str, object]:
    return {
        "topic": str(found.topic),
        "due": [_range_fields(each) for each in found.due],
        "pending": None if found.pending is None else _pending_fields(found.pending),
        "note": found.why_not,
    }


def _range_fields(found: DueRange) -> dict[str, object]:
    span = found.range
    return {
        "incarnation": span.start.incarnation,
        "start": str(span.start),
        "end": str(span.end),
        "segments": span.segments,
        "entries": span.entries,
        "bytes": span.size,
        "reasons": sorted({str(each.reason) for each in found.due}),
        "policies": sorted({each.words for each in found.due}),
        "since": min(each.since for each in found.due),
        "onlyCopy": _only_copy(found),
    }


def _pending_fields(pending: Deleting) -> dict[str, object]:
    ranges = [
        {"start": str(r.start), "end": str(r.end), "segments": r.segments, "bytes": r.size} for r in pending.ranges
    ]
    return {
        "number": pending.number,
        "reason": str(pending.reason),
        "policy": pending.policy,
        "by": pending.by,
        "at": pending.at,
        "notBefore": pending.not_before,
        "ranges": ranges,
    }
