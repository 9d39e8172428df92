"""`offloader topics trim-unloaded plan|run`: retention for topics that no broker has loaded."""

from __future__ import annotations

from collections.abc import Iterator

import click
from rich.console import Console

from offloader.bookkeeper.metadata import MetadataTree
from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.output import say
from offloader.cli.parsing import parsed
from offloader.cli.progress_bar import step_progress
from offloader.cli.topics import topics
from offloader.errors import FatalError
from offloader.lifecycle.explaining.words import counted, size_text
from offloader.lifecycle.topics.unloaded import PassedOver, UnloadedTopic
from offloader.lifecycle.topics.visit_outcome import VisitOutcome
from offloader.lifecycle.topics.visit_report import (
    PlanTally,
    VisitTally,
    outcome_fields,
    outcome_text,
    plan_fields,
    plan_text,
    tells,
)
from offloader.lifecycle.topics.visiting import VisitClock, VisitParts
from offloader.runtime.deletion import visits_of

_TIMEOUT = 10.0  # seconds that a bookie may take


def _namespace(text: str) -> str:
    if text.count("/") != 1 or not all(text.split("/")):
        raise ValueError(f"{text!r} is no namespace; write tenant/namespace")
    return text


NAMESPACES = click.argument("namespaces", nargs=-1, metavar="[NAMESPACE]...", callback=parsed(_namespace))


@topics.group("trim-unloaded")
def trim_unloaded() -> None:
    """Retention for topics that no broker has loaded: nothing of theirs goes while nobody loads them."""


@trim_unloaded.command("plan")
@NAMESPACES
@command()
def plan(session: CommandSession, namespaces: tuple[str, ...]) -> int:
    """Say what is overdue, and why the rest stays.

    What retention should have freed of topics that nobody has loaded, and what a visit is worth. Loads nothing and
    changes nothing.

    All namespaces by default. Needs pulsar.metadataServiceUri, and a role that is a super user. Exit code 2 where a
    visit is due.

    \b
    JSON: one object a line, for each topic that has something to tell: {topic, retention, bytes, overdueBytes,
    reasons, due, dueNow, held, openLedger, why, do}, where held is [{cursor, kind, bytes, certain}], or
    {topic, passedOver, detail, do}; do: what would change it. The last line: {message, topics, due, waiting,
    overdueBytes, dueBytes, heldBytes, passedOver}.
    """
    tally = PlanTally()
    now = session.dependencies.clock_ms()
    for found in _planned(session, _parts(session), namespaces):
        tally.take(found, now)
        if tells(found):
            session.output.line(plan_text(found, now), plan_fields(found, now))
    session.output.line(tally.text(), {"message": tally.text(), **tally.fields()})
    return FINDINGS if tally.due else OK


@trim_unloaded.command("run")
@NAMESPACES
@click.option("--yes", is_flag=True, help="Have the brokers load these topics, and drop what retention does not keep.")
@command()
def run(session: CommandSession, namespaces: tuple[str, ...], *, yes: bool) -> int:
    """Visit the topics that are due.

    A broker loads each, applies its retention at once, and unloads it again if nobody came. What was loaded before is
    not touched, and neither is a topic that is to be offloaded and has no subscription of ours yet.

    As many at a time and a minute as `lifecycle.visits` says. The data of a topic's last ledger take a second visit, a
    retention time later: repeat the command when it says that one is due. Without --yes nothing is visited. Exit code
    2 where a visit failed or a topic stays loaded.

    \b
    JSON: one object a line, for each visit: {topic, end, freedBytes, stayedLoaded, due, why}. The last line: {message,
    visits, failed, shouldHaveFreedBytes, freedBytes}. Without --yes the lines of `topics trim-unloaded plan`, of what
    is due alone.
    """
    now = session.dependencies.clock_ms()
    parts = _parts(session)
    planned = _planned(session, parts, namespaces)
    due = [one for one in planned if isinstance(one, UnloadedTopic) and one.due(now)]
    if not yes:
        return _would_visit(session, due, now)
    tally = VisitTally()
    for outcome in _visited(parts, due):
        tally.take(outcome)
        now = session.dependencies.clock_ms()
        session.output.line(outcome_text(outcome, now), outcome_fields(outcome, now))
    session.output.line(tally.text(), {"message": tally.text(), **tally.fields()})
    return FINDINGS if tally.failed else OK


def _would_visit(session: CommandSession, due: list[UnloadedTopic], now: int) -> int:
    tally = PlanTally()
    for one in due:
        tally.take(one, now)
        session.output.line(plan_text(one, now), plan_fields(one, now))
    message = "no visit is due"
    if due:
        message = (
            f"{counted(len(due), 'topic')} would be loaded, and {size_text(tally.due_bytes)} that retention does not "
            "keep would go for ever; none is without --yes"
        )
    session.output.line(message, {"message": message, **tally.fields()})
    return OK


def _planned(
    session: CommandSession, parts: VisitParts, namespaces: tuple[str, ...]
) -> Iterator[UnloadedTopic | PassedOver]:
    basis, names = parts.planner.basis(), list(dict.fromkeys(namespaces)) or parts.reader.namespaces()
    if not names:
        say(f"there is no ledger list in {session.config.pulsar.metadata_service_uri}", err=True)
    with step_progress("namespaces", len(names), Console(stderr=True)) as advance:
        for name in names:
            found = 0
            for one in parts.planner.plan(parts.reader, name, basis):
                found += 1
                yield one
            if not found and names == list(namespaces):
                say(f"{name}: no topic has a ledger list there", err=True)
            advance(1)


def _visited(parts: VisitParts, due: list[UnloadedTopic]) -> Iterator[VisitOutcome]:
    with step_progress("visits", len(due), Console(stderr=True)) as advance:
        for outcome in parts.round.visit(due):
            yield outcome
            advance(1)


def _parts(session: CommandSession) -> VisitParts:
    tree, _ = session.bookkeeper(_TIMEOUT)
    if not isinstance(tree, MetadataTree):
        raise FatalError("pulsar.metadataServiceUri: topics can be planned from ZooKeeper's nodes only")
    return visits_of(session, VisitClock(session.dependencies.clock_ms, session.dependencies.sleep))
