"""`offloader topics cursors show`: a topic's subscriptions as they are copied in the archive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from offloader.archive.spark.values import parse_publish_time
from offloader.cli.command import CommandSession, command
from offloader.cli.cursors import cursors
from offloader.cli.output import say
from offloader.cli.parsing import parsed
from offloader.cursors.backlog import archive_backlog, holes_of, segments_to_read
from offloader.cursors.copies import CopiedCursor, CursorCopy
from offloader.cursors.copy_store import copy_times, read_copy
from offloader.errors import FatalError
from offloader.lifecycle.explaining.words import moment_text, size_text
from offloader.metadata.listing import partitions
from offloader.model import Segment, TopicName
from offloader.ports.object_store import ObjectStore
from offloader.printable import meant

COLUMNS = (
    "topic", "subscription", "copied", "mark delete", "ranges", "acknowledged", "batches", "backlog", "bytes",
    "replicated", "read from", "note",
)  # fmt: skip
NONE_MADE = "policies.archiveCursors: true has the application make them"


@cursors.command("show")
@click.argument("topic", callback=parsed(TopicName.parse))
@click.option(
    "--at", metavar="TIME", callback=parsed(parse_publish_time),
    help="As of this moment (ISO 8601, or ms since 1970); by default the newest copy.",
)  # fmt: skip
@click.option("--subscription", metavar="NAME", help="This one only.")
@command()
def show_cursors(session: CommandSession, topic: TopicName, at: int | None, subscription: str | None) -> None:
    """Show a topic's subscriptions as they are copied in the archive.

    Of a partitioned topic those of each partition. `topics cursors TOPIC --at TIME` is the same. `ranges`,
    `acknowledged`: of entries behind the mark-delete position; `batches`: of which some messages are acknowledged;
    `backlog`, `bytes`: archived entries that are not acknowledged, counted and estimated in bytes.

    \b
    JSON: an array of {topic, subscription, copied, mark delete, ranges, acknowledged, batches, backlog, bytes,
    replicated, read from, note}; copied in ms since 1970; note says what the copy lacks.
    """
    store = session.store
    chosen = [topic] if copy_times(store, topic) else partitions(store, topic) or [topic]
    copies = [copy for one in chosen if (copy := read_copy(store, one, at)) is not None]
    if not copies:
        raise FatalError(_why_none(store, chosen, topic, at))
    shown = session.output.name == "text"
    rows = [row for copy in copies for row in _rows(session, copy, subscription, moment_text if shown else int, shown)]
    if subscription is not None and not rows:
        raise FatalError(f"{topic}: the copy of {moment_text(copies[0].at)} has no subscription {subscription}")
    session.output.table(COLUMNS, rows, "the topic had no subscriptions")
    for one in chosen:
        if all(copy.topic != one for copy in copies):
            say(f"{one} has no copy of that moment", err=True)


def _why_none(store: ObjectStore, chosen: list[TopicName], topic: TopicName, at: int | None) -> str:
    first = min((time for one in chosen for time in copy_times(store, one)[:1]), default=None)
    if first is None or at is None:
        return f"{topic}: there is no copy of its subscriptions; {NONE_MADE}"
    return f"{topic}: the first copy of its subscriptions is of {moment_text(first)}"


def _rows(
    session: CommandSession,
    copy: CursorCopy,
    subscription: str | None,
    moment: Callable[[int], object],
    shown: bool,  # noqa: FBT001 (as text)
) -> list[tuple[Any, ...]]:
    segments = segments_to_read(session.catalogs.load(copy.topic))
    names = [one.name for one in copy.cursors]
    name = None if subscription is None else meant(subscription, names.__contains__)
    wanted = [one for one in copy.cursors if name in (None, one.name)]
    return [_row(copy, one, segments, moment(copy.at), size_text if shown else int) for one in wanted]


def _row(
    copy: CursorCopy,
    cursor: CopiedCursor,
    segments: tuple[Segment, ...],
    copied: object,
    size: Callable[[int], object],
) -> tuple[Any, ...]:
    mark = "{}:{}".format(*cursor.mark_delete)
    read_from = ", ".join(cursor.sources)
    if cursor.damage:
        note = f"damaged: {cursor.damage}"
        return (str(copy.topic), cursor.name, copied, mark, *[None] * 5, cursor.replicated, read_from, note)
    holes, backlog = holes_of(cursor), archive_backlog(cursor, segments, copy.incarnation)
    return (
        str(copy.topic), cursor.name, copied, mark, *holes, backlog.entries, size(backlog.size), cursor.replicated,
        read_from, "; ".join(cursor.missing),
    )  # fmt: skip
