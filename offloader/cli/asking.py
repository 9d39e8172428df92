"""How commands ask the running application, and wait for its answers; what it waits for itself is told meanwhile."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable, Mapping

from offloader.cli.command import ERROR, OK, CommandSession
from offloader.cli.output import say
from offloader.cli.topics import journals_of, shard_to_ask, state_of
from offloader.config.units import format_time
from offloader.errors import FatalError
from offloader.metadata import requests
from offloader.metadata.requests import Request, RequestKind, RequestOutcome
from offloader.model import Position, TopicName

POLL = 0.2  # seconds
POLLS_UNTIL_SEEN = 3  # of the application's trigger
STARTS_MS = 60_000  # an application with Spark
TELL_EVERY_MS = 10_000
TOLD_AT_ONCE = 10  # topics
FOR_EVER_MS = 10**12


def ask(session: CommandSession, kind: RequestKind, topic: TopicName, position: Position | None, hold: str = "") -> str:
    """Submit a request, wait until the application has seen it, return its id. Raises FatalError where none does."""
    request_id = _submitted(session, kind, topic, position, hold)
    _wait_until_seen(session, [request_id])
    return request_id


def ask_all(session: CommandSession, kind: RequestKind, topics: Iterable[TopicName]) -> dict[str, TopicName]:
    """The same of many topics at once: none waits for another, and an interruption leaves fewer of them half way."""
    asked = {_submitted(session, kind, topic, None): topic for topic in topics}
    _wait_until_seen(session, asked)
    return asked


def _submitted(
    session: CommandSession, kind: RequestKind, topic: TopicName, position: Position | None, hold: str = ""
) -> str:
    dependencies = session.dependencies
    request = Request(kind, topic, dependencies.clock_ms(), user(), position, hold)
    application = shard_to_ask(session, topic)
    request_id = requests.submit(session.store, application, request, dependencies.new_token)
    session.asked[request_id] = application
    return request_id


def _wait_until_seen(session: CommandSession, asked: Iterable[str]) -> None:
    """Whoever has just started the application need not wait before a command is given."""
    config, clock = session.config, session.dependencies.clock_ms
    soon = POLLS_UNTIL_SEEN * config.spark.trigger_ms
    patience, told = max(soon, STARTS_MS), False
    begin = clock()
    for request_id in asked:
        application = session.asked[request_id]
        while not requests.is_seen(session.store, application, request_id):
            waited = clock() - begin
            if waited >= patience:
                raise FatalError(
                    f"no application answers: {application} has not seen the request for "
                    f"{format_time(patience)}; is `offloader run` at work? It will serve the request ({request_id}) "
                    "when it starts"
                )
            if waited >= soon and not told:
                told = True
                left = format_time(patience - soon)
                say(f"{application} has not answered yet: is `offloader run` at work? Waiting {left}", err=True)
            session.dependencies.sleep(POLL)


def outcomes(session: CommandSession, taken: Mapping[str, TopicName], timeout: int | None) -> int:
    """Wait for the requests, given by their ids. `timeout` in ms, None: for ever."""
    until = session.dependencies.clock_ms() + (FOR_EVER_MS if timeout is None else timeout)
    waiting, told = dict(taken), Reasons(session)
    code = OK
    for request, topic in taken.items():
        outcome = _outcome(session, request, until, waiting, told)
        if outcome is None:
            raise FatalError(f"{topic}: not done yet; the application goes on with request {request}")
        del waiting[request]
        fields = {"message": outcome.message, "topic": str(topic), "request": request, "ok": outcome.ok}
        session.output.line(f"{topic}: {outcome.message}", fields)
        code = code if outcome.ok else ERROR
    return code


def _outcome(
    session: CommandSession, request: str, until: int, waiting: Mapping[str, TopicName], told: Reasons
) -> RequestOutcome | None:
    """None: it took too long."""
    application, dependencies = session.asked[request], session.dependencies
    clock, sleep = dependencies.clock_ms, dependencies.sleep
    while (left := until - clock()) > 0:
        wait = min(left, TELL_EVERY_MS)
        outcome = requests.wait(session.store, application, request, timeout_ms=wait, clock=clock, sleep=sleep)
        if outcome is not None:
            return outcome
        told.tell(waiting.values())
    return requests.outcome_of(session.store, application, request)


class Reasons:
    """Why topics stand still whose requests wait, each reason told once."""

    def __init__(self, session: CommandSession) -> None:
        self._session = session
        self._told: dict[TopicName, str] = {}

    def tell(self, topics: Iterable[TopicName]) -> None:
        """On standard error: what came of a request is all that programs read."""
        journals = journals_of(self._session)
        failed = {t: failure.reason for t in topics if (failure := state_of(journals, t).failure) is not None}
        new = [topic for topic, reason in failed.items() if self._told.get(topic) != reason]
        self._told.update((topic, failed[topic]) for topic in new)
        for topic in new[:TOLD_AT_ONCE]:
            say(f"{topic} waits: {failed[topic]}", err=True)
        if len(new) > TOLD_AT_ONCE:
            say(f"{len(new) - TOLD_AT_ONCE} other topics wait, too: `offloader topics list` says why", err=True)


def user() -> str:
    """Who asks. In containers a user's id may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
