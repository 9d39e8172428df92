"""`offloader migrate`: from Pulsar's ledger-based offload to streaming, and back.

Before anything else it finds which topics a migration is of, and which of them it can have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import click

from offloader.cli.asking import ask_all, outcomes
from offloader.cli.brokers_offload import BrokersOffload
from offloader.cli.command import ERROR, FINDINGS, OK, CommandSession, command
from offloader.cli.migration_report import ESTIMATES, TopicReport, cost_fields, cost_line, proven, report_of
from offloader.cli.parsing import SCOPE, Scope, parsed
from offloader.cli.topics import TIMEOUT, is_ours, journals_of, matching, state_of
from offloader.config.policies import namespace_switch
from offloader.config.units import parse_size
from offloader.errors import ConfigError, FatalError, TopicNotFoundError
from offloader.metadata.beside import last_owner
from offloader.metadata.requests import MIGRATIONS, RequestKind
from offloader.migrate.plan import Cost
from offloader.migrate.stock_reader import check_client
from offloader.model import Taking, TopicName
from offloader.operations.cost.prices import PriceList

KINDS = {taking: kind for kind, taking in MIGRATIONS.items()}


@click.group("migrate")
def migrate_group() -> None:
    """The way from Pulsar's ledger-based offload to segments, and back."""


@migrate_group.command("to-streaming")
@click.argument("scope", metavar="TOPIC|NAMESPACE", callback=SCOPE)
@click.option("--dry-run", is_flag=True, help="Only say what would be done, and about what it would cost.")
@click.option(
    "--rewrite", is_flag=True, help="Read what brokers have offloaded like everything else, instead of copying it."
)
@click.option("--reference", is_flag=True, hidden=True, help="Removed: scripts may still give it.")
@click.option(
    "--keep-offload", is_flag=True, help="Leave the namespace's offload threshold alone: brokers go on offloading."
)
@TIMEOUT
@command()
def to_streaming(
    session: CommandSession,
    scope: Scope,
    *,
    dry_run: bool,
    rewrite: bool,
    reference: bool,
    keep_offload: bool,
    timeout: int | None,
) -> int:
    """Make what stock brokers have offloaded part of the archive, and stream what follows.

    The running application does it; all topics must be enabled, or nothing is changed. First it subscribes, which keeps
    everything; only when all topics are kept, and a namespace was named, is its offload threshold switched off. Exit
    code 2 where brokers go on by policies of a topic itself. Safe to repeat; takes back what `to-ledger-based` has
    begun.

    \b
    JSON: one object a line: {topic, ledgers: [{ledger, entries, bytes, state, action, why}], refused, writes, reads,
    storedBytes, outBytes, estimatedOnce, estimatedMonthly, pauseSeconds}, then with --dry-run the same sums as
    {message, topics, …}; without it {message, topic, request, ok} of each topic, then {message, namespace, former}, and
    {message, namespace, topics} with those that brokers still offload. With --dry-run also {message} of each topic that
    the application would refuse.
    """
    if reference:
        raise ConfigError(
            "--reference was removed (the last commit to support it is 1db0db3f): without it brokers' objects are "
            "copied; to keep one copy, shorten Pulsar's retention"
        )
    taking = Taking.REWRITE if rewrite else Taking.COPY
    topics = topics_of(session, scope)
    unfit = not_enabled(session, scope, topics)
    refused = _tell_plans(session, report_of(session, topics, taking), unfit, sums=dry_run)
    if dry_run:
        return ERROR if refused else OK
    if refused:
        raise FatalError("nothing was changed: " + "; ".join(refused))
    asked = dict.fromkeys(topics)
    while topics:
        code = outcomes(session, ask_all(session, KINDS[taking], topics), timeout)
        if code != OK:
            return code
        topics = [topic for topic in topics_of(session, scope) if topic not in asked]  # made meanwhile
        asked |= dict.fromkeys(topics)
    keep = keep_offload or scope.topic is not None
    return BrokersOffload(session, scope.namespace, list(asked)).switch_off(keep=keep)


def _tell_plans(
    session: CommandSession, reports: Sequence[TopicReport], unfit: Sequence[str], *, sums: bool
) -> list[str]:
    """Print what would be done to each topic, with `sums` also their sums, and why topics are `unfit`. What cannot be
    done, and why."""
    prices = PriceList(session.config.cost)
    for report in reports:
        session.output.lines(list(report.lines(prices)), report.fields(prices))
    if sums:
        _sum_up(session, reports, prices)
        for why in unfit:
            session.output.line(f"refused: {why}", {"message": why})
    return [*(why for report in reports for why in report.refusals), *unfit]


