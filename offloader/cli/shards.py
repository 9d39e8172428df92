"""`offloader shards` and `offloader takeover`: which process has which topics."""

from __future__ import annotations

from collections.abc import Mapping

import click

from offloader.cli.command import ERROR, FINDINGS, OK, CommandSession, command
from offloader.cli.output import say
from offloader.errors import ConfigError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deal import Deal, shard_name
from offloader.metadata.heartbeats import FoundSign, Heartbeats
from offloader.metadata.takeover import takeover
from offloader.model import TopicName
from offloader.offload.driver.discovery import discover
from offloader.offload.settings import deal as deal_of

COLUMNS = ("shard", "name", "status", "silentSeconds", "deals", "topics", "strangers", "takenOver")
SILENT, NEVER = "silent", "never started"
TOLD = 10


@click.command("shards")
@click.option("--unclaimed", is_flag=True, help="Ask Pulsar, too, which enabled topics no shard has.")
@command()
def shards_command(session: CommandSession, *, unclaimed: bool) -> int:
    """The application's shards: who shows signs of life, who runs whom, and how many topics each has.

    `deals`: how many shards its process believes there are, and by what they are dealt out. `strangers`: of its topics
    those that are dealt to another shard. `takenOver`: how often others had to run it lately. How long a shard is
    silent is told by this machine's clock. Exit code 2 where one is for too long, or a topic has no shard.

    \b
    JSON: an array of {shard, name, status, silentSeconds, deals, topics, strangers, takenOver}.
    """
    config = session.config
    if config.shards is None:
        raise ConfigError("shards: the configuration has no such section: the application is one process")
    deal, now = deal_of(config), session.dependencies.clock_ms()
    found = Heartbeats(session.store, deal.application).all()
    claims = {index: _claimed(session, deal, index) for index in sorted({*range(deal.count), *found})}
    states = {index: _status(index, found.get(index), now, config.shards.take_over_after_ms) for index in claims}
    rows = [_row(deal, index, states[index], found.get(index), now, claims[index]) for index in claims]
    session.output.table(COLUMNS, rows, "")
    alone = _without_shard(session, claims) if unclaimed else []
    for topic in alone[:TOLD]:
        say(f"{topic} has no shard; it is dealt to {deal.owner_of(topic)}", err=True)
    if len(alone) > TOLD:
        say(f"{len(alone) - TOLD} other topics have none, either", err=True)
    return FINDINGS if alone or {SILENT, NEVER} & set(states.values()) else OK


def _claimed(session: CommandSession, deal: Deal, index: int) -> list[TopicName]:
    """One listing a thousand."""
    return Catalogs(session.store, shard_name(deal.application, index)).claimed()


def _status(index: int, found: FoundSign | None, now: int, after_ms: int) -> str:
    if found is None:
        return NEVER
    if found.modified_at and now - found.modified_at >= after_ms:
        return SILENT
    heartbeat = found.heartbeat
    if heartbeat is None:
        return "alive, of a newer version"
    return "alive" if heartbeat.host == index else f"run by shard {heartbeat.host}"


def _row(
    deal: Deal, index: int, status: str, found: FoundSign | None, now: int, topics: list[TopicName]
) -> tuple[object, ...]:
    heartbeat = None if found is None else found.heartbeat
    silent = None if found is None or not found.modified_at else max(now - found.modified_at, 0) // 1000
    deals = None if heartbeat is None else f"{heartbeat.count} by {heartbeat.by}"
    strangers = sum(deal.index_of(topic) != index for topic in topics)
    taken = 0 if heartbeat is None else heartbeat.taken
    return index, shard_name(deal.application, index), status, silent, deals, len(topics), strangers, taken


def _without_shard(session: CommandSession, claims: Mapping[int, list[TopicName]]) -> list[TopicName]:
    config = session.config
    found = discover(session.admin, config.policies, (), config.namespaces, config.discovery_interval_ms)
    known = {topic for topics in claims.values() for topic in topics}
    return sorted(topic for topic, policy in found.policies.items() if policy.enabled and topic not in known)


@click.command("takeover")
@click.argument("old_application")
@command()
def takeover_command(session: CommandSession, old_application: str) -> int:
    """Adopt another application's journal and topics, for ever. Neither of the two may run.

    The application that adopts is that of the configuration. Can be repeated when it was interrupted. Exit code 1 where
    a topic's catalog cannot be read: the others are adopted; repeat it when that is mended.

    \b
    JSON: {message, topics}.
    """
    new = session.config.application
    dependencies = session.dependencies
    taken = takeover(session.store, old_application, new, dependencies.new_token, dependencies.clock_ms())
    text = f"{new} has taken over {len(taken.topics)} topics of {old_application}"
    session.output.message(text, topics=[str(topic) for topic in taken.topics])
    for line in taken.failed.values():
        say(f"error: {line}", err=True)
    return ERROR if taken.failed else OK
