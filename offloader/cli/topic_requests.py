"""`offloader topics offload|release|accept-loss`: only the running application does it; these ask and wait for its
answer."""

from __future__ import annotations

import click

from offloader.cli.asking import ask, outcomes
from offloader.cli.command import OK, CommandSession, command
from offloader.cli.owners import is_ours
from offloader.cli.parsing import POSITION, TOPIC
from offloader.cli.reading import not_archived
from offloader.cli.topics import TIMEOUT, matching, topics
from offloader.errors import ClaimedByOtherError, TopicNotFoundError
from offloader.metadata.requests import RequestKind
from offloader.metadata.state import CatalogHead
from offloader.model import Position, TopicName

WAIT = click.option("-w", "--wait-complete", "wait", is_flag=True, help="Wait until it is done.")


@topics.command()
@click.argument("topic", callback=TOPIC)
@WAIT
@TIMEOUT
@command()
def offload(session: CommandSession, topic: TopicName, *, wait: bool, timeout: int | None) -> int:
    """Close the topic's segment now: everything up to its present end is offloaded at once.

    A name without -partition-N means all partitions.

    \b
    JSON: one object a line: {message, topic, request, end}, and with -w {message, topic, request, ok}.
    """
    taken = {}
    for name in _existing(session, topic):
        end = _end_to_reach(session, name)
        if end is None:
            session.output.line("Nothing to offload", {"message": "Nothing to offload", "topic": str(name)})
            continue
        request = ask(session, RequestKind.CLOSE, name, end)
        text = f"Offload triggered for {name} up to {end}"
        session.output.line(text, {"message": text, "topic": str(name), "request": request, "end": str(end)})
        taken[request] = name
    return outcomes(session, taken, timeout) if wait else OK


@topics.command()
@click.argument("topic", callback=TOPIC)
@WAIT
@TIMEOUT
@command()
def release(session: CommandSession, topic: TopicName, *, wait: bool, timeout: int | None) -> int:
    """Offload everything up to the topic's end, then delete the subscription: from then on nothing is kept for us.

    A topic that a policy still enables is taken in again at the next start: disable it first.

    \b
    JSON: one object a line, as of `topics offload`.
    """
    return _ask_for(session, RequestKind.RELEASE, topic, None, "Release asked for", timeout if wait else 0)


@topics.command("accept-loss")
@click.argument("topic", callback=TOPIC)
@click.option(
    "--to",
    "end",
    metavar="LEDGER:ENTRY",
    callback=POSITION,
    help="Last position of the loss, as the failure names it.",
)
@click.option(
    "--deleted",
    is_flag=True,
    help="You know that the topic was deleted, where nothing else proves it: see `topics list`.",
)
@WAIT
@TIMEOUT
@command()
def accept_loss(
    session: CommandSession, topic: TopicName, end: Position | None, *, deleted: bool, wait: bool, timeout: int | None
) -> int:
    """Record that what was gone before it was offloaded is lost, and let the topic go on after it; or that the topic
    was deleted.

    \b
    JSON: one object a line, as of `topics offload`.
    """
    if deleted == (end is not None):
        raise click.UsageError(
            "say how far the loss reaches (--to LEDGER:ENTRY), or that the topic was deleted (--deleted)"
        )
    return _ask_for(session, RequestKind.ACCEPT_LOSS, topic, end, "Loss accepted for", timeout if wait else 0)


def _ask_for(
    session: CommandSession,
    kind: RequestKind,
    topic: TopicName,
    position: Position | None,
    text: str,
    timeout: int | None,
) -> int:
    """`timeout` 0: do not wait."""
    catalog = claimed(session, topic)
    if catalog.claim is None:
        raise not_archived(topic)
    if position is not None:
        position = position._replace(incarnation=catalog.claim.incarnation)
    request = ask(session, kind, topic, position)
    session.output.line(f"{text} {topic}", {"message": f"{text} {topic}", "topic": str(topic), "request": request})
    return OK if timeout == 0 else outcomes(session, {request: topic}, timeout)


def _existing(session: CommandSession, topic: TopicName) -> list[TopicName]:
    """The topic, or its partitions. Raises TopicNotFoundError."""
    existing = session.admin.topics(topic.namespace)
    found = matching(topic, existing)
    if not found:
        raise TopicNotFoundError(f"{topic} does not exist; namespace {topic.namespace} has {len(existing)} topics")
    return found


def claimed(session: CommandSession, topic: TopicName) -> CatalogHead:
    """The head of the topic's catalog. Raises ClaimedByOtherError."""
    catalog = session.catalogs.head(topic)
    ours = session.config.application
    owner = catalog.claim.application if catalog.claim is not None else ours
    if not is_ours(session, owner):
        raise ClaimedByOtherError(f"{topic} is claimed by {owner or 'nobody'}, this configuration is of {ours}")
    return catalog


def _end_to_reach(session: CommandSession, topic: TopicName) -> Position | None:
    """The topic's end, None where it is offloaded already."""
    catalog = claimed(session, topic)
    last = session.admin.topic_info(topic).last_confirmed
    if last is None:
        return None
    position = Position(catalog.claim.incarnation if catalog.claim else 0, *last)
    if catalog.claim is not None and position < catalog.claim.begin:
        return None
    return None if catalog.end is not None and catalog.end >= position else position