def _sum_up(session: CommandSession, reports: Sequence[TopicReport], prices: PriceList) -> None:
    cost = sum((report.cost for report in reports), Cost())
    text = f"{len(reports)} topics: {cost_line(cost, prices)}; {ESTIMATES}"
    session.output.line(text, {"message": text, "topics": len(reports), **cost_fields(cost, prices)})


@migrate_group.command("to-ledger-based")
@click.argument("scope", metavar="TOPIC|NAMESPACE", callback=SCOPE)
@click.option("--dry-run", is_flag=True, help="Only say what would be done, and about what it would cost.")
@click.option(
    "--threshold",
    metavar="SIZE",
    callback=parsed(parse_size),
    default="0",
    show_default=True,
    help="From how much on brokers offload the namespace's topics by themselves again.",
)
@click.option("--yes", is_flag=True, help="Give the subscriptions up once brokers have been proven to read everything.")
@click.option(
    "--without-offload",
    is_flag=True,
    help="Give them up also where brokers offload nothing by themselves: what is consumed then has no copy.",
)
@TIMEOUT
@command()
def to_ledger_based(
    session: CommandSession,
    scope: Scope,
    *,
    dry_run: bool,
    threshold: int,
    yes: bool,
    without_offload: bool,
    timeout: int | None,
) -> int:
    """Hand topics back to Pulsar's own offload: brokers read everything, and go on by themselves.

    The running application gives brokers copies of all closed ledgers, and goes on offloading and copying. Then the
    whole topic is read with Pulsar's own client (the package pulsar-client) and compared with the archive. With --yes
    the namespace's offload threshold follows, and where brokers then offload each topic by themselves, the
    subscriptions go last, once brokers read all up to the topics' ends; without it everything stays kept, and `migrate
    undo` takes it back. Where it is interrupted, the same command goes on. Exit code 2 where topics were made
    meanwhile, which are kept: the same command again.

    \b
    JSON: one object a line: {message, topic} of each topic that is let go of already, the plan of each other one as of
    `to-streaming`, then {message, topic, request, ok}, then {message, topic, equal, unseen, unarchived, trimmed,
    wrong}, and with --yes {message, namespace, threshold} and {message, topic, request, ok}; with --dry-run the plans,
    and their sums as {message, topics, …}, and {message} of each topic that the application would refuse.
    """
    existing = topics_of(session, scope)
    found = held(session, scope, existing)
    _tell_let_go(session, found.let_go)
    let_go = set(found.let_go)
    topics = [topic for topic in existing if topic not in let_go]
    brokers = BrokersOffload(session, scope.namespace, topics)
    if not topics:
        return _all_let_go(scope, brokers, OK)
    if yes and scope.topic is not None and not without_offload and (why := brokers.why_off()):
        found.refused.append(why)
    refused = _tell_plans(session, report_of(session, topics, None), found.refused, sums=dry_run)
    if dry_run:
        return ERROR if refused else OK
    if refused:
        raise FatalError("nothing was changed: " + "; ".join(refused))
    check_client()
    if scope.topic is None:
        brokers.begin_way_back(threshold)
    code = outcomes(session, ask_all(session, RequestKind.HAND_OVER, topics), timeout)
    if code != OK:
        return code
    arrived = [_proven(session, topic) for topic in topics]  # all of them are told of
    if not all(arrived):
        return ERROR
    if not yes:
        text = "everything is still kept: the same with --yes lets go, `offloader migrate undo` takes it back"
        session.output.line(text, {"message": text, "topics": len(topics)})
        return OK
    if scope.topic is None:
        brokers.switch_on(threshold)
    if not without_offload and (why := brokers.why_off()):
        if scope.topic is None and not found.let_go:
            brokers.as_before()
            why = f"{scope.namespace}'s threshold is as before; {why}"
        raise FatalError(f"nothing was let go of: {why}")
    code = outcomes(session, ask_all(session, RequestKind.RELEASE, topics), timeout)
    if code == OK and (made := _made_meanwhile(session, scope, existing)):
        text = f"{len(made)} topics were made meanwhile, {made[0]} for one: the same command again hands them back, too"
        session.output.line(text, {"message": text, "topics": [str(topic) for topic in made]})
        return FINDINGS
    return _all_let_go(scope, brokers, code)


def _made_meanwhile(session: CommandSession, scope: Scope, known: Sequence[TopicName]) -> list[TopicName]:
    """Topics that this application has taken in since."""
    made = [topic for topic in topics_of(session, scope) if topic not in set(known)]
    return held(session, scope, made).ours


