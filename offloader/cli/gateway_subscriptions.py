"""`offloader gateway subscriptions …`: those that the archive itself keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from offloader.archive.spark.values import parse_publish_time
from offloader.cli.command import OK, CommandSession, command
from offloader.cli.gateway import gateway_group
from offloader.cli.groups import GroupWithArguments
from offloader.cli.parsing import SUBSCRIPTION, TOPIC, parsed
from offloader.cursors.backlog import archive_backlog, holes_of, segments_to_read
from offloader.cursors.copies import CopiedCursor, CursorCopy
from offloader.cursors.copy_store import read_copy
from offloader.cursors.core.records import DELETED_ON
from offloader.cursors.stored import KeptSubscription, delete_kept, import_copy, kept_subscription, kept_subscriptions
from offloader.errors import ConfigError, FatalError
from offloader.lifecycle.explaining.words import moment_text, size_text
from offloader.metadata.listing import partitions
from offloader.model import Segment, TopicName
from offloader.ports.object_store import ObjectStore
from offloader.printable import meant

COLUMNS = (
    "topic", "subscription", "mark delete", "ranges", "acknowledged", "batches", "backlog", "bytes", "opened",
    "written", "note",
)  # fmt: skip


@gateway_group.group(cls=GroupWithArguments)
def subscriptions() -> None:
    """The gateway's own subscriptions, as they are in the bucket. Without a command's name it is `list`."""


@subscriptions.command("list")
@click.argument("topic", required=False, callback=TOPIC)
@command()
def list_subscriptions(session: CommandSession, topic: TopicName | None) -> None:
    """List the gateway's subscriptions, of a topic or of all.

    Of a partitioned topic those of each partition. `ranges`, `acknowledged`: of entries behind the mark-delete
    position; `batches`: of which some messages are acknowledged; `backlog`, `bytes`: archived entries that are not
    acknowledged, counted and estimated in bytes; `opened`: how often; `written`: its newest record. What a gateway has
    not written yet is not in it (`gateway.flushInterval`).

    \b
    JSON: an array of {topic, subscription, mark delete, ranges, acknowledged, batches, backlog, bytes, opened, written,
    note}; written in ms since 1970; note says what cannot be used, and what was deleted before it was acknowledged.
    """
    shown = session.output.name == "text"
    moment, size = (moment_text, size_text) if shown else (int, int)
    rows = [row for name in _topics(session, topic) for row in _rows(session, name, moment, size)]
    session.output.table(COLUMNS, rows, "the gateway has no subscriptions")


@subscriptions.command("import")
@click.argument("topic", callback=TOPIC)
@click.argument("name", callback=SUBSCRIPTION)
@click.option(
    "--at", metavar="TIME", callback=parsed(parse_publish_time),
    help="Of the copy as of this moment (ISO 8601, or ms since 1970); by default the newest.",
)  # fmt: skip
@command()
def import_subscription(session: CommandSession, topic: TopicName, name: str, at: int | None) -> int:
    """Begin a subscription of the gateway with what the archive's copy of Pulsar's has.

    Of a partitioned topic that of each partition. From then on the two go their own ways: no later copy changes
    anything. A call that was interrupted is made again, with the same --at: what nobody has used yet is no obstacle.

    \b
    JSON: one object a line: {message, topic, subscription, copied, mark delete}.
    """
    if not session.archive_config.gateway.durable_subscriptions:
        raise ConfigError("gateway.durableSubscriptions is false: no gateway would serve it; set that to true first")
    topics = partitions(session.store, topic) or [topic]
    name = meant(name, lambda name: all(_has_copy(session.store, one, name, at) for one in topics))
    copied = [_copied(session, one, name, at) for one in topics]
    for one, copy, cursor in copied:
        import_copy(session.store, one, cursor, copy.incarnation, session.dependencies.new_token)
        mark = "{}:{}".format(*cursor.mark_delete)
        message = f"{one}: {name} begins behind {mark}, as copied at {moment_text(copy.at)}"
        fields = {"topic": str(one), "subscription": name, "copied": copy.at, "mark delete": mark}
        session.output.line(message, {"message": message, **fields})
    return OK


@subscriptions.command("delete")
@click.argument("topic", callback=TOPIC)
@click.argument("name", callback=SUBSCRIPTION)
@click.option("--yes", is_flag=True, help="Do it. Without it this only says what would go.")
@command()
def delete_subscription(session: CommandSession, topic: TopicName, name: str, *, yes: bool) -> int:
    """Delete a subscription of the gateway: whoever subscribes with its name begins anew.

    Of a partitioned topic that of each partition. A gateway that serves it closes its consumers at its next write.

    \b
    JSON: one object a line: {message, topic, subscription, deleted}.
    """
    topics = list(_topics(session, topic))
    name = meant(name, lambda name: any(kept_subscription(session.store, one, name) is not None for one in topics))
    found = [one for one in topics if kept_subscription(session.store, one, name) is not None]
    if not found:
        raise FatalError(f"{topic} has no subscription {name} of the gateway")
    for one in found:
        if yes:
            delete_kept(session.store, one, name, session.dependencies.new_token)
        message = f"{one}: {name} is deleted" if yes else f"{one}: {name} would be deleted; nothing is without --yes"
        session.output.line(message, {"message": message, "topic": str(one), "subscription": name, "deleted": yes})
    return OK


def _copied(
    session: CommandSession, topic: TopicName, name: str, at: int | None
) -> tuple[TopicName, CursorCopy, CopiedCursor]:
    """Raises FatalError where there is none, DamagedRecordError."""
    copy = read_copy(session.store, topic, at)
    cursor = None if copy is None else copy.cursor(name)
    if copy is None or cursor is None:
        of = "" if at is None else f" of {moment_text(at)}"
        raise FatalError(f"{topic}: there is no copy{of} of a subscription {name}; `topics cursors show` says which")
    cursor.check_damage()
    return topic, copy, cursor


def _has_copy(store: ObjectStore, topic: TopicName, name: str, at: int | None) -> bool:
    copy = read_copy(store, topic, at)
    return copy is not None and copy.cursor(name) is not None


def _topics(session: CommandSession, topic: TopicName | None) -> Iterator[TopicName]:
    if topic is None:
        yield from session.catalogs.topics()
    else:
        yield from partitions(session.store, topic) or [topic]


def _rows(
    session: CommandSession, topic: TopicName, moment: Callable[[int], object], size: Callable[[int], object]
) -> Iterator[tuple[Any, ...]]:
    """The catalog is read once, and only where there are some."""
    segments: Sequence[Segment] | None = None
    for one in kept_subscriptions(session.store, topic):
        if segments is None:
            segments = segments_to_read(session.catalogs.load(topic))
        yield _row(topic, one, segments, moment, size)


def _row(
    topic: TopicName,
    one: KeptSubscription,
    segments: Sequence[Segment],
    moment: Callable[[int], object],
    size: Callable[[int], object],
) -> tuple[Any, ...]:
    if one.damage:
        return (str(topic), one.name, "", *[None] * 7, f"it cannot be used: {one.damage}")
    mark = one.marker.mark_delete
    incarnations = {each.start.incarnation for each in segments if each.start.incarnation >= mark.incarnation}
    copies = [(incarnation, one.as_copy(incarnation)) for incarnation in sorted(incarnations)]
    holes = [holes_of(copy) for _, copy in copies]
    backlogs = [archive_backlog(copy, segments, incarnation) for incarnation, copy in copies]
    return (
        str(topic), one.name, str(mark), sum(each.ranges for each in holes), sum(each.entries for each in holes),
        sum(each.batches for each in holes), sum(each.entries for each in backlogs),
        size(sum(each.size for each in backlogs)), one.epoch, moment(one.written_at) if one.written_at else None,
        _note(one),
    )  # fmt: skip


def _note(one: KeptSubscription) -> str:
    return "; ".join(
        f"{count} entries were deleted on {name.removeprefix(DELETED_ON)} before they were acknowledged"
        for name, count in one.marker.properties
        if name.startswith(DELETED_ON)
    )
