"""`offloader gateway subscriptions unlock`: what was handed over to brokers is served here again."""

from __future__ import annotations

import click

from offloader.cli.command import OK, CommandSession, command
from offloader.cli.gateway_subscriptions import subscriptions
from offloader.cli.parsing import SUBSCRIPTION, TOPIC
from offloader.cursors.durable import DurableCursor
from offloader.cursors.stored import kept_subscription
from offloader.errors import DamagedRecordError, FatalError, TopicNotFoundError
from offloader.gateway.topics.moving import HandOverState, unlock
from offloader.metadata.layout import subscription_folder
from offloader.metadata.listing import partitions
from offloader.model import TopicName


@subscriptions.command("unlock")
@click.argument("topic", callback=TOPIC)
@click.argument("name", callback=SUBSCRIPTION)
@click.option("--brokers-are-gone", is_flag=True,
              help="Do not ask brokers: there are none any more, and none will come back.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do it. Without it this only says what would be done.")
@command()
def unlock_subscription(
    session: CommandSession, topic: TopicName, name: str, *, brokers_are_gone: bool, yes: bool
) -> int:
    """Serve a subscription here again that was handed over to the brokers.

    Of a partitioned topic that of each partition. It goes on where it stood when it was handed over: what was
    acknowledged at the brokers since is delivered again, and what retention of the archive has deleted meanwhile is
    not. Brokers are asked first: as long as they have a subscription of that name, it is refused. One that they have
    deleted needs no unlocking where a gateway with `gateway.atEnd: handOver` serves the topic, and begins anew there.

    \b
    JSON: one object a line: {message, topic, subscription, unlocked}.
    """
    known = [(one, _state(session, one, name)) for one in partitions(session.store, topic) or [topic]]
    locked = [(one, state) for one, state in known if state is not None]
    if not locked:
        raise FatalError(f"{topic}: subscription {name} is not handed over: there is nothing to unlock")
    for one, state in locked:
        if not brokers_are_gone:
            _check_brokers(session, one, name, state)
    for one, state in locked:
        if yes:
            _unlock(session, one, name)
        what = "is served here again" if yes else "would be served here again; nothing is changed without --yes"
        message = f"{one}: {name}, which {state.note}, {what}"
        session.output.line(message, {"message": message, "topic": str(one), "subscription": name, "unlocked": yes})
    return OK


def _state(session: CommandSession, topic: TopicName, name: str) -> HandOverState | None:
    """None: there is none, or it is not handed over."""
    kept = kept_subscription(session.store, topic, name)
    if kept is not None and kept.damage:
        raise DamagedRecordError(f"{topic}: {name} is damaged: {kept.damage}")
    return None if kept is None else HandOverState.of(kept.marker.properties)


def _check_brokers(session: CommandSession, topic: TopicName, name: str, state: HandOverState) -> None:
    """Raises FatalError where they have it, or may be about to get it."""
    if state.done_at is None:
        raise FatalError(
            f"{topic}: {name} {state.note}: a gateway with `gateway.atEnd: handOver` goes on with it once somebody "
            "subscribes; if the brokers are gone, say --brokers-are-gone"
        )
    try:
        there = session.subscriptions.look(topic, name)
    except TopicNotFoundError:
        return
    if there is not None:
        raise FatalError(
            f"{topic}: the brokers have subscription {name}, and its state: delete it there first, "
            "or consumers would be at two places"
        )


def _unlock(session: CommandSession, topic: TopicName, name: str) -> None:
    folder = subscription_folder(topic, name)
    unlock(DurableCursor.open(session.store, folder, None, session.dependencies.new_token))