def _all_let_go(scope: Scope, brokers: BrokersOffload, code: int) -> int:
    """The way back of a namespace is done, unless `code` says otherwise."""
    if code == OK and scope.topic is None:
        brokers.way_back_is_over()
    return code


@migrate_group.command("undo")
@click.argument("scope", metavar="TOPIC|NAMESPACE", callback=SCOPE)
@TIMEOUT
@command()
def undo(session: CommandSession, scope: Scope, *, timeout: int | None) -> int:
    """Go on offloading topics that were being handed back, as long as their subscriptions are there.

    What brokers have copies of they go on reading. Of a namespace its offload threshold is put back, as it was before
    the last migration, in whichever direction; but not where somebody has changed it since, and not switched off where
    a topic is let go of already. A way back that is complete is not taken back: `to-streaming` is the way there again.

    \b
    JSON: one object a line: {message, topic} of each topic that is let go of already, {message, topic, request, ok} of
    each that this application offloads, then {message, namespace, threshold} where that was put back; threshold null:
    brokers go on.
    """
    found = held(session, scope, topics_of(session, scope))
    if not found.ours and not found.let_go:
        raise FatalError(f"{scope.topic or scope.namespace}: {session.config.application} offloads none of its topics")
    _tell_let_go(session, found.let_go)
    code = outcomes(session, ask_all(session, RequestKind.HAND_OVER_UNDO, found.ours), timeout)
    if code == OK and scope.topic is None:
        BrokersOffload(session, scope.namespace, found.ours).put_back(found.let_go)
    return ERROR if found.let_go else code


def _tell_let_go(session: CommandSession, topics: Sequence[TopicName]) -> None:
    for topic in topics:
        text = f"{topic} is let go of already: `offloader migrate to-streaming` takes it again"
        session.output.line(text, {"message": text, "topic": str(topic)})


def _proven(session: CommandSession, topic: TopicName) -> bool:
    """Whether brokers deliver all that is listed, and what is archived of it byte for byte."""
    proof = proven(session, topic)
    told = f"{topic}: {proof.equal} entries arrive through brokers as they are archived"
    others = {"no client gets": proof.unseen, "are not archived": proof.unarchived, "were trimmed": proof.trimmed}
    told += "".join(f", {count} others {what}" for what, count in others.items() if count)
    text = f"{topic}: {proof.wrong}" if proof.wrong else told
    session.output.line(text, {"message": text, "topic": str(topic), **asdict(proof)})
    return not proof.wrong


def topics_of(session: CommandSession, scope: Scope) -> list[TopicName]:
    """Those that there are. Raises TopicNotFoundError."""
    existing = session.admin.topics(scope.namespace)
    found = existing if scope.topic is None else matching(scope.topic, existing)
    if not found:
        raise TopicNotFoundError(
            f"{scope.topic or scope.namespace}: there is no such topic; namespace {scope.namespace} has {len(existing)}"
        )
    return found


def not_enabled(session: CommandSession, scope: Scope, topics: Sequence[TopicName]) -> list[str]:
    """The application would refuse these, and the others would stay half way."""
    switch = namespace_switch(session.admin.namespace_properties(scope.namespace))
    policies = session.config.policies
    why = f"it is not enabled for {session.config.application}: enable it in the configuration"
    return [f"{topic}: {why}" for topic in topics if not policies.of(topic, switch).enabled]


@dataclass(frozen=True)
class HeldTopics:
    """`ours`: topics that this application offloads; `let_go`: that it has let go of. `refused`: others, and why."""

    ours: list[TopicName]
    let_go: list[TopicName]
    refused: list[str]


def held(session: CommandSession, scope: Scope, topics: Sequence[TopicName]) -> HeldTopics:
    """Whose the topics are. What another application has claimed is told by its plan."""
    found, application = HeldTopics([], [], []), session.config.application
    for topic in topics:
        head = session.catalogs.head(topic)
        owner = last_owner(session.store, head)
        claimed_by = "" if head.claim is None else head.claim.application
        if is_ours(session, claimed_by):
            found.ours.append(topic)
        elif not claimed_by and is_ours(session, owner):
            found.let_go.append(topic)
        elif not claimed_by:
            found.refused.append(f"{topic}: it is not offloaded by {application}, which could hand it over")
    journals = journals_of(session)
    begun = [topic for topic in found.ours if state_of(journals, topic).handed_over]
    rest = [topic for topic in found.ours if topic not in begun]
    found.refused.extend(not_enabled(session, scope, rest))
    return found
