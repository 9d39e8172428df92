"""`offloader topics offload|release|accept-loss`: only the running application does it; these ask and wait for its
answer."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass

import click

from offloader.cli.parsing import POSITION, TIME, TOPIC
from offloader.cli.session import ERROR, OK, CommandSession, command
from offloader.cli.topics import topics
from offloader.config.units import format_time
from offloader.errors import ClaimedByOtherError, FatalError, TopicNotFoundError
from offloader.metadata import requests
from offloader.metadata.requests import Request, RequestKind, RequestOutcome
from offloader.metadata.state import CatalogHead
from offloader.model import Position, TopicName

POLL = 0.2  # seconds
POLLS_UNTIL_SEEN = 3  # of the application's trigger
FOR_EVER_MS = 10**12

WAIT = click.option("-w", "--wait-complete", "wait", is_flag=True, help="Wait until it is done.")
TIMEOUT = click.option(
    "--timeout", metavar="TIME", callback=TIME, help="Wait no longer than this; for ever by default."
)


@dataclass(frozen=True, slots=True)
class TakenRequest:
    """A request that the application has seen."""

    id: str
    topic: TopicName


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
    asked = []
    for name in _existing(session, topic):
        end = _end_to_reach(session, name)
        if end is None:
            session.output.line("Nothing to offload", {"message": "Nothing to offload", "topic": str(name)})
            continue
        found = _ask(session, Request(RequestKind.CLOSE, name, session.dependencies.clock_ms(), _user(), end))
        text = f"Offload triggered for {name} up to {end}"
        session.output.line(text, {"message": text, "topic": str(name), "request": found.id, "end": str(end)})
        asked.append(found)
    return _outcomes(session, asked, timeout) if wait else OK


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
    catalog = _claimed(session, topic)
    if catalog.claim is None:
        raise FatalError(f"{topic} is not in the archive; `offloader topics list` shows what is")
    if position is not None:
        position = position._replace(incarnation=catalog.claim.incarnation)
    asked = _ask(session, Request(kind, topic, session.dependencies.clock_ms(), _user(), position))
    session.output.line(f"{text} {topic}", {"message": f"{text} {topic}", "topic": str(topic), "request": asked.id})
    return OK if timeout == 0 else _outcomes(session, [asked], timeout)


def _existing(session: CommandSession, topic: TopicName) -> list[TopicName]:
    """The topic, or its partitions. Raises TopicNotFoundError."""
    there = session.admin.topics(topic.namespace)
    found = [t for t in there if t == topic or t.partitioned_name == str(topic)]
    if not found:
        raise TopicNotFoundError(f"{topic} does not exist; namespace {topic.namespace} has {len(there)} topics")
    return found


def _claimed(session: CommandSession, topic: TopicName) -> CatalogHead:
    """The head of the topic's catalog. Raises ClaimedByOtherError."""
    catalog = session.catalogs.head(topic)
    ours = session.config.application
    owner = catalog.claim.application if catalog.claim is not None else ours
    if owner != ours:
        raise ClaimedByOtherError(f"{topic} is claimed by {owner or 'nobody'}, this configuration is of {ours}")
    return catalog


def _end_to_reach(session: CommandSession, topic: TopicName) -> Position | None:
    """The topic's end, None where it is offloaded already."""
    catalog = _claimed(session, topic)
    last = session.admin.topic_info(topic).last_confirmed
    if last is None:
        return None
    position = Position(catalog.claim.incarnation if catalog.claim else 0, *last)
    if catalog.claim is not None and position < catalog.claim.begin:
        return None
    return None if catalog.end is not None and catalog.end >= position else position


def _ask(session: CommandSession, request: Request) -> TakenRequest:
    """Submit, and wait until the application has seen it. Raises FatalError where none does."""
    config, dependencies = session.config, session.dependencies
    request_id = requests.submit(session.store, config.application, request, dependencies.new_token)
    patience = POLLS_UNTIL_SEEN * config.spark.trigger_ms
    until = dependencies.clock_ms() + patience
    while not requests.is_seen(session.store, config.application, request_id):
        if dependencies.clock_ms() >= until:
            raise FatalError(
                f"no application answers: {config.application} has not seen the request for {format_time(patience)}; "
                f"is `offloader run` at work? It will serve the request ({request_id}) when it starts"
            )
        dependencies.sleep(POLL)
    return TakenRequest(request_id, request.topic)


def _outcomes(session: CommandSession, asked: list[TakenRequest], timeout: int | None) -> int:
    until = session.dependencies.clock_ms() + (FOR_EVER_MS if timeout is None else timeout)
    code = OK
    for one in asked:
        outcome = _wait(session, one, until)
        fields = {"message": outcome.message, "topic": str(one.topic), "request": one.id, "ok": outcome.ok}
        session.output.line(f"{one.topic}: {outcome.message}", fields)
        code = code if outcome.ok else ERROR
    return code


def _wait(session: CommandSession, asked: TakenRequest, until: int) -> RequestOutcome:
    dependencies = session.dependencies
    left = max(until - dependencies.clock_ms(), 0)
    outcome = requests.wait(
        session.store,
        session.config.application,
        asked.id,
        timeout_ms=left,
        clock=dependencies.clock_ms,
        sleep=dependencies.sleep,
    )
    if outcome is None:
        raise FatalError(f"{asked.topic}: not done yet; the application goes on with request {asked.id}")
    return outcome


def _user() -> str:
    """Who asks. In containers a user's id may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
