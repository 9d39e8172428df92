"""`offloader topics offload|release|accept-loss`: only the running application does it; these ask and wait for its
answer."""

from __future__ import annotations

import click

from offloader.cli.asking import ask, ask_all, outcomes
from offloader.cli.command import OK, CommandSession, command
from offloader.cli.parsing import POSITION, SCOPE, TOPIC, Scope
from offloader.cli.reading import not_archived
from offloader.cli.topics import TIMEOUT, archived_topics, is_ours, journals_of, matching, topics
from offloader.errors import ClaimedByOtherError, FatalError, TopicNotFoundError
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
@click.argument("scope", metavar="TOPIC|NAMESPACE", callback=SCOPE)
@click.option("--yes", is_flag=True, help="Release all topics of a namespace; without it they are only listed.")
@WAIT
@TIMEOUT
@command()
def release(session: CommandSession, scope: Scope, *, yes: bool, wait: bool, timeout: int | None) -> int:
    """Offload everything up to the topic's end, then delete the subscription: from then on nothing is kept for us.

    Paused topics, too. Of a namespace all topics that this application has. A topic that a policy still enables is
    taken in again at the next start: disable it first.

    \b
    JSON: one object a line, as of `topics offload`; of a namespace without --yes {message, topic}.
    """
    limit = timeout if wait else 0
    if scope.topic is not None:
        return _ask_for(session, RequestKind.RELEASE, scope.topic, None, "Release asked for", limit)
    names = [name for name in archived_topics(session, journals_of(session)) if name.namespace == scope.namespace]
    heads, failed = session.catalogs.heads(names)
    if failed:
        raise FatalError("nothing was asked for: " + "; ".join(map(str, failed.values())))
    ours = [name for name, head in heads.items() if head.claim and is_ours(session, head.claim.application)]
    if not ours:
        raise FatalError(f"{session.config.application} has no topic of {scope.namespace}")
    if not yes:
        for name in ours:
            session.output.line(f"Would be released: {name}", {"message": "Would be released", "topic": str(name)})
        raise FatalError(f"nothing was asked for: --yes releases these {len(ours)} topics of {scope.namespace}")
    asked = ask_all(session, RequestKind.RELEASE, ours)
    for request, name in asked.items():
        text = f"Release asked for {name}"
        session.output.line(text, {"message": text, "topic": str(name), "request": request})
    return OK if limit == 0 else outcomes(session, asked, limit)


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
    position = Position(catalog.incarnation, *last)
    if catalog.claim is not None and position < catalog.claim.begin:
        return None
    return None if catalog.end is not None and catalog.end >= position else position
