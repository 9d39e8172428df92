"""`offloader topics close-orphan-tail`: the last ledgers of a topic that no broker has loaded."""

from __future__ import annotations

import click

from offloader.bookkeeper.recovery.inspection import Options
from offloader.bookkeeper.recovery.machine import Aborted
from offloader.bookkeeper.recovery.report import fields, lines
from offloader.cli.ledgers import close_one, closing_options
from offloader.cli.parsing import TOPIC
from offloader.cli.session import ERROR, FINDINGS, OK, Session, command
from offloader.cli.topics import topics
from offloader.errors import LedgerNotFoundError, OffloadError, TopicNotFoundError
from offloader.model import TopicName

LAST = 2
"""A writer makes the next ledger before it closes the one before: the last two may be open."""


@topics.command("close-orphan-tail")
@click.argument("topic", callback=TOPIC)
@closing_options
@command()
def close_orphan_tail(
    session: Session, topic: TopicName, *, dry_run: bool, force: bool, timeout: int, trusted: tuple[str, ...]
) -> int:
    """Close the topic's last two ledgers where they are still open because their writer is gone.

    Until then their end is not offloaded, and none of them is retained or deleted. As `ledgers close` does it. A name without
    -partition-N means all partitions; what is refused or fails for one of them does not stop the others.

    \b
    JSON: one object a line, for each ledger: as of `ledgers close`, and topic.
    """
    options = Options(dry=dry_run, trusted=trusted, timeout=timeout / 1000)
    names = _existing(session, topic, options)
    if names == [topic]:
        return _close_tail(session, topic, options, force=force)
    codes = {_tried(session, name, options, force=force) for name in names}
    return ERROR if ERROR in codes else max(codes)


def _tried(session: Session, topic: TopicName, options: Options, *, force: bool) -> int:
    """What is refused, or fails, for one partition does not stop the others."""
    try:
        return _close_tail(session, topic, options, force=force)
    except OffloadError as error:
        click.echo(f"error: {topic}: {error}", err=True)
        return ERROR


def _close_tail(session: Session, topic: TopicName, options: Options, *, force: bool) -> int:
    store, _ = session.bookkeeper(options.timeout)
    listed = [one.ledger for one in store.managed_ledger(topic).ledgers]
    if not listed:
        session.output.line(f"{topic} has no ledgers", {"message": "no ledgers", "topic": str(topic)})
    for ledger in listed[-LAST:]:
        try:
            found, refused = close_one(session, ledger, options, force=force)
        except LedgerNotFoundError:  # offloaded by Pulsar itself, and deleted from BookKeeper: closed long since
            message = f"ledger {ledger} is gone from BookKeeper"
            session.output.line(f"{topic}: {message}", {"message": message, "topic": str(topic), "ledger": ledger})
            continue
        message = found.outcome.message
        details = (
            [] if found.versioned.metadata.closed else [*lines(found), *([f"would be refused: {refused}"] if refused else [])]
        )
        said = {"message": message, "topic": str(topic), **fields(found), "objection": refused}
        session.output.line("\n".join([*details, f"{topic}: {message}"]), said)
        if isinstance(found.outcome.phase, Aborted) or refused:
            return FINDINGS
    return OK


def _existing(session: Session, topic: TopicName, options: Options) -> list[TopicName]:
    """The topic, or its partitions. Raises TopicNotFoundError."""
    store, _ = session.bookkeeper(options.timeout)
    try:
        store.managed_ledger(topic)
    except TopicNotFoundError:
        found = [one for one in session.admin.topics(topic.namespace) if one.partitioned_name == str(topic)]
        if not found:
            raise
        return found
    return [topic]
