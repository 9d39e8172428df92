"""`offloader topics close-orphan-tail`: the last ledgers of a topic that no broker has loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import click

from offloader.bookkeeper.api import LedgerMetadataStore
from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.recovery.inspection import InspectionOptions
from offloader.bookkeeper.recovery.machine import Aborted
from offloader.bookkeeper.recovery.report import fields
from offloader.cli.command import ERROR, FINDINGS, OK, CommandSession, command
from offloader.cli.ledgers import check_members, close_one, closed_lines, closing_options
from offloader.cli.output import say_failed
from offloader.cli.parsing import TOPIC
from offloader.cli.topics import topics
from offloader.errors import DamagedRecordError, LedgerNotFoundError, OffloadError, TopicNotFoundError
from offloader.model import TopicName

LAST = 2
"""A writer makes the next ledger before it closes the one before: the last two may be open."""


@topics.command("close-orphan-tail")
@click.argument("topic", callback=TOPIC)
@closing_options
@command()
def close_orphan_tail(session: CommandSession, topic: TopicName, *, options: InspectionOptions, force: bool) -> int:
    """Close the topic's last two ledgers where they are still open because their writer is gone.

    Until then their end is not offloaded, and none of them is retained or deleted. As `ledgers close` does it. A name
    without -partition-N means all partitions; what is refused or fails for one of them does not stop the others.

    \b
    JSON: one object a line, for each ledger: as of `ledgers close`, and topic.
    """
    store, _ = session.bookkeeper(options.timeout)
    names = _existing(session, store, topic)
    if options.trusted:
        check_members("--trust", options.trusted, _metadata(store, names))
    if names == [topic]:
        return _close_tail(session, store, topic, options, force=force)
    codes = set()
    for name in names:
        try:
            codes.add(_close_tail(session, store, name, options, force=force))
        except OffloadError as error:
            say_failed(name, error)
            codes.add(ERROR)
    return ERROR if ERROR in codes else max(codes)


def _close_tail(
    session: CommandSession, store: LedgerMetadataStore, topic: TopicName, options: InspectionOptions, *, force: bool
) -> int:
    tail = _tail(store, topic)
    if not tail:
        session.output.line(f"{topic} has no ledgers", {"message": "no ledgers", "topic": str(topic)})
    for ledger in tail:
        try:
            found, refused = close_one(session, ledger, options, force=force)
        except LedgerNotFoundError:  # offloaded by Pulsar itself, and deleted from BookKeeper: closed long since
            message = f"ledger {ledger} is gone from BookKeeper"
            session.output.line(f"{topic}: {message}", {"message": message, "topic": str(topic), "ledger": ledger})
            continue
        message = found.outcome.message
        details = [] if found.versioned.metadata.closed else closed_lines(found, refused)
        facts = {"message": message, "topic": str(topic), **fields(found), "objection": refused}
        session.output.lines([*details, f"{topic}: {message}"], facts)
        if isinstance(found.outcome.phase, Aborted) or refused:
            return FINDINGS
    return OK


def _tail(store: LedgerMetadataStore, topic: TopicName) -> list[int]:
    return [one.ledger for one in store.managed_ledger(topic).ledgers][-LAST:]


def _metadata(store: LedgerMetadataStore, topics: Iterable[TopicName]) -> Iterator[LedgerMetadata]:
    """Of those ledgers that can be read: what is wrong with the others shows when they are to be closed."""
    for topic in topics:
        for ledger in _tail(store, topic):
            with suppress(LedgerNotFoundError, DamagedRecordError):
                yield store.read(ledger).metadata


def _existing(session: CommandSession, store: LedgerMetadataStore, topic: TopicName) -> list[TopicName]:
    """The topic, or its partitions. Raises TopicNotFoundError."""
    try:
        store.managed_ledger(topic)
    except TopicNotFoundError:
        found = [one for one in session.admin.topics(topic.namespace) if one.partitioned_name == str(topic)]
        if not found:
            raise
        return found
    return [topic]
